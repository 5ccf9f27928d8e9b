"""The event stream of one chat reply: which event, in which order (E-72…E-75)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from ling3.engine.request import Reply
from ling3.errors import RequestError
from ling3.serve.answer import error_body
from ling3.serve.route import Exchange
from ling3.text.output import Piece, ToolCall

DONE = b"data: [DONE]\n\n"


def event(value: Mapping[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"


def tool_call_object(request_id: str, index: int, call: ToolCall) -> dict[str, Any]:
    """One entry of `message.tool_calls`. The id follows from the request, so both answer forms agree on it."""
    return {
        "id": f"call_{request_id.removeprefix('chatcmpl-').replace('-', '_')}_{index}",
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


def tool_call_objects(request_id: str, calls: Iterable[ToolCall]) -> list[dict[str, Any]]:
    return [tool_call_object(request_id, index, call) for index, call in enumerate(calls)]


class ChatStream:
    """The engine's sink for a streamed reply: role chunk, pieces, then `finish` or `fail`, each sent as it is made.

    Every chunk has the same `id`, `created` and `model`; `finish_reason` is null until the finish chunk, which has an
    empty delta of its own; the metrics chunk after it has no choices (E-73).
    """

    def __init__(self, exchange: Exchange, model: str, include_usage: bool) -> None:
        self._exchange = exchange
        self._model = model
        self._include_usage = include_usage
        self._tool_calls = 0
        self._created = 0
        self.request_id = ""
        self.begun = False
        """Whether the head was sent, so that errors must be events from here on."""

    def begin(self, request_id: str, created: int) -> bool:
        self.request_id, self._created = request_id, created
        if not self._exchange.alive():
            return False
        self.begun = True
        return self._exchange.start_stream() and self._delta({"role": "assistant", "content": ""})

    def write(self, piece: Piece, sequence: int) -> bool:
        return self._delta(self._delta_of(piece))

    def alive(self) -> bool:
        return self._exchange.alive()

    def finish(self, reply: Reply) -> None:
        self._delta({}, reply.finish_reason)
        last = self._chunk([]) | {"mindnano_metrics": reply.metrics}
        if self._include_usage:
            last["usage"] = reply.usage
        self._exchange.send(event(last) + DONE)

    def fail(self, error: RequestError) -> None:
        """The end of a stream that has no proper end; if the client is gone this goes nowhere (E-74)."""
        self._exchange.send(event(error_body(error)) + DONE)

    def _delta_of(self, piece: Piece) -> dict[str, Any]:
        if piece.call is not None:
            index = self._tool_calls
            self._tool_calls += 1
            return {"tool_calls": [{"index": index} | tool_call_object(self.request_id, index, piece.call)]}
        return {"reasoning_content" if piece.channel == "reasoning" else "content": piece.text}

    def _delta(self, delta: dict[str, Any], finish_reason: str | None = None) -> bool:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}
        chunk = self._chunk([choice])
        if self._include_usage:
            chunk["usage"] = None
        return self._exchange.send(event(chunk))

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.request_id,
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": self._model,
            "choices": choices,
        }
