"""The console behind real pipes: one prompt in, plain text out."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

from console_terminal import APP, environment


def piped(text: bytes, tmp_path: Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, str(APP), "piped", str(tmp_path / "requests.jsonl")],
        input=text, capture_output=True, env=environment(), timeout=30,
    )  # fmt: skip


def test_piped_input_is_one_prompt_and_its_answer_plain(tmp_path: Path) -> None:
    result = piped(b"think about\nthis\n", tmp_path)
    assert (result.stdout, result.stderr, result.returncode) == (b"forty-two\n", b"", 0)
    assert json.loads((tmp_path / "requests.jsonl").read_text()) == [{"role": "user", "content": "think about\nthis"}]


def test_a_refused_piped_prompt_exits_1_with_one_line(tmp_path: Path) -> None:
    result = piped(b"busy", tmp_path)
    assert (result.stdout, result.stderr, result.returncode) == (b"", b"error: another request is running\n", 1)


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
        assert process.wait(10) == 1
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
        assert process.wait(10) == 1
    assert re.fullmatch(rb"[tick0-9 ]*\n", rest)
