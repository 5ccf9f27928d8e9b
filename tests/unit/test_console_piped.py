"""Standard input as one prompt: plain answer, exit code, refusals."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from console_fixtures import ScriptedEngine, later, make_screen, reply, user

from ling3.console.piped import PipedPrompt
from ling3.console.texts import ENGLISH
from ling3.engine.request import Reply
from ling3.errors import RequestError


def answer_piped(tmp_path: Path, text: bytes, *outcomes: Reply | Exception) -> tuple[int, str, str, ScriptedEngine]:
    (tmp_path / "in").write_bytes(text)
    engine = ScriptedEngine(*outcomes)
    errors, shown_errors = make_screen()
    with (tmp_path / "in").open("rb") as stdin, (tmp_path / "out").open("w", encoding="utf-8") as stdout:
        code = PipedPrompt(engine, stdin.fileno(), stdout, errors, ENGLISH).run()
    return code, (tmp_path / "out").read_text("utf-8"), shown_errors(), engine


@pytest.mark.parametrize(
    ("answer", "printed"),
    [
        (reply("Yes."), "Yes.\n"),
        (reply("Yes.\n"), "Yes.\n"),
        (reply("A\x1b[31mB"), "A[31mB\n"),
        (reply("Yes.", reasoning="well"), "Yes.\n"),
        (reply("cut", finish_reason="length"), "cut\n"),
    ],
)
def test_a_piped_prompt_prints_the_plain_answer(tmp_path: Path, answer: Reply, printed: str) -> None:
    assert answer_piped(tmp_path, b"hi\n", answer)[:3] == (0, printed, "")


def test_all_of_a_piped_input_is_one_message(tmp_path: Path) -> None:
    *_, engine = answer_piped(tmp_path, "/help\n\n第二行\n".encode())
    assert engine.messages() == [[user("/help\n\n第二行")]]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"", "error: standard input has no text\n"),
        (b"\xc3", "error: standard input is not UTF-8 text (byte 0)\n"),
        (b" " * ((32 << 20) + 1), "error: standard input is longer than 32 MiB\n"),
    ],
)
def test_an_unusable_piped_input_never_reaches_the_engine(tmp_path: Path, text: bytes, error: str) -> None:
    code, printed, errors, engine = answer_piped(tmp_path, text)
    assert (code, printed, errors, engine.requests) == (1, "", error, [])


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (RequestError(400, "context_length_exceeded", "too long"), "error: too long\n"),
        (OSError(28, "No space left on device"), "error: OSError: [Errno 28] No space left on device\n"),
        (reply("half", finish_reason="canceled"), ""),
    ],
)
def test_a_piped_prompt_without_a_complete_answer_fails(
    tmp_path: Path, outcome: Reply | Exception, error: str
) -> None:
    code, _, errors, _ = answer_piped(tmp_path, b"hi", outcome)
    assert (code, errors) == (1, error)


def test_an_interrupt_gives_up_an_input_that_never_ends() -> None:
    reader, writer = os.pipe()
    screen_errors, _ = make_screen()
    with os.fdopen(writer, "w") as stdout:  # any stream will do: nothing is printed
        prompt = PipedPrompt(ScriptedEngine(), reader, stdout, screen_errors, ENGLISH)
        thread = later(prompt.interrupt)
        assert prompt.run() == 1
        thread.join()
        assert prompt.interrupt() is False
    os.close(reader)
