"""How the chat gets its next message, and the editor that needs nothing but the kernel."""

from __future__ import annotations

import os
import re
import select
from typing import Protocol

from ling3.console.screen import Screen, without_controls
from ling3.console.terminal import TerminalMode

PROMPT = "> "


class InterruptedLine(Exception):
    """Ctrl-C at the prompt: what was typed is gone."""


class EditorClosed(Exception):
    """`close` was called: there is no next message."""


class LineTooLong(Exception):
    """A line above `LINE_LIMIT` bytes: the terminal has cut it."""


class Editor(Protocol):
    """Reads messages from a terminal. `read` runs on the console's thread, the rest on any."""

    def read(self) -> str:
        """One message, maybe of several lines. EOFError: end of input on an empty line.

        Raises InterruptedLine, EditorClosed, LineTooLong.
        """

    def interrupt(self) -> None:
        """Makes the current or next `read` raise InterruptedLine. Safe in a signal handler."""

    def close(self) -> None:
        """Makes the current and every further `read` raise EditorClosed."""

    def answer_ended(self, *, cancelled: bool) -> None:
        """Called between an answer and the next `read`: decides what becomes of keys pressed meanwhile."""


_KEY_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[@-~])")


def typed_text(text: str) -> str:
    """What a user meant: key sequences and controls dropped, undecodable bytes (surrogates) replaced."""
    meant = without_controls(_KEY_SEQUENCE.sub("", text))
    return meant.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


_PASTE_BEGIN, _PASTE_END = b"\x1b[200~", b"\x1b[201~"
_POLL_MS = 100

# Of a longer line Linux keeps 4095 bytes and its end, and drops the rest in silence.
LINE_LIMIT = 4094


class PlainEditor:
    """Lines as the kernel edits them, for when prompt_toolkit is missing or the terminal is dumb.

    A bracketed paste is still one message. Lost are: moving inside the text, editing a line above,
    the history of prompts, Esc (use Ctrl-U or Ctrl-C), what is typed while the model talks, and
    lines above 4094 bytes, which are refused; a paste shows its markers as `^[[200~`. `input()`
    with readline has more of these, but off the main thread nothing can interrupt or end it.
    """

    def __init__(
        self, fd: int, mode: TerminalMode, screen: Screen, *, encoding: str = "utf-8", bracketed_paste: bool = True
    ) -> None:
        self._fd = fd
        self._mode = mode
        self._screen = screen
        self._encoding = encoding
        self._paste_on, self._paste_off = ("\x1b[?2004h", "\x1b[?2004l") if bracketed_paste else ("", "")
        self._interrupted = False
        self._closed = False

    def read(self) -> str:
        self._mode.restore()
        self._screen.send(self._paste_on + PROMPT)
        end = "\n"
        try:
            text = self._read_message()
            end = ""  # the kernel has echoed Enter
            return text
        finally:
            self._screen.send(self._paste_off + end)
            self._mode.quiet()

    def interrupt(self) -> None:
        self._interrupted = True

    def close(self) -> None:
        self._closed = True

    def answer_ended(self, *, cancelled: bool) -> None:
        self._mode.drop_input()  # it was not echoed, and what is not seen must not be sent

    def _read_message(self) -> str:
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        raw = b""
        while not _is_complete(raw):
            if self._closed:
                raise EditorClosed
            if self._interrupted:
                self._interrupted = False
                raise InterruptedLine
            for _, events in poll.poll(_POLL_MS):
                part = os.read(self._fd, 1 << 16) if events & select.POLLIN else b""
                if not part and (not raw or events & ~select.POLLIN):  # Ctrl-D, or hung up
                    raise EOFError
                raw += part
        if any(len(line) > LINE_LIMIT for line in raw.split(b"\n")):
            raise LineTooLong
        text = raw.replace(_PASTE_BEGIN, b"").replace(_PASTE_END, b"").removesuffix(b"\n")
        return typed_text(text.decode(self._encoding, "surrogateescape"))


def _is_complete(raw: bytes) -> bool:
    """Whether the bytes end a line outside of a paste."""
    return raw.endswith(b"\n") and raw.rfind(_PASTE_BEGIN) <= raw.rfind(_PASTE_END)
