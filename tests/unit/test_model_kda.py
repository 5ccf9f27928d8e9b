"""KDA kernel against the recurrence in float64 (M-21 to M-28)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy_network
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ling3.linear.matmul import Linear
from ling3.linear.pool import Pool
from ling3.model.kda import KdaMixer

POOL = Pool(1)
EPS = 1.0
"""Of the output norm: near one, so that the norm does not blow up rounding where an output happens to be tiny."""


@dataclass(frozen=True)
class Layer:
    """What stands between the projections of a layer; `rows` are streams q, k, v, f, g and beta side by side."""

    heads: int
    width: int
    rows: NDArray[np.float32]
    taps: NDArray[np.float32]
    a_log: NDArray[np.float32]
    dt_bias: NDArray[np.float32]
    o_norm: NDArray[np.float32]
    bound: float

    def expected(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Outputs [T, P] and states [H, D, D] in float64."""
        rows = self.rows.astype(np.float64)
        streams = np.stack(np.split(rows[:, : -self.heads], 5, axis=1))
        taps, a_log, dt_bias, o_norm = (
            v.astype(np.float64) for v in (self.taps, self.a_log, self.dt_bias, self.o_norm)
        )
        beta = rows[:, -self.heads :]
        return numpy_network.kda_heads(streams, beta, taps, a_log, dt_bias, o_norm, self.bound, EPS)

    def run(self, *cuts: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The same from the kernel, in calls that end at `cuts` and at the last row."""
        wide, p = self.rows.shape[1], self.heads * self.width
        taps = np.ascontiguousarray(self.taps.transpose(0, 2, 1).reshape(-1, p))
        select = np.eye(wide, dtype=np.float32)[None]
        mixer = KdaMixer(
            project=Linear("streams", "f32", 5 * p, wide, wide, select[:, : 5 * p], None),
            beta=Linear("beta", "f32", self.heads, wide, wide, select[:, 5 * p :], None),
            out=Linear("out", "f32", p, p, p, np.eye(p, dtype=np.float32)[None], None),
            taps=taps,
            a_log=self.a_log,
            dt_bias=self.dt_bias,
            o_norm=self.o_norm,
            lower_bound=self.bound,
            eps=EPS,
        )
        state = np.zeros((self.heads, self.width, self.width), np.float32)
        history = np.zeros((self.taps.shape[2] - 1, 3 * p), np.float32)
        edges = [0, *cuts, len(self.rows)]
        calls = [mixer(POOL, self.rows[begin:end], begin, state, history) for begin, end in pairwise(edges)]
        return np.concatenate(calls), state


def layer(
    rows: int, heads: int = 2, width: int = 16, taps: int = 4, bound: float = -5.0, rate: float = 0.0, seed: int = 0
) -> Layer:
    """Random values; `rate` is the mean of A_log."""
    random = np.random.default_rng(seed)
    p = heads * width

    def normal(*shape: int) -> NDArray[np.float32]:
        return random.standard_normal(shape, np.float32)

    return Layer(
        heads, width, normal(rows, 5 * p + heads), normal(3, p, taps), 0.5 * normal(heads) + np.float32(rate),
        normal(p), 1 + np.float32(0.3) * normal(width), bound,
    )  # fmt: skip


def assert_agree(one: Layer, *cuts: int) -> None:
    out, state = one.run(*cuts)
    wanted, wanted_state = one.expected()
    np.testing.assert_allclose(out, wanted, rtol=0, atol=2e-5)
    np.testing.assert_allclose(state, wanted_state, rtol=0, atol=2e-5)


LAYERS = st.builds(
    layer,
    rows=st.integers(2, 70),
    heads=st.integers(1, 3),
    width=st.sampled_from([1, 4, 7, 16, 20]),
    taps=st.integers(1, 5),
    bound=st.floats(-5.0, -0.01),
    rate=st.floats(-2.0, 3.0),
    seed=st.integers(0, 2**32),
)


@settings(max_examples=40)
@given(LAYERS)
def test_block_form_is_the_recurrence(one: Layer) -> None:
    assert_agree(one)


@settings(max_examples=40)
@given(LAYERS)
def test_single_steps_are_the_recurrence(one: Layer) -> None:
    assert_agree(one, *range(1, len(one.rows)))


@settings(max_examples=40)
@given(LAYERS, st.data())
def test_calls_chain_through_state_and_history(one: Layer, data: st.DataObject) -> None:
    assert_agree(one, *sorted(data.draw(st.sets(st.integers(1, len(one.rows) - 1)), label="cuts")))


def test_real_head_width() -> None:
    assert_agree(layer(rows=130, width=128), 127)


@pytest.mark.parametrize("f", [-60.0, 60.0], ids=["no decay", "strongest decay"])
def test_extreme_decay_stays_exact(f: float) -> None:
    one = layer(rows=64)
    one.rows[:, 3 * 32 : 4 * 32] = f
    assert_agree(one)


def test_calls_that_end_at_sub_blocks_are_bit_identical() -> None:
    one = layer(rows=64)
    whole, whole_state = one.run()
    cut, cut_state = one.run(16, 48)
    assert np.array_equal(whole, cut)
    assert np.array_equal(whole_state, cut_state)
