"""The engine on a real decoder with random weights: nothing of one run shows in another (user-pain E2, E6, E9)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from engine_fixtures import RecordingSink
from packages import tiny_package

from ling3.engine import ChatRequest, Engine, MetricsLog, Reply, Sampling
from ling3.errors import RequestError
from ling3.model import Decoder, Package
from ling3.text import ChatText, Piece

MakeEngine = Callable[[], Engine]


@pytest.fixture(scope="module")
def make_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeEngine]:
    """Engines over one package, each as a fresh process would have it. The context is 256."""
    folder = tmp_path_factory.mktemp("engine")
    package = Package.open(tiny_package(folder / "tiny.l3r", "w4"))
    text = ChatText(package.tokenizer_json, package.chat_template, package.eos_token_ids, package.geometry.vocab_size)
    log = MetricsLog(folder / "metrics.jsonl", None)
    yield lambda: Engine(Decoder(package, 256, 1), text, {}, "tiny", log)
    log.close()


def greedy(text: str, max_tokens: int | None = 12) -> ChatRequest:
    return ChatRequest([{"role": "user", "content": text}], max_tokens=max_tokens, sampling=Sampling(temperature=0.0))


def answer(engine: Engine, text: str, sink: RecordingSink | None = None) -> Reply:
    return engine.run(greedy(text), sink or RecordingSink())


ZEBRA, QUESTION = "the code word is ZEBRA", "what is the code word?"


def test_a_conversation_leaves_no_trace_in_the_next(make_engine: MakeEngine) -> None:
    fresh = answer(make_engine(), QUESTION).content
    engine = make_engine()
    for _ in range(3):
        answer(engine, ZEBRA)
        assert answer(engine, QUESTION).content == fresh


def test_the_warm_up_leaves_no_trace(make_engine: MakeEngine) -> None:
    engine = make_engine()
    engine.warm_up()
    assert answer(engine, QUESTION).content == answer(make_engine(), QUESTION).content


def test_a_canceled_run_leaves_no_trace(make_engine: MakeEngine) -> None:
    engine, sink = make_engine(), RecordingSink()

    def cancel(piece: Piece) -> None:
        engine.cancel(sink.request_id)

    sink.on_write = cancel
    assert answer(engine, ZEBRA, sink).finish_reason == "canceled"
    assert answer(engine, QUESTION).content == answer(make_engine(), QUESTION).content


def test_seeded_draws_can_be_repeated(make_engine: MakeEngine) -> None:
    drawn = Sampling(temperature=1.0, seed=5)
    request = ChatRequest([{"role": "user", "content": "hi"}], max_tokens=20, sampling=drawn)
    first = make_engine().run(request, RecordingSink())
    assert make_engine().run(request, RecordingSink()).content == first.content


def test_an_answer_may_fill_the_context_to_its_end(make_engine: MakeEngine) -> None:
    """Random weights hardly ever end a turn; if they did, the reason would not be `length`."""
    engine = make_engine()
    reply = engine.run(greedy("x" * 190, None), RecordingSink())
    assert (reply.finish_reason, reply.usage["total_tokens"]) == ("length", 256)
    assert reply.metrics["context_capacity_reached"] is True
    with pytest.raises(RequestError, match="the context holds 256"):
        engine.run(greedy("x" * 250), RecordingSink())
    assert answer(engine, QUESTION).content == answer(make_engine(), QUESTION).content
