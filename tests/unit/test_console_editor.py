"""How the console reads: kinds of input, terminal modes, and the two editors by their key tables."""

from __future__ import annotations

import os
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from console_fixtures import Pty, later, make_screen
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from ling3.console.editor import Editor, EditorClosed, InterruptedLine, LineTooLong, PlainEditor, typed_text
from ling3.console.prompt_editor import PromptEditor
from ling3.console.terminal import TerminalMode, input_kind


def test_a_pipe_is_a_prompt() -> None:
    reader, writer = os.pipe()
    assert input_kind(reader) == "prompt"
    os.close(reader)
    os.close(writer)


def test_a_file_is_a_prompt(tmp_path: Path) -> None:
    path = tmp_path / "question"
    path.write_text("hello")
    with path.open() as file:
        assert input_kind(file.fileno()) == "prompt"


def test_the_null_device_is_none() -> None:
    with open(os.devnull) as null:
        assert input_kind(null.fileno()) == "none"


def test_a_closed_descriptor_is_none() -> None:
    assert input_kind(987_654) == "none"


@pytest.fixture
def pty() -> Iterator[Pty]:
    pair = Pty()
    yield pair
    pair.close()


def test_a_terminal_is_a_terminal(pty: Pty) -> None:
    assert input_kind(pty.slave) == "terminal"


def test_the_quiet_mode_has_no_echo_no_lines_no_halt_but_signals(pty: Pty) -> None:
    TerminalMode(pty.slave).quiet()
    iflag, _, _, lflag, *_ = termios.tcgetattr(pty.slave)
    assert lflag & (termios.ECHO | termios.ICANON | termios.ISIG) == termios.ISIG
    assert not iflag & termios.IXON


def test_restore_gives_back_the_mode_as_found(pty: Pty) -> None:
    found = termios.tcgetattr(pty.slave)
    mode = TerminalMode(pty.slave)
    mode.quiet()
    mode.restore()
    assert termios.tcgetattr(pty.slave) == found




@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("plain", "plain"),
        ("a\tb\nc", "a\tb\nc"),
        ("up\x1b[Adown\x1bOB", "updown"),
        ("\x1b[1;5Cword", "word"),
        ("bell\x07", "bell"),
        ("你好", "你好"),
        ("half \udce4\udcbd", "half \ufffd"),
    ],
)
def test_typed_text_is_what_was_meant(raw: str, text: str) -> None:
    assert typed_text(raw) == text


@pytest.fixture
def plain(pty: Pty) -> PlainEditor:
    screen, _ = make_screen()
    return PlainEditor(pty.slave, TerminalMode(pty.slave), screen)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("hello\r", "hello"),
        ("你好\r", "你好"),
        ("\r", ""),
        ("oops\x15right\r", "right"),
        ("\x1b[200~one\rtwo\rthree\x1b[201~\r", "one\ntwo\nthree"),
        ("see: \x1b[200~a\rb\x1b[201~ end\r", "see: a\nb end"),
        ("\x1b[200~a\r\x1b[201~\x1b[200~b\r\x1b[201~\r", "a\nb\n"),
        ("par\x04tial\r", "partial"),
        ("par\x04\x04tial\r", "partial"),
        ("x" * 4094 + "\r", "x" * 4094),
    ],
)
def test_plain_editor_key_table(pty: Pty, plain: PlainEditor, keys: str, message: str) -> None:
    pty.type(keys)
    assert plain.read() == message


def test_plain_editor_keeps_undecodable_bytes_out(pty: Pty, plain: PlainEditor) -> None:
    pty.type(b"a\xffb\r")
    assert plain.read() == "a\ufffdb"


def test_plain_editor_refuses_a_line_the_kernel_has_cut(pty: Pty, plain: PlainEditor) -> None:
    pty.type("x" * 5000 + "\r")
    with pytest.raises(LineTooLong):
        plain.read()


def test_plain_editor_forgets_what_was_typed_unseen(pty: Pty, plain: PlainEditor) -> None:
    pty.type("unseen\r")
    plain.answer_ended(cancelled=False)
    pty.type("seen\r")
    assert plain.read() == "seen"


def test_plain_editor_drops_the_paste_that_was_interrupted(pty: Pty, plain: PlainEditor) -> None:
    pty.type("\x1b[200~half a\rpaste\r")
    thread = later(plain.interrupt)
    with pytest.raises(InterruptedLine):
        plain.read()
    thread.join()
    pty.type("new\r")
    assert plain.read() == "new"


def test_plain_editor_ends_with_a_terminal_that_hangs_up(plain: PlainEditor, pty: Pty) -> None:
    pty.type("half\x04")
    thread = later(pty.hang_up)
    with pytest.raises((EOFError, OSError)):
        plain.read()
    thread.join()


@contextmanager
def prompt_editor(pty: Pty) -> Iterator[tuple[PromptEditor, Callable[[str], None]]]:
    with create_pipe_input() as keys:
        yield PromptEditor(keys, DummyOutput(), TerminalMode(pty.slave)), keys.send_text


ENTER, ALT_ENTER, ESC, UP, LEFT, UNDO = "\r", "\x1b\r", "\x1b", "\x1b[A", "\x1b[D", "\x1f"


@pytest.mark.parametrize(
    ("bursts", "message"),
    [
        (["hello" + ENTER], "hello"),
        (["hello\n"], "hello"),
        (["one" + ALT_ENTER + "two" + ENTER], "one\ntwo"),
        (["wrong", ESC, "right" + ENTER], "right"),
        (["one" + ALT_ENTER + "two", ESC, "three" + ENTER], "three"),
        (["kept", ESC, UNDO + ENTER], "kept"),
        (["\x1b[200~1\r2\r3\r4\r5\x1b[201~" + ENTER], "1\n2\n3\n4\n5"),
        (["\x1b[200~1\r2\x1b[201~" + UP + LEFT + "X" + ENTER], "X1\n2"),
        (["ac" + LEFT + "b" + ENTER], "abc"),
        (["ab" + LEFT + "\x04" + ENTER], "a"),
        (["ab\x04" + ENTER], "ab"),
        (["\x1b[200~\x1b[31mred\x1b[201~" + ENTER], "red"),
        (["你好" + LEFT + "们" + ENTER], "你们好"),
    ],
)
def test_prompt_editor_key_table(pty: Pty, bursts: list[str], message: str) -> None:  # G1, G2, G4
    with prompt_editor(pty) as (editor, send):
        send(bursts[0])
        thread = later(*(lambda burst=burst: send(burst) for burst in bursts[1:]), pause=0.5)
        assert editor.read() == message
        thread.join()


def test_prompt_editor_recalls_the_last_message(pty: Pty) -> None:
    with prompt_editor(pty) as (editor, send):
        send("first" + ENTER)
        editor.read()
        thread = later(lambda: send(UP), lambda: send(ENTER), pause=0.1)
        assert editor.read() == "first"
        thread.join()


@contextmanager
def either_editor(kind: str, pty: Pty) -> Iterator[tuple[Editor, Callable[[str], None]]]:
    if kind == "prompt":
        with prompt_editor(pty) as pair:
            yield pair
    else:
        screen, _ = make_screen()
        yield PlainEditor(pty.slave, TerminalMode(pty.slave), screen), pty.type


EITHER = pytest.mark.parametrize("kind", ["prompt", "plain"])


@EITHER
def test_ctrl_d_on_an_empty_line_is_the_end_of_input(kind: str, pty: Pty) -> None:
    with either_editor(kind, pty) as (editor, send):
        send("\x04")
        with pytest.raises(EOFError):
            editor.read()


def test_ctrl_c_in_the_prompt_editor_is_an_interrupted_line(pty: Pty) -> None:
    with prompt_editor(pty) as (editor, send):
        send("half\x03")
        with pytest.raises(InterruptedLine):
            editor.read()


@EITHER
def test_an_interrupt_from_another_thread_clears_the_line(kind: str, pty: Pty) -> None:
    with either_editor(kind, pty) as (editor, send):
        thread = later(editor.interrupt)
        with pytest.raises(InterruptedLine):
            editor.read()
        thread.join()
        send("whole\r")
        assert editor.read() == "whole"


@EITHER
def test_an_interrupt_before_the_prompt_is_not_lost(kind: str, pty: Pty) -> None:
    with either_editor(kind, pty) as (editor, _):
        editor.interrupt()
        with pytest.raises(InterruptedLine):
            editor.read()


@EITHER
@pytest.mark.parametrize("pause", [0.0, 0.3])
def test_close_ends_this_and_every_later_read(kind: str, pty: Pty, pause: float) -> None:
    with either_editor(kind, pty) as (editor, _):
        thread = later(editor.close, pause=pause)
        with pytest.raises(EditorClosed):
            editor.read()
        thread.join()
        with pytest.raises(EditorClosed):
            editor.read()


