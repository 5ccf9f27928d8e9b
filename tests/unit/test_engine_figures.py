"""What a run reports of itself: usage, figures, settings, log lines (E-102, E-112 to E-114)."""

from __future__ import annotations

import os
from typing import Any

import orjson
import pytest
from engine_fixtures import VOCABULARY, MakeBench, ask, words
from text_fixtures import tokens

from ling3.engine import Sampling

A = tokens("A")[0]


class Clock:
    """Stands in for `time`: it moves only when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 1_700_000_000.5

    def pass_ms(self, ms: float) -> None:
        self.now += ms / 1000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("ling3.engine.engine.time", clock)
    monkeypatch.setattr("ling3.engine.metrics.time", clock)
    return clock


def test_the_figures_of_a_run_by_their_definition(make_bench: MakeBench, clock: Clock) -> None:
    """Begin takes 5 ms, full blocks 100 and the rest 50, a decode step 20, a write 7, a reset 3."""
    bench = make_bench(words("AB"))
    sink = bench.sink()
    sink.on_begin = lambda: clock.pass_ms(5)
    sink.on_write = lambda piece: clock.pass_ms(7)
    lasting = {"state 0+128": 100, "state 128+128": 100, "logits 256+44": 50}
    bench.decoder.before = lambda entry: clock.pass_ms(lasting.get(entry, 20))
    reset = bench.decoder.reset
    bench.decoder.reset = lambda: (clock.pass_ms(3), reset())[1]  # type: ignore[method-assign, func-returns-value]
    metrics = bench.run(ask(300), sink).metrics
    measured = {name: value for name, value in metrics.items() if name.endswith(("_ms", "_second", "_count"))}
    assert measured == pytest.approx(
        {
            "cache_restore_ms": 3.0,
            "ttft_ms": 3 + 5 + 250.0,
            "prefill_ms": 250.0,
            "prefill_eval_ms": 250.0,
            "prefill_tokens_per_second": 1200.0,
            "decode_ms": 2 * (7 + 20.0),
            "decode_eval_ms": 40.0,
            "decode_eval_count": 2,
            "decode_tokens_per_second": 1000 * 2 / 54,
            "decode_compute_tokens_per_second": 50.0,
            "total_ms": 3 + 5 + 250 + 54.0,
            "queue_ms": 0.0,
        }
    )


def test_the_first_token_is_timed_before_it_is_written(make_bench: MakeBench, clock: Clock) -> None:
    bench = make_bench(words("A"))
    sink = bench.sink()
    sink.on_write = lambda piece: clock.pass_ms(60_000)
    assert bench.run(sink=sink).metrics["ttft_ms"] == 0.0


def test_encoding_counts_towards_the_first_token(
    make_bench: MakeBench, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make_bench(words("A"))
    encode = bench.text.encode_chat

    def slow(*arguments: Any) -> list[int]:
        clock.pass_ms(40)
        return encode(*arguments)

    monkeypatch.setattr(bench.text, "encode_chat", slow)
    metrics = bench.run().metrics
    assert (metrics["ttft_ms"], metrics["cache_restore_ms"], metrics["total_ms"]) == pytest.approx((40.0, 0.0, 40.0))


def test_a_run_without_tokens_has_no_rates(make_bench: MakeBench, clock: Clock) -> None:
    bench = make_bench(words("A"))
    metrics = bench.run(sink=bench.sink(gone_at=0)).metrics
    assert metrics["ttft_ms"] is None
    names = ("decode_ms", "decode_tokens_per_second", "decode_compute_tokens_per_second", "prefill_tokens_per_second")
    assert [metrics[name] for name in names] == [0, 0, 0, 0]


def test_the_members_of_the_metrics(make_bench: MakeBench, clock: Clock) -> None:
    bench = make_bench(words("A"))
    reply = bench.run(ask(30, max_tokens=9, sampling=Sampling(temperature=0.5, top_p=0.9, top_k=7, seed=11)))
    plain = {
        name: value for name, value in reply.metrics.items() if not name.endswith(("_ms", "_second", "_mib", "_faults"))
    }
    assert plain == {
        "id": "chatcmpl-1700000000-1",
        "model": "ling3-test",
        "timestamp": 1_700_000_000,
        "finish_reason": "stop",
        "usage": {
            "prompt_tokens": 30, "completion_tokens": 2, "total_tokens": 32,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
        "prompt_evaluated_tokens": 30,
        "decode_eval_count": 1,
        "warmed": True,
        "cached_tokens": 0,
        "cache_status": "miss",
        "context_length": 4096,
        "flow_control": "none",
        "sampling": {
            "temperature": 0.5, "top_p": 0.9, "top_k": 7, "repeat_penalty": 1.0, "seed": 11, "enable_thinking": False,
        },
        "requested_max_tokens": 9,
        "effective_max_tokens": 9,
        "context_capacity_reached": False,
    }  # fmt: skip
    assert reply.usage == reply.metrics["usage"]


def test_memory_and_page_faults_are_those_of_this_process(make_bench: MakeBench) -> None:
    metrics = make_bench(words("A")).run().metrics
    assert 10 < metrics["rss_mib"] <= metrics["peak_rss_mib"] < 100_000
    assert metrics["minor_page_faults"] >= 0 and metrics["major_page_faults"] >= 0


def test_usage_without_cache_prompt_has_no_details(make_bench: MakeBench) -> None:  # E-112
    reply = make_bench(words("A")).run(ask(30, cache_prompt=False))
    assert reply.usage == {"prompt_tokens": 30, "completion_tokens": 2, "total_tokens": 32}
    assert reply.metrics["cache_status"] == "disabled"


@pytest.mark.parametrize("max_tokens", [1, None])
def test_the_metrics_are_logged_and_echoed_as_they_are_returned(make_bench: MakeBench, max_tokens: int | None) -> None:
    bench = make_bench(words("AB"))
    replies = [bench.run(ask(30, max_tokens=max_tokens)) for _ in range(2)]
    assert bench.logged() == [reply.metrics for reply in replies]
    assert [orjson.loads(line) for line in bench.lines("reply_metrics=")] == bench.logged()


def test_neither_prompt_nor_answer_is_logged(make_bench: MakeBench) -> None:  # E-114
    bench = make_bench(words("secret"))
    assert bench.run(ask(50)).content == "secret"
    written = bench.log_path.read_text() + "".join(bench.lines(""))
    assert "secret" not in written and "7777" not in written


def test_a_log_on_a_full_disk_does_not_cost_an_answer(make_bench: MakeBench) -> None:
    bench = make_bench(words("AB"), log="/dev/full")
    assert bench.run().content == "AB"
    assert bench.lines("request_warning: ") == ["metrics log: No space left on device"]


def test_an_operator_who_left_does_not_cost_an_answer(make_bench: MakeBench) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", buffering=1, closefd=False) as echo:
        bench = make_bench(words("AB"), echo=echo)
        assert bench.run().content == "AB"
        assert [line["finish_reason"] for line in bench.logged()] == ["stop"]
        with pytest.raises(BrokenPipeError):
            echo.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), writer)
    os.close(writer)


# Progress


def test_a_long_prefill_tells_how_far_it_is_every_ten_seconds(make_bench: MakeBench, clock: Clock) -> None:  # E-102
    bench = make_bench(words("A"))
    bench.decoder.before = lambda entry: clock.pass_ms(4_000)
    reply = bench.run(ask(128 * 7))
    lines = [orjson.loads(line) for line in bench.lines("prefill_progress=")]
    assert [(line["processed_position"], line["elapsed_ms"]) for line in lines] == [(384, 12_000), (768, 24_000)]
    assert lines[1].keys() == {
        "id", "timestamp", "prompt_tokens", "prompt_evaluated_tokens", "cached_tokens", "processed_position",
        "elapsed_ms", "prefill_eval_ms", "rss_mib", "peak_rss_mib", "swap_mib", "available_memory_mib",
    }  # fmt: skip
    expected = {"id": reply.request_id, "prompt_tokens": 896, "prompt_evaluated_tokens": 768, "cached_tokens": 0}
    assert {name: lines[1][name] for name in expected} == expected
    assert lines[1]["prefill_eval_ms"] == 24_000


def test_a_short_prefill_is_not_worth_a_line(make_bench: MakeBench, clock: Clock) -> None:
    bench = make_bench(words("A"))
    bench.decoder.before = lambda entry: clock.pass_ms(4_999)
    bench.run(ask(200))
    assert bench.lines("prefill_progress=") == []


# Sampling


def level(logits: Any) -> None:
    """The same logit for every token: what is drawn depends on the seed alone."""
    logits[:] = 0.0


def test_a_run_can_be_replayed_from_the_settings_it_reports(make_bench: MakeBench) -> None:
    bench = make_bench([])
    bench.decoder.shape = level
    first = bench.run(ask(max_tokens=40, sampling=Sampling(temperature=1.0)))
    used = dict(first.metrics["sampling"])
    del used["enable_thinking"]
    again = bench.run(ask(max_tokens=40, sampling=Sampling(**used)))
    assert (again.content, again.usage) == (first.content, first.usage)


def test_without_a_seed_every_run_draws_its_own(make_bench: MakeBench) -> None:
    bench = make_bench([])
    bench.decoder.shape = level
    replies = [bench.run(ask(max_tokens=40, sampling=Sampling(temperature=1.0))) for _ in range(2)]
    assert replies[0].metrics["sampling"]["seed"] != replies[1].metrics["sampling"]["seed"]
    assert replies[0].content != replies[1].content


def test_settings_that_a_request_leaves_out_are_the_packages(make_bench: MakeBench) -> None:  # E-68, D-7
    bench = make_bench(words("A"), generation={"temperature": 0.25, "top_k": 5})
    used = bench.run(ask(sampling=Sampling(top_k=9, seed=-1))).metrics["sampling"]
    assert used == {
        "temperature": 0.25, "top_p": 1.0, "top_k": 9, "repeat_penalty": 1.0, "seed": 4294967295,
        "enable_thinking": False,
    }  # fmt: skip
    assert bench.engine.sampling_defaults == Sampling(temperature=0.25, top_k=5)


def test_tokens_that_an_answer_is_not_made_of_are_never_drawn(make_bench: MakeBench) -> None:  # M-62
    bench = make_bench([])
    masked = bench.text.tokenizer.masked_ids
    assert VOCABULARY - 1 in masked

    def tempt(logits: Any) -> None:
        logits[:] = 0.0
        logits[list(masked)] = 50.0

    bench.decoder.shape = tempt
    bench.run(ask(max_tokens=40, sampling=Sampling(temperature=1.0, seed=1)))
    assert not set(bench.decoder.tokens[30:]) & set(masked)


def test_tokens_of_the_prompt_are_penalised(make_bench: MakeBench) -> None:  # E-106
    seven = tokens("7")[0]
    bench = make_bench([])

    def prefer_seven(logits: Any) -> None:
        logits[:] = 0.0
        logits[seven], logits[A] = 2.0, 1.5

    bench.decoder.shape = prefer_seven
    assert bench.run(ask(max_tokens=1)).content == "7"
    assert bench.run(ask(max_tokens=1, sampling=Sampling(repeat_penalty=2.0))).content == "A"
