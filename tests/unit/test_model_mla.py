"""Attention over cached latents against the expanded form in float64 (M-31 to M-35)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy_network
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from packages import CONFIG

from ling3.linear.matmul import Linear
from ling3.linear.pool import Pool
from ling3.model.geometry import Geometry
from ling3.model.mla import MlaMixer

POOL = Pool(1)
NAME = "layer"


class Layer:
    """A layer with random weights under their public names, and the mixer made of the same weights."""

    def __init__(self, seed: int = 0, **changes: Any) -> None:
        self.g = g = Geometry.from_config({**CONFIG, **changes})
        random = np.random.default_rng(seed)

        def matrix(n: int, k: int) -> NDArray[np.float32]:
            return random.standard_normal((n, k), np.float32) * np.float32(1.5 / k**0.5)

        def norm(width: int) -> NDArray[np.float32]:
            return 1 + np.float32(0.3) * random.standard_normal(width, np.float32)

        queries, heads = g.heads * g.qk_head_dim, g.heads
        self.weights = {
            "kv_a_proj_with_mqa": matrix(g.latent_width, g.hidden_size),
            "kv_a_layernorm": norm(g.kv_lora_rank),
            "kv_b_proj": matrix(heads * (g.qk_nope_head_dim + g.v_head_dim), g.kv_lora_rank),
            "g_proj": matrix(heads, g.hidden_size),
            "dense": matrix(g.hidden_size, heads * g.v_head_dim),
        }
        if g.q_lora_rank is None:
            self.weights["q_proj"] = matrix(queries, g.hidden_size)
        else:
            self.weights["q_a_proj"] = matrix(g.q_lora_rank, g.hidden_size)
            self.weights["q_a_layernorm"] = norm(g.q_lora_rank)
            self.weights["q_b_proj"] = matrix(queries, g.q_lora_rank)

    def expected(self, x: NDArray[np.float32]) -> NDArray[np.float64]:
        """The expanded form in float64."""
        tensors = {f"{NAME}.{name}": values.astype(np.float64) for name, values in self.weights.items()}
        return numpy_network.mla_mixer(x.astype(np.float64), NAME, tensors.__getitem__, self.g)

    def mixer(self) -> MlaMixer:
        g, w = self.g, self.weights
        per_head = w["kv_b_proj"].reshape(g.heads, g.qk_nope_head_dim + g.v_head_dim, g.kv_lora_rank)
        first = w["q_proj"] if g.q_lora_rank is None else w["q_a_proj"]
        return MlaMixer(
            project=linear(np.concatenate([first, w["kv_a_proj_with_mqa"]])[None]),
            q_up=None if g.q_lora_rank is None else linear(w["q_b_proj"][None]),
            q_norm=w.get("q_a_layernorm"),
            kv_norm=w["kv_a_layernorm"],
            k_absorb=linear(per_head[:, : g.qk_nope_head_dim].transpose(0, 2, 1)),
            v_absorb=linear(per_head[:, g.qk_nope_head_dim :]),
            gate=linear(w["g_proj"][None]),
            out=linear(w["dense"][None]),
            geometry=g,
        )

    def run(self, x: NDArray[np.float32], *cuts: int, cache_type: type[Any] = np.float32) -> NDArray[np.float32]:
        """The mixer's rows, in calls that end at `cuts`; the cache starts as not-a-number."""
        g, rows = self.g, len(x)
        bits = np.full((rows + 3, g.latent_width), np.nan, np.float32)
        cache = bits if cache_type is np.float32 else (bits.view(np.uint32) >> 16).astype(np.uint16)
        half = g.qk_rope_head_dim // 2
        angle = np.arange(rows)[:, None] * g.rope_theta ** (-np.arange(half) / half)
        angles = np.stack([np.cos(angle), np.sin(angle)], axis=2).astype(np.float32)
        mixer = self.mixer()
        return np.concatenate(
            [mixer(POOL, x[a:b], a, np.ascontiguousarray(angles[a:b]), cache) for a, b in pairwise([0, *cuts, rows])]
        )


def linear(weights: NDArray[np.float32]) -> Linear:
    """weights: [experts, n, k]."""
    _, n, k = weights.shape
    return Linear("matrix", "f32", n, k, k, np.ascontiguousarray(weights), None)


def random_rows(layer: Layer, rows: int) -> NDArray[np.float32]:
    return np.random.default_rng(1).standard_normal((rows, layer.g.hidden_size), np.float32)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32),
    rows=st.integers(2, 80),
    q_rank=st.sampled_from([None, 10]),
    heads=st.integers(1, 3),
    nope=st.sampled_from([3, 16]),
    rope=st.sampled_from([2, 6, 8]),
    value=st.sampled_from([5, 16]),
    data=st.data(),
)
def test_absorbed_form_is_the_expanded_one(
    seed: int, rows: int, q_rank: int | None, heads: int, nope: int, rope: int, value: int, data: st.DataObject
) -> None:
    layer = Layer(
        seed, q_lora_rank=q_rank, num_attention_heads=heads, num_key_value_heads=heads, qk_nope_head_dim=nope,
        qk_rope_head_dim=rope, v_head_dim=value,
    )  # fmt: skip
    x = random_rows(layer, rows)
    cuts = sorted(data.draw(st.sets(st.integers(1, rows - 1)), label="cuts"))
    np.testing.assert_allclose(layer.run(x, *cuts), layer.expected(x), rtol=0, atol=2e-5)


def test_many_tiles_of_keys() -> None:
    layer = Layer()
    x = random_rows(layer, 300)
    np.testing.assert_allclose(layer.run(x, 128, 256, 257), layer.expected(x), rtol=0, atol=2e-5)


def test_scores_far_apart_do_not_overflow() -> None:
    layer = Layer()
    layer.weights["kv_a_layernorm"] *= np.float32(300)
    x = random_rows(layer, 100)
    wanted = layer.expected(x)
    np.testing.assert_allclose(layer.run(x), wanted, rtol=0, atol=1e-4 * np.abs(wanted).max())


def test_sixteen_bit_cache_costs_its_rounding_only() -> None:
    layer = Layer()
    x = random_rows(layer, 100)
    wanted = layer.expected(x)
    difference = np.abs(layer.run(x, 64, cache_type=np.uint16) - wanted).max()
    assert 1e-4 < difference < 2e-2 * np.abs(wanted).max()


@pytest.mark.parametrize("cache_type", [np.float32, np.uint16])
def test_rows_do_not_depend_on_which_share_a_call(cache_type: type[Any]) -> None:
    layer = Layer()
    x = random_rows(layer, 100)
    assert np.array_equal(layer.run(x, cache_type=cache_type), layer.run(x, 1, 17, 70, cache_type=cache_type))
