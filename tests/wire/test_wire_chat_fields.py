"""The chat body: what is accepted with which meaning, and what is refused with which field named."""

from __future__ import annotations

import json
from typing import Any

import pytest
from wire import USER_HI, Running

from ling3.engine.request import ChatRequest, Sampling
from ling3.serve.schema import parse_chat

TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"q": "it\'s", "flag": true}'}}


def accepted(server: Running, **fields: Any) -> ChatRequest:
    """What the engine got for a request that must be answered."""
    answer = server.chat(**fields)
    assert answer.status == 200, answer.body
    return server.engine.requests[-1]


def refused(server: Running, param: str | None, code: str = "invalid_parameter", **fields: Any) -> str:
    """The message of a request that must be 400 in both answer forms, without reaching the engine."""
    server.engine.requests.clear()
    answer = server.chat(**fields)
    streamed = server.chat(**({"stream": True} | fields))
    assert answer.status == streamed.status == 400, (answer.body, streamed.body)
    assert (answer.error["code"], answer.error["param"]) == (code, param)
    assert (streamed.error["code"], streamed.error["param"]) == (code, param)
    assert server.engine.requests == []
    return str(answer.error["message"])


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"messages":[', "line 1 column 14"),
        (b'{"messages":"a\nb"}', "line 1 column 15"),
        (b"", "empty"),
        (b"[]", "must be a JSON object"),
        (b"null", "must be a JSON object"),
        (b'"x"', "must be a JSON object"),
        (b'{"messages":"\xff"}', "UTF-8"),
        (b'{"messages":[]} x', "after"),
        (b"[" * 100_000, "line 1"),
        (b"[" * 100_000 + b"]" * 100_000, "line 1"),
        (b'{"messages":' * 50_000, "line 1"),
        (b'{"temperature":NaN}', "line 1"),
        (b'{"temperature":-Infinity}', "line 1"),
        (b'{"temperature":1e999}', "line 1"),
    ],
)
def test_a9_what_is_not_a_json_object_is_400_with_the_place(server: Running, body: bytes, said: str) -> None:
    answer = server.post(body)
    assert (answer.status, answer.error["code"]) == (400, "invalid_json")
    assert said in answer.error["message"]


@pytest.mark.parametrize("text", [r"emoji \ud83d", r"x \ude00 y"])
@pytest.mark.parametrize("stream", ["false", "true"])
def test_c7_a_lone_surrogate_is_400(server: Running, text: str, stream: str) -> None:
    answer = server.post(f'{{"messages":[{{"role":"user","content":"{text}"}}],"stream":{stream}}}'.encode())
    assert (answer.status, answer.error["code"]) == (400, "invalid_json")
    assert "surrogate" in answer.error["message"]


def test_c7_a_paired_surrogate_is_a_character(server: Running) -> None:
    assert server.post(rb'{"messages":[{"role":"user","content":"\ud83d\ude00"}]}').status == 200
    assert server.engine.requests[0].messages[0]["content"] == "😀"


def test_a10_the_model_may_be_named_or_not(server: Running) -> None:
    accepted(server, model="ling3-tiny")
    accepted(server, model=None)


def test_a10_another_model_is_404(server: Running) -> None:
    answer = server.chat(model="gpt-4o-mini")
    assert (answer.status, answer.error["code"], answer.error["param"]) == (404, "model_not_found", "model")
    assert "ling3-tiny" in answer.error["message"]


def test_c1_developer_is_system(server: Running) -> None:
    request = accepted(server, messages=[{"role": "developer", "content": "Be brief."}, *USER_HI])
    assert request.messages[0] == {"role": "system", "content": "Be brief."}


@pytest.mark.parametrize("content", [{"content": None}, {}])
def test_c2_an_assistant_turn_may_be_calls_only(server: Running, content: dict[str, Any]) -> None:
    request = accepted(
        server,
        messages=[
            *USER_HI,
            {"role": "assistant", "tool_calls": [CALL]} | content,
            {"role": "tool", "tool_call_id": "c1", "content": "ok"},
        ],
    )
    assert request.messages[1]["content"] == ""
    assert request.messages[1]["tool_calls"][0]["function"] == {"name": "f", "arguments": {"q": "it's", "flag": True}}
    assert request.messages[2]["content"] == "ok"


@pytest.mark.parametrize("message", [{"role": "assistant"}, {"role": "assistant", "tool_calls": []}])
def test_c23_an_empty_assistant_turn(server: Running, message: dict[str, Any]) -> None:
    request = accepted(server, messages=[*USER_HI, message, *USER_HI])
    assert request.messages[1] == {"role": "assistant", "content": ""}


@pytest.mark.parametrize("role", ["user", "assistant", "system"])
def test_c8_content_parts_are_joined(server: Running, role: str) -> None:
    parts = [{"type": "text", "text": "The answer"}, {"type": "text", "text": " is 4."}]
    request = accepted(server, messages=[{"role": role, "content": parts}])
    assert request.messages[0]["content"] == "The answer is 4."


def test_reasoning_in_the_history_is_kept(server: Running) -> None:
    request = accepted(server, messages=[*USER_HI, {"role": "assistant", "content": "4", "reasoning_content": "sum"}])
    assert request.messages[1]["reasoning_content"] == "sum"


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        (None, "messages"),
        ("hi", "messages"),
        ({}, "messages"),
        (["hi"], "messages[0]"),
        ([{"content": "hi"}], "messages[0].role"),
        ([{"role": "wizard", "content": "hi"}], "messages[0].role"),
        ([*USER_HI, {"role": "function", "content": "hi"}], "messages[1].role"),
        ([{"role": 1, "content": "hi"}], "messages[0].role"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "messages[0].content[0]"),
        ([*USER_HI, {"role": "tool", "content": "x"}], "messages[1]"),
        ([{"role": "assistant", "function_call": {"name": "f"}}], "messages[0].function_call"),
    ],
)
def test_unusable_messages_are_named(server: Running, messages: Any, param: str) -> None:
    refused(server, param, messages=messages)


def test_messages_are_required(server: Running) -> None:
    answer = server.post(b"{}")
    assert (answer.status, answer.error["param"]) == (400, "messages")


def test_c4_max_completion_tokens_wins(server: Running) -> None:
    assert accepted(server, max_tokens=9, max_completion_tokens=4).max_tokens == 4
    assert accepted(server, max_tokens=9).max_tokens == 9
    assert accepted(server, max_tokens=9, max_completion_tokens=None).max_tokens == 9
    assert accepted(server).max_tokens is None


def test_c5_unknown_fields_are_ignored(server: Running) -> None:
    accepted(server, store=True, metadata={}, service_tier="auto", foo=1)


def test_null_is_the_default(server: Running) -> None:
    names = (
        "model temperature top_p top_k repeat_penalty seed stop stream stream_options max_tokens user session_id n "
        "cache_prompt reuse_generated_state enable_thinking chat_template_kwargs reasoning_effort tools tool_choice "
        "flow_control response_format logprobs top_logprobs logit_bias presence_penalty frequency_penalty"
    )
    assert accepted(server, **dict.fromkeys(names.split())) == accepted(server)


def test_the_defaults(server: Running) -> None:
    assert accepted(server) == ChatRequest(messages=USER_HI)


def test_sampling_reaches_the_engine(server: Running) -> None:
    request = accepted(server, temperature=0, top_p=1, top_k=0, repeat_penalty=1.1, seed=-1)
    assert request.sampling == Sampling(0.0, 1.0, 0, 1.1, 0xFFFF_FFFF)


@pytest.mark.parametrize("field", ["temperature", "top_p", "repeat_penalty"])
@pytest.mark.parametrize("value", ["NaN", -1, "0.7", True, [], {}])
def test_c6_numbers_are_checked(server: Running, field: str, value: Any) -> None:
    assert refused(server, field, **{field: value}).startswith(f"{field}: ")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", 1e9),
        ("temperature", 2.001),
        ("top_p", 0),
        ("top_p", 1.5),
        ("repeat_penalty", 0),
        ("top_k", -1),
        ("top_k", 1.0),
        ("top_k", True),
        ("top_k", "40"),
        ("seed", 1.5),
        ("seed", True),
        ("seed", 2**70),
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("max_tokens", 2.0),
        ("max_completion_tokens", True),
    ],
)
def test_c6_ranges_and_integers(server: Running, field: str, value: Any) -> None:
    refused(server, field, **{field: value})


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "1e400"])
def test_c6_numbers_that_are_none(server: Running, word: str) -> None:
    body = b'{"messages":[{"role":"user","content":"hi"}],"temperature":%s}' % word.encode()
    assert server.post(body).error["code"] == "invalid_json"


def test_stop_is_text_or_up_to_four(server: Running) -> None:
    assert accepted(server, stop="\n").stop == ("\n",)
    assert accepted(server, stop=["a", "b", "c", "d"]).stop == ("a", "b", "c", "d")
    assert accepted(server, stop=[]).stop == ()


@pytest.mark.parametrize(
    ("stop", "param"),
    [("", "stop"), (["a"] * 5, "stop"), ([""], "stop[0]"), ([1], "stop[0]"), (1, "stop")],
)
def test_stop_refused(server: Running, stop: Any, param: str) -> None:
    refused(server, param, stop=stop)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 2),
        ("n", True),
        ("n", 1.0),
        ("logprobs", True),
        ("top_logprobs", 3),
        ("logit_bias", {"42": -100}),
        ("presence_penalty", 0.5),
        ("frequency_penalty", -0.5),
        ("frequency_penalty", False),
        ("min_p", 0.1),
        ("tool_choice", "required"),
        ("tool_choice", {"type": "function", "function": {"name": "f"}}),
        ("response_format", {"type": "json_object"}),
        ("functions", [{"name": "f"}]),
        ("modalities", ["text", "audio"]),
    ],
)
def test_c22_what_is_not_supported_is_refused(server: Running, field: str, value: Any) -> None:
    assert refused(server, field, **{field: value}).startswith(f"{field}: ")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 1),
        ("logprobs", False),
        ("top_logprobs", 0),
        ("logit_bias", {}),
        ("presence_penalty", 0),
        ("frequency_penalty", 0.0),
        ("tool_choice", "auto"),
        ("tool_choice", "none"),
        ("functions", []),
        ("modalities", ["text"]),
    ],
)
def test_c22_harmless_values_are_accepted(server: Running, field: str, value: Any) -> None:
    accepted(server, **{field: value})


def test_c24_response_format(server: Running) -> None:
    accepted(server, response_format={"type": "text"})
    refused(server, "response_format", response_format={"type": "json_object"})
    refused(server, "response_format", response_format={"type": "json_schema", "json_schema": {"strict": True}})


def test_tools_reach_the_engine_as_they_were_sent(server: Running) -> None:
    tool = {"function": {"parameters": {"b": 1, "a": 2}, "name": "f", "strict": True}, "type": "function"}
    tools = accepted(server, tools=[tool]).tools
    assert json.dumps(tools) == json.dumps([tool])


def test_no_tools_in_every_form(server: Running) -> None:
    assert accepted(server, tools=[]).tools is None
    assert accepted(server, tools=[TOOL], tool_choice="none").tools is None


def deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"x": value}
    return {"type": "function", "function": {"name": "f", "parameters": value}}


@pytest.mark.parametrize(
    ("tools", "param"),
    [
        ({}, "tools"),
        (["f"], "tools[0]"),
        ([TOOL, {"type": "web_search", "function": {"name": "f"}}], "tools[1].type"),
        ([{"type": "function"}], "tools[0].function"),
        ([{"type": "function", "function": {}}], "tools[0].function.name"),
        ([{"type": "function", "function": {"name": ""}}], "tools[0].function.name"),
        ([{"type": "function", "function": {"name": "a\nb"}}], "tools[0].function.name"),
        ([{"type": "function", "function": {"name": "f", "parameters": "x"}}], "tools[0].function.parameters"),
    ],
)
def test_unusable_tools_are_named(server: Running, tools: Any, param: str) -> None:
    refused(server, param, tools=tools)


def test_a_schema_nested_beyond_reason_is_refused(server: Running) -> None:
    assert server.chat(tools=[deep(800)]).status == 400


@pytest.mark.parametrize(
    ("fields", "thinking"),
    [
        ({}, False),
        ({"enable_thinking": True}, True),
        ({"chat_template_kwargs": {"enable_thinking": True}}, True),
        ({"chat_template_kwargs": {"other": 1}}, False),
        ({"enable_thinking": False, "chat_template_kwargs": {"enable_thinking": True}}, False),
        ({"reasoning_effort": "none"}, False),
        ({"reasoning_effort": "minimal"}, False),
        ({"reasoning_effort": "low"}, True),
        ({"reasoning_effort": "high"}, True),
        ({"reasoning_effort": "high", "enable_thinking": False}, False),
    ],
)
def test_thinking(server: Running, fields: dict[str, Any], thinking: bool) -> None:
    assert accepted(server, **fields).enable_thinking is thinking


def test_thinking_by_default_where_the_server_was_started_so() -> None:
    def thinking(**fields: Any) -> bool:
        return parse_chat(json.dumps({"messages": USER_HI} | fields).encode(), "m", True).request.enable_thinking

    assert thinking() is True
    assert thinking(enable_thinking=None) is True
    assert thinking(enable_thinking=False) is False
    assert thinking(reasoning_effort="none") is False


@pytest.mark.parametrize("session_id", ["s", "x" * 256, "é" * 128])
def test_session_id(server: Running, session_id: str) -> None:
    assert accepted(server, session_id=session_id).session_id == session_id


@pytest.mark.parametrize("session_id", ["", "x" * 257, "é" * 129, 7])
def test_session_id_refused(server: Running, session_id: Any) -> None:
    refused(server, "session_id", session_id=session_id)


def test_cache_fields_reach_the_engine(server: Running) -> None:
    request = accepted(server, user="u", session_id="s", cache_prompt=False, reuse_generated_state=False)
    assert (request.user, request.session_id) == ("u", "s")
    assert (request.cache_prompt, request.reuse_generated_state) == (False, False)


@pytest.mark.parametrize(
    "field", ["stream", "cache_prompt", "reuse_generated_state", "enable_thinking", "user", "flow_control"]
)
def test_wrong_types_are_named(server: Running, field: str) -> None:
    answer = server.chat(**{field: 1})
    assert (answer.status, answer.error["param"]) == (400, field)


def test_stream_options_need_a_stream(server: Running) -> None:
    answer = server.chat(stream_options={"include_usage": True})
    assert (answer.status, answer.error["param"]) == (400, "stream_options")


def test_flow_control(server: Running) -> None:
    accepted(server, flow_control="none")
    refused(server, "flow_control", flow_control="credit")
    refused(server, "flow_control", code="invalid_flow_control", flow_control="ack")
