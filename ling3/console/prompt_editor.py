"""The multi-line editor on prompt_toolkit (the `console` extra)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import TextIO, cast

from prompt_toolkit.data_structures import Size
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_focus
from prompt_toolkit.input import Input, create_input
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import Output
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.patch_stdout import StdoutProxy
from prompt_toolkit.shortcuts import PromptSession

from ling3.console.editor import PROMPT, EditorClosed, InterruptedLine, typed_text
from ling3.console.terminal import TerminalMode

# How long a lone ESC byte may be the beginning of a key sequence; twice this until Esc clears.
_ESCAPE_S = 0.1


def _send(event: KeyPressEvent) -> None:
    event.current_buffer.validate_and_handle()


def _new_line(event: KeyPressEvent) -> None:
    event.current_buffer.newline(copy_margin=False)


def _clear(event: KeyPressEvent) -> None:
    event.current_buffer.document = Document()  # unlike reset(), this can be undone


# What differs from a usual multi-line prompt. Ctrl-C, Ctrl-D on an empty line, pastes and Ctrl-J
# (as Enter) are prompt_toolkit's own; in raw mode Ctrl-C is a key, not a signal.
_KEYS: dict[tuple[str, ...], Callable[[KeyPressEvent], None]] = {
    ("enter",): _send,
    ("escape", "enter"): _new_line,
    ("escape",): _clear,
}


class PromptEditor:
    """Edits several lines, with a history of the prompts of this run."""

    def __init__(self, keys: Input, output: Output, mode: TerminalMode) -> None:
        self._keys = keys
        self._output = output
        self._mode = mode
        self._interrupted = False
        self._closed = False
        bindings = KeyBindings()
        for sequence, action in _KEYS.items():
            bindings.add(*sequence, filter=has_focus(DEFAULT_BUFFER))(action)
        self._session: PromptSession[str] = PromptSession(
            PROMPT,
            multiline=True,
            prompt_continuation=" " * len(PROMPT),
            key_bindings=bindings,
            reserve_space_for_menu=0,
            interrupt_exception=InterruptedLine,
            input=keys,
            output=output,
        )
        self._session.app.ttimeoutlen = _ESCAPE_S
        self._session.app.timeoutlen = _ESCAPE_S

    def read(self) -> str:
        with _other_output_above_prompt():
            text = self._session.prompt(pre_run=self._leave_if_asked, handle_sigint=False)
        return typed_text(text)

    def interrupt(self) -> None:
        self._interrupted = True
        self._wake()

    def close(self) -> None:
        self._closed = True
        self._wake()

    def answer_ended(self, *, cancelled: bool) -> None:
        if cancelled:  # else keys pressed meanwhile show up in the next prompt
            self._mode.drop_input()
            clear_typeahead(self._keys)

    def _wake(self) -> None:
        loop = self._session.app.loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop has closed since; the flag waits for the next one
                loop.call_soon_threadsafe(self._leave_if_asked)

    def _leave_if_asked(self) -> None:
        """Ends the running prompt on its own thread, when one of the flags is set."""
        app = self._session.app
        if app.future is None or app.future.done():
            return
        if self._closed:
            app.exit(exception=EditorClosed())
        elif self._interrupted:
            self._interrupted = False
            app.exit(exception=InterruptedLine())


@contextmanager
def _other_output_above_prompt() -> Iterator[None]:
    """Lines that other threads print to the terminal meanwhile go above the prompt, not into it."""
    outputs = ((redirect_stdout, sys.stdout), (redirect_stderr, sys.stderr))
    redirects = [redirect for redirect, stream in outputs if stream.isatty()]
    with ExitStack() as stack:
        if redirects:
            above = cast(TextIO, stack.enter_context(StdoutProxy()))
            for redirect in redirects:
                stack.enter_context(redirect(above))
        yield


def open_prompt_editor(stdin: TextIO, stdout: TextIO, mode: TerminalMode) -> PromptEditor:
    """The editor on two streams that are terminals.

    The cursor position is never asked for: some terminals do not answer, and a late answer would
    be read as typed text.
    """

    def size() -> Size:
        try:
            columns, rows = os.get_terminal_size(stdout.fileno())
        except OSError:
            columns, rows = 0, 0
        return Size(rows=rows or 24, columns=columns or 80)

    output = Vt100_Output(stdout, size, term=os.environ.get("TERM"), enable_cpr=False)
    return PromptEditor(create_input(stdin), output, mode)
