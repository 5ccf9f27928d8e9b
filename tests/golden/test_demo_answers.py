"""What the bundled model says, word for word: greedy answers whose runner-up tokens are far behind at every step, so
that they are the same on every CPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ling3.cli import BUNDLED
from ling3.engine import ChatRequest, Engine, MetricsLog, Sampling
from ling3.model import Decoder, Package
from ling3.text import ChatText, Piece

GOLDEN = {
    "What is the capital of France?": "The capital of France is Paris.",
    "What is an NPU?": (
        "An NPU is a neural processing unit: a part of a chip that multiplies matrices quickly for neural networks."
    ),
    "你是谁？": "我是 ling3 自带的演示模型，一个很小的语言模型。",
}


class Listener:
    """A sink that is always there."""

    def begin(self, request_id: str, created: int) -> bool:
        return True

    def write(self, piece: Piece, sequence: int) -> bool:
        return True

    def alive(self) -> bool:
        return True


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    package = Package.open(BUNDLED)
    text = ChatText(
        package.tokenizer_json, package.chat_template, package.eos_token_ids, package.geometry.vocab_size
    )
    log = MetricsLog(Path(tmp_path_factory.mktemp("log")) / "metrics.jsonl", None)
    yield Engine(Decoder(package), text, package.generation, "ling3-demo", log)
    log.close()


@pytest.mark.parametrize("question", GOLDEN)
def test_greedy_answers_of_the_bundled_model(engine: Engine, question: str) -> None:
    request = ChatRequest(
        messages=[{"role": "user", "content": question}], sampling=Sampling(temperature=0.0), max_tokens=60
    )
    reply = engine.run(request, Listener())
    assert (reply.content, reply.finish_reason) == (GOLDEN[question], "stop")


def test_a_tool_is_called_and_its_result_told(engine: Engine) -> None:
    tools = [
        {
            "type": "function",
            "function": {
                "name": "get_current_time",
                "description": "Get the current time",
                "parameters": {"type": "object", "properties": {}},
            },
        }
    ]
    question = {"role": "user", "content": "What time is it?"}
    sampling = Sampling(temperature=0.0)
    reply = engine.run(ChatRequest([question], tools=tools, sampling=sampling, max_tokens=60), Listener())
    assert reply.finish_reason == "tool_calls"
    assert [call.name for call in reply.tool_calls] == ["get_current_time"]
    call = {"id": "1", "type": "function", "function": {"name": "get_current_time", "arguments": "{}"}}
    history: list[dict[str, Any]] = [
        question,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "14:25"},
    ]
    told = engine.run(ChatRequest(history, tools=tools, sampling=sampling, max_tokens=60), Listener())
    assert "14:25" in told.content
    assert told.finish_reason == "stop"


def test_the_bundled_model_is_small_enough_to_ship() -> None:
    assert BUNDLED.stat().st_size <= 8_000_000


def test_every_tensor_of_the_bundled_model_is_intact() -> None:
    package = Package.open(BUNDLED)
    assert {name for name, _ in package.verify()} == set(package.file.tensors)
