"""Standard input that is no terminal: all of it is one question, the answer is plain text."""

from __future__ import annotations

import logging
import os
import select
import sys
from contextlib import suppress
from typing import TextIO

from ling3.console.answer import AnswerPrinter, ChatEngine
from ling3.console.screen import Screen
from ling3.console.texts import Texts, choose_texts
from ling3.engine.request import ChatRequest
from ling3.errors import Ling3Error

log = logging.getLogger(__name__)

# More than any context holds; a larger input is a mistake, and would fill the memory first.
MAX_INPUT_MIB = 32
_POLL_S = 0.1


class _Unusable(Exception):
    """The input is no question; the text says why."""


class PipedPrompt:
    """One question and its answer. `run` blocks one thread; `interrupt` and `close` come from any."""

    def __init__(
        self, engine: ChatEngine, stdin_fd: int, stdout: TextIO, errors: Screen, texts: Texts, *, thinking: bool = False
    ) -> None:
        self._engine = engine
        self._stdin_fd = stdin_fd
        self._stdout = stdout
        self._screen = Screen(stdout)
        self._errors = errors
        self._texts = texts
        self._thinking = thinking
        self._printer = AnswerPrinter(self._screen, texts, show_reasoning=False)

    def run(self) -> int:
        """Reads, answers, and returns the exit code: 0 for a complete answer, else 1."""
        complete = self._answer()
        try:
            self._screen.start_line()
        except OSError:
            self._printer.screen_is_lost = True
        if self._printer.screen_is_lost:
            self._give_up_stdout()
            return 1
        return 0 if complete else 1

    def interrupt(self) -> bool:
        """Ctrl-C. True: the prompt is given up and `run` returns soon. False: it was told before."""
        if self._printer.cancelled:
            return False
        self._printer.cancel()
        return True

    def close(self) -> None:
        """Shutdown: makes `run` return soon."""
        self._printer.cancel()

    def _answer(self) -> bool:
        try:
            question = {"role": "user", "content": self._read_question()}
            reply = self._engine.run(ChatRequest(messages=[question], enable_thinking=self._thinking), self._printer)
        except (Ling3Error, _Unusable) as error:
            self._fail(str(error))
        except Exception as error:
            log.debug("a piped run failed", exc_info=error)
            self._fail(f"{type(error).__name__}: {error}")
        else:
            return reply.finish_reason != "canceled"
        return False

    def _read_question(self) -> str:
        raw = bytearray()
        while part := self._read_part():
            raw += part
            if len(raw) > MAX_INPUT_MIB << 20:
                raise _Unusable(self._texts.input_too_long.format(MAX_INPUT_MIB))
        try:
            text = raw.decode("utf-8").strip("\n")
        except UnicodeDecodeError as error:
            raise _Unusable(self._texts.input_not_utf8.format(error.start)) from error
        if not text.strip():
            raise _Unusable(self._texts.input_empty)
        return text

    def _read_part(self) -> bytes:
        """The next bytes, b"" at the end; looks up now and then, since a signal ends no `read` here."""
        while not select.select([self._stdin_fd], [], [], _POLL_S)[0]:
            if self._printer.cancelled:
                raise _Unusable(self._texts.answer_cancelled)
        return os.read(self._stdin_fd, 1 << 16)

    def _fail(self, reason: str) -> None:
        if not self._printer.screen_is_lost:
            with suppress(OSError):
                self._screen.start_line()
        with suppress(OSError):
            self._errors.line(f"error: {reason}")

    def _give_up_stdout(self) -> None:
        """Points standard output to nowhere, so that the interpreter's last flush does not fail again."""
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), self._stdout.fileno())


def open_piped_prompt(engine: ChatEngine, *, thinking: bool = False) -> PipedPrompt:
    """The prompt on the process's own standard streams."""
    texts = choose_texts(os.environ, sys.stdout.encoding)
    return PipedPrompt(engine, sys.stdin.fileno(), sys.stdout, Screen(sys.stderr), texts, thinking=thinking)
