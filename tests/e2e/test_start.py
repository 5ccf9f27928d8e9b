"""The life of a real process: what it prints in which order, how it fails, how it ends (E-7, E-22 to E-24, E-117)."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from packages import tiny_package
from processes import PATIENCE_S, free_port, run, start, wait_until

from ling3.config import usage

slow = pytest.mark.slow


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_package(tmp_path_factory.mktemp("model") / "tiny.l3r", "w4")


# Questions and mistakes


def test_a_question_is_answered_at_once(tmp_path: Path) -> None:
    assert run(tmp_path, "--help") == (0, usage().encode() + b"\n", [])


@slow
def test_a_reader_that_leaves_is_no_reason_to_complain(tmp_path: Path) -> None:
    """`ling3 --help | head -0`"""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as nobody:
        assert run(tmp_path, "--help", stdout=nobody) == (1, b"", [])


@slow
def test_output_on_a_full_disk_is_a_start_error(tmp_path: Path) -> None:
    with open("/dev/full", "wb", buffering=0) as full:
        code, _, err = run(tmp_path, "--list-contexts", stdout=full)
    assert (code, err) == (1, ["startup_error: [Errno 28] No space left on device"])


@slow
def test_a_truncated_package_is_one_line_and_exit_code_1(tmp_path: Path, model: Path) -> None:
    (tmp_path / "half.l3r").write_bytes(model.read_bytes()[: model.stat().st_size // 2])
    arguments = ("--no-console", "--port", str(free_port()), "--model", "half.l3r")
    code, _, err = run(tmp_path, *arguments)
    assert code == 1
    assert [line.partition("=")[0].partition(":")[0] for line in err] == [
        "mla_backend", "notice", "memory_budget", "startup_error",
    ]  # fmt: skip
    assert re.match(r"startup_error: half\.l3r: truncated: tensor \S+ ends at byte \d+, the file at \d+$", err[-1])


# A server


@dataclass
class Life:
    """What was seen of one server from its start to its end."""

    port: int
    out: list[str] = field(default_factory=list)
    err: list[str] = field(default_factory=list)
    refused_while_loading: bool = False
    second: tuple[int, bytes, list[str]] = (0, b"", [])
    answers: list[dict[str, object]] = field(default_factory=list)
    last_stream: bytes = b""
    exit_code: int = -1
    seconds_to_exit: float = 0.0
    port_is_free: bool = False
    logged: list[dict[str, object]] = field(default_factory=list)


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Life:
    """Start, answer, meet a second server on the same port, answer again, be told to end during a long prefill."""
    folder = tmp_path_factory.mktemp("server")
    life = Life(free_port())
    arguments = ("--model", str(model), "--port", str(life.port), "--no-console", "--context", "64K")
    process = start(folder, *arguments)
    try:
        watch(process, life, folder, arguments)
    finally:
        process.kill()
    life.logged = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return life


def watch(process: subprocess.Popen[bytes], life: Life, folder: Path, arguments: tuple[str, ...]) -> None:
    errors = Lines(process, "stderr")
    lines = Lines(process, "stdout")
    wait_until(lambda: lines.has("initializing_model="))
    life.refused_while_loading = not accepts(life.port) or lines.has("service_ready=")
    wait_until(lambda: lines.has("service_ready=") or process.poll() is not None)
    life.answers.append(ask(life.port))
    life.second = run(folder, *arguments)
    life.answers.append(ask(life.port))
    life.last_stream, since = end_during_prefill(process, life.port)
    process.wait(PATIENCE_S)
    life.seconds_to_exit = time.monotonic() - since
    with socket.create_server(("127.0.0.1", life.port)):  # as a restarted server binds it
        life.port_is_free = True
    life.exit_code = process.returncode
    life.out, life.err = lines.all(), errors.all()


class Lines:
    """Collects what a process prints on one stream."""

    def __init__(self, process: subprocess.Popen[bytes], stream: str) -> None:
        self._lines: list[str] = []
        pipe = getattr(process, stream)

        def collect() -> None:
            with pipe:
                for line in pipe:
                    self._lines.append(line.decode().rstrip("\n"))

        self._thread = threading.Thread(target=collect, daemon=True)
        self._thread.start()

    def has(self, beginning: str) -> bool:
        return any(line.startswith(beginning) for line in self._lines)

    def all(self) -> list[str]:
        self._thread.join(PATIENCE_S)
        return self._lines


def accepts(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def request(port: int, **fields: object) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.request("POST", "/v1/chat/completions", json.dumps(fields))
    return connection.getresponse()


def ask(port: int) -> dict[str, object]:
    messages = [{"role": "user", "content": "hi"}]
    answer: dict[str, object] = json.loads(request(port, messages=messages, max_tokens=4, seed=1).read())
    return answer


def end_during_prefill(process: subprocess.Popen[bytes], port: int) -> tuple[bytes, float]:
    """What the client of a prompt that takes long still gets, and when the process was told to end."""
    response = request(port, messages=[{"role": "user", "content": "7" * 60_000}], stream=True)
    role = response.readline()  # is sent before prefill
    now = time.monotonic()
    process.send_signal(signal.SIGTERM)
    return role + response.read(), now


def names(lines: list[str]) -> list[str]:
    """The keys of lines. Kernels are compiled at the first start only."""
    keys = [re.split("[=:]", line, maxsplit=1)[0] for line in lines]
    return [key for key, line in zip(keys, lines, strict=True) if "kernels" not in line]


@slow
def test_the_lines_on_standard_output_in_their_order(life: Life) -> None:
    assert names(life.out) == [
        "device_check", "initializing_model", "weight_format", "weight_memory", "service_ready", "initialization_ms",
    ]  # fmt: skip
    assert life.out[-2] == f"service_ready=http://127.0.0.1:{life.port}/v1"
    pattern = r"initialization_ms=\d+ warmup_ms=\d+ context_length=65536 metrics_log=metrics\.jsonl"
    assert re.fullmatch(pattern, life.out[-1])


@slow
def test_the_lines_on_standard_error_in_their_order(life: Life) -> None:
    runs = ["reply_metrics", "reply_metrics", "request_info", "reply_metrics"]
    assert names(life.err) == ["mla_backend", "notice", "memory_budget", "notice", *runs]


@slow
def test_clients_are_refused_until_the_model_is_loaded(life: Life) -> None:  # E-23
    assert life.refused_while_loading


@slow
def test_a_second_server_on_the_port_fails_before_it_loads_and_the_first_goes_on(life: Life) -> None:  # E-23, H17
    code, out, err = life.second
    taken = f"startup_error: cannot bind 127.0.0.1:{life.port}: Address already in use; --port N takes another"
    assert (code, err[-1]) == (1, taken)
    assert b"initializing_model" not in out
    assert life.answers[0]["choices"] == life.answers[1]["choices"]


@slow
def test_a_signal_during_prefill_ends_it_with_an_error_frame_and_exit_code_0(life: Life) -> None:  # F6, F9, E-74
    events = [line for line in life.last_stream.split(b"\n") if line]
    assert (b"request_canceled" in events[-2], events[-1]) == (True, b"data: [DONE]")
    assert life.exit_code == 0
    assert life.seconds_to_exit < 20  # most of it the interpreter's own end, on a busy machine
    evaluated = life.logged[-1]["prompt_evaluated_tokens"]
    assert isinstance(evaluated, int) and evaluated < 30_000


@slow
def test_the_port_can_be_taken_again_at_once(life: Life) -> None:  # F6
    assert life.port_is_free


@slow
def test_the_runs_of_a_life_are_in_the_log(life: Life) -> None:
    assert [line["finish_reason"] for line in life.logged] == ["length", "length", "canceled"]


# Other ends


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A start whose package is never there: the opening of a pipe waits for its other end."""
    os.mkfifo(tmp_path / "pipe.l3r")
    process = start(tmp_path, "--no-console", "--port", str(free_port()), "--model", "pipe.l3r")
    yield process
    process.kill()
    process.communicate()


@slow
def test_a_second_ctrl_c_ends_a_start_that_hangs(hanging: subprocess.Popen[bytes]) -> None:  # F7
    assert hanging.stdout is not None
    while not hanging.stdout.readline().startswith(b"initializing_model="):
        assert hanging.poll() is None
    for _ in range(2):  # one Ctrl-C, that a launcher has passed on as well
        hanging.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert hanging.poll() is None
    wait_until(lambda: presses_ctrl_c(hanging))
    assert hanging.returncode == 1


def presses_ctrl_c(process: subprocess.Popen[bytes]) -> bool:
    """As a person does, who waits a moment; whether the process has ended."""
    time.sleep(0.7)
    process.send_signal(signal.SIGINT)
    return process.poll() is not None


@pytest.fixture
def piped(tmp_path: Path, model: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = start(tmp_path, "--model", str(model), stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


@slow
def test_a_piped_prompt_gets_its_answer_alone(piped: subprocess.Popen[bytes]) -> None:
    out, err = piped.communicate(b"hi\n", timeout=PATIENCE_S)
    assert (piped.returncode, names(err.decode().splitlines())) == (0, [])
    assert len(out.removesuffix(b"\n")) > 0
    assert not any(key in out for key in (b"device_check", b"weight_format", b"service_ready", b"reply_metrics"))


@slow
def test_a_signal_gives_up_an_input_that_never_ends(piped: subprocess.Popen[bytes]) -> None:
    wait_until(lambda: catches(piped.pid, signal.SIGTERM))
    piped.send_signal(signal.SIGTERM)
    assert piped.wait(PATIENCE_S) == 1


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)
