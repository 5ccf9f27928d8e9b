"""Reading a tool call that the model wrote (M-81).

    <tool_call>NAME⏎<arg_key>KEY</arg_key>⏎<arg_value>VALUE</arg_value>…⏎</tool_call>
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from ling3.text.output import ToolCall
from ling3.text.tokenizer import ARGUMENT_TAGS

# A call's inside as (tag, text up to the next tag); the first tag is "" and its text holds the name.
Body = Sequence[tuple[str, str]]

_TAG = re.compile(f"({'|'.join(map(re.escape, ARGUMENT_TAGS))})")


class ToolParser:
    """Turns the inside of a call into a `ToolCall`, with the value types of the tools' JSON schemas."""

    def __init__(self, tools: Sequence[Mapping[str, Any]]) -> None:
        self._types = dict(_parameter_types(tools))

    def parse(self, body: Body) -> ToolCall | None:
        """The call, or None if the text is none: no name, or not pairs of key and value."""
        if len(body) == 1:  # the tags may come as ordinary text, if the tokenizer has no tokens for them
            body = _split(body[0][1])
        name = body[0][1].strip()
        pairs = body[1:]
        if not name or "\n" in name or len(pairs) % 4:
            return None
        arguments: dict[str, str] = {}
        for at in range(0, len(pairs), 4):
            tags, texts = zip(*pairs[at : at + 4], strict=True)
            key, gap, value, after = texts
            if tags != ARGUMENT_TAGS or gap.strip() or after.strip():
                return None
            arguments[key] = _as_json(value, self._types.get((name, key), frozenset()))
        members = (f"{json.dumps(key, ensure_ascii=False)}: {value}" for key, value in arguments.items())
        return ToolCall(name, "{" + ", ".join(members) + "}")


def _split(text: str) -> Body:
    parts = ["", *_TAG.split(text)]
    return list(zip(parts[::2], parts[1::2], strict=True))


def _as_json(value: str, types: frozenset[str]) -> str:
    """A value as JSON text, its own spelling kept if it is JSON already.

    A parameter that may be a string takes the text as it stands, unless the text is JSON of another type that the
    schema allows too (`null` for an optional string). Everything else is JSON if it can be read as such.
    """
    try:
        decoded = orjson.loads(value)
    except orjson.JSONDecodeError:
        return json.dumps(value, ensure_ascii=False)
    if "string" in types and not (_json_types(decoded) & types - {"string"}):
        return json.dumps(value, ensure_ascii=False)
    return value.strip()


def _json_types(value: Any) -> frozenset[str]:
    """Names of JSON Schema that a decoded value answers to."""
    match value:
        case None:
            return frozenset({"null"})
        case bool():
            return frozenset({"boolean"})
        case int():
            return frozenset({"integer", "number"})
        case float():
            return frozenset({"number"})
        case str():
            return frozenset({"string"})
        case list():
            return frozenset({"array"})
        case _:
            return frozenset({"object"})


def _parameter_types(tools: Sequence[Mapping[str, Any]]) -> Iterator[tuple[tuple[str, str], frozenset[str]]]:
    """((tool, parameter), types) of every parameter whose schema can be read; a strange schema says nothing."""
    for tool in tools:
        match tool:
            case {"function": {"name": str(name), "parameters": {"properties": Mapping() as properties}}}:
                for key, schema in properties.items():
                    yield (name, key), frozenset(_types(schema))


def _types(schema: Any) -> Iterator[str]:
    if not isinstance(schema, Mapping):
        return
    match schema.get("type"):
        case str(name):
            yield name
        case [*names]:
            yield from (name for name in names if isinstance(name, str))
    for union in ("anyOf", "oneOf"):
        branches = schema.get(union)
        if isinstance(branches, (list, tuple)):
            for branch in branches:
                yield from _types(branch)
