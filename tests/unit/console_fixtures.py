"""Stand-ins shared by the console's tests: a screen to read back, a pty, a scripted engine."""

from __future__ import annotations

import dataclasses
import io
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from ling3.console.screen import Screen
from ling3.engine.request import ChatRequest, FinishReason, Reply, Sink
from ling3.text.output import Piece


def make_screen(encoding: str = "utf-8", *, styled: bool = False) -> tuple[Screen, Callable[[], str]]:
    """A screen, and what was shown on it so far."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, newline="")
    return Screen(stream, styled=styled), lambda: raw.getvalue().decode(encoding)


class Pty:
    """The two ends of a pseudo terminal."""

    def __init__(self) -> None:
        self.master, self.slave = os.openpty()

    def type(self, keys: str | bytes) -> None:
        os.write(self.master, keys.encode() if isinstance(keys, str) else keys)

    def hang_up(self) -> None:
        if self.master >= 0:
            os.close(self.master)
            self.master = -1

    def close(self) -> None:
        os.close(self.slave)
        self.hang_up()


def later(*actions: Callable[[], object], pause: float = 0.3) -> threading.Thread:
    """Runs the actions one after the other, each after a pause, on a thread."""

    def play() -> None:
        for action in actions:
            time.sleep(pause)
            action()

    thread = threading.Thread(target=play)
    thread.start()
    return thread


def reply(
    content: str = "fine",
    *,
    reasoning: str = "",
    finish_reason: FinishReason = "stop",
    tokens: int = 7,
    **metrics: Any,
) -> Reply:
    usage = {"prompt_tokens": 3, "completion_tokens": tokens, "total_tokens": 3 + tokens}
    return Reply("chat-1", 1_700_000_000, content, reasoning, (), finish_reason, usage, metrics)


class ScriptedEngine:
    """Answers with the given outcomes in turn: a reply is written piece by piece, an exception raised."""

    def __init__(self, *outcomes: Reply | Exception) -> None:
        self._outcomes = deque(outcomes)
        self.requests: list[ChatRequest] = []
        self.active_for_others = False
        self.before_answer: Callable[[], object] = lambda: None

    def run(self, request: ChatRequest, sink: Sink) -> Reply:
        self.requests.append(request)
        outcome = self._outcomes.popleft() if self._outcomes else reply()
        if isinstance(outcome, Exception):
            raise outcome
        self.before_answer()
        pieces = [Piece("reasoning", outcome.reasoning), Piece("content", outcome.content)]
        written = [sink.write(piece, number) for number, piece in enumerate(pieces, 1) if piece.text]
        return outcome if all(written) else dataclasses.replace(outcome, finish_reason="canceled")

    def cancel(self, request_id: str = "", /) -> bool:
        return self.active_for_others

    def messages(self) -> list[list[dict[str, Any]]]:
        return [[dict(message) for message in request.messages] for request in self.requests]


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}
