"""What standard input is, and the input mode of a terminal."""

from __future__ import annotations

import os
import stat
import termios
from contextlib import suppress
from typing import Literal

InputKind = Literal["terminal", "prompt", "none"]


def input_kind(fd: int) -> InputKind:
    """What to do with an input: chat on a terminal, take a pipe or file as one prompt, or nothing.

    A terminal that another job has in the foreground counts as none: reading it would stop the
    whole process (`ling3 &`). So do `/dev/null`, sockets and a closed descriptor, which is what
    service managers and containers give.
    """
    try:
        if os.isatty(fd):
            return "terminal" if _in_foreground(fd) else "none"
        mode = os.fstat(fd).st_mode
    except OSError:
        return "none"
    return "prompt" if stat.S_ISFIFO(mode) or stat.S_ISREG(mode) else "none"


def _in_foreground(fd: int) -> bool:
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:  # not our controlling terminal, so there is no job control on it
        return True


class TerminalMode:
    """The input mode of one terminal, as found and as the chat wants it.

    `quiet` holds whenever nobody edits a line: keys are not echoed into the model's text and wait,
    unbroken by line rules, for the next prompt; Ctrl-C stays a signal and drops what waits; Ctrl-S
    does not halt the output, and with it the engine.
    Every method may be called from any thread, and does nothing once the terminal is gone.
    """

    def __init__(self, fd: int) -> None:
        """`fd` must be a terminal (`termios.error` otherwise)."""
        self._fd = fd
        self._found = termios.tcgetattr(fd)
        self._quiet = termios.tcgetattr(fd)
        self._quiet[0] &= ~termios.IXON
        self._quiet[3] &= ~(termios.ECHO | termios.ICANON)
        self._quiet[3] |= termios.ISIG

    def quiet(self) -> None:
        self._set(self._quiet)

    def restore(self) -> None:
        """The mode as it was found: lines edited by the kernel, with echo."""
        self._set(self._found)

    def drop_input(self) -> None:
        """Forgets keys that were pressed but not read."""
        with suppress(termios.error):
            termios.tcflush(self._fd, termios.TCIFLUSH)

    def _set(self, mode: list[int | list[bytes | int]]) -> None:
        with suppress(termios.error):
            termios.tcsetattr(self._fd, termios.TCSADRAIN, mode)
