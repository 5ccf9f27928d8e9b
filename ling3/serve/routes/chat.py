"""POST /v1/chat/completions: an answer, whole or as events (E-65, E-71…E-75)."""

from __future__ import annotations

from typing import Any

from ling3.engine.request import ChatRequest, Reply
from ling3.errors import RequestError
from ling3.serve.answer import Answer, inference_error, json_answer, request_canceled
from ling3.serve.faults import report_fault
from ling3.serve.ports import ChatEngine, Service
from ling3.serve.route import Exchange, HttpRequest, Route
from ling3.serve.schema import parse_chat
from ling3.serve.sse import ChatStream, tool_call_objects

PATH = "/v1/chat/completions"


def chat(service: Service) -> Route:
    engine = service.engine

    def handle(request: HttpRequest, exchange: Exchange) -> Answer | None:
        call = parse_chat(request.body, engine.model_id, service.thinking)
        if call.stream:
            _stream(engine, call.request, ChatStream(exchange, engine.model_id, call.include_usage))
            return None
        return _complete(engine, call.request, exchange)

    return Route(PATH, "POST", handle, inference=True)


def _stream(engine: ChatEngine, request: ChatRequest, stream: ChatStream) -> None:
    """Until the head is out an error is an ordinary answer; afterwards it is an event (E-52, E-75)."""
    try:
        reply = engine.run(request, stream)
        if reply.finish_reason == "canceled":
            raise request_canceled()
        stream.finish(reply)
    except RequestError as error:
        if not stream.begun:
            raise
        stream.fail(error)
    except Exception:
        if not stream.begun:
            raise
        report_fault(f"POST {PATH}, in the stream of {stream.request_id}")
        stream.fail(inference_error())


def _complete(engine: ChatEngine, request: ChatRequest, exchange: Exchange) -> Answer:
    reply = engine.run(request, _Watch(exchange))
    if reply.finish_reason == "canceled":
        raise request_canceled()
    return json_answer(200, completion(reply, engine.model_id))


class _Watch:
    """The sink of a run that is answered at its end: it only watches the client (E-82)."""

    def __init__(self, exchange: Exchange) -> None:
        self.alive = exchange.alive

    def begin(self, request_id: str, created: int) -> bool:
        return self.alive()

    def write(self, piece: object, sequence: int) -> bool:
        return True


def completion(reply: Reply, model: str) -> dict[str, Any]:
    """The `chat.completion` object (E-71, D-8)."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.content}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if reply.tool_calls:
        message["tool_calls"] = tool_call_objects(reply.request_id, reply.tool_calls)
    choice = {"index": 0, "message": message, "finish_reason": reply.finish_reason, "logprobs": None}
    return {
        "id": reply.request_id,
        "object": "chat.completion",
        "created": reply.created,
        "model": model,
        "choices": [choice],
        "usage": reply.usage,
        "mindnano_metrics": reply.metrics,
    }
