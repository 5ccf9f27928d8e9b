"""Chat messages as the chat template wants them; what it cannot render is refused with the path of the field.

The template gets `role` (system, user, assistant, tool), `content` (text), and where they apply
`reasoning_content` (text), `tool_calls` ([{"type", "id", "function": {"name", "arguments": object}}]),
`tool_call_id` and `name`. Every string is valid Unicode.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from ling3.errors import invalid_parameter

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}

# Deeper than any real schema, shallow enough for every recursive walk below and in the template.
MAX_DEPTH = 100


def normalise_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages in their order and place, ready for the template.

    RequestError 400 `invalid_parameter` with the path of the first field that is unusable.
    """
    if not messages:
        raise invalid_parameter("messages", "at least one message is needed")
    normal: list[dict[str, Any]] = []
    call_seen = False
    for index, message in enumerate(messages):
        path = f"messages[{index}]"
        if not isinstance(message, Mapping):
            raise invalid_parameter(path, "must be an object")
        check_json(message, path)
        turn = _normalise(message, path)
        if turn["role"] == "tool" and not call_seen:
            raise invalid_parameter(path, "a tool result needs an earlier assistant message with tool_calls")
        call_seen = call_seen or "tool_calls" in turn
        normal.append(turn)
    return normal


def normalise_tools(tools: Sequence[Mapping[str, Any]] | None) -> list[Mapping[str, Any]]:
    """The tool definitions, unchanged in wording and key order; none given is an empty list."""
    for index, tool in enumerate(tools or ()):
        if not isinstance(tool, Mapping):
            raise invalid_parameter(f"tools[{index}]", "must be an object")
        check_json(tool, f"tools[{index}]")
    return list(tools or ())


def check_json(value: Any, path: str, depth: int = 0) -> None:
    """Refuse what is no JSON value: lone surrogates, foreign types, endless nesting."""
    if isinstance(value, str):
        _check_text(value, path)
    elif isinstance(value, (Mapping, list, tuple)):
        if depth == MAX_DEPTH:
            raise invalid_parameter(path, f"is nested deeper than {MAX_DEPTH} levels")
        if isinstance(value, Mapping):
            for key, item in value.items():
                if not isinstance(key, str):
                    raise invalid_parameter(path, f"key {key!r} must be text")
                _check_text(key, path)
                check_json(item, f"{path}.{key}", depth + 1)
        else:
            for index, item in enumerate(value):
                check_json(item, f"{path}[{index}]", depth + 1)
    elif value is not None and not isinstance(value, (bool, int, float)):
        raise invalid_parameter(path, f"{type(value).__name__} is not a JSON value")


def split_reasoning(content: str) -> tuple[str, str]:
    """(reasoning, content) of an assistant text that may carry its reasoning inside think tags (M-72)."""
    if "</think>" not in content:
        return "", content
    before = content.partition("</think>")[0]
    reasoning = before.rpartition("<think>")[2].strip("\n")
    return reasoning, content.rpartition("</think>")[2].lstrip("\n")


def _normalise(message: Mapping[str, Any], path: str) -> dict[str, Any]:
    given_role = message.get("role")
    role = ROLES.get(given_role) if isinstance(given_role, str) else None
    if role is None:
        raise invalid_parameter(f"{path}.role", f"must be one of {', '.join(ROLES)}, not {given_role!r:.40}")
    turn: dict[str, Any] = {"role": role, "content": _content(message.get("content"), f"{path}.content")}
    for field in ("name", "tool_call_id"):
        if message.get(field) is not None:
            turn[field] = _text(message[field], f"{path}.{field}")
    if role == "assistant":
        reasoning = _text(message.get("reasoning_content"), f"{path}.reasoning_content")
        if not reasoning:
            reasoning, turn["content"] = split_reasoning(turn["content"])
        if reasoning:
            turn["reasoning_content"] = reasoning
        calls = message.get("tool_calls") or []
        if not isinstance(calls, (list, tuple)):
            raise invalid_parameter(f"{path}.tool_calls", "must be an array")
        if calls:
            turn["tool_calls"] = [_tool_call(call, f"{path}.tool_calls[{n}]") for n, call in enumerate(calls)]
    return turn


def _tool_call(call: Any, path: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        raise invalid_parameter(f"{path}.function", "must be an object with name and arguments")
    name = _text(function.get("name"), f"{path}.function.name")
    if not name:
        raise invalid_parameter(f"{path}.function.name", "must be the name of a function")
    arguments = _arguments(function.get("arguments"), f"{path}.function.arguments")
    return {"type": "function", "id": call.get("id"), "function": {"name": name, "arguments": arguments}}


def _arguments(value: Any, path: str) -> dict[str, Any]:
    """Arguments as an object. Clients send back the JSON text they were given: it is decoded once."""
    if value is None or value == "":
        return {}
    if isinstance(value, str):
        try:
            value = json.loads(value, parse_constant=_no_constant, parse_float=_finite)
        except (ValueError, RecursionError):
            raise invalid_parameter(path, "must be a JSON object, or the text of one") from None
        check_json(value, path)
    if not isinstance(value, Mapping):
        raise invalid_parameter(path, "must be a JSON object, or the text of one")
    return dict(value)


def _finite(text: str) -> float:
    number = float(text)
    if abs(number) == float("inf"):
        raise ValueError(f"{text} is too large")
    return number


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _content(value: Any, path: str) -> str:
    """Content as one text; the text parts of an array are joined as they are."""
    if not isinstance(value, (list, tuple)):
        return _text(value, path)
    texts = []
    for index, part in enumerate(value):
        if not isinstance(part, Mapping) or part.get("type") != "text":
            raise invalid_parameter(f"{path}[{index}]", 'only parts of type "text" are supported')
        texts.append(_text(part.get("text"), f"{path}[{index}].text"))
    return "".join(texts)


def _text(value: Any, path: str) -> str:
    """Text, with null as the empty one."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise invalid_parameter(path, "must be text")
    return value


def _check_text(text: str, path: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        found = f"\\u{ord(text[error.start]):04x}"
        raise invalid_parameter(path, f"lone surrogate {found} at character {error.start}") from None
