"""The body of a chat request: field types, ranges, and what is refused rather than ignored (E-66, E-69, D-7)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ling3.engine.request import ChatRequest, Sampling
from ling3.errors import RequestError, invalid_parameter
from ling3.serve.decode import convert, decode_object
from ling3.serve.tools import offered_tools
from ling3.text.messages import normalise_messages

MAX_SESSION_ID_BYTES = 256
SEED_MASK = 0xFFFF_FFFF

StopText = Annotated[str, Meta(min_length=1)]
TokenCount = Annotated[int, Meta(ge=1)]


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class TemplateOptions(msgspec.Struct):
    enable_thinking: bool | None = None


class ChatBody(msgspec.Struct):
    """The fields that ling3 reads. JSON null is the same as absent; fields not named here are ignored.

    What a message may be is the affair of `ling3.text.messages`, which the console shares; tools are in tools.py.
    """

    messages: Annotated[list[dict[str, Any]], Meta(min_length=1)]
    model: str | None = None
    max_tokens: TokenCount | None = None
    max_completion_tokens: TokenCount | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=0)] | None = None
    repeat_penalty: Annotated[float, Meta(gt=0)] | None = None
    seed: int | None = None
    stop: StopText | Annotated[list[StopText], Meta(max_length=4)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    flow_control: str | None = None
    session_id: str | None = None
    user: str | None = None
    cache_prompt: bool | None = None
    reuse_generated_state: bool | None = None
    enable_thinking: bool | None = None
    chat_template_kwargs: TemplateOptions | None = None
    reasoning_effort: str | None = None


@dataclass(frozen=True, slots=True)
class ChatCall:
    """A checked request: what the engine gets, and the form of the answer."""

    request: ChatRequest
    stream: bool
    include_usage: bool


def _is_zero(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == 0


def _is_one(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value == 1


def _is_text_format(value: Any) -> bool:
    return isinstance(value, dict) and value.get("type") == "text"


REFUSED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "n": (_is_one, "only 1 choice is supported"),
    "logprobs": (lambda value: value is False, "log probabilities are not supported"),
    "top_logprobs": (_is_zero, "log probabilities are not supported"),
    "logit_bias": (lambda value: value == {}, "not supported"),
    "presence_penalty": (_is_zero, "not supported; only 0, or use repeat_penalty"),
    "frequency_penalty": (_is_zero, "not supported; only 0, or use repeat_penalty"),
    "min_p": (_is_zero, "not supported; only 0"),
    "response_format": (_is_text_format, 'only {"type": "text"} is supported'),
    "functions": (lambda value: value == [], "not supported; use tools"),
    "function_call": (lambda value: value == "none", "not supported; use tool_choice"),
    "modalities": (lambda value: value == ["text"], 'only ["text"] is supported'),
    "audio": (lambda _value: False, "not supported"),
    "web_search_options": (lambda _value: False, "not supported"),
}
"""Fields that would change the answer and that ling3 does not have: which value is harmless, what to say of others."""


def parse_chat(body: bytes, model_id: str, thinking_default: bool) -> ChatCall:
    """A request body as a ChatCall, or a RequestError that names the field."""
    fields = decode_object(body)
    for name, (harmless, problem) in REFUSED.items():
        value = fields.get(name)
        if value is not None and not harmless(value):
            raise invalid_parameter(name, problem)
    chat = convert(fields, ChatBody)
    if chat.model is not None and chat.model != model_id:
        raise RequestError(
            404, "model_not_found", f"model: this server has only {model_id!r}, not {chat.model[:200]!r}", "model"
        )
    stream = chat.stream is True
    _check_flow_control(chat.flow_control)
    _check_session_id(chat.session_id)
    if chat.stream_options is not None and not stream:
        raise invalid_parameter("stream_options", "only possible when stream is true")
    request = ChatRequest(
        messages=_messages(chat.messages),
        tools=offered_tools(fields.get("tools"), fields.get("tool_choice")),
        max_tokens=chat.max_tokens if chat.max_completion_tokens is None else chat.max_completion_tokens,
        sampling=Sampling(
            temperature=chat.temperature,
            top_p=chat.top_p,
            top_k=chat.top_k,
            repeat_penalty=chat.repeat_penalty,
            seed=None if chat.seed is None else chat.seed & SEED_MASK,
        ),
        stop=_stops(chat.stop),
        enable_thinking=_thinking(chat, thinking_default),
        cache_prompt=chat.cache_prompt is not False,
        reuse_generated_state=chat.reuse_generated_state is not False,
        user=chat.user or "",
        session_id=chat.session_id,
    )
    include_usage = chat.stream_options is not None and chat.stream_options.include_usage is True
    return ChatCall(request, stream, include_usage)


def _messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for index, message in enumerate(messages):
        if message.get("function_call") is not None:
            raise invalid_parameter(f"messages[{index}].function_call", "not supported; use tool_calls")
    return normalise_messages(messages)


def _stops(stop: str | list[str] | None) -> tuple[str, ...]:
    if stop is None:
        return ()
    return (stop,) if isinstance(stop, str) else tuple(stop)


def _thinking(chat: ChatBody, default: bool) -> bool:
    """The most explicit wish wins: the field itself, the template's option, the effort, the server's default (D-7)."""
    if chat.enable_thinking is not None:
        return chat.enable_thinking
    if chat.chat_template_kwargs is not None and chat.chat_template_kwargs.enable_thinking is not None:
        return chat.chat_template_kwargs.enable_thinking
    if chat.reasoning_effort is not None:
        return chat.reasoning_effort not in ("none", "minimal")
    return default


def _check_flow_control(flow_control: str | None) -> None:
    if flow_control == "ack":
        raise RequestError(
            400, "invalid_flow_control", 'flow_control: "ack" is not available; use "none"', "flow_control"
        )
    if flow_control not in (None, "none"):
        raise invalid_parameter("flow_control", 'must be "none"')


def _check_session_id(session_id: str | None) -> None:
    if session_id is not None and not 1 <= len(session_id.encode()) <= MAX_SESSION_ID_BYTES:
        raise invalid_parameter("session_id", f"must be text of 1 to {MAX_SESSION_ID_BYTES} bytes")
