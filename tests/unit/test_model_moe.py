"""Router, experts and SwiGLU against float64 (M-40 to M-43)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy_network
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from packages import CONFIG

from ling3.linear.matmul import Linear
from ling3.linear.pool import Pool
from ling3.model.geometry import Geometry
from ling3.model.moe import Dense, Moe, group_by_expert, swiglu

POOL = Pool(1)
NAME = "layer"


def linear(weights: NDArray[np.float32]) -> Linear:
    """weights: [experts, n, k]."""
    _, n, k = weights.shape
    return Linear("matrix", "f32", n, k, k, np.ascontiguousarray(weights), None)


def geometry(experts: int, groups: int, kept: int, chosen: int, **changes: Any) -> Geometry:
    routing = {"num_experts": experts, "n_group": groups, "topk_group": kept, "num_experts_per_tok": chosen}
    return Geometry.from_config({**CONFIG, **routing, **changes})


def choose(g: Geometry, logits: NDArray[np.float32], bias: NDArray[np.float32]) -> NDArray[np.float64]:
    """Weight of every expert for every row by the kernel, 0 for those not chosen: [rows, experts]."""
    nothing = linear(np.zeros((1, 1, 1), np.float32))
    moe = Moe(linear(np.eye(g.experts, dtype=np.float32)[None]), bias, nothing, nothing, None, g)
    ids, weights = moe.route(POOL, logits)
    assert (np.diff(ids, axis=1) > 0).all()
    result = np.zeros(logits.shape)
    np.put_along_axis(result, ids.astype(np.int64), weights, axis=1)
    return result


@settings(max_examples=60)
@given(
    groups=st.integers(1, 4),
    size=st.integers(2, 6),
    normalise=st.booleans(),
    bias_mean=st.sampled_from([-1.5, 0.0, 0.7]),
    seed=st.integers(0, 2**32),
    data=st.data(),
)
def test_route(groups: int, size: int, normalise: bool, bias_mean: float, seed: int, data: st.DataObject) -> None:
    kept = data.draw(st.integers(1, groups), label="groups kept")
    chosen = data.draw(st.integers(1, kept * size), label="experts chosen")
    g = geometry(groups * size, groups, kept, chosen, norm_topk_prob=normalise, routed_scaling_factor=1.7)
    random = np.random.default_rng(seed)
    logits = random.standard_normal((5, g.experts), np.float32)
    bias = np.float32(bias_mean) + np.float32(0.3) * random.standard_normal(g.experts, np.float32)
    wanted = numpy_network.route(logits.astype(np.float64), bias.astype(np.float64), g)
    for _ in range(3):  # decisions that hang on rounding may go either way (M-42)
        nudged = bias + 1e-5 * random.choice([-1.0, 1.0], g.experts)
        assume(np.array_equal(numpy_network.route(logits.astype(np.float64), nudged, g) > 0, wanted > 0))
    np.testing.assert_allclose(choose(g, logits, bias), wanted, rtol=1e-5, atol=0)


def test_masked_groups_are_out_even_when_every_choice_is_negative() -> None:
    g = geometry(experts=4, groups=2, kept=1, chosen=2, norm_topk_prob=False, routed_scaling_factor=1.0)
    bias = np.array([-2, -2, -3, -3], np.float32)
    weights = choose(g, np.zeros((1, 4), np.float32), bias)
    assert weights.tolist() == [[0.5, 0.5, 0.0, 0.0]]


def test_group_score_is_the_sum_of_its_two_best() -> None:
    g = geometry(experts=6, groups=2, kept=1, chosen=1, norm_topk_prob=False, routed_scaling_factor=1.0)
    # group 0: 0.5 + 0.9 and 0.5 + 0; group 1: 0.5 + 0.6 twice
    bias = np.array([0.9, 0, 0, 0.6, 0.6, 0], np.float32)
    assert choose(g, np.zeros((1, 6), np.float32), bias).tolist() == [[0, 0, 0, 0.5, 0, 0]]


def test_of_equal_experts_the_first_wins() -> None:
    g = geometry(experts=8, groups=4, kept=2, chosen=2, norm_topk_prob=True, routed_scaling_factor=2.5)
    weights = choose(g, np.zeros((1, 8), np.float32), np.zeros(8, np.float32))
    assert weights.tolist() == [[1.25, 1.25, 0, 0, 0, 0, 0, 0]]


@settings(max_examples=40)
@given(st.integers(1, 20), st.integers(1, 5), st.integers(0, 2**32))
def test_group_by_expert_keeps_every_pair(rows: int, chosen: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    ids = np.stack([np.sort(random.permutation(7)[:chosen]) for _ in range(rows)]).astype(np.int32)
    groups, row_of, place = group_by_expert(ids)
    expert_of = np.repeat(groups.experts, np.diff(groups.offsets))
    assert sorted(place.ravel().tolist()) == list(range(rows * chosen))
    assert np.array_equal(expert_of[place], ids)
    assert np.array_equal(row_of[place], np.repeat(np.arange(rows)[:, None], chosen, axis=1))


def test_experts_and_shared_expert_add_up() -> None:
    g = geometry(experts=8, groups=4, kept=2, chosen=3, num_shared_experts=2)
    random = np.random.default_rng(0)

    def matrices(count: int, n: int, k: int) -> NDArray[np.float32]:
        return random.standard_normal((count, n, k), np.float32) * np.float32(1.5 / k**0.5)

    router, bias = matrices(1, 8, g.hidden_size), random.standard_normal(8, np.float32) * np.float32(0.2)
    gate_up, down = matrices(8, 2 * g.expert_width, g.hidden_size), matrices(8, g.hidden_size, g.expert_width)
    shared_up, shared_down = matrices(1, 2 * g.shared_width, g.hidden_size), matrices(1, g.hidden_size, g.shared_width)
    weights = {f"{NAME}.gate": router[0], f"{NAME}.gate.expert_bias": bias}
    parts = [(f"{NAME}.experts.{e}", gate_up[e], down[e]) for e in range(8)]
    for name, both, last in [*parts, (f"{NAME}.shared_experts", shared_up[0], shared_down[0])]:
        weights[f"{name}.gate_proj"], weights[f"{name}.up_proj"] = np.split(both, 2)
        weights[f"{name}.down_proj"] = last
    moe = Moe(linear(router), bias, linear(gate_up), linear(down), Dense(linear(shared_up), linear(shared_down)), g)
    x = random.standard_normal((20, g.hidden_size), np.float32)
    wanted = numpy_network.moe(x.astype(np.float64), NAME, lambda name: weights[name].astype(np.float64), g)
    np.testing.assert_allclose(moe(POOL, x), wanted, rtol=0, atol=2e-5)


def test_silu_is_exact_to_a_few_units_in_the_last_place() -> None:
    gate = np.linspace(-80, 80, 4001, dtype=np.float32)
    both = np.concatenate([gate, np.ones_like(gate)])[None]
    wanted = numpy_network.silu(gate.astype(np.float64))
    np.testing.assert_allclose(swiglu(POOL, both)[0], wanted, rtol=5e-7, atol=0)
