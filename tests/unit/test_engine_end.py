"""Runs that end early: canceled, client gone, failed, refused (E-79 to E-86)."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
from engine_fixtures import Background, Bench, MakeBench, RecordingSink, ask, words
from numpy.typing import NDArray
from text_fixtures import tokens

from ling3.engine import ChatRequest, Reply
from ling3.errors import RequestError
from ling3.text import Piece

A, B = tokens("A")[0], tokens("B")[0]


def assert_clean(bench: Bench) -> None:
    """Nothing of the last run is left, and the next one works."""
    assert (bench.decoder.tokens, bench.engine.active) == ([], False)
    bench.decoder.before = lambda entry: None
    bench.decoder.shape = lambda logits: None
    assert bench.run().content == "AB"


# Cancel

Point = Callable[[Bench, RecordingSink], None]


def cancel_at(entry: str) -> Point:
    """While the decoder does this."""

    def arrange(bench: Bench, sink: RecordingSink) -> None:
        bench.decoder.before = lambda seen: bench.engine.cancel() if seen == entry else None

    return arrange


def cancel_in_begin(bench: Bench, sink: RecordingSink) -> None:
    sink.on_begin = bench.engine.cancel


def cancel_in_write(text: str) -> Point:
    def arrange(bench: Bench, sink: RecordingSink) -> None:
        sink.on_write = lambda piece: bench.engine.cancel() if piece.text == text else None

    return arrange


def cancel_at_last_question(bench: Bench, sink: RecordingSink) -> None:
    """Between the last token and the commit: the question whether the client is there comes just before it."""
    asked = iter(range(100))
    questions = 6  # three blocks, three tokens
    sink.on_alive = lambda: bench.engine.cancel() if next(asked) == questions else None


@pytest.mark.parametrize(
    ("arrange", "trace", "generated", "content"),
    [
        pytest.param(cancel_in_begin, ["begin"], 0, "", id="before prefill"),
        pytest.param(cancel_at("state 0+128"), ["begin", "state 0+128"], 0, "", id="first block"),
        pytest.param(cancel_at("state 128+128"), ["begin", "state 0+128", "state 128+128"], 0, "", id="between blocks"),
        pytest.param(
            cancel_at("logits 256+44"), ["begin", "state 0+128", "state 128+128", "logits 256+44"], 0, "",
            id="last block",
        ),
        pytest.param(
            cancel_in_write("A"),
            ["begin", "state 0+128", "state 128+128", "logits 256+44", "write 'A'", f"eval {A} at 300"], 1, "A",
            id="first piece",
        ),
        pytest.param(
            cancel_at(f"eval {B} at 301"),
            ["begin", "state 0+128", "state 128+128", "logits 256+44", "write 'A'", f"eval {A} at 300", "write 'B'",
             f"eval {B} at 301"], 2, "AB",
            id="decode step",
        ),
        pytest.param(
            cancel_at_last_question,
            ["begin", "state 0+128", "state 128+128", "logits 256+44", "write 'A'", f"eval {A} at 300", "write 'B'",
             f"eval {B} at 301"], 3, "AB",
            id="after the last token",
        ),
    ],
)  # fmt: skip
def test_a_cancel_ends_the_run_at_once(
    make_bench: MakeBench, arrange: Point, trace: list[str], generated: int, content: str
) -> None:
    bench = make_bench(words("AB"))
    sink = bench.sink()
    arrange(bench, sink)
    reply = bench.run(ask(300), sink)
    assert reply.finish_reason == "canceled"
    assert bench.trace == trace
    assert (reply.usage["completion_tokens"], reply.content) == (generated, content)
    assert [line["finish_reason"] for line in bench.logged()] == ["canceled"]
    assert_clean(bench)


def test_a_cancel_in_the_last_piece_of_the_budget_still_wins(make_bench: MakeBench) -> None:
    bench = make_bench(words("AB"))
    sink = bench.sink()
    cancel_in_write("B")(bench, sink)
    assert bench.run(ask(max_tokens=2), sink).finish_reason == "canceled"
    assert_clean(bench)


def test_a_cancel_in_the_final_flush_still_wins(make_bench: MakeBench) -> None:
    bench = make_bench(words("AB"))
    sink = bench.sink()
    cancel_in_write("B")(bench, sink)
    assert bench.run(ask(stop=("BC",)), sink).finish_reason == "canceled"
    assert_clean(bench)


def test_a_cancel_after_the_commit_is_refused(make_bench: MakeBench) -> None:  # E-80
    answers: list[bool] = []

    class Echo:
        """Written to when the run is committed, and not yet at its end."""

        def write(self, text: str) -> None:
            if text.startswith("reply_metrics="):
                answers.append(bench.engine.cancel())

        def flush(self) -> None:
            pass

    bench = make_bench(words("AB"), echo=Echo())
    reply = bench.run(ask(max_tokens=5))
    assert (answers, reply.content, reply.finish_reason) == ([False], "AB", "stop")


def test_cancel_wants_an_active_run_and_its_id(make_bench: MakeBench) -> None:  # E-61
    bench = make_bench(words("AB"))
    assert (bench.engine.cancel(), bench.engine.cancel("chatcmpl-1-1")) == (False, False)
    sink = bench.sink()
    answers: list[bool] = []

    def cancel(piece: object) -> None:
        for request_id in ("chatcmpl-0-0", sink.request_id, "", "chatcmpl-0-0"):
            answers.append(bench.engine.cancel(request_id))

    sink.on_write = cancel
    assert bench.run(sink=sink).finish_reason == "canceled"
    assert answers == [False, True, True, False]
    assert bench.engine.cancel(sink.request_id) is False


def test_shutdown_cancels_whatever_runs(make_bench: MakeBench) -> None:
    bench = make_bench(words("AB"))
    sink = bench.sink()
    sink.on_write = lambda piece: bench.engine.request_cancel_all()
    assert bench.run(sink=sink).finish_reason == "canceled"


# The client is gone


@pytest.mark.parametrize("gone_at", range(10))
def test_a_lost_client_ends_the_run_wherever_it_is_noticed(make_bench: MakeBench, gone_at: int) -> None:
    """Asked ten times: begin, three blocks, three tokens with two pieces, and before the commit."""
    whole = make_bench(words("AB"))
    whole.run(ask(300))
    bench = make_bench(words("AB"))
    sink = bench.sink(gone_at)
    reply = bench.run(ask(300), sink)
    assert reply.finish_reason == "canceled"
    assert sink.questions == gone_at + 1
    assert bench.trace == whole.trace[: len(bench.trace)]
    assert_clean(bench)


def test_the_client_of_a_whole_run_is_asked_ten_times(make_bench: MakeBench) -> None:
    bench = make_bench(words("AB"))
    sink = bench.sink(gone_at=10)
    assert (bench.run(ask(300), sink).finish_reason, sink.questions) == ("stop", 10)


def test_nothing_is_evaluated_for_a_client_that_left_before(make_bench: MakeBench) -> None:  # E-83
    bench = make_bench(words("AB"))
    bench.run(ask(300), bench.sink(gone_at=0))
    assert bench.trace == ["begin"]


def test_a_failed_write_of_the_final_flush_is_a_lost_client(make_bench: MakeBench) -> None:
    class Stalled(RecordingSink):
        """A client that is connected and takes nothing more."""

        def write(self, piece: Piece, sequence: int) -> bool:
            return super().write(piece, sequence) and piece.text != "B"

    bench = make_bench(words("AB"))
    assert bench.run(ask(stop=("BC",)), Stalled()).finish_reason == "canceled"
    assert_clean(bench)


# Failures


@pytest.mark.parametrize("entry", ["state 0+128", "logits 256+44", f"eval {A} at 300"])
def test_an_error_in_the_decoder_leaves_the_engine_usable(make_bench: MakeBench, entry: str) -> None:
    bench = make_bench(words("AB"))

    def fail(seen: str) -> None:
        if seen == entry:
            raise MemoryError("no memory for the block")

    bench.decoder.before = fail
    with pytest.raises(MemoryError, match="no memory for the block"):
        bench.run(ask(300))
    assert bench.logged() == []  # E-85, step 16
    assert_clean(bench)


@pytest.mark.parametrize("where", ["on_begin", "on_write", "on_alive"])
def test_an_error_in_the_sink_leaves_the_engine_usable(make_bench: MakeBench, where: str) -> None:
    bench = make_bench(words("AB"))
    sink = bench.sink()

    def fail(*_: object) -> None:
        raise RuntimeError("a broken sink")

    setattr(sink, where, fail)
    with pytest.raises(RuntimeError, match="a broken sink"):
        bench.run(sink=sink)
    assert_clean(bench)


def test_an_error_in_the_reset_does_not_leave_the_engine_active(make_bench: MakeBench) -> None:
    bench = make_bench(words("AB"))
    reset = bench.decoder.reset

    def fail() -> None:
        raise RuntimeError("the decoder is broken")

    bench.decoder.reset = fail  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="the decoder is broken"):
        bench.run()
    bench.decoder.reset = reset  # type: ignore[method-assign]
    assert_clean(bench)


def test_logits_that_are_no_numbers_are_an_error_of_ours(make_bench: MakeBench) -> None:
    bench = make_bench(words("AB"))

    def spoil(logits: NDArray[np.float32]) -> None:
        logits[:] = np.nan

    bench.decoder.shape = spoil
    with pytest.raises(ValueError, match="no finite logits"):
        bench.run()
    assert_clean(bench)


def test_a_single_logit_that_is_no_number_is_never_drawn(make_bench: MakeBench) -> None:
    bench = make_bench(words("AB"))

    def spoil(logits: NDArray[np.float32]) -> None:
        logits[B + 1] = np.inf

    bench.decoder.shape = spoil
    assert bench.run().content == "AB"


# One at a time


def test_a_second_request_is_refused_and_does_not_disturb_the_first(make_bench: MakeBench) -> None:
    bench = make_bench(words("AB"))
    first = Background(bench)
    with pytest.raises(RequestError) as caught:
        bench.run()
    assert (caught.value.status, caught.value.code) == (429, "engine_busy")
    assert caught.value.retry_after == 5
    assert bench.engine.active
    assert (first.finish().content, bench.engine.active) == ("AB", False)


def test_control_requests_return_at_once_while_the_decoder_computes(make_bench: MakeBench) -> None:
    bench = make_bench(words("AB"))
    sink = bench.sink()
    first = Background(bench, ask(300), sink)
    assert bench.engine.generation_status()["state"] == "prefill"
    assert bench.engine.cancel(sink.request_id) is True
    assert bench.engine.generation_status()["state"] == "canceling"
    assert first.finish().finish_reason == "canceled"
    assert bench.trace == ["begin", "state 0+128"]


def test_a_hundred_cancels_never_mix_two_answers(make_bench: MakeBench) -> None:  # F4
    """Each request is canceled during prefill; the next one asks again until it is let in, as a client would."""
    bench = make_bench(lambda prompt: prompt[14:17])
    for number in range(100):
        canceled = Background(bench, question(f"{number:03}"))
        assert bench.engine.cancel() is True
        canceled.release()
        assert run_when_free(bench, question(f"{999 - number}")).content == f"{999 - number}"
        assert canceled.finish().content == ""


def run_when_free(bench: Bench, request: ChatRequest) -> Reply:
    while True:
        try:
            return bench.run(request)
        except RequestError:
            time.sleep(0)


def question(text: str) -> ChatRequest:
    return ChatRequest(messages=[{"role": "user", "content": text}], max_tokens=3)


# Status


def test_the_status_follows_a_run(make_bench: MakeBench) -> None:  # E-63
    bench = make_bench(words("AB"))
    sink = bench.sink()
    seen: list[dict[str, object]] = []
    sink.on_begin = lambda: seen.append(bench.engine.generation_status())
    sink.on_write = lambda piece: seen.append(bench.engine.generation_status())
    bench.run(ask(300), sink)
    idle = bench.engine.generation_status()
    common = {"active": True, "request_id": sink.request_id, "cancel_requested": False}
    assert seen == [
        {**common, "state": "prefill", "sequence": 0, "evaluated_steps": 0},
        {**common, "state": "decode", "sequence": 1, "evaluated_steps": 3},
        {**common, "state": "decode", "sequence": 2, "evaluated_steps": 4},
    ]
    assert idle == {
        "active": False, "request_id": None, "cancel_requested": False, "state": "idle", "sequence": 2,
        "evaluated_steps": 5,
    }  # fmt: skip
