"""The command in this process, as far as it goes without a model: lines, their order, exit codes (E-7, E-16, E-22)."""

from __future__ import annotations

import platform
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from packages import tiny_package

from ling3 import __version__, cli
from ling3.check import Check, Host
from ling3.config import list_contexts, usage

Call = Callable[..., tuple[int, list[str], list[str]]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Call]:
    """Run `ling3` in an empty folder: exit code, lines on stdout, lines on stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr("ling3.serve.Server.serve", lambda *_: pytest.fail("a server was started"))
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)}

    def run(*arguments: str) -> tuple[int, list[str], list[str]]:
        code = cli.main(arguments)
        written = capsys.readouterr()
        return code, written.out.splitlines(), written.err.splitlines()

    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


@pytest.fixture
def start(call: Call, free_port: str) -> Call:
    """A start that goes on until the package is opened, and finds none."""

    def run(*arguments: str) -> tuple[int, list[str], list[str]]:
        return call("--no-console", "--port", free_port, "--model", "none.l3r", *arguments)

    return run


MISSING = "startup_error: none.l3r: No such file or directory"


# Answers without a start


@pytest.mark.parametrize(
    ("arguments", "text"),
    [(["--help"], usage()), (["--version"], f"ling3 {__version__}"), (["--list-contexts"], list_contexts())],
)
def test_questions_are_answered_on_standard_output(call: Call, arguments: list[str], text: str) -> None:
    assert call(*arguments) == (0, text.splitlines(), [])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--bogus"], "startup_error: unknown option --bogus; ling3 --help lists them"),
        (["--port"], "startup_error: option --port needs a value (N)"),
        (["inspect"], "startup_error: the following arguments are required: PACKAGE (see ling3 inspect --help)"),
        (["inspect", "none.l3r"], MISSING),
        (["convert", "a", "b", "--weights", "w2"], "startup_error: argument --weights: invalid choice: 'w2'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_1(call: Call, arguments: list[str], message: str) -> None:  # E-10
    code, out, err = call(*arguments)
    assert (code, out, len(err)) == (1, [], 1)
    assert err[0].startswith(message)


# A start up to the package


def test_the_lines_before_the_package_is_opened(start: Call) -> None:
    code, out, err = start()
    assert [line.partition("=")[0] for line in out] == ["device_check", "initializing_model"]
    assert out[1] == "initializing_model=none.l3r"
    assert [line.partition("=")[0].partition(":")[0] for line in err] == [
        "mla_backend", "notice", "memory_budget", "startup_error",
    ]  # fmt: skip
    assert err[0] == "mla_backend=auto tile=512 shared_by_six_layers=1"
    assert (code, err[-1]) == (1, MISSING)


def test_a_failed_start_leaves_no_file(start: Call, tmp_path: Path) -> None:
    start()
    assert list(tmp_path.iterdir()) == []


def test_a_machine_that_is_no_board_is_told_in_one_line(start: Call) -> None:  # D-1
    _, out, err = start()
    machine = platform.machine()
    assert f"notice: no RK3588 here; ling3 computes on the CPU of this {machine} machine" in err
    assert orjson.loads(out[0].removeprefix("device_check="))["npu"] == "absent"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2"])
def test_a_port_that_is_taken_fails_before_the_package_is_opened(call: Call, host: str) -> None:  # E-23
    with socket.create_server((host, 0)) as server:
        taken = server.getsockname()[1]
        code, out, err = call("--no-console", "--host", host, "--port", str(taken), "--model", "none.l3r")
    reason = "Address already in use; --port N takes another"
    assert (code, err[-1]) == (1, f"startup_error: cannot bind {host}:{taken}: {reason}")
    assert [line.partition("=")[0] for line in out] == ["device_check"]


@pytest.mark.parametrize("host", ["localhost", "256.0.0.1", "::1", "", "127.1"])
def test_a_host_that_is_no_address_is_named(start: Call, host: str) -> None:
    code, _, err = start("--host", host)
    assert (code, err[-1]) == (1, f"startup_error: --host: {host!r} is not a dotted IPv4 address such as 127.0.0.1")


def test_an_address_of_another_machine_is_refused_by_the_system(start: Call) -> None:
    assert start("--host", "203.0.113.1")[2][-1].endswith(": Cannot assign requested address")


def test_without_a_package_the_bundled_one_is_taken_with_a_notice(
    call: Call, free_port: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cli, "BUNDLED", tmp_path / "bundled.l3r")
    _, out, err = call("--no-console", "--port", free_port)
    assert out[-1] == f"initializing_model={tmp_path / 'bundled.l3r'}"
    notice = "notice: no model found, using the bundled demonstration model; --model FILE loads another"
    assert err.count(notice) == 1


# Packages


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "0 bytes are too short for a safetensors file"),
        (b"GGUF" + bytes(100), "not a safetensors file (no header at its start)"),
        (b"<!DOCTYPE html><html>", "not a safetensors file (no header at its start)"),
        ((200).to_bytes(8, "little") + b'{"a":1', "14 bytes are too short for a safetensors file"),
        ((100).to_bytes(8, "little") + b'{"__metadata__":{}}', "truncated in its header, 27 of at least 108 bytes"),
        ((19).to_bytes(8, "little") + b'{"__metadata__":{}}', "not a ling3 package"),
        ((7).to_bytes(8, "little") + b'{"a":1}' + bytes(9), "tensor a is not described properly"),
    ],
)
def test_a_file_that_is_no_package_is_refused_by_name(
    call: Call, free_port: str, tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "model.l3r").write_bytes(content)
    assert_refused(call, free_port, "model.l3r", message)


def test_a_folder_is_no_package(call: Call, free_port: str) -> None:
    assert_refused(call, free_port, ".", "Is a directory")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return tiny_package(tmp_path_factory.mktemp("package") / "tiny.l3r", "w4").read_bytes()


@pytest.mark.parametrize(
    ("written", "instead", "message"),
    [
        (b'"l3r/1"', b'"l3r/9"', "'l3r/9'"),
        (b'"layers.0.kda.a_log"', b'"layers.0.kda.a_lag"', "tensor layers.0.kda.a_log is missing"),
        (b'"tokenizer.json":{', b'"tokeniser.json":{', "tensor tokenizer.json is missing"),
        (rb'"kda_lower_bound\":-5.0', rb'"kda_lower_bound\":+5.0', "config is not JSON"),
        (rb'"num_experts\":8', rb'"num_experts\":9', "num_experts"),
        (rb'"hidden_size\":64', rb'"hidden_size\":96', "tensor embedding.w8"),
        (b'{"version":"1.0"', b'["version":"1.0"', "tokenizer.json: not JSON"),
        (b"eos_token_id", b"eos_token_is", "eos_token_id is missing"),
        (b"{%- if tools -%}", b"{%- oh tools -%}", "chat template: line"),
    ],
)
def test_a_package_that_is_damaged_is_refused_by_what_is_wrong(
    call: Call, free_port: str, tmp_path: Path, package: bytes, written: bytes, instead: bytes, message: str
) -> None:
    assert len(written) == len(instead)
    assert written in package
    (tmp_path / "model.l3r").write_bytes(package.replace(written, instead))
    assert_refused(call, free_port, "model.l3r", message)


def assert_refused(call: Call, free_port: str, model: str, message: str) -> None:
    code, out, err = call("--no-console", "--port", free_port, "--model", model)
    assert (code, err[:-1]) == (1, [line for line in err if not line.startswith("startup_error: ")])
    assert message in err[-1]
    assert out[-1] == f"initializing_model={model}"


def test_a_log_that_cannot_be_written_ends_the_start(
    call: Call, free_port: str, tmp_path: Path, package: bytes
) -> None:  # E-8
    (tmp_path / "model.l3r").write_bytes(package)
    code, _, err = call("--no-console", "--port", free_port, "--model", "model.l3r", "--log", "none/log")
    assert (code, err[-1]) == (1, "startup_error: --log: cannot open none/log: No such file or directory")


# Memory


def set_available(monkeypatch: pytest.MonkeyPatch, mib: float) -> None:
    monkeypatch.setattr(cli, "memory_mib", lambda: {"available_memory_mib": mib})


def budget_of(err: list[str]) -> dict[str, Any]:
    line = next(line for line in err if line.startswith("memory_budget="))
    budget: dict[str, Any] = orjson.loads(line.removeprefix("memory_budget="))
    return budget


def test_the_members_of_the_memory_budget(start: Call, monkeypatch: pytest.MonkeyPatch) -> None:  # E-40
    set_available(monkeypatch, 99_999.5)
    budget = budget_of(start("--context", "8K")[2])
    estimate = budget.pop("estimated_model_rss_mib")
    assert budget.pop("suggested_available_mib") == estimate + 1536
    assert budget == {
        "context_length": 8192, "policy": "warn_only", "estimate_basis": "full_w4_package", "reserve_mib": 1536,
        "available_memory_mib": 99_999.5, "below_estimate": False,
    }  # fmt: skip


@pytest.mark.parametrize(("missing", "warned"), [(0, False), (1, True)])
def test_too_little_memory_is_a_warning_with_both_numbers(
    start: Call, monkeypatch: pytest.MonkeyPatch, missing: int, warned: bool
) -> None:  # E-41
    set_available(monkeypatch, 0.0)
    suggested = budget_of(start()[2])["suggested_available_mib"]
    set_available(monkeypatch, suggested - missing)
    err = start()[2]
    warnings = [line for line in err if line.startswith("memory_warning: ")]
    assert [budget_of(err)["below_estimate"], bool(warnings)] == [warned, warned]
    if warned:
        assert f"{suggested:.0f} MiB" in warnings[0] and f"{suggested - 1:.0f} MiB" in warnings[0]
        assert "start-up continues" in warnings[0]


@pytest.mark.parametrize(
    ("context", "warning", "notice"), [("4K", 0, 0), ("8K", 0, 1), ("128K", 0, 1), ("256K", 1, 1)]
)
def test_long_contexts_are_remarked_on(start: Call, context: str, warning: int, notice: int) -> None:
    err = start("--context", context)[2]
    assert sum(line.startswith("context_warning: ") for line in err) == warning
    assert sum(line == "notice: contexts above 4K have no long-context qualification" for line in err) == notice


# Machines


def found(board: bool, *outcomes: str) -> Host:
    """A machine whose checks came out like this."""
    checks = [Check(f"check{n}", outcome, f"detail {n}") for n, outcome in enumerate(outcomes)]  # type: ignore[arg-type]
    return Host("aarch64", board, 16000.0, tuple(checks))


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[[Host], SimpleNamespace]:
    """Make this machine look like another one; tells whether the big cores were taken."""

    def arrange(host: Host) -> SimpleNamespace:
        seen = SimpleNamespace(pinned=False)
        monkeypatch.setattr(cli, "inspect_host", lambda: host)
        monkeypatch.setattr(cli, "raise_fd_limit", lambda: Check("open_files", "warning", "few"))
        monkeypatch.setattr(cli, "use_big_cores", lambda: setattr(seen, "pinned", True))
        return seen

    return arrange


On = Callable[[Host], SimpleNamespace]


def test_a_check_prints_everything_and_names_the_first_failure(call: Call, on: On, tmp_path: Path) -> None:  # D-1
    on(found(True, "passed", "warning", "failed", "failed"))
    code, out, err = call("--check")
    assert out == [
        "passed   check0: detail 0",
        "warning  check1: detail 1",
        "failed   check2: detail 2",
        "failed   check3: detail 3",
        "warning  open_files: few",
    ]
    assert (code, err[1:]) == (1, ["startup_error: check2: detail 2"])
    assert list(tmp_path.iterdir()) == []


def test_a_check_with_warnings_alone_passes_and_reports_the_board(call: Call, on: On) -> None:  # E-16
    on(found(True, "passed", "warning"))
    code, out, err = call("--check", "--context", "256K", "--port", "1")
    assert (code, [line.partition("=")[0] for line in out[3:]]) == (0, ["device_check"])
    assert err == ["mla_backend=auto tile=512 shared_by_six_layers=1"]


def test_a_check_of_this_machine_says_what_it_is(call: Call) -> None:
    code, out, err = call("--check")
    assert (code, err[-1].partition(":")[0]) == (1, "startup_error")
    assert [line.split()[1] for line in out] == ["soc:", "memory:", "npu_driver:", "npu_runtime:", "open_files:"]


@pytest.mark.parametrize(
    ("backend", "notices"), [("auto", ["notice: detail 1; ling3 computes on the CPU"]), ("cpu", [])]
)
def test_a_board_without_a_usable_npu_computes_on_its_big_cores(
    start: Call, on: On, backend: str, notices: list[str]
) -> None:
    seen = on(found(True, "passed", "failed"))
    code, _, err = start("--backend", backend)
    assert (code, err[-1]) == (1, MISSING)
    assert [line for line in err if line.startswith("notice: ")] == notices
    assert seen.pinned


@pytest.mark.parametrize("option", ["--backend", "--mla-backend"])
@pytest.mark.parametrize("board", [True, False])
def test_who_demands_the_npu_gets_no_fallback(start: Call, on: On, option: str, board: bool) -> None:  # D-1
    on(found(board, "passed", "failed"))
    code, out, err = start(option, "npu")
    assert (code, out, err[-1]) == (1, [], f"startup_error: {option} npu: check1: detail 1")


def test_big_cores_that_are_refused_end_the_start(start: Call, on: On, monkeypatch: pytest.MonkeyPatch) -> None:
    on(found(True, "passed", "failed"))

    def refuse() -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(cli, "use_big_cores", refuse)
    code, _, err = start()
    assert (code, err[-1]) == (1, "startup_error: cannot use CPUs 4-7 alone: Invalid argument")  # E-29


def test_other_machines_keep_all_their_cores(start: Call, on: On) -> None:
    seen = on(found(False, "failed"))
    start()
    assert not seen.pinned
