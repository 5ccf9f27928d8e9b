"""A real server process with the bundled model, used by real clients."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import openai
import pytest
import requests
from openai.types.chat import ChatCompletionUserMessageParam

ROOT = Path(__file__).parents[2]
START_S = 120
REPLY_S = 60
HI: list[ChatCompletionUserMessageParam] = [{"role": "user", "content": "Hello! Who are you?"}]

pytestmark = pytest.mark.slow


@dataclass
class ServerProcess:
    """`python -m ling3` in a folder and user folders of its own, so that only the bundled model can be found."""

    process: subprocess.Popen[str]
    port: int

    @classmethod
    def start(cls, folder: Path, port: int) -> ServerProcess:
        command = [sys.executable, "-m", "ling3", "--no-console", "--port", str(port)]
        home = {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "PYTHONPATH": str(ROOT)}
        with open(folder / "stderr", "w") as errors:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=os.environ | home,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("service_ready="):
                assert line == f"service_ready=http://127.0.0.1:{port}/v1\n"
                return cls(process, port)
        process.wait(START_S)
        pytest.fail(f"no server; its stderr: {(folder / 'stderr').read_text()}")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> int:
        """The exit code after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.communicate(timeout=REPLY_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
        return self.process.returncode


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = ServerProcess.start(tmp_path_factory.mktemp("server"), free_port())
    yield server
    assert server.stop() == 0


@pytest.fixture
def sdk(server: ServerProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0, timeout=REPLY_S) as client:
        yield client


def test_sdk_completion_counts_its_tokens(sdk: openai.OpenAI) -> None:
    model = sdk.models.list().data[0].id
    answer = sdk.chat.completions.create(model=model, messages=HI, max_tokens=8, temperature=0)
    assert answer.usage is not None
    assert 1 <= answer.usage.completion_tokens <= 8
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert answer.id.startswith("chatcmpl-")


def test_sdk_stream_says_what_the_whole_answer_says(sdk: openai.OpenAI) -> None:
    model = sdk.models.list().data[0].id
    whole = sdk.chat.completions.create(model=model, messages=HI, max_tokens=16, seed=7)
    stream = sdk.chat.completions.create(model=model, messages=HI, max_tokens=16, seed=7, stream=True)
    text = "".join(choice.delta.content or "" for chunk in stream for choice in chunk.choices)
    assert text == whole.choices[0].message.content


def test_sdk_hears_that_a_prompt_is_too_long(sdk: openai.OpenAI) -> None:
    model = sdk.models.list().data[0].id
    with pytest.raises(openai.BadRequestError) as refused:
        sdk.chat.completions.create(model=model, messages=[{"role": "user", "content": "word " * 20_000}])
    assert refused.value.code == "context_length_exceeded"


def test_requests_health_and_models(server: ServerProcess) -> None:
    health = requests.get(f"{server.url}/health", timeout=REPLY_S).json()
    models = requests.get(f"{server.url}/v1/models", timeout=REPLY_S).json()
    assert health["status"] == "ok"
    assert health["mindnano_integration_version"] == 5
    assert health["context_length"] == models["data"][0]["context_length"] == 4096


def test_requests_after_a_stream_was_left(server: ServerProcess) -> None:
    body = {"messages": HI, "stream": True, "max_tokens": 2000, "temperature": 2}
    url = f"{server.url}/v1/chat/completions"
    with requests.post(url, data=json.dumps(body), stream=True, timeout=REPLY_S) as stream:
        assert next(stream.iter_lines()).startswith(b"data: ")
    for _ in range(100):
        answer = requests.post(url, data=json.dumps({"messages": HI, "max_tokens": 2}), timeout=REPLY_S)
        if answer.status_code != 429:
            break
        time.sleep(0.1)
    assert answer.status_code == 200


def test_curl_streams(server: ServerProcess) -> None:
    program = shutil.which("curl")
    if program is None:
        pytest.skip("curl is not installed")
    body = json.dumps({"messages": HI, "stream": True, "max_tokens": 8})
    shown = subprocess.run(
        [program, "-sSN", "--max-time", str(REPLY_S), "-d", body, f"{server.url}/v1/chat/completions"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    events = shown.split("\n\n")
    assert json.loads(events[0].removeprefix("data: "))["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert json.loads(events[-3].removeprefix("data: "))["mindnano_metrics"]["finish_reason"] in ("stop", "length")
    assert events[-2:] == ["data: [DONE]", ""]


def test_f6_sigterm_ends_with_0_and_the_port_is_free_at_once(tmp_path: Path) -> None:
    first = ServerProcess.start(tmp_path, free_port())
    assert requests.get(f"{first.url}/health", timeout=REPLY_S).status_code == 200
    assert first.stop() == 0
    second = ServerProcess.start(tmp_path, first.port)
    assert second.stop() == 0
