"""The chat in a real terminal (a pty); rows F7 and G1 to G4."""

from __future__ import annotations

import signal
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from console_terminal import PASTE_ON, Pool, Terminal, environment

FIVE_LINES = "one\ntwo\nthree\nfour\nfive"


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    terminals = Pool(tmp_path_factory.mktemp("console"))
    yield terminals
    terminals.close()


@pytest.fixture
def open_terminal(pool: Pool) -> Callable[..., Terminal]:
    """A process that the test may end."""
    return pool.start


@pytest.fixture
def face() -> str:
    return "full"


@pytest.fixture
def chat(pool: Pool, face: str) -> Iterator[Terminal]:
    """A chat that stands at the prompt, and must stand there again at the end of the test."""
    terminal = pool.take(face)
    yield terminal
    pool.give_back(face, terminal)


Open = Callable[..., Terminal]
BOTH = pytest.mark.parametrize("face", ["full", "plain"])


@BOTH
def test_an_answer_streams_and_its_figures_follow(chat: Terminal) -> None:
    shown = chat.ask("hello")
    assert "echo<hello>\r\n[first token 12 ms, decode 45.7 tok/s, 5 tok, finish: stop]\r\n" in shown


@BOTH
def test_a_pasted_text_is_one_request(chat: Terminal) -> None:  # G1
    chat.ask(f"\x1b[200~{FIVE_LINES.replace(chr(10), chr(13))}\x1b[201~")
    assert chat.requests() == [[{"role": "user", "content": FIVE_LINES}]]


def test_an_earlier_line_of_a_paste_can_be_edited(chat: Terminal) -> None:  # G2
    up, left = "\x1b[A", "\x1b[D"
    chat.ask(f"\x1b[200~first\rlast\x1b[201~{up}{left}{left}X")
    assert chat.requests()[0][0]["content"] == "fiXrst\nlast"


@BOTH
def test_ctrl_c_stops_the_answer_and_keeps_the_conversation(chat: Terminal) -> None:  # G3, F7
    chat.ask("remember me")
    chat.type("slow one\r")
    chat.expect("tick3 ")
    chat.type("\x03")
    chat.expect("Cancelled. This question and its answer are not kept.")
    chat.expect("finish: canceled")
    chat.expect(PASTE_ON)
    chat.ask("next")
    assert chat.requests()[-1] == [
        {"role": "user", "content": "remember me"},
        {"role": "assistant", "content": "echo<remember me>"},
        {"role": "user", "content": "next"},
    ]


def test_a_second_ctrl_c_leaves_a_stuck_answer(open_terminal: Open) -> None:  # F7
    terminal = open_terminal()
    terminal.expect(PASTE_ON)
    terminal.type("stuck\r")
    terminal.expect("stuck now")
    terminal.type("\x03")
    time.sleep(1)
    assert terminal.process.poll() is None
    terminal.type("\x03")
    terminal.expect("process ends")
    assert terminal.ends() == 0
    assert termios.tcgetattr(terminal.slave) == terminal.found_mode


def test_ctrl_c_drops_lines_pasted_without_marks_meanwhile(chat: Terminal) -> None:  # G1
    chat.type("slow\r")
    chat.expect("tick1 ")
    chat.type("a\rb\rc\r\x03")
    chat.expect("finish: canceled")
    chat.expect(PASTE_ON)
    chat.ask("after")
    assert [request[-1]["content"] for request in chat.requests()] == ["slow", "after"]


def test_what_is_typed_while_the_model_talks_waits_in_the_next_prompt(chat: Terminal) -> None:
    chat.type("brief\r")
    chat.expect("tick1 ")
    chat.type("later")
    during = chat.expect("finish: stop")
    assert "later" not in during
    chat.expect("later")
    assert "echo<later>" in chat.ask("")


@BOTH
def test_ctrl_c_at_the_prompt_clears_the_line_and_then_hints(chat: Terminal) -> None:
    chat.type("half a line\x03")
    assert "/quit" not in chat.expect(PASTE_ON)
    chat.type("\x03")
    chat.expect("To leave, type /quit.")
    chat.expect(PASTE_ON)
    assert "echo<whole>" in chat.ask("whole")


def test_a_signal_at_the_prompt_acts_like_the_key(chat: Terminal) -> None:
    chat.type("half")
    chat.expect("half")
    chat.process.send_signal(signal.SIGINT)
    chat.expect(PASTE_ON)
    assert "echo<whole>" in chat.ask("whole")


@BOTH
def test_ctrl_d_ends_the_console_and_ctrl_c_then_the_process(open_terminal: Open, face: str) -> None:  # G4, E-115
    terminal = open_terminal(face)
    terminal.expect(PASTE_ON)
    terminal.type("\x04")
    terminal.expect("Console ended. The server goes on; Ctrl-C ends it.")
    time.sleep(0.2)
    assert terminal.process.poll() is None
    terminal.type("\x03")
    assert terminal.ends() == 0
    assert termios.tcgetattr(terminal.slave) == terminal.found_mode


def test_quit_ends_the_process(open_terminal: Open) -> None:
    terminal = open_terminal()
    terminal.expect(PASTE_ON)
    terminal.type("/quit\r")
    terminal.expect("process ends")
    assert terminal.ends() == 0
    assert termios.tcgetattr(terminal.slave) == terminal.found_mode


def test_sigterm_ends_the_process_and_frees_the_terminal(open_terminal: Open) -> None:
    terminal = open_terminal()
    terminal.expect(PASTE_ON)
    terminal.process.send_signal(signal.SIGTERM)
    terminal.expect("process ends")
    assert terminal.ends() == 0
    assert termios.tcgetattr(terminal.slave) == terminal.found_mode


def test_reasoning_is_dim_and_joins_the_history_apart(chat: Terminal) -> None:
    shown = chat.ask("think")
    assert "\x1b[2m[thinking]\r\n\x1b[0m\x1b[2mlet me see\x1b[0m\r\n[answer]\r\nforty-two\r\n" in shown
    chat.ask("next")
    assert chat.requests()[-1][1] == {
        "role": "assistant",
        "content": "forty-two",
        "reasoning_content": "let me see",
    }


def test_the_model_cannot_send_escape_sequences(chat: Terminal) -> None:
    assert "A]0;ownedB31mC\r\n" in chat.ask("attack")


def test_an_error_is_one_line_and_the_chat_goes_on(chat: Terminal) -> None:
    assert chat.ask("busy").endswith("error: another request is running\r\n")
    assert chat.ask("crash").endswith("error: ValueError: a broken invariant\r\n")
    chat.ask("next")
    assert chat.requests()[-1] == [{"role": "user", "content": "next"}]


def test_a_log_line_of_another_thread_goes_above_the_prompt(chat: Terminal) -> None:
    chat.type("half")
    chat.expect("half")
    chat.process.send_signal(signal.SIGUSR1)
    chat.expect("a log line\r\n")
    chat.expect("> half")
    assert "echo<half done>" in chat.ask(" done")


def test_a_narrow_window_that_changes_size_keeps_wide_text_whole(chat: Terminal) -> None:
    chat.resize(5, 11)
    chat.type("wide 中文输入很长很长很长")
    chat.resize(10, 7)
    time.sleep(0.7)
    assert "北京是中国的首都" * 4 in chat.ask("")
    chat.resize(24, 80)
    assert chat.requests()[0][0]["content"] == "wide 中文输入很长很长很长"


def test_a_chinese_locale_speaks_chinese(open_terminal: Open) -> None:
    terminal = open_terminal(LC_ALL="zh_CN.UTF-8")
    terminal.expect("与模型对话")
    terminal.expect(PASTE_ON)
    terminal.type("你好\r")
    terminal.expect("echo<你好>\r\n[首词元 12 ms，生成 45.7 词元/s，5 词元，结束原因：stop]\r\n")


def test_a_dumb_terminal_gets_no_escape_sequence(open_terminal: Open) -> None:
    terminal = open_terminal(TERM="dumb")
    terminal.expect("> ")
    terminal.type("think\r")
    terminal.expect("[thinking]\r\nlet me see\r\n[answer]\r\nforty-two\r\n")
    assert "\x1b" not in terminal.transcript


def test_a_vanished_terminal_ends_the_console_only(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path / "requests.jsonl", "full", environment(), ignore_hangup=True)
    terminal.expect(PASTE_ON)
    terminal.hang_up()
    time.sleep(0.5)
    assert terminal.process.poll() is None
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.ends() == 0
