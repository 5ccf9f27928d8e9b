"""The chat: commands, history, and what Ctrl-C and Ctrl-D mean at each moment."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from ling3.console.answer import AnswerPrinter, ChatEngine, figures
from ling3.console.editor import LINE_LIMIT, Editor, EditorClosed, InterruptedLine, LineTooLong, PlainEditor
from ling3.console.screen import Screen
from ling3.console.terminal import TerminalMode
from ling3.console.texts import Texts, choose_texts
from ling3.engine.request import ChatRequest, Reply
from ling3.errors import Ling3Error, RequestError

try:
    from ling3.console.prompt_editor import open_prompt_editor
except ModuleNotFoundError as missing:  # the `console` extra is not installed
    if missing.name is None or missing.name.partition(".")[0] != "prompt_toolkit":
        raise
    HAS_PROMPT_TOOLKIT = False
else:
    HAS_PROMPT_TOOLKIT = True

log = logging.getLogger(__name__)

# A launcher that passes Ctrl-C on makes two signals of one press; a person takes longer for two.
_SAME_PRESS_S = 0.5


class Console:
    """One chat on one terminal. `run` blocks one thread; `interrupt` and `close` come from another.

    The engine's work happens on the thread of `run`. Signals reach the main thread only, so the
    process's SIGINT handler asks `interrupt` first and quits when that returns False.
    """

    def __init__(
        self,
        engine: ChatEngine,
        editor: Editor,
        mode: TerminalMode,
        screen: Screen,
        errors: Screen,
        texts: Texts,
        *,
        request_quit: Callable[[], object],
        thinking: bool = False,
    ) -> None:
        """`request_quit` asks the whole process to end; it is called once, by `/quit`."""
        self._engine = engine
        self._editor = editor
        self._mode = mode
        self._screen = screen
        self._errors = errors
        self._texts = texts
        self._request_quit = request_quit
        self._thinking = thinking
        self._history: list[dict[str, Any]] = []
        self._answer: AnswerPrinter | None = None  # not None while the engine runs for us
        self._cancelled_at = 0.0
        self._closing = False
        self._running = False
        self._interrupts_in_a_row = 0
        self._commands: dict[str, Callable[[], None]] = {
            "/help": lambda: self._screen.line(texts.help),
            "/reset": self._reset,
            "/cancel": self._cancel_other,
            "/quit": self._quit,
            "/think on": lambda: self._think(True),
            "/think off": lambda: self._think(False),
            "/think": lambda: self._screen.line(texts.thinking_usage),
        }

    def run(self) -> None:
        """Chats until `/quit`, the end of input, `close`, or the loss of the terminal."""
        self._running = True
        try:
            self._mode.quiet()
            self._screen.line(self._texts.banner)
            while not self._closing:
                self._take_turn()
        except OSError:
            log.debug("the terminal is gone", exc_info=True)
        finally:
            self._running = False
            self._mode.restore()

    def interrupt(self) -> bool:
        """Ctrl-C. True: it stopped the answer or cleared the prompt, and the process goes on.

        False: the console is not running, or the answer was told to stop half a second ago and still runs.
        Takes no lock, so it may be called in a signal handler.
        """
        if not self._running:
            return False
        answer = self._answer
        if answer is None:
            self._editor.interrupt()
            return True
        if answer.cancelled:
            return time.monotonic() - self._cancelled_at < _SAME_PRESS_S
        self._cancelled_at = time.monotonic()
        answer.cancel()
        return True

    def close(self) -> None:
        """Shutdown: stops the answer, makes `run` return soon, and gives the terminal its mode back."""
        self._closing = True
        answer = self._answer
        if answer is not None:
            answer.cancel()
        self._editor.close()
        self._mode.restore()

    def _take_turn(self) -> None:
        try:
            text = self._editor.read().strip("\n")
        except EditorClosed:
            return
        except EOFError:
            self._closing = True
            self._screen.line(self._texts.server_goes_on)
            return
        except InterruptedLine:
            self._interrupts_in_a_row += 1
            if self._interrupts_in_a_row > 1:
                self._screen.line(self._texts.how_to_quit)
            return
        except LineTooLong:
            self._errors.line("error: " + self._texts.line_too_long.format(LINE_LIMIT))
            return
        self._interrupts_in_a_row = 0
        command = self._commands.get(text.strip())
        if command is not None:
            command()
        elif text.strip():
            self._ask(text)

    def _ask(self, text: str) -> None:
        """One exchange; it joins the history only when the answer is complete."""
        question = {"role": "user", "content": text}
        request = ChatRequest(messages=[*self._history, question], enable_thinking=self._thinking)
        printer = AnswerPrinter(self._screen, self._texts)
        try:
            reply = self._run_engine(request, printer)
        except Exception as error:
            self._screen.start_line()
            self._report(error, cancelled=printer.cancelled)
        else:
            if reply.finish_reason == "canceled":
                self._screen.line(self._texts.answer_cancelled)
            else:
                answer = {"role": "assistant", "content": reply.content}
                if reply.reasoning:
                    answer["reasoning_content"] = reply.reasoning
                self._history += [question, answer]
            self._screen.line(figures(reply, self._texts))
        self._editor.answer_ended(cancelled=printer.cancelled)

    def _run_engine(self, request: ChatRequest, printer: AnswerPrinter) -> Reply:
        self._answer = printer
        if self._closing:  # `close` may have looked before there was an answer to cancel
            printer.cancel()
        try:
            return self._engine.run(request, printer)
        finally:
            self._answer = None

    def _report(self, error: Exception, *, cancelled: bool) -> None:
        if isinstance(error, Ling3Error):
            if cancelled:
                self._screen.line(self._texts.answer_cancelled)
                return
            self._errors.line(f"error: {error}")
            if isinstance(error, RequestError) and error.code == "context_length_exceeded":
                self._screen.line(self._texts.context_full)
            return
        log.debug("a console run failed", exc_info=error)
        self._errors.line(f"error: {type(error).__name__}: {error}")

    def _reset(self) -> None:
        self._history.clear()
        self._screen.line(self._texts.history_cleared)

    def _cancel_other(self) -> None:
        cancelled = self._engine.cancel()
        self._screen.line(self._texts.run_cancelled if cancelled else self._texts.nothing_runs)

    def _quit(self) -> None:
        self._closing = True
        self._request_quit()

    def _think(self, on: bool) -> None:
        self._thinking = on
        self._screen.line(self._texts.thinking_on if on else self._texts.thinking_off)


def open_console(engine: ChatEngine, *, request_quit: Callable[[], object], thinking: bool = False) -> Console:
    """The console on the process's own terminal; standard input must be one (`input_kind`)."""
    mode = TerminalMode(sys.stdin.fileno())
    capable = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    screen = Screen(sys.stdout, styled=capable)
    editor: Editor
    if capable and HAS_PROMPT_TOOLKIT:
        editor = open_prompt_editor(sys.stdin, sys.stdout, mode)
    else:
        editor = PlainEditor(
            sys.stdin.fileno(), mode, screen, encoding=sys.stdin.encoding, bracketed_paste=capable
        )
    return Console(
        engine,
        editor,
        mode,
        screen,
        Screen(sys.stderr),
        choose_texts(os.environ, sys.stdout.encoding),
        request_quit=request_quit,
        thinking=thinking,
    )
