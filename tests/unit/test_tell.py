"""Telling an operator never fails and never waits."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from typing import IO

import pytest

from ling3.tell import tell


@pytest.fixture
def pipe() -> Iterator[tuple[int, IO[str]]]:
    """The reading end, and a stream on the writing end."""
    reader, writer = os.pipe()
    stream = open(writer, "w", encoding="utf-8")
    yield reader, stream
    try:
        stream.close()
    except OSError:
        pass
    try:
        os.close(reader)
    except OSError:
        pass


def test_a_line_arrives_whole(pipe: tuple[int, IO[str]]) -> None:
    tell("notice: 你好", pipe[1])
    assert os.read(pipe[0], 100).decode() == "notice: 你好\n"


def test_a_stream_without_a_descriptor_takes_lines() -> None:
    stream = io.StringIO()
    tell("one", stream)
    assert stream.getvalue() == "one\n"


def test_a_reader_that_left_costs_nothing(pipe: tuple[int, IO[str]]) -> None:
    os.close(pipe[0])
    tell("nobody hears this", pipe[1])


def test_a_pipe_that_nobody_empties_does_not_block(pipe: tuple[int, IO[str]]) -> None:
    for _ in range(100):
        tell("x" * 2000, pipe[1])
    os.set_blocking(pipe[0], False)
    assert os.read(pipe[0], 1 << 20).startswith(b"x" * 2000 + b"\n")


def test_a_closed_stream_costs_nothing() -> None:
    stream = io.StringIO()
    stream.close()
    tell("too late", stream)
