"""Logits depend on tokens and positions only: not on threads, nor on calls that are cut at multiples of 128 (E-92)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packages import VOCABULARY, tiny_package

from ling3.convert.recipe import WEIGHTS
from ling3.model import Decoder, Package

BLOCK = 128
CONTEXT = 600
IDS: list[int] = np.random.default_rng(0).integers(0, VOCABULARY, CONTEXT).tolist()


@pytest.fixture(scope="module", params=WEIGHTS)
def package(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Package:
    """A package of every format."""
    return Package.open(tiny_package(tmp_path_factory.mktemp("tiny") / "tiny.l3r", request.param))


@pytest.fixture(scope="module")
def decoder(package: Package) -> Decoder:
    return Decoder(package, CONTEXT, threads=1)


LENGTHS = st.sampled_from([128, 129, 255, 256, 257, 300, 512, 513, 590])


@settings(max_examples=10)
@given(start=st.sampled_from([0, 1, 5, 127, 128, 140]), length=LENGTHS, data=st.data())
def test_cuts_at_multiples_of_128_do_not_show(decoder: Decoder, start: int, length: int, data: st.DataObject) -> None:
    end = max(length, start + 1)
    boundaries = range((start // BLOCK + 1) * BLOCK, end, BLOCK)
    cuts = [at for at in boundaries if data.draw(st.booleans(), label=f"cut at {at}")]

    decoder.reset()
    if start:
        decoder.eval_batch_state(IDS[:start])
    wanted = decoder.eval_batch(IDS[start:end])
    wanted_state = decoder.save_state()

    decoder.reset()
    if start:
        decoder.eval_batch_state(IDS[:start])
    for begin, stop in zip([start, *cuts], [*cuts, end], strict=True):
        if stop < end and data.draw(st.booleans(), label="state only"):
            decoder.eval_batch_state(IDS[begin:stop])
        else:
            logits = decoder.eval_batch(IDS[begin:stop])
    state = decoder.save_state()

    assert np.array_equal(logits, wanted)
    assert np.array_equal(state.matrices, wanted_state.matrices)
    assert np.array_equal(state.history, wanted_state.history)
    assert np.array_equal(state.latents, wanted_state.latents)


@pytest.mark.parametrize("threads", [2, 4])
def test_number_of_threads_does_not_show(decoder: Decoder, package: Package, threads: int) -> None:
    other = Decoder(package, CONTEXT, threads=threads)
    decoder.reset()
    for call in (IDS[:300], IDS[300:301], IDS[301:302], IDS[302:320]):
        assert np.array_equal(other.eval_batch(call), decoder.eval_batch(call))
    mine, theirs = decoder.save_state(), other.save_state()
    assert np.array_equal(mine.matrices, theirs.matrices)
    assert np.array_equal(mine.latents, theirs.latents)


def test_one_token_is_a_batch_of_one(decoder: Decoder) -> None:
    decoder.reset()
    single = [decoder.eval(token) for token in IDS[:5]]
    decoder.reset()
    assert np.array_equal(single, [decoder.eval_batch([token]) for token in IDS[:5]])
