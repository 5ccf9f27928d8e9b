"""Progress of a long run over bytes: a bar on a terminal, else a plain line every ten seconds."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from typing import TextIO

_BAR_SECONDS, _LINE_SECONDS = 0.1, 10.0


class Progress:
    """Shows how much of `total` bytes is done, the speed in MB/s and the time left.

    `stream`: standard error if None. Not for several threads. `finish` leaves one last line with the whole.
    """

    def __init__(
        self, label: str, total: int, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._label = label
        self._total = total
        self._stream = stream or sys.stderr
        self._clock = clock
        self._bar = self._stream.isatty()
        self._done = 0
        self._start = self._shown = clock()

    def advance(self, count: int) -> None:
        """`count` more bytes are done; negative when work starts over."""
        self._done += count
        now = self._clock()
        if now - self._shown >= (_BAR_SECONDS if self._bar else _LINE_SECONDS):
            self._shown = now
            self._show(now)

    def finish(self) -> None:
        """Everything is done."""
        seconds = self._clock() - self._start
        text = f"{self._label}: {_size(self._done)} in {_duration(seconds)}, {_speed(self._done, seconds)}"
        self._stream.write(f"\r\x1b[K{text}\n" if self._bar else f"{text}\n")
        self._stream.flush()

    def break_off(self) -> None:
        """The run failed: leave the line of the bar."""
        if self._bar:
            self._stream.write("\n")
            self._stream.flush()

    def _show(self, now: float) -> None:
        seconds = now - self._start
        share = min(1.0, self._done / self._total) if self._total else 1.0
        left = _duration(seconds / share * (1.0 - share)) if share > 0.0 else "?"
        done = f"{int(share * 100):3}%  {_size(self._done)} of {_size(self._total)}"
        figures = f"{done}  {_speed(self._done, seconds)}  {left} left"
        if not self._bar:
            self._stream.write(f"{self._label}: {figures.strip()}\n")
        else:
            columns = shutil.get_terminal_size().columns
            room = max(0, min(40, columns - len(self._label) - len(figures) - 6))
            filled = round(room * share)
            line = f"{self._label} [{'#' * filled}{'.' * (room - filled)}] {figures}"
            self._stream.write(f"\r\x1b[K{line[: columns - 1]}")
        self._stream.flush()


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def _speed(count: int, seconds: float) -> str:
    return f"{count / 1e6 / max(seconds, 1e-3):.0f} MB/s"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"
