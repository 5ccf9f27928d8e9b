"""A folder of `save_pretrained`, converted with every format of weights, answers over HTTP."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import requests
from configurations import CONFIGURATIONS
from networks import build, save
from packages import byte_tokenizer_json

from ling3.convert import convert
from ling3.convert.recipe import WEIGHTS, Weights
from ling3.engine import Engine, MetricsLog
from ling3.model import Decoder, Package
from ling3.serve import Server, Service
from ling3.serve.ports import HealthSource
from ling3.text import ChatText

pytestmark = pytest.mark.reference


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    configuration = CONFIGURATIONS["real_head_widths"]
    path = tmp_path_factory.mktemp("served") / "source"
    save(build(configuration), configuration, path)
    (path / "tokenizer.json").write_bytes(byte_tokenizer_json())
    return path


@pytest.mark.parametrize("weights", WEIGHTS)
def test_a_converted_folder_answers(weights: Weights, folder: Path, tmp_path: Path) -> None:
    convert(folder, tmp_path / "model.l3r", weights=weights)
    package = Package.open(tmp_path / "model.l3r")
    text = ChatText(package.tokenizer_json, package.chat_template, package.eos_token_ids, package.geometry.vocab_size)
    log = MetricsLog(tmp_path / "metrics.jsonl", None)
    engine = Engine(Decoder(package, 512), text, package.generation, "converted", log)
    answer = _ask(engine, {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "seed": 1})
    log.close()
    assert answer["model"] == "converted"
    assert 1 <= answer["usage"]["completion_tokens"] <= 5


def _ask(engine: Engine, body: dict[str, Any]) -> dict[str, Any]:
    quit_flag = threading.Event()
    with Server() as server:
        server.bind("127.0.0.1", 0)
        server.listen()
        service = Service(engine, cast(HealthSource, SimpleNamespace()))
        thread = threading.Thread(target=server.serve, args=(service, quit_flag))
        thread.start()
        try:
            reply = requests.post(f"{server.base_url}/chat/completions", json=body, timeout=60)
            reply.raise_for_status()
        finally:
            quit_flag.set()
            thread.join()
    answer: dict[str, Any] = reply.json()
    return answer
