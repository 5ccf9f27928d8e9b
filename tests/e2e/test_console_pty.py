"""The console in a real terminal (a pty) and behind real pipes; rows F7 and G1 to G4."""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

APP = Path(__file__).with_name("console_app.py")
ROOT = APP.parents[2]
PASTE_ON = "\x1b[?2004h"
FIVE_LINES = "one\ntwo\nthree\nfour\nfive"


def environment(**changes: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name != "LANG" and not name.startswith("LC_")}
    return inherited | {"PYTHONPATH": str(ROOT), "TERM": "xterm", "LC_ALL": "C.UTF-8"} | changes


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
        self._unread = ""
        self.transcript = ""

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def expect(self, wanted: str, seconds: float = 10) -> str:
        """Reads until `wanted` was shown; what came before it."""
        deadline = time.monotonic() + seconds
        while wanted not in self._unread:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._master], [], [], left)[0]:
                raise AssertionError(f"no {wanted!r} in {self._unread!r}; transcript {self.transcript!r}")
            part = os.read(self._master, 1 << 16).decode("utf-8", "replace")
            self._unread += part
            self.transcript += part
        before, _, self._unread = self._unread.partition(wanted)
        return before

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def requests(self) -> list[list[dict[str, Any]]]:
        return [json.loads(line) for line in self._log.read_text("utf-8").splitlines()]

    def ends(self) -> int:
        return self.process.wait(5)

    def hang_up(self) -> None:
        os.close(self.slave)
        os.close(self._master)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.hang_up()


Open = Callable[..., Terminal]


@pytest.fixture
def open_terminal(tmp_path: Path) -> Iterator[Open]:
    opened: list[Terminal] = []

    def start(face: str = "full", **env: str) -> Terminal:
        opened.append(Terminal(tmp_path / "requests.jsonl", face, environment(**env)))
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.close()


BOTH = pytest.mark.parametrize("face", ["full", "plain"])


@BOTH
def test_an_answer_streams_and_its_figures_follow(open_terminal: Open, face: str) -> None:
    terminal = open_terminal(face)
    terminal.expect("Commands: /help")
    terminal.expect(PASTE_ON)
    terminal.type("hello\r")
    terminal.expect("echo<hello>\r\n[first token 12 ms, decode 45.7 tok/s, 5 tok, finish: stop]\r\n")


@BOTH
def test_a_pasted_text_is_one_request(open_terminal: Open, face: str) -> None:  # G1
    terminal = open_terminal(face)
    terminal.expect(PASTE_ON)
    terminal.type(f"\x1b[200~{FIVE_LINES.replace(chr(10), chr(13))}\x1b[201~\r")
    terminal.expect("finish: stop")
    terminal.expect(PASTE_ON)
    assert terminal.requests() == [[{"role": "user", "content": FIVE_LINES}]]


def test_an_earlier_line_of_a_paste_can_be_edited(open_terminal: Open) -> None:  # G2
    terminal = open_terminal()
    terminal.expect(PASTE_ON)
    up, left = "\x1b[A", "\x1b[D"
    terminal.type(f"\x1b[200~first\rlast\x1b[201~{up}{left}{left}X\r")
    terminal.expect("finish: stop")
    assert terminal.requests()[0][0]["content"] == "fiXrst\nlast"


@BOTH
def test_ctrl_c_stops_the_answer_and_keeps_the_conversation(open_terminal: Open, face: str) -> None:  # G3, F7
    terminal = open_terminal(face)
    terminal.expect(PASTE_ON)
    terminal.type("remember me\r")
    terminal.expect("finish: stop")
    terminal.expect(PASTE_ON)
    terminal.type("slow one\r")
    terminal.expect("tick3 ")
    terminal.type("\x03")
    terminal.expect("Cancelled. This question and its answer are not kept.", 1)
    terminal.expect("finish: canceled")
    terminal.expect(PASTE_ON, 1)
    terminal.type("next\r")
    terminal.expect("echo<next>")
    assert terminal.requests()[-1] == [
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
    time.sleep(0.2)
    assert terminal.process.poll() is None
    terminal.type("\x03")
    terminal.expect("process ends", 3)
    assert terminal.ends() == 0
    assert termios.tcgetattr(terminal.slave) == terminal.found_mode


def test_ctrl_c_drops_lines_pasted_without_marks_meanwhile(open_terminal: Open) -> None:  # G1
    terminal = open_terminal()
    terminal.expect(PASTE_ON)
    terminal.type("slow\r")
    terminal.expect("tick1 ")
    terminal.type("a\rb\rc\r\x03")
    terminal.expect("finish: canceled")
    terminal.expect(PASTE_ON)
    terminal.type("after\r")
    terminal.expect("echo<after>")
    assert [request[-1]["content"] for request in terminal.requests()] == ["slow", "after"]


def test_what_is_typed_while_the_model_talks_waits_in_the_next_prompt(open_terminal: Open) -> None:
    terminal = open_terminal()
    terminal.expect(PASTE_ON)
    terminal.type("brief\r")
    terminal.expect("tick1 ")
    terminal.type("later")
    during = terminal.expect("finish: stop")
    assert "later" not in during
    terminal.expect("later")
    terminal.type("\r")
    terminal.expect("echo<later>")


@BOTH
def test_ctrl_c_at_the_prompt_clears_the_line_and_then_hints(open_terminal: Open, face: str) -> None:
    terminal = open_terminal(face)
    terminal.expect(PASTE_ON)
    terminal.type("half a line\x03")
    assert "/quit" not in terminal.expect(PASTE_ON)
    terminal.type("\x03")
    terminal.expect("To leave, type /quit.")
    terminal.expect(PASTE_ON)
    terminal.type("whole\r")
    terminal.expect("echo<whole>")


def test_a_signal_at_the_prompt_acts_like_the_key(open_terminal: Open) -> None:
    terminal = open_terminal()
    terminal.expect(PASTE_ON)
    terminal.type("half")
    terminal.expect("half")
    terminal.process.send_signal(signal.SIGINT)
    terminal.expect(PASTE_ON)
    terminal.type("whole\r")
    terminal.expect("echo<whole>")


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


@pytest.mark.parametrize("busy", [False, True], ids=["at the prompt", "while the model talks"])
def test_sigterm_ends_the_process_and_frees_the_terminal(open_terminal: Open, busy: bool) -> None:
    terminal = open_terminal()
    terminal.expect(PASTE_ON)
    if busy:
        terminal.type("slow\r")
        terminal.expect("tick2")
    terminal.process.send_signal(signal.SIGTERM)
    terminal.expect("process ends", 3)
    assert terminal.ends() == 0
    assert termios.tcgetattr(terminal.slave) == terminal.found_mode


def test_reasoning_is_dim_and_joins_the_history_apart(open_terminal: Open) -> None:
    terminal = open_terminal()
    terminal.expect(PASTE_ON)
    terminal.type("think\r")
    terminal.expect("\x1b[2m[thinking]\r\n\x1b[0m\x1b[2mlet me see\x1b[0m\r\n[answer]\r\nforty-two\r\n")
    terminal.expect(PASTE_ON)
    terminal.type("next\r")
    terminal.expect("echo<next>")
    assert terminal.requests()[-1][1] == {
        "role": "assistant",
        "content": "forty-two",
        "reasoning_content": "let me see",
    }


def test_the_model_cannot_send_escape_sequences(open_terminal: Open) -> None:
    terminal = open_terminal()
    terminal.expect(PASTE_ON)
    terminal.type("attack\r")
    terminal.expect("A]0;ownedB31mC\r\n")


def test_an_error_is_one_line_and_the_chat_goes_on(open_terminal: Open) -> None:
    terminal = open_terminal()
    for message, shown in (
        ("busy", "error: another request is running"),
        ("crash", "error: ValueError: a broken invariant"),
    ):
        terminal.expect(PASTE_ON)
        terminal.type(f"{message}\r")
        assert "Traceback" not in terminal.expect(f"{shown}\r\n")
    terminal.expect(PASTE_ON)
    terminal.type("next\r")
    terminal.expect("echo<next>")
    assert terminal.requests()[-1] == [{"role": "user", "content": "next"}]


def test_a_log_line_of_another_thread_goes_above_the_prompt(open_terminal: Open) -> None:
    terminal = open_terminal()
    terminal.expect(PASTE_ON)
    terminal.type("half")
    terminal.expect("half")
    terminal.process.send_signal(signal.SIGUSR1)
    terminal.expect("a log line\r\n")
    terminal.expect("> half")
    terminal.type(" done\r")
    terminal.expect("echo<half done>")


def test_a_narrow_window_that_changes_size_keeps_wide_text_whole(open_terminal: Open) -> None:
    terminal = open_terminal()
    terminal.resize(5, 11)
    terminal.expect(PASTE_ON)
    terminal.type("wide 中文输入很长很长很长")
    terminal.resize(10, 7)
    time.sleep(0.7)
    terminal.type("\r")
    terminal.expect("北京是中国的首都" * 4)
    terminal.resize(24, 80)
    terminal.expect(PASTE_ON)
    assert terminal.requests()[0][0]["content"] == "wide 中文输入很长很长很长"


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


def piped(text: bytes, tmp_path: Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, str(APP), "piped", str(tmp_path / "requests.jsonl")],
        input=text, capture_output=True, env=environment(), timeout=10,
    )  # fmt: skip


def test_piped_input_is_one_prompt_and_its_answer_plain(tmp_path: Path) -> None:
    result = piped(b"think about\nthis\n", tmp_path)
    assert (result.stdout, result.stderr, result.returncode) == (b"forty-two\n", b"", 0)
    assert json.loads((tmp_path / "requests.jsonl").read_text()) == [{"role": "user", "content": "think about\nthis"}]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"", b"error: standard input has no text\n"),
        (b" \n\n", b"error: standard input has no text\n"),
        (b"ab\xff", b"error: standard input is not UTF-8 text (byte 2)\n"),
        (b"busy", b"error: another request is running\n"),
        (b"crash", b"error: ValueError: a broken invariant\n"),
    ],
)
def test_piped_input_that_gets_no_answer_exits_1(tmp_path: Path, text: bytes, error: bytes) -> None:
    result = piped(text, tmp_path)
    assert (result.stdout, result.stderr, result.returncode) == (b"", error, 1)


def test_a_reader_that_leaves_early_is_no_traceback(tmp_path: Path) -> None:
    command = [sys.executable, str(APP), "piped", str(tmp_path / "requests.jsonl")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdin.write(b"slow")
        process.stdin.close()
        assert process.stdout.read(5) == b"tick0"
        process.stdout.close()
        assert process.wait(5) == 1
        assert process.stderr.read() == b""


def test_ctrl_c_gives_up_a_piped_prompt(tmp_path: Path) -> None:
    command = [sys.executable, str(APP), "piped", str(tmp_path / "requests.jsonl")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()) as process:
        assert process.stdin and process.stdout
        process.stdin.write(b"slow")
        process.stdin.close()
        process.stdout.read(5)
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(5) == 1
    assert re.fullmatch(rb"[tick0-9 ]*\n", rest)
