"""The chat: answers, history, commands, interrupts."""

from __future__ import annotations

import io
import termios
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest
from console_fixtures import Pty, ScriptedEngine, make_screen, reply, user

from ling3.console.answer import AnswerPrinter, figures
from ling3.console.chat import Console
from ling3.console.editor import EditorClosed, InterruptedLine, LineTooLong
from ling3.console.screen import Screen
from ling3.console.terminal import TerminalMode
from ling3.console.texts import CHINESE, ENGLISH, Texts
from ling3.engine.request import Reply
from ling3.errors import RequestError
from ling3.text.output import Piece


@pytest.mark.parametrize(
    ("answer", "texts", "line"),
    [
        (
            reply(ttft_ms=131.6, decode_tokens_per_second=14.239),
            ENGLISH,
            "[first token 132 ms, decode 14.2 tok/s, 7 tok, finish: stop]",
        ),
        (
            reply(ttft_ms=131.6, decode_tokens_per_second=14.239),
            CHINESE,
            "[首词元 132 ms，生成 14.2 词元/s，7 词元，结束原因：stop]",
        ),
        (
            reply(ttft_ms=90.0, decode_tokens_per_second=0, tokens=1, finish_reason="length"),
            ENGLISH,
            "[first token 90 ms, 1 tok, finish: length]",
        ),
        (
            reply(ttft_ms=None, decode_tokens_per_second=0, tokens=0, finish_reason="canceled"),
            ENGLISH,
            "[0 tok, finish: canceled]",
        ),
    ],
)
def test_the_figures_have_units_and_no_empty_values(answer: Reply, texts: Texts, line: str) -> None:
    assert figures(answer, texts) == line


def test_reasoning_stands_apart_from_the_answer() -> None:
    screen, shown = make_screen(styled=True)
    printer = AnswerPrinter(screen, ENGLISH)
    for sequence, piece in enumerate([Piece("reasoning", "so"), Piece("reasoning", "…"), Piece("content", "Yes")], 1):
        assert printer.write(piece, sequence)
    assert shown() == "\x1b[2m[thinking]\n\x1b[0m\x1b[2mso\x1b[0m\x1b[2m…\x1b[0m\n[answer]\nYes"


def test_a_cancelled_answer_prints_no_further_piece() -> None:
    screen, shown = make_screen()
    printer = AnswerPrinter(screen, ENGLISH)
    printer.cancel()
    assert (printer.begin("id", 0), printer.write(Piece("content", "x"), 1), printer.alive()) == (False, False, False)
    assert shown() == ""


class LostStream(io.StringIO):
    encoding = "utf-8"

    def write(self, _: str) -> int:
        raise BrokenPipeError


def test_a_lost_terminal_ends_the_run() -> None:
    printer = AnswerPrinter(Screen(LostStream()), ENGLISH)
    assert printer.write(Piece("content", "x"), 1) is False
    assert printer.screen_is_lost




class ScriptedEditor:
    """Gives the lines in turn, raises those that are exceptions, and closes after the last."""

    def __init__(self, *lines: str | Exception) -> None:
        self._lines = deque(lines)
        self.interrupts = 0
        self.ended_answers: list[bool] = []

    def read(self) -> str:
        line = self._lines.popleft() if self._lines else EditorClosed()
        if isinstance(line, EditorClosed):
            self.on_end()
        if isinstance(line, Exception):
            raise line
        return line

    def on_end(self) -> None:
        raise AssertionError("set by Chat")

    def interrupt(self) -> None:
        self.interrupts += 1

    def close(self) -> None:
        self._lines.clear()

    def answer_ended(self, *, cancelled: bool) -> None:
        self.ended_answers.append(cancelled)


class Chat:
    """A console around the two scripts; `play` runs it to the end."""

    def __init__(self, pty: Pty, *lines: str | Exception, outcomes: tuple[Reply | Exception, ...] = ()) -> None:
        self.editor = ScriptedEditor(*lines)
        self.engine = ScriptedEngine(*outcomes)
        self.quits = 0
        screen, self.shown = make_screen()
        errors, self.errors = make_screen()
        self.console = Console(
            self.engine, self.editor, TerminalMode(pty.slave), screen, errors, ENGLISH, request_quit=self._quit
        )
        self.editor.on_end = self.console.close  # type: ignore[method-assign]

    def _quit(self) -> None:
        self.quits += 1

    def play(self) -> list[list[dict[str, Any]]]:
        self.console.run()
        return self.engine.messages()


def assistant(text: str, **more: str) -> dict[str, str]:
    return {"role": "assistant", "content": text, **more}


@pytest.fixture
def pty() -> Iterator[Pty]:
    pair = Pty()
    yield pair
    pair.close()


def test_an_exchange_joins_the_history(pty: Pty) -> None:
    chat = Chat(pty, "one", "two", outcomes=(reply("first"),))
    assert chat.play() == [[user("one")], [user("one"), assistant("first"), user("two")]]


def test_reasoning_is_kept_apart_in_the_history(pty: Pty) -> None:
    chat = Chat(pty, "one", "two", outcomes=(reply("first", reasoning="hm"),))
    assert chat.play()[1][1] == assistant("first", reasoning_content="hm")


@pytest.mark.parametrize(
    "outcome", [reply(finish_reason="canceled"), RequestError(429, "engine_busy", "busy"), ValueError("bug")]
)
def test_an_exchange_without_a_complete_answer_is_not_kept(pty: Pty, outcome: Reply | Exception) -> None:
    chat = Chat(pty, "one", "two", "three", outcomes=(reply("first"), outcome))
    assert chat.play()[2] == [user("one"), assistant("first"), user("three")]


def test_an_answer_cut_by_length_is_kept(pty: Pty) -> None:
    chat = Chat(pty, "one", "two", outcomes=(reply("long", finish_reason="length"),))
    assert chat.play()[1] == [user("one"), assistant("long"), user("two")]


def test_reset_forgets_the_history(pty: Pty) -> None:
    chat = Chat(pty, "one", "/reset", "two")
    assert chat.play()[1] == [user("two")]


def test_thinking_is_off_until_switched_on(pty: Pty) -> None:
    chat = Chat(pty, "a", "/think on", "b", "/think off", "c")
    chat.play()
    assert [request.enable_thinking for request in chat.engine.requests] == [False, True, False]


@pytest.mark.parametrize("line", ["", "  ", "\n\n", "/help", "/reset", "/cancel", "/think", "/think on", " /quit "])
def test_blank_lines_and_commands_are_not_sent(pty: Pty, line: str) -> None:
    assert Chat(pty, line).play() == []


@pytest.mark.parametrize("line", ["/unknown", "/think maybe", "/quit\nplease", "/helpful"])
def test_an_unknown_command_is_a_message(pty: Pty, line: str) -> None:
    assert Chat(pty, line).play() == [[user(line)]]


@pytest.mark.parametrize("line", ["/help", "/think", "/reset", "/cancel"])
def test_every_command_says_something(pty: Pty, line: str) -> None:
    silent, chat = Chat(pty), Chat(pty, line)
    silent.play()
    chat.play()
    assert len(chat.shown()) > len(silent.shown())


def test_quit_asks_the_process_to_end_and_reads_no_further(pty: Pty) -> None:
    chat = Chat(pty, "/quit", "never sent")
    assert (chat.play(), chat.quits) == ([], 1)


def test_end_of_input_ends_the_console_only(pty: Pty) -> None:  # E-115
    chat = Chat(pty, EOFError(), "never sent")
    assert (chat.play(), chat.quits) == ([], 0)
    assert chat.shown().endswith("Console ended. The server goes on; Ctrl-C ends it.\n")


@pytest.mark.parametrize(
    ("active", "said"), [(True, "The running answer is cancelled."), (False, "No answer is running.")]
)
def test_cancel_says_whether_an_answer_ran(pty: Pty, active: bool, said: str) -> None:
    chat = Chat(pty, "/cancel")
    chat.engine.active_for_others = active
    chat.play()
    assert chat.shown().endswith(f"{said}\n")


@pytest.mark.parametrize(
    ("outcome", "line"),
    [
        (RequestError(429, "engine_busy", "another request runs"), "error: another request runs\n"),
        (RequestError(400, "invalid_parameter", "evil \x1b[31m"), "error: evil [31m\n"),
        (ValueError("bug"), "error: ValueError: bug\n"),
    ],
)
def test_a_failed_run_is_one_error_line(pty: Pty, outcome: Exception, line: str) -> None:
    chat = Chat(pty, "one", outcomes=(outcome,))
    chat.play()
    assert chat.errors() == line


def test_a_full_context_names_the_way_out(pty: Pty) -> None:
    chat = Chat(pty, "one", outcomes=(RequestError(400, "context_length_exceeded", "too long"),))
    chat.play()
    assert "/reset starts a new one" in chat.shown()


def test_a_line_the_terminal_cut_is_not_sent(pty: Pty) -> None:
    chat = Chat(pty, LineTooLong(), "two")
    assert chat.play() == [[user("two")]]
    assert chat.errors().startswith("error: the line is longer than this terminal mode can carry (4094 bytes)")


@pytest.mark.parametrize(
    ("lines", "hints"),
    [
        ([InterruptedLine()], 0),
        ([InterruptedLine(), InterruptedLine()], 1),
        ([InterruptedLine(), "text", InterruptedLine()], 0),
    ],
)
def test_the_second_ctrl_c_in_a_row_hints_at_quit(pty: Pty, lines: list[str | Exception], hints: int) -> None:
    chat = Chat(pty, *lines)
    chat.play()
    assert chat.shown().count("To leave, type /quit.") == hints


@pytest.mark.parametrize(("pause", "second"), [(0.0, True), (0.6, False)], ids=["a doubled signal", "pressed again"])
def test_ctrl_c_stops_the_answer_and_is_refused_when_pressed_again(pty: Pty, pause: float, second: bool) -> None:
    chat = Chat(pty, "one")
    taken: list[bool] = []

    def press_twice() -> None:  # F7, G3
        taken.append(chat.console.interrupt())
        time.sleep(pause)
        taken.append(chat.console.interrupt())

    chat.engine.before_answer = press_twice
    chat.play()
    assert taken == [True, second]
    assert "Cancelled." in chat.shown()


def test_ctrl_c_between_answers_goes_to_the_prompt(pty: Pty) -> None:
    chat = Chat(pty)
    taken: list[bool] = []

    def end() -> None:
        taken.append(chat.console.interrupt())
        chat.console.close()

    chat.editor.on_end = end  # type: ignore[method-assign]
    chat.play()
    assert (taken, chat.editor.interrupts) == ([True], 1)


def test_ctrl_c_is_not_taken_before_and_after_the_console(pty: Pty) -> None:
    chat = Chat(pty)
    before = chat.console.interrupt()
    chat.play()
    assert (before, chat.console.interrupt()) == (False, False)


def test_the_editor_hears_whether_the_answer_was_cancelled(pty: Pty) -> None:
    chat = Chat(pty, "one", "two")
    chat.engine.before_answer = lambda: len(chat.engine.requests) == 2 and chat.console.interrupt()
    chat.play()
    assert chat.editor.ended_answers == [False, True]


def test_close_stops_the_answer_and_the_chat(pty: Pty) -> None:
    chat = Chat(pty, "one", "never sent")
    chat.engine.before_answer = chat.console.close
    assert chat.play() == [[user("one")]]
    assert "Cancelled." in chat.shown()


def test_the_terminal_gets_its_mode_back(pty: Pty) -> None:
    found = termios.tcgetattr(pty.slave)
    Chat(pty, "one").play()
    assert termios.tcgetattr(pty.slave) == found
