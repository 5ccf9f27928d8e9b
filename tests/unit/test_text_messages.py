"""Messages made ready for the template, and the refusals that name the field."""

from __future__ import annotations

from typing import Any

import pytest

from ling3.errors import RequestError
from ling3.text.messages import normalise_messages, normalise_tools, split_reasoning

USER = {"role": "user", "content": "Hi"}


def call(arguments: Any, name: Any = "f") -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(arguments: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": [call(arguments)]}


def nested(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


def test_developer_is_system() -> None:
    assert normalise_messages([{"role": "developer", "content": "Be brief."}, USER]) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
    ]


def test_order_and_place_are_kept() -> None:
    roles = ["assistant", "user", "user", "system", "user", "system", "system"]
    assert [m["role"] for m in normalise_messages([{"role": role, "content": "x"} for role in roles])] == roles


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("", ""),
        ([], ""),
        ([{"type": "text", "text": "The answer"}, {"type": "text", "text": " is 4."}], "The answer is 4."),
    ],
)
@pytest.mark.parametrize("role", ["system", "user", "assistant"])
def test_forms_of_content(role: str, content: Any, text: str) -> None:
    assert normalise_messages([{"role": role, "content": content}])[0]["content"] == text


def test_absent_content_and_no_calls_are_an_empty_turn() -> None:
    assert normalise_messages([{"role": "assistant", "tool_calls": []}]) == [{"role": "assistant", "content": ""}]


@pytest.mark.parametrize(
    ("arguments", "decoded"),
    [
        ('{"q": "it\'s", "flag": true, "x": null}', {"q": "it's", "flag": True, "x": None}),
        ({"a": 1}, {"a": 1}),
        ('{"id": 123456789012345678901234567890}', {"id": 123456789012345678901234567890}),
        ('{"text": "{\\"b\\": 1}"}', {"text": '{"b": 1}'}),
        ("{}", {}),
        ("", {}),
        (None, {}),
    ],
)
def test_arguments_are_decoded_once(arguments: Any, decoded: dict[str, Any]) -> None:
    assert normalise_messages([calling(arguments)])[0]["tool_calls"][0]["function"]["arguments"] == decoded


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("plain", ("", "plain")),
        ("\nplain\n", ("", "\nplain\n")),
        ("<think>only opened", ("", "<think>only opened")),
        ("<think>\na\n</think>\n\nb", ("a", "b")),
        ("a</think>b", ("a", "b")),
        ("x<think>y<think>z</think>1</think>\n2", ("z", "2")),
        ("</think>", ("", "")),
    ],
)
def test_reasoning_inside_content(content: str, expected: tuple[str, str]) -> None:
    assert split_reasoning(content) == expected


@pytest.mark.parametrize(
    "message",
    [
        {"role": "developer", "content": [{"type": "text", "text": "<think>a</think>b"}]},
        {"role": "assistant", "content": "<think>a</think>\nb<think>"},
        {"role": "assistant", "content": "</think></think>b"},
        {"role": "assistant", "content": "b</think>", "reasoning_content": "a</think>"},
        calling('{"a": "{}"}'),
    ],
)
def test_what_is_ready_stays_as_it_is(message: dict[str, Any]) -> None:
    ready = normalise_messages([message])
    assert normalise_messages(ready) == ready


def test_content_is_not_split_if_reasoning_is_given() -> None:
    message = {"role": "assistant", "content": "use </think> so", "reasoning_content": "hm"}
    assert normalise_messages([message]) == [message]


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        (["Hi"], "messages[0]"),
        ([{"content": "x"}], "messages[0].role"),
        ([USER, {"role": "function", "content": "x"}], "messages[1].role"),
        ([{"role": ["user"], "content": "x"}], "messages[0].role"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "user", "content": {"type": "text"}}], "messages[0].content"),
        ([{"role": "user", "content": ["x"]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "text", "text": 1}]}], "messages[0].content[0].text"),
        ([{"role": "user", "content": 'emoji "\ud83d"'}], "messages[0].content"),
        ([USER, {"role": "assistant", "content": "", "reasoning_content": "\ude00"}], "messages[1].reasoning_content"),
        ([{"role": "assistant", "reasoning_content": []}], "messages[0].reasoning_content"),
        ([{"role": "user", "content": "x", "name": 7}], "messages[0].name"),
        ([USER, {"role": "tool", "content": "x"}], "messages[1]"),
        ([{"role": "tool", "content": "x"}, calling("{}")], "messages[0]"),
        ([{"role": "assistant", "tool_calls": {}}, {"role": "tool", "content": "x"}], "messages[1]"),
        ([{"role": "assistant", "tool_calls": "f()"}], "messages[0].tool_calls"),
        ([{"role": "assistant", "tool_calls": ["f"]}], "messages[0].tool_calls[0].function"),
        ([{"role": "assistant", "tool_calls": [call("{}"), {}]}], "messages[0].tool_calls[1].function"),
        ([{"role": "assistant", "tool_calls": [call("{}", None)]}], "messages[0].tool_calls[0].function.name"),
        ([calling("[1]")], "messages[0].tool_calls[0].function.arguments"),
        ([calling('{"a": NaN}')], "messages[0].tool_calls[0].function.arguments"),
        ([calling('{"a": ')], "messages[0].tool_calls[0].function.arguments"),
        ([calling("[" * 100_000)], "messages[0].tool_calls[0].function.arguments"),
        ([calling(3)], "messages[0].tool_calls[0].function.arguments"),
        ([calling('{"a": "\\ud83d"}')], "messages[0].tool_calls[0].function.arguments.a"),
        ([calling({"\ud83d": 1})], "messages[0].tool_calls[0].function.arguments"),
        ([calling({1: 1})], "messages[0].tool_calls[0].function.arguments"),
        ([calling({"a": object()})], "messages[0].tool_calls[0].function.arguments.a"),
    ],
)
def test_refusal_names_the_field(messages: Any, param: str) -> None:
    with pytest.raises(RequestError) as caught:
        normalise_messages(messages)
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, "invalid_parameter", param)
    str(caught.value).encode()


def test_nesting_has_a_limit() -> None:
    with pytest.raises(RequestError, match="nested deeper than 100 levels"):
        normalise_messages([calling({"a": nested(100_000)})])


def test_paired_surrogates_of_json_are_one_character() -> None:
    arguments = '{"a": "\\ud83d\\ude00"}'
    assert normalise_messages([calling(arguments)])[0]["tool_calls"][0]["function"]["arguments"] == {"a": "😀"}


def test_tools_are_taken_as_given() -> None:
    tools = [{"z": 1, "a": {"b": []}}]
    assert normalise_tools(tools) == tools
    assert normalise_tools(None) == []


@pytest.mark.parametrize(
    ("tools", "param"),
    [
        (["f"], "tools[0]"),
        ([{}, {"function": {"description": "\udfff"}}], "tools[1].function.description"),
    ],
)
def test_refusal_names_the_tool(tools: Any, param: str) -> None:
    with pytest.raises(RequestError) as caught:
        normalise_tools(tools)
    assert caught.value.param == param
