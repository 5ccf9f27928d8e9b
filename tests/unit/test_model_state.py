"""State of a sequence: copies, restore points, isolation, and errors that leave it usable (M-30, E-119)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from packages import VOCABULARY, tiny_package

from ling3.convert.recipe import WEIGHTS
from ling3.model import Decoder, Package

CONTEXT = 192


def tokens(count: int, seed: int = 0) -> list[int]:
    ids: list[int] = np.random.default_rng(seed).integers(0, VOCABULARY, count).tolist()
    return ids


def run_on(decoder: Decoder) -> NDArray[np.float32]:
    """Logits of a batch and of two single tokens behind what the decoder holds."""
    return np.stack([decoder.eval_batch(tokens(20, seed=7)), decoder.eval(3), decoder.eval(4)])


@pytest.fixture(scope="module", params=WEIGHTS)
def package(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Package:
    """A package of every format."""
    return Package.open(tiny_package(tmp_path_factory.mktemp("tiny") / "tiny.l3r", request.param))


@pytest.fixture(scope="module")
def shared(package: Package) -> Decoder:
    return Decoder(package, CONTEXT, threads=1)


@pytest.fixture
def decoder(shared: Decoder) -> Decoder:
    """A decoder per format, at position 0."""
    shared.reset()
    return shared


@pytest.fixture(scope="module")
def plain_package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    return Package.open(tiny_package(tmp_path_factory.mktemp("plain") / "tiny.l3r", "f32"))


@pytest.fixture
def plain(plain_package: Package) -> Decoder:
    """A fresh float32 decoder, for what does not depend on the format."""
    return Decoder(plain_package, CONTEXT, threads=1)


def test_restored_state_gives_bit_identical_logits(decoder: Decoder) -> None:
    decoder.eval_batch_state(tokens(50))
    state = decoder.save_state()
    first = run_on(decoder)
    decoder.reset()
    decoder.eval_batch_state(tokens(150, seed=1))
    assert decoder.restore_state(state) == 50
    assert np.array_equal(run_on(decoder), first)


def test_state_fits_another_decoder_of_the_same_package(decoder: Decoder, package: Package) -> None:
    decoder.eval_batch_state(tokens(50))
    state = decoder.save_state()
    first = run_on(decoder)
    other = Decoder(package, context=100, threads=1)
    other.restore_state(state)
    assert np.array_equal(run_on(other), first)


def test_restored_checkpoint_gives_bit_identical_logits(decoder: Decoder) -> None:
    decoder.eval_batch_state(tokens(50))
    checkpoint = decoder.save_checkpoint()
    first = run_on(decoder)
    assert decoder.restore_checkpoint(checkpoint) == 50
    assert np.array_equal(run_on(decoder), first)


def test_reset_decoder_equals_a_fresh_one(decoder: Decoder, package: Package) -> None:
    decoder.eval_batch_state(tokens(150, seed=1))
    decoder.reset()
    assert decoder.position == 0
    assert np.array_equal(run_on(decoder), run_on(Decoder(package, CONTEXT, threads=1)))


def test_sequences_in_turn_do_not_see_each_other(plain: Decoder, plain_package: Package) -> None:
    fresh = Decoder(plain_package, CONTEXT, threads=1)
    wanted, wanted_state = run_on(fresh), fresh.save_state()
    for turn in range(20):
        plain.reset()
        plain.eval_batch_state(tokens(30 + turn, seed=turn))
        plain.reset()
        assert np.array_equal(run_on(plain), wanted)
    state = plain.save_state()
    assert np.array_equal(state.matrices, wanted_state.matrices)
    assert np.array_equal(state.history, wanted_state.history)
    assert np.array_equal(state.latents, wanted_state.latents)


def test_saved_state_is_a_copy(plain: Decoder) -> None:
    plain.eval_batch_state(tokens(20))
    state = plain.save_state()
    before = replace(state, matrices=state.matrices.copy(), history=state.history.copy(), latents=state.latents.copy())
    run_on(plain)
    assert np.array_equal(state.matrices, before.matrices)
    assert np.array_equal(state.history, before.history)
    assert np.array_equal(state.latents, before.latents)


def test_empty_state_brings_back_position_0(plain: Decoder) -> None:
    empty = plain.save_state()
    first = run_on(plain)
    assert plain.restore_state(empty) == 0
    assert np.array_equal(run_on(plain), first)


def test_checkpoint_is_stale_after_a_row_below_it_is_written_again(plain: Decoder) -> None:
    plain.eval_batch_state(tokens(20))
    early = plain.save_checkpoint()
    plain.eval_batch_state(tokens(10, seed=1))
    late = plain.save_checkpoint()
    plain.restore_checkpoint(early)
    plain.restore_checkpoint(late)
    plain.restore_checkpoint(early)
    plain.eval(5)
    with pytest.raises(ValueError, match="checkpoint at 30 is stale"):
        plain.restore_checkpoint(late)
    assert plain.position == 21
    assert plain.restore_checkpoint(early) == 20


def test_checkpoint_survives_reset_until_its_rows_are_written(plain: Decoder) -> None:
    plain.eval_batch_state(tokens(20))
    checkpoint = plain.save_checkpoint()
    first = run_on(plain)
    plain.reset()
    plain.restore_checkpoint(checkpoint)
    assert np.array_equal(run_on(plain), first)
    plain.reset()
    plain.eval(1)
    with pytest.raises(ValueError, match="stale"):
        plain.restore_checkpoint(checkpoint)


def test_checkpoint_is_stale_after_a_state_was_restored(plain: Decoder) -> None:
    plain.eval_batch_state(tokens(10, seed=1))
    state = plain.save_state()
    plain.reset()
    plain.eval_batch_state(tokens(20))
    checkpoint = plain.save_checkpoint()
    plain.restore_state(state)
    with pytest.raises(ValueError, match="stale"):
        plain.restore_checkpoint(checkpoint)


def test_checkpoint_of_another_decoder_is_refused(plain: Decoder, plain_package: Package) -> None:
    other = Decoder(plain_package, CONTEXT, threads=1)
    other.eval_batch_state(tokens(20))
    plain.eval_batch_state(tokens(20, seed=1))
    with pytest.raises(ValueError, match="another decoder"):
        plain.restore_checkpoint(other.save_checkpoint())


def test_state_of_another_model_is_refused(plain: Decoder, tmp_path: Path) -> None:
    other = Decoder(Package.open(tiny_package(tmp_path / "other.l3r", seed=1)), CONTEXT, threads=1)
    other.eval_batch_state(tokens(20))
    first = run_on(plain)
    plain.reset()
    with pytest.raises(ValueError, match="belongs to"):
        plain.restore_state(other.save_state())
    assert plain.position == 0
    assert np.array_equal(run_on(plain), first)


def test_signature_differs_between_formats_of_one_model(plain: Decoder, tmp_path: Path) -> None:
    other = Decoder(Package.open(tiny_package(tmp_path / "other.l3r", "bf16")), CONTEXT, threads=1)
    assert other.state_signature() != plain.state_signature()


def test_state_longer_than_the_context_is_refused(plain: Decoder, plain_package: Package) -> None:
    plain.eval_batch_state(tokens(101))
    small = Decoder(plain_package, context=100, threads=1)
    with pytest.raises(ValueError, match="101 positions, the context 100"):
        small.restore_state(plain.save_state())
    assert small.position == 0


def test_context_can_be_filled_exactly_and_not_exceeded(plain: Decoder) -> None:
    plain.eval_batch_state(tokens(CONTEXT - 1))
    before = plain.save_state()
    with pytest.raises(ValueError, match="exceed the context of 192"):
        plain.eval_batch(tokens(2))
    last = plain.eval(5)
    with pytest.raises(ValueError, match="exceed the context of 192"):
        plain.eval(6)
    assert plain.position == CONTEXT
    plain.restore_state(before)
    assert np.array_equal(plain.eval(5), last)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([], "no tokens"),
        ([0, -1], "token ids must lie in 0..271"),
        ([VOCABULARY, 0], "token ids must lie in 0..271"),
    ],
)
def test_wrong_tokens_leave_the_state_as_it_was(plain: Decoder, wrong: list[int], message: str) -> None:
    plain.eval_batch_state(tokens(20))
    checkpoint = plain.save_checkpoint()
    first = run_on(plain)
    plain.restore_checkpoint(checkpoint)
    for evaluate in (plain.eval_batch, plain.eval_batch_state):
        with pytest.raises(ValueError, match=message):
            evaluate(wrong)
    assert plain.position == 20
    assert np.array_equal(run_on(plain), first)
