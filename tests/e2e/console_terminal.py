"""A process on a pseudo terminal, to be typed at and read."""

from __future__ import annotations

import codecs
import fcntl
import json
import os
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import ling3.console

APP = Path(__file__).with_name("console_app.py")
PACKAGE_ROOT = Path(ling3.console.__file__).parents[2]
PASTE_ON = "\x1b[?2004h"


def environment(**changes: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name != "LANG" and not name.startswith("LC_")}
    return inherited | {"PYTHONPATH": str(PACKAGE_ROOT), "TERM": "xterm", "LC_ALL": "C.UTF-8"} | changes


class Terminal:
    """A process on a pty of its own; `expect` reads on from where the last match ended."""

    def __init__(self, log: Path, face: str, env: dict[str, str], ignore_hangup: bool = False) -> None:
        self._log = log
        self._master, slave = os.openpty()
        self.resize(24, 80)
        self.found_mode = termios.tcgetattr(slave)
        self.slave = slave
        command = [sys.executable, str(APP), face, str(log)]
        if ignore_hangup:
            command = ["sh", "-c", "trap '' HUP; exec \"$@\"", "sh", *command]
        self.process = subprocess.Popen(
            command,
            stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True,
        )  # fmt: skip
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._unread = ""
        self.transcript = ""

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def expect(self, wanted: str, seconds: float = 30) -> str:
        """Reads until `wanted` was shown; what came before it."""
        deadline = time.monotonic() + seconds
        while wanted not in self._unread:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._master], [], [], left)[0]:
                raise AssertionError(f"no {wanted!r} in {self._unread!r}; transcript {self.transcript!r}")
            part = self._decoder.decode(os.read(self._master, 1 << 16))
            self._unread += part
            self.transcript += part
        before, _, self._unread = self._unread.partition(wanted)
        return before

    def ask(self, text: str) -> str:
        """Sends a message from the prompt; what was shown until the next prompt."""
        self.type(f"{text}\r")
        return self.expect(PASTE_ON)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def requests(self) -> list[list[dict[str, Any]]]:
        return [json.loads(line) for line in self._log.read_text("utf-8").splitlines()]

    def ends(self) -> int:
        return self.process.wait(10)

    def forget(self) -> None:
        self._log.write_text("")
        self._unread = self.transcript = ""

    def hang_up(self) -> None:
        os.close(self.slave)
        os.close(self._master)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.hang_up()


class Pool:
    """Chats that stand at an empty prompt with an empty history: starting one takes a second of processor time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._idle: dict[str, Terminal] = {}
        self._opened: list[Terminal] = []

    def start(self, face: str = "full", **env: str) -> Terminal:
        log = self._folder / f"requests-{len(self._opened)}.jsonl"
        self._opened.append(Terminal(log, face, environment(**env)))
        return self._opened[-1]

    def take(self, face: str) -> Terminal:
        if face in self._idle:
            return self._idle.pop(face)
        terminal = self.start(face)
        terminal.expect(PASTE_ON)
        return terminal

    def give_back(self, face: str, terminal: Terminal) -> None:
        terminal.ask("/reset")
        terminal.forget()
        self._idle[face] = terminal

    def close(self) -> None:
        for terminal in self._opened:
            terminal.close()
