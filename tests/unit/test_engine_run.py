"""One run from prompt to reply: order, blocks, budget, loop, output (E-85, E-101, E-104, E-105, E-108 to E-111)."""

from __future__ import annotations

import os
import time
from contextlib import closing
from pathlib import Path

import pytest
from engine_fixtures import END_OF_TEXT, OVERHEAD, ROLE_END, Bench, MakeBench, ask, prompt_of, words
from hypothesis import given
from hypothesis import strategies as st
from text_fixtures import chat_text, tokens

from ling3.engine import ChatRequest
from ling3.engine.prefix import PrefixCache, Restored
from ling3.errors import RequestError
from ling3.text import Piece, ToolCall

A, B = tokens("A")[0], tokens("B")[0]
WEATHER = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]
CALL = (
    *("<tool_call>", "get_weather", "<arg_key>", "city", "</arg_key>"),
    *("<arg_value>", "Paris", "</arg_value>", "</tool_call>"),
)


def test_the_steps_of_a_run_in_their_order(make_bench: MakeBench) -> None:
    bench = make_bench(words("AB"))
    bench.run(ask(300))
    assert bench.trace == [
        "begin",
        "state 0+128",
        "state 128+128",
        "logits 256+44",
        "write 'A'",
        f"eval {A} at 300",
        "write 'B'",
        f"eval {B} at 301",
    ]


@pytest.mark.parametrize(
    ("prompt_tokens", "blocks"),
    [
        (30, ["logits 0+30"]),
        (127, ["logits 0+127"]),
        (128, ["logits 0+128"]),
        (129, ["state 0+128", "logits 128"]),
        (256, ["state 0+128", "logits 128+128"]),
        (300, ["state 0+128", "state 128+128", "logits 256+44"]),
    ],
)
def test_a_prompt_is_cut_at_multiples_of_128(make_bench: MakeBench, prompt_tokens: int, blocks: list[str]) -> None:
    bench = make_bench([ROLE_END])
    bench.run(ask(prompt_tokens))
    assert bench.trace == ["begin", *blocks]


def test_the_decoder_gets_the_prompt_and_every_token_but_the_last(make_bench: MakeBench) -> None:
    bench = make_bench(words("AB"))
    bench.run(ask(300))
    assert bench.decoder.tokens == [*chat_text().encode_chat(prompt_of(300)), A, B]


@pytest.mark.parametrize(
    ("restored", "prompt_tokens", "blocks"),
    [
        (300, 350, ["logits 300+50"]),
        (256, 350, ["logits 256+94"]),
        (100, 300, ["state 100+28", "state 128+128", "logits 256+44"]),
        (127, 256, ["state 127", "logits 128+128"]),
        (299, 300, ["logits 299"]),
    ],
)
def test_prefill_goes_on_where_a_restored_prefix_ends(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch, restored: int, prompt_tokens: int, blocks: list[str]
) -> None:  # E-101, the cases of E-99
    bench = make_bench([ROLE_END])

    def restore(*_: object) -> Restored:
        bench.decoder.tokens = chat_text().encode_chat(prompt_of(prompt_tokens))[:restored]
        return Restored("prefix_hit", restored)

    monkeypatch.setattr(PrefixCache, "restore", restore)
    reply = bench.run(ask(prompt_tokens))
    assert bench.trace == ["begin", *blocks]
    assert reply.usage["prompt_tokens_details"] == {"cached_tokens": restored}
    assert (reply.metrics["cached_tokens"], reply.metrics["cache_status"]) == (restored, "prefix_hit")
    assert reply.metrics["prompt_evaluated_tokens"] == prompt_tokens - restored


def test_every_run_starts_from_an_empty_decoder(make_bench: MakeBench) -> None:
    bench = make_bench(words("A"))
    bench.run(ask(30))
    bench.run(ask(31))
    assert bench.decoder.tokens == [*chat_text().encode_chat(prompt_of(31)), A]


def test_a_run_without_cache_prompt_leaves_nothing_in_the_decoder(make_bench: MakeBench) -> None:  # E-84
    bench = make_bench(words("A"))
    bench.run(ask(30, cache_prompt=False))
    assert bench.decoder.tokens == []


def test_ids_are_numbered_and_carry_the_time_of_creation(make_bench: MakeBench) -> None:  # E-65
    bench = make_bench(words("A"))
    sinks = bench.sink(), bench.sink()
    before = int(time.time())
    replies = [bench.run(sink=sink) for sink in sinks]
    for number, (reply, sink) in enumerate(zip(replies, sinks, strict=True), 1):
        assert before <= reply.created <= time.time()
        assert reply.request_id == f"chatcmpl-{reply.created}-{number}"
        assert (sink.request_id, sink.created) == (reply.request_id, reply.created)


# Budget


@pytest.mark.parametrize(
    ("prompt_tokens", "max_tokens", "generated", "capacity_reached"),
    [
        (60, None, 4, True),
        (60, 3, 3, False),
        (60, 4, 4, True),
        (60, 5, 4, True),
        (62, None, 2, True),
        (63, None, 1, True),
        (63, 1000, 1, True),
    ],
)
def test_the_answer_ends_where_budget_or_context_end(
    make_bench: MakeBench, prompt_tokens: int, max_tokens: int | None, generated: int, capacity_reached: bool
) -> None:
    bench = make_bench([A] * 100, context=64)
    reply = bench.run(ask(prompt_tokens, max_tokens=max_tokens))
    assert (reply.finish_reason, reply.content) == ("length", "A" * generated)
    assert reply.usage["completion_tokens"] == generated
    assert reply.metrics["requested_max_tokens"] == max_tokens
    assert reply.metrics["effective_max_tokens"] == generated
    assert reply.metrics["context_capacity_reached"] is capacity_reached
    assert bench.lines("request_info: id=") == [f"{reply.request_id} capacity=64"] * capacity_reached


@pytest.mark.parametrize("prompt_tokens", [64, 65])  # C15
def test_a_prompt_that_leaves_no_room_is_refused_and_touches_nothing(make_bench: MakeBench, prompt_tokens: int) -> None:
    bench = make_bench(words("A"), context=64)
    with pytest.raises(RequestError) as caught:
        bench.run(ask(prompt_tokens))
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, "context_length_exceeded", "messages")
    assert str(prompt_tokens) in str(caught.value) and "64" in str(caught.value)
    assert (bench.trace, bench.decoder.resets, bench.engine.active, bench.logged()) == ([], 0, False, [])


def test_an_unusable_message_is_refused_before_the_run_begins(make_bench: MakeBench) -> None:
    bench = make_bench(words("A"))
    with pytest.raises(RequestError) as caught:
        bench.run(ChatRequest(messages=[{"role": "king", "content": "hi"}]))
    assert (caught.value.status, caught.value.code) == (400, "invalid_parameter")
    assert bench.trace == []
    assert bench.run().content == "A"


def test_a_context_that_is_full_during_an_answer_leaves_the_engine_usable(make_bench: MakeBench) -> None:  # C16
    bench = make_bench([A] * 100, context=64)
    assert bench.run(ask(50)).finish_reason == "length"
    assert bench.run(ask(50, max_tokens=2)).content == "AA"


@pytest.mark.parametrize(
    ("max_tokens", "expected"),
    [
        (None, ["output_budget=34 remaining_context=34"]),
        (100, ["output_budget=34 remaining_context=34"]),
        (34, []),
        (5, []),
    ],
)
def test_an_operator_is_told_when_the_budget_is_smaller_than_asked(
    make_bench: MakeBench, max_tokens: int | None, expected: list[str]
) -> None:  # E-87
    bench = make_bench(words("A"), context=64)
    bench.run(ask(30, max_tokens=max_tokens))
    assert bench.lines("request_info: ") == expected


# The loop


@pytest.mark.parametrize("k", [1, 2, 5])
def test_k_tokens_need_one_evaluation_less(make_bench: MakeBench, k: int) -> None:
    bench = make_bench([A] * 10)
    reply = bench.run(ask(max_tokens=k))
    evaluations = [entry for entry in bench.trace if entry.startswith("eval ")]
    assert (reply.usage["completion_tokens"], len(evaluations)) == (k, k - 1)


@pytest.mark.parametrize("end", [ROLE_END, END_OF_TEXT])
def test_the_end_of_the_turn_is_counted_and_not_delivered(make_bench: MakeBench, end: int) -> None:
    bench = make_bench([A, end, B])
    reply = bench.run()
    assert (reply.content, reply.finish_reason, reply.usage["completion_tokens"]) == ("A", "stop", 2)


def test_an_answer_may_be_empty(make_bench: MakeBench) -> None:
    bench = make_bench([ROLE_END])
    sink = bench.sink()
    reply = bench.run(sink=sink)
    assert (reply.content, reply.finish_reason, reply.usage["completion_tokens"]) == ("", "stop", 1)
    assert sink.pieces == []


def test_the_end_of_the_turn_as_the_last_token_of_the_budget_is_a_stop(make_bench: MakeBench) -> None:
    assert make_bench(words("A")).run(ask(max_tokens=2)).finish_reason == "stop"


def test_a_stop_string_ends_the_answer_before_it_and_is_not_evaluated(make_bench: MakeBench) -> None:
    bench = make_bench([*tokens(b"one 2 3"), ROLE_END])
    reply = bench.run(ask(stop=("2 3",)))
    assert (reply.content, reply.finish_reason, reply.usage["completion_tokens"]) == ("one ", "stop", 7)
    assert bench.decoder.tokens[-1:] == tokens(b" ")


def test_the_budget_may_end_inside_a_possible_stop(make_bench: MakeBench) -> None:
    bench = make_bench(tokens(b"AB"))
    sink = bench.sink()
    reply = bench.run(ask(stop=("BC",), max_tokens=2), sink)
    assert (reply.content, reply.finish_reason) == ("AB", "length")
    assert [piece.text for piece in sink.pieces] == ["A", "B"]
    assert sink.sequence == [1, 2]


def test_an_incomplete_character_at_the_end_is_replaced(make_bench: MakeBench) -> None:
    assert make_bench([*tokens(b"A\xf0\x9f"), ROLE_END]).run().content == "A�"


def test_a_lone_continuation_byte_does_not_end_the_answer(make_bench: MakeBench) -> None:  # D2
    assert make_bench([*tokens("✅".encode(), b"\x85", b" done"), ROLE_END]).run().content == "✅� done"


def test_reasoning_and_content_are_kept_apart(make_bench: MakeBench) -> None:
    bench = make_bench([*tokens(b"hm", "</think>", b"AB"), ROLE_END])
    sink = bench.sink()
    reply = bench.run(ask(enable_thinking=True), sink)
    assert (reply.reasoning, reply.content, reply.finish_reason) == ("hm", "AB", "stop")
    assert sink.pieces == [Piece("reasoning", c) for c in "hm"] + [Piece("content", c) for c in "AB"]
    assert reply.metrics["sampling"]["enable_thinking"] is True


def test_a_tool_call_ends_with_its_own_reason(make_bench: MakeBench) -> None:
    bench = make_bench([*tokens(*CALL), ROLE_END])
    reply = bench.run(ask(200, tools=WEATHER))
    assert (reply.content, reply.tool_calls) == ("", (ToolCall("get_weather", '{"city": "Paris"}'),))
    assert (reply.finish_reason, reply.metrics["finish_reason"]) == ("tool_calls", "tool_calls")


def test_a_tool_call_that_the_budget_cuts_off_is_no_call(make_bench: MakeBench) -> None:  # C21
    said = tokens(*CALL)
    reply = make_bench(said).run(ask(200, tools=WEATHER, max_tokens=len(said) - 1))
    assert (reply.tool_calls, reply.finish_reason) == ((), "length")


def test_a_budget_that_ends_after_a_call_is_a_length(make_bench: MakeBench) -> None:
    said = tokens(*CALL)
    reply = make_bench(said).run(ask(200, tools=WEATHER, max_tokens=len(said)))
    assert (len(reply.tool_calls), reply.finish_reason) == (1, "length")


@given(
    st.lists(st.sampled_from([*tokens("ab"), *tokens(b"a", b"b", b"\xe4\xbd\xa0"), ROLE_END]), max_size=12),
    st.sampled_from([(), ("ab",), ("bb", "a你")]),
    st.integers(1, 12),
)
def test_a_reply_holds_what_was_delivered(
    script: list[int], stop: tuple[str, ...], max_tokens: int
) -> None:
    with closing(Bench(Path(os.devnull), script)) as bench:
        sink = bench.sink()
        reply = bench.run(ask(stop=stop, max_tokens=max_tokens), sink)
    assert reply.content == "".join(piece.text for piece in sink.pieces)
    assert all(piece.text for piece in sink.pieces)
    assert sink.sequence == list(range(1, len(sink.pieces) + 1))
    assert reply.usage["completion_tokens"] <= max_tokens
    assert bench.decoder.position == 30 + reply.usage["completion_tokens"] - 1


# Warm-up


def test_warm_up_evaluates_128_positions_and_one_step_and_leaves_no_trace(make_bench: MakeBench) -> None:  # E-25
    bench = make_bench([A])
    bench.engine.warm_up()
    assert bench.trace == ["logits 0+128", f"eval {A} at 128"]
    assert (bench.decoder.tokens, bench.logged(), bench.engine.active) == ([], [], False)
    assert bench.run().request_id.endswith("-1")


def test_warm_up_fits_a_context_of_128(make_bench: MakeBench) -> None:
    bench = make_bench([A], context=128)
    bench.engine.warm_up()
    assert bench.trace == ["logits 0+127", f"eval {A} at 127"]




def test_the_overhead_of_a_prompt_is_what_these_tests_take_it_for() -> None:
    assert len(chat_text().encode_chat(prompt_of(OVERHEAD + 7))) == OVERHEAD + 7
