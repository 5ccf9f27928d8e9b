"""Where figures come from, and the file they go to (E-3, E-112 to E-114)."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from ling3.engine.metrics import MetricsLog, RunClock, memory_mib, read_kb
from ling3.errors import StartError


@pytest.mark.parametrize(
    ("text", "kb"),
    [
        ("MemTotal:       16315340 kB\nMemFree: 1 kB\n", 16315340),
        ("MemFree: 1 kB\nMemTotal:\t7 kB\n", 7),
        ("MemTotal: 1 kB\nMemTotal: 2 kB\n", 1),
        ("XMemTotal: 1 kB\n", 0),
        ("MemTotal 5 kB\n", 0),
        ("MemTotal:\n", 0),
        ("MemTotal: many kB\n", 0),
        ("", 0),
    ],
)
def test_a_field_is_the_number_after_its_name(tmp_path: Path, text: str, kb: int) -> None:
    (tmp_path / "meminfo").write_text(text)
    assert read_kb(tmp_path / "meminfo", "MemTotal:") == kb


def test_a_file_that_is_missing_counts_as_zero(tmp_path: Path) -> None:
    assert read_kb(tmp_path / "meminfo", "MemTotal:") == 0


def test_memory_is_told_in_mib(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/status").write_text("Name:\tling3\nVmHWM:\t 4096 kB\nVmRSS:\t 2048 kB\nVmSwap:\t 512 kB\n")
    (tmp_path / "proc/meminfo").write_text("MemTotal: 10240 kB\nMemAvailable: 5120 kB\n")
    assert memory_mib(tmp_path) == {
        "rss_mib": 2.0, "peak_rss_mib": 4.0, "swap_mib": 0.5, "available_memory_mib": 5.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("cached", "details"), [(None, {}), (0, {"prompt_tokens_details": {"cached_tokens": 0}})]
)
def test_usage(cached: int | None, details: dict[str, object]) -> None:
    clock = RunClock(prompt_tokens=7)
    clock.sampled()
    clock.sampled()
    assert clock.usage(cached) == {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9, **details}


def test_one_token_takes_no_decode_time() -> None:
    clock = RunClock(prompt_tokens=7)
    clock.sampled()
    figures = clock.figures()
    assert (figures["decode_ms"], figures["decode_tokens_per_second"]) == (0.0, 0.0)


# The log


def test_each_line_is_on_disk_at_once_after_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"n":0}\n')
    log = MetricsLog(path, None)
    for n, content in ((1, '{"n":0}\n{"n":1}\n'), (2, '{"n":0}\n{"n":1}\n{"n":2}\n')):
        log.write({"n": n})
        assert path.read_text() == content
    log.close()


def test_a_line_is_echoed_for_the_operator(tmp_path: Path) -> None:
    echo = io.StringIO()
    log = MetricsLog(tmp_path / "metrics.jsonl", echo)
    log.write({"n": 1})
    log.note("request_info: something")
    log.close()
    assert echo.getvalue() == 'reply_metrics={"n":1}\nrequest_info: something\n'


@pytest.mark.parametrize(
    ("name", "reason"), [("missing/metrics.jsonl", "No such file or directory"), (".", "Is a directory")]
)
def test_a_log_that_cannot_be_opened_is_a_start_error_with_its_path(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(StartError) as caught:
        MetricsLog(tmp_path / name, None)
    assert str(caught.value) == f"--log: cannot open {tmp_path / name}: {reason}"


class Disk(io.RawIOBase):
    """Takes `free` bytes, then is full."""

    def __init__(self) -> None:
        self.free = 0
        self.content = b""

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        if not self.free:
            raise OSError(28, os.strerror(28))
        taken = data[: self.free]
        self.free -= len(taken)
        self.content += taken
        return len(taken)


def test_a_disk_that_fills_up_costs_only_the_lines_that_do_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, echo = Disk(), io.StringIO()
    monkeypatch.setattr(Path, "open", lambda self, mode, buffering: disk)
    log = MetricsLog(tmp_path / "metrics.jsonl", echo)
    for n, free in ((1, 1000), (2, 3), (3, 0), (4, 1000), (5, 1000)):
        disk.free = free
        log.write({"n": n})
    assert disk.content.splitlines() == [b'{"n":1}', b'{"n', b'{"n":4}', b'{"n":5}']
    assert echo.getvalue().count("request_warning: metrics log: No space left on device") == 2


def test_an_echo_that_nobody_reads_is_given_up(tmp_path: Path) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    log = MetricsLog(tmp_path / "metrics.jsonl", Gone())
    log.note("request_info: something")
    log.write({"n": 1})
    log.close()
    assert (tmp_path / "metrics.jsonl").read_text() == '{"n":1}\n'
