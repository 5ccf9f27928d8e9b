"""From token ids to pieces: UTF-8, channels, stops and tool calls together."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text_fixtures import chat_text, control_id, joined, run, size, tokens

from ling3.text import Piece, ToolCall

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"type": "string"}}}}}]
ARGUMENT = ["<arg_key>", "a", "</arg_key>", "\n", "<arg_value>", "1", "</arg_value>"]
CALL = ["<tool_call>", "f\n", *ARGUMENT, "\n", "</tool_call>"]
CALLED = Piece("tool_call", "", ToolCall("f", '{"a": "1"}'))


def merged(pieces: list[Piece]) -> list[Piece]:
    """Neighbouring text pieces of one channel as one."""
    result: list[Piece] = []
    for piece in pieces:
        if result and piece.call is None and result[-1].call is None and result[-1].channel == piece.channel:
            result[-1] = Piece(piece.channel, result[-1].text + piece.text)
        else:
            result.append(piece)
    return result


def answer(*parts: str | bytes, **options: Any) -> list[Piece]:
    return merged(run(tokens(*parts), **options))


def test_character_split_over_tokens_comes_whole() -> None:
    output = chat_text().output([], thinking=False)
    pieces = [output.push(token_id) for token_id in tokens(b"\xf0\x9f\x98\x80!")]
    assert pieces == [[], [], [], [Piece("content", "😀")], [Piece("content", "!")]]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xe2\x9c\x85\x85 done", "✅\ufffd done"),
        (b"\xf0\x9f\x98", "\ufffd"),
        (b"a\xe2\x82b", "a\ufffdb"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"\xed\xa0\xbd", "\ufffd\ufffd\ufffd"),
    ],
)
def test_broken_utf8_is_replaced_and_the_answer_goes_on(data: bytes, text: str) -> None:
    assert answer(data) == [Piece("content", text)]


def test_character_broken_by_a_marker_is_replaced() -> None:
    assert answer(b"\xf0\x9f", "</think>", b"\x98", thinking=True) == [
        Piece("reasoning", "\ufffd"),
        Piece("content", "\ufffd"),
    ]


def test_reasoning_ends_at_its_marker() -> None:
    pieces = answer("plan", "</think>", "answer", thinking=True)
    assert pieces == [Piece("reasoning", "plan"), Piece("content", "answer")]


def test_without_thinking_everything_is_content() -> None:
    assert answer("a", "</think>", "b") == [Piece("content", "ab")]


def test_unclosed_reasoning_stays_reasoning() -> None:
    assert answer("so far", thinking=True) == [Piece("reasoning", "so far")]


def test_quoted_marker_does_not_end_reasoning() -> None:
    quoted = chat_text().tokenizer.encode_text("write `</think>` and `<tool_call>`")
    assert merged(run(quoted, thinking=True, tools=TOOLS)) == [Piece("reasoning", "write `</think>` and `<tool_call>`")]


@pytest.mark.parametrize("literal", ["<|role_end|>", "<|endoftext|>", "<think>", "<role>", "</tool_call>", "<arg_key>"])
@pytest.mark.parametrize("thinking", [True, False])
def test_other_control_tokens_leave_no_trace(literal: str, thinking: bool) -> None:
    channel = "reasoning" if thinking else "content"
    assert [(p.channel, p.text) for p in answer("a", literal, "b", thinking=thinking, tools=TOOLS)] == [(channel, "ab")]


def test_call_inside_reasoning_ends_it() -> None:
    assert answer("plan ", *CALL, thinking=True, tools=TOOLS) == [Piece("reasoning", "plan "), CALLED]


def test_call_after_reasoning() -> None:
    assert answer("plan", "</think>", *CALL, thinking=True, tools=TOOLS) == [Piece("reasoning", "plan"), CALLED]


def test_call_is_complete_with_its_closing_marker() -> None:
    output = chat_text().output([], False, TOOLS)
    pieces = [output.push(token_id) for token_id in tokens(*CALL)]
    assert pieces[-1] == [CALLED]
    assert not any(pieces[:-1])


def test_newline_before_a_call_is_no_content() -> None:
    assert answer("Let me see.\n", *CALL, tools=TOOLS) == [Piece("content", "Let me see."), CALLED]


def test_newline_that_no_call_follows_is_content() -> None:
    assert answer("one\n", "two\n", tools=TOOLS) == [Piece("content", "one\ntwo\n")]


def test_white_space_around_further_calls_is_no_content() -> None:
    assert answer(*CALL, "\n", *CALL, " \n\n", tools=TOOLS) == [CALLED, CALLED]


def test_text_after_a_call_is_content() -> None:
    assert answer(*CALL, "\n", "done\n", tools=TOOLS) == [CALLED, Piece("content", "\ndone\n")]


@pytest.mark.parametrize("end", [2, 5, 8, len(CALL) - 1])
def test_unfinished_call_is_dropped(end: int) -> None:
    assert answer("Hm.\n", *CALL[:end], tools=TOOLS) == [Piece("content", "Hm.")]


def test_call_that_opens_inside_another_closes_it() -> None:
    assert answer(*CALL[:-1], *CALL, tools=TOOLS) == [CALLED, CALLED]


def test_malformed_call_is_content_without_markers() -> None:
    parts = ["Hm.\n", "<tool_call>", "f\n", "<arg_key>", "a", "</arg_key>", "</tool_call>", "ok"]
    assert answer(*parts, tools=TOOLS) == [Piece("content", "Hm.\nf\naok")]


@pytest.mark.parametrize("thinking", [True, False])
def test_call_nobody_asked_for_is_content_without_markers(thinking: bool) -> None:
    before = [Piece("reasoning", "x")] if thinking else [Piece("content", "x")]
    expected = merged([*before, Piece("content", "f\na\n1\n")])
    assert answer("x", *CALL, thinking=thinking) == expected


def test_stop_cuts_content() -> None:
    assert answer("alpha beta", " gamma", stops=["ta ga"]) == [Piece("content", "alpha be")]


def test_stop_cuts_reasoning() -> None:
    assert answer("one. two", "</think>", "x", thinking=True, stops=[". "]) == [Piece("reasoning", "one")]


def test_held_prefix_of_a_stop_stays_on_its_channel() -> None:
    assert answer("a\nUs", "</think>", "er:b", thinking=True, stops=["\nUser:"]) == [
        Piece("reasoning", "a\nUs"),
        Piece("content", "er:b"),
    ]


def test_held_prefix_of_a_stop_comes_before_the_call() -> None:
    assert answer("EN", *CALL, tools=TOOLS, stops=["END"]) == [Piece("content", "EN"), CALLED]


def test_stop_does_not_look_into_calls() -> None:
    assert answer(*CALL, tools=TOOLS, stops=["f", "1"]) == [CALLED]


def test_stop_reaches_into_a_malformed_call() -> None:
    output = chat_text().output(["bad"], False, TOOLS)
    pieces = [p for i in tokens("<tool_call>", "a\nbad\n", "</tool_call>", "more") for p in output.push(i)]
    assert (pieces, output.stopped) == ([Piece("content", "a\n")], True)


def test_newline_before_a_stop_is_content() -> None:
    assert answer("one\n", "END", tools=TOOLS, stops=["END"]) == [Piece("content", "one\n")]


def test_nothing_comes_after_a_stop() -> None:
    output = chat_text().output(["."], False, TOOLS)
    for token_id in tokens("a."):
        output.push(token_id)
    assert output.stopped
    assert [output.push(token_id) for token_id in tokens("b", "<tool_call>", "c")] == [[]] * 3
    assert output.finish() == []


def test_stop_that_the_end_decides() -> None:
    output = chat_text().output(["abcd", "bc"], False)
    assert [p for i in tokens(b"abc") for p in output.push(i)] == []
    assert (output.finish(), output.stopped) == ([Piece("content", "a")], True)


def cut(text: str, stops: list[str]) -> str:
    return text[: min((text.index(stop) for stop in stops if stop in text), default=len(text))]


letters = st.sampled_from([b"a", b"b", b"\n", b"\xf0\x9f\x98\x80", b"\xe2\x9c", b"\x85", b"\xff"])
data_lists = st.lists(letters, max_size=12).map(b"".join)
stop_lists = st.lists(st.text("ab\n😀\ufffd", min_size=1, max_size=3), max_size=3)


@settings(max_examples=50, deadline=None)
@given(data_lists, data_lists, stop_lists, st.booleans())
def test_stream_equals_the_sections_read_whole(thought: bytes, said: bytes, stops: list[str], tools: bool) -> None:
    pieces = run(tokens(thought, "</think>", said), stops, thinking=True, tools=TOOLS if tools else None)
    reasoning, content = thought.decode(errors="replace"), said.decode(errors="replace")
    if cut(reasoning, stops) != reasoning:
        content = ""
    assert joined(pieces, "reasoning") == cut(reasoning, stops)
    assert joined(pieces, "content") == cut(content, stops)


@settings(max_examples=50, deadline=None)
@given(st.text("ab\n 😀", max_size=12), stop_lists)
def test_cut_into_tokens_does_not_matter(text: str, stops: list[str]) -> None:
    by_words = run(chat_text().tokenizer.encode_text(text), stops)
    by_bytes = run(tokens(text.encode()), stops)
    assert joined(by_words, "content") == joined(by_bytes, "content")


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, size() - 1), max_size=30), stop_lists, st.booleans(), st.booleans())
def test_any_tokens_give_text_without_stops(ids: list[int], stops: list[str], thinking: bool, tools: bool) -> None:
    output = chat_text().output(stops, thinking, TOOLS if tools else None)
    pieces = [piece for token_id in ids for piece in output.push(token_id)] + output.finish()
    for piece in pieces:
        piece.text.encode()
        assert bool(piece.text) is (piece.call is None)
    if control_id("<tool_call>") not in ids and control_id("</think>") not in ids:
        assert not any(stop in joined(pieces, channel) for stop in stops for channel in ("content", "reasoning"))
