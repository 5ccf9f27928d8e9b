"""An engine that plays a script instead of a model: pieces, holds and errors, one run at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ling3.engine.request import ChatRequest, FinishReason, Reply, Sink
from ling3.errors import RequestError
from ling3.text.output import Piece, ToolCall

CREATED = 1_700_000_000
POLL_S = 0.005


def content(text: str) -> Piece:
    return Piece("content", text)


def reasoning(text: str) -> Piece:
    return Piece("reasoning", text)


def calling(name: str, arguments: str) -> Piece:
    return Piece("tool_call", "", ToolCall(name, arguments))


@dataclass
class Hold:
    """A step that takes until `release` is set, or until the run is no longer alive, as a prefill block would."""

    release: threading.Event = field(default_factory=threading.Event)


Step = Piece | Hold | Exception


class Busy(RequestError):
    """The engine's refusal while a run goes on, with the wait it expects."""

    def __init__(self) -> None:
        super().__init__(429, "engine_busy", "a run is going on", retry_after=7)


class FakeEngine:
    """Plays `steps` for every request. `refusal` is raised before `begin`; `during_begin` after it returned."""

    model_id = "ling3-tiny"
    context_length = 4096

    def __init__(self, *steps: Step, finish_reason: FinishReason = "stop") -> None:
        self.play(*steps, finish_reason=finish_reason)
        self._running = threading.Lock()
        self._cancel = threading.Event()
        self._runs = 0

    def play(self, *steps: Step, finish_reason: FinishReason = "stop", refusal: Exception | None = None) -> None:
        """Set the script and forget what happened."""
        self.steps: Sequence[Step] = steps or (content("Hello"), content(" there"))
        self.finish_reason: FinishReason = finish_reason
        self.refusal = refusal
        self.metrics: dict[str, Any] = {"cache_status": "miss"}
        self.requests: list[ChatRequest] = []
        self.outcomes: list[str] = []
        self.begun = threading.Event()

    @property
    def active(self) -> bool:
        return self._running.locked()

    def generation_status(self) -> dict[str, Any]:
        return {"state": "running" if self.active else "idle", "sequence": 0}

    def cancel(self, request_id: str = "") -> bool:
        self._cancel.set()
        return self.active

    def request_cancel_all(self) -> None:
        self._cancel.set()

    def wait_idle(self, seconds: float = 5.0) -> bool:
        """Whether the engine became free within `seconds`."""
        free = self._running.acquire(timeout=seconds)
        if free:
            self._running.release()
        return free

    def run(self, request: ChatRequest, sink: Sink) -> Reply:
        if not self._running.acquire(blocking=False):
            raise Busy
        try:
            self._cancel.clear()
            self.requests.append(request)
            if self.refusal is not None:
                raise self.refusal
            self._runs += 1
            reply = self._run(f"chatcmpl-{CREATED}-{self._runs}", sink)
            self.outcomes.append(reply.finish_reason)
            return reply
        finally:
            self._running.release()

    def _run(self, request_id: str, sink: Sink) -> Reply:
        written: list[Piece] = []
        alive = sink.begin(request_id, CREATED)
        self.begun.set()
        for step in self.steps:
            alive = alive and self._alive(sink)
            if not alive:
                break
            if isinstance(step, Exception):
                raise step
            if isinstance(step, Hold):
                while alive and not step.release.is_set():
                    time.sleep(POLL_S)
                    alive = self._alive(sink)
            else:
                written.append(step)
                alive = sink.write(step, len(written))
        alive = alive and self._alive(sink)
        return self._reply(request_id, written, self.finish_reason if alive else "canceled")

    def _alive(self, sink: Sink) -> bool:
        return sink.alive() and not self._cancel.is_set()

    def _reply(self, request_id: str, written: list[Piece], finish_reason: FinishReason) -> Reply:
        usage = {"prompt_tokens": 3, "completion_tokens": len(written), "total_tokens": 3 + len(written)}
        return Reply(
            request_id=request_id,
            created=CREATED,
            content="".join(piece.text for piece in written if piece.channel == "content"),
            reasoning="".join(piece.text for piece in written if piece.channel == "reasoning"),
            tool_calls=tuple(piece.call for piece in written if piece.call is not None),
            finish_reason=finish_reason,
            usage=usage,
            metrics=self.metrics,
        )
