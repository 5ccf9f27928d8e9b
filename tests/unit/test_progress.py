"""Progress on a terminal and elsewhere."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from ling3.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def run(stream: io.StringIO, steps: list[tuple[float, int]], total: int = 4_000_000_000) -> Callable[[], str]:
    """Advance at seconds since the start by counts; what was shown, after finishing."""
    clock = Clock()
    progress = Progress("convert", total, stream, clock)
    for second, count in steps:
        clock.now = 100.0 + second
        progress.advance(count)

    def finish() -> str:
        progress.finish()
        return stream.getvalue()

    return finish


def test_a_plain_line_every_ten_seconds_when_it_is_no_terminal() -> None:
    shown = io.StringIO()
    run(shown, [(1, 0), (9.9, 900_000_000), (10, 100_000_000), (15, 1_000_000_000), (25, 1_000_000_000)])
    assert shown.getvalue() == (
        "convert: 25%  1.00 GB of 4.00 GB  100 MB/s  0:30 left\nconvert: 75%  3.00 GB of 4.00 GB  120 MB/s  0:08 left\n"
    )


def test_the_whole_at_the_end() -> None:
    assert run(io.StringIO(), [(5, 2_000_000_000), (8, 2_000_000_000)])() == "convert: 4.00 GB in 0:08, 500 MB/s\n"


def test_a_bar_on_a_terminal() -> None:
    shown = Terminal()
    run(shown, [(0.05, 1), (4, 999_999_999)])
    line = shown.getvalue()
    assert line.startswith("\r\x1b[Kconvert [")
    assert line.count("\r") == 1
    assert line.count("#") * 3 == pytest.approx(line.count("."), abs=4)
    assert line.endswith("]  25%  1.00 GB of 4.00 GB  250 MB/s  0:12 left")


def test_a_bar_fits_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    shown = Terminal()
    run(shown, [(4, 1_000_000_000)])
    assert len(shown.getvalue().removeprefix("\r\x1b[K")) == 39


def test_the_bar_gives_way_to_the_last_line() -> None:
    shown = Terminal()
    assert run(shown, [(4, 4_000_000_000)])().endswith("\r\x1b[Kconvert: 4.00 GB in 0:04, 1000 MB/s\n")


def test_a_failure_ends_the_line_of_the_bar() -> None:
    shown = Terminal()
    progress = Progress("convert", 10, shown, Clock())
    progress.break_off()
    assert shown.getvalue() == "\n"


def test_starting_over_takes_progress_back() -> None:
    shown = io.StringIO()
    run(shown, [(1, 500_000_000), (2, -500_000_000), (20, 1_000_000_000)])
    assert shown.getvalue() == "convert: 25%  1.00 GB of 4.00 GB  50 MB/s  1:00 left\n"


def test_hours_are_written_as_hours() -> None:
    shown = io.StringIO()
    run(shown, [(3600, 1_000_000_000)])
    assert shown.getvalue().endswith("3:00:00 left\n")
