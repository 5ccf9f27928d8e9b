"""Reading tool calls (M-81)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ling3.text import ToolCall
from ling3.text.tokenizer import ARGUMENT_TAGS
from ling3.text.tool_calls import ToolParser


def tool(name: str, **properties: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}


def body(name: str, *pairs: tuple[str, str]) -> list[tuple[str, str]]:
    """A well-formed inside of a call, as the template writes it."""
    parts = [("", name)]
    for key, value in pairs:
        parts += zip(ARGUMENT_TAGS, (key, "\n", value, ""), strict=True)
    return parts


@pytest.mark.parametrize(
    ("inside", "call"),
    [
        (body("f\n\n"), ToolCall("f", "{}")),
        (body("f"), ToolCall("f", "{}")),
        (body(" get_weather \n", ("city", "Paris")), ToolCall("get_weather", '{"city": "Paris"}')),
        (body("f", ("a", "x"), ("b", "y")), ToolCall("f", '{"a": "x", "b": "y"}')),
        (body("f", ("a", "1"), ("a", "2")), ToolCall("f", '{"a": 2}')),
        (body("f", ("a", "line\nline\n")), ToolCall("f", '{"a": "line\\nline\\n"}')),
        (body("f", ("é", "</arg_value>")), ToolCall("f", '{"é": "</arg_value>"}')),
    ],
)
def test_reads_calls(inside: list[tuple[str, str]], call: ToolCall) -> None:
    assert ToolParser([]).parse(inside) == call


@pytest.mark.parametrize(
    "inside",
    [
        body(""),
        body("\n", ("a", "1")),
        body("two\nlines", ("a", "1")),
        body("f", ("a", "1"))[:-1],
        body("f", ("a", "1"))[:3],
        [("", "f"), ("<arg_value>", "1"), ("</arg_value>", "")],
        [("", "f"), *zip(ARGUMENT_TAGS, ("a", "gap", "1", ""), strict=True)],
        [("", "f"), *zip(ARGUMENT_TAGS, ("a", "", "1", "after"), strict=True)],
        [("", "f"), *zip(reversed(ARGUMENT_TAGS), ("a", "", "1", ""), strict=True)],
    ],
)
def test_malformed_call_is_none(inside: list[tuple[str, str]]) -> None:
    assert ToolParser([]).parse(inside) is None


def test_tags_written_as_ordinary_text_are_read() -> None:
    text = "f\n<arg_key>a</arg_key>\n<arg_value>x\ny</arg_value><arg_key>b</arg_key><arg_value>2</arg_value>\n"
    assert ToolParser([]).parse([("", text)]) == ToolCall("f", '{"a": "x\\ny", "b": 2}')


STRING = {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "value", "text"),
    [
        (STRING, "12", '"12"'),
        (STRING, "null", '"null"'),
        (STRING, '"quoted"', '"\\"quoted\\""'),
        (STRING, " it's ", '" it\'s "'),
        ({"type": ["string", "null"]}, "null", "null"),
        ({"type": ["string", "null"]}, "12", '"12"'),
        ({"anyOf": [STRING, {"type": "null"}]}, "null", "null"),
        ({"oneOf": [{"type": "number"}, STRING]}, "12", "12"),
        ({"type": "integer"}, "12", "12"),
        ({"type": "integer"}, "123456789012345678901234567890", "123456789012345678901234567890"),
        ({"type": "number"}, " 1.10\n", "1.10"),
        ({"type": "boolean"}, "true", "true"),
        ({"type": "boolean"}, "True", '"True"'),
        ({"type": "object"}, '{"q": "it\'s", "x": null}', '{"q": "it\'s", "x": null}'),
        ({"type": "array"}, "[1, 2", '"[1, 2"'),
        ({"type": "number"}, "NaN", '"NaN"'),
        ({"type": "number"}, "1e999", '"1e999"'),
        ({"type": "array"}, "[" * 5000, json.dumps("[" * 5000)),
        ({}, "12", "12"),
        ({}, "", '""'),
        ({}, "plain text", '"plain text"'),
        ({}, '"\\ud83d"', '"\\"\\\\ud83d\\""'),
        ("strange", "12", "12"),
        ({"type": 5, "anyOf": "x"}, "12", "12"),
    ],
)
def test_type_of_a_value_comes_from_the_schema(schema: Any, value: str, text: str) -> None:
    call = ToolParser([tool("other", a=STRING), tool("f", a=schema)]).parse(body("f", ("a", value)))
    assert call == ToolCall("f", f'{{"a": {text}}}')


@pytest.mark.parametrize("members", [{}, {"function": {"name": "f"}}, {"function": {"name": "f", "parameters": []}}])
def test_tool_without_a_readable_schema_says_nothing(members: dict[str, Any]) -> None:
    assert ToolParser([members]).parse(body("f", ("a", "1"))) == ToolCall("f", '{"a": 1}')


values = st.one_of(st.none(), st.booleans(), st.integers(), st.lists(st.text(max_size=5), max_size=3))


@settings(max_examples=50)
@given(st.dictionaries(st.text(max_size=5), values, max_size=4))
def test_arguments_written_as_the_template_does_are_read_back(arguments: dict[str, Any]) -> None:
    pairs = [(key, json.dumps(value, ensure_ascii=False)) for key, value in arguments.items()]
    call = ToolParser([]).parse(body("f\n", *pairs))
    assert call is not None
    assert json.loads(call.arguments) == arguments
