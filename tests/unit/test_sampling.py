"""From logits to tokens (E-68, E-106, E-107)."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ling3.engine.request import Sampling
from ling3.engine.sampling import Sampler, Settings, defaults_of

NAN, INF = math.nan, math.inf


def sampler(vocabulary: int, prompt: Sequence[int] = (), masked: Sequence[int] = (), **settings: Any) -> Sampler:
    plain = Sampling(temperature=1.0, top_p=1.0, top_k=0, repeat_penalty=1.0, seed=0)
    return Sampler(Settings.decide(Sampling(**settings), plain), vocabulary, prompt, np.array(masked, np.int64))


def array(logits: Sequence[float]) -> NDArray[np.float32]:
    values = np.array(logits, np.float32)
    values.setflags(write=False)  # a cached record keeps its logits
    return values


def logs(*probabilities: float) -> list[float]:
    return [math.log(p) for p in probabilities]


def greedy(logits: Sequence[float], **settings: Any) -> int:
    return sampler(len(logits), temperature=0.0, **settings).draw(array(logits))


def support(logits: Sequence[float], **settings: Any) -> set[int]:
    """Every token that is drawn sooner or later."""
    values = array(logits)
    if "repeat_penalty" in settings:  # what was drawn is seen, so each draw needs an answer of its own
        return {sampler(len(logits), seed=seed, **settings).draw(values) for seed in range(50)}
    drawing = sampler(len(logits), **settings)
    return {drawing.draw(values) for _ in range(200)}


# The generator

MT19937_5489 = (3499211612, 581869302, 3890346734, 3586334585, 545404204, 4161255391)
"""The first outputs of C++'s std::mt19937 with its standard seed, as published."""


def test_draws_come_from_a_mersenne_twister_of_32_bits() -> None:
    """Two outputs make one number with 53 bits below 1; of equal tokens it picks by position."""
    pairs = zip(MT19937_5489[::2], MT19937_5489[1::2], strict=True)
    numbers = [((a >> 5) * 2**26 + (b >> 6)) / 2**53 for a, b in pairs]
    drawing = sampler(1000, seed=5489)
    assert [drawing.draw(array([0.0] * 1000)) for _ in numbers] == [int(1000 * number) for number in numbers]


def test_draws_go_on_where_the_last_one_ended() -> None:
    drawing = sampler(10, seed=5489)  # 0.8147 0.9058 0.1270 0.9134 0.6324 0.0975 0.2785 0.5469 0.9575 0.9649
    assert [drawing.draw(array([0.0] * 10)) for _ in range(10)] == [8, 9, 1, 9, 6, 0, 2, 5, 9, 9]


@given(st.integers(0, 2**32 - 1), st.lists(st.floats(-5, 5, width=32), min_size=2, max_size=8))
def test_the_same_seed_draws_the_same_tokens(seed: int, logits: list[float]) -> None:
    one, two = sampler(len(logits), seed=seed), sampler(len(logits), seed=seed)
    assert [one.draw(array(logits)) for _ in range(5)] == [two.draw(array(logits)) for _ in range(5)]


# Softmax and temperature


@pytest.mark.parametrize(
    ("temperature", "probabilities"),
    [
        (1.0, (0.5, 0.25, 0.125, 0.125)),
        (0.5, (16 / 22, 4 / 22, 1 / 22, 1 / 22)),
        (2.0, (0.3694, 0.2612, 0.1847, 0.1847)),
    ],
)
def test_tokens_are_drawn_with_their_probability(temperature: float, probabilities: tuple[float, ...]) -> None:
    """The number drawn falls into the token's share of [0, 1), the most likely token first."""
    bounds = list(accumulate(probabilities))
    drawing = sampler(4, seed=5, temperature=temperature)
    for number in np.random.RandomState(5).random_sample(300):
        drawn = drawing.draw(array(logs(0.5, 0.25, 0.125, 0.125)))
        assert drawn == bisect_right(bounds, number) or min(abs(number - bound) for bound in bounds) < 1e-3


@pytest.mark.parametrize(
    ("logits", "token"), [([1, 3, 2], 1), ([1, 3, 3], 1), ([0, 0, 0], 0), ([-5, -4, -4], 1), ([-0.0, 0.0], 0)]
)
def test_temperature_0_takes_the_largest_and_of_equals_the_lowest_id(logits: list[float], token: int) -> None:
    assert greedy(logits) == token


def test_temperature_0_does_not_care_for_the_other_settings() -> None:
    assert {greedy([1, 3, 2], top_k=2, top_p=0.1, seed=seed) for seed in range(20)} == {1}


# top_k and top_p


@pytest.mark.parametrize(
    ("logits", "top_k", "expected"),
    [
        ([1, 4, 3, 2], 1, {1}),
        ([1, 4, 3, 2], 2, {1, 2}),
        ([1, 1.5, 1.2, 1.1], 4, {0, 1, 2, 3}),
        ([1, 1.5, 1.2, 1.1], 5, {0, 1, 2, 3}),
        ([1, 1.5, 1.2, 1.1], 1 << 40, {0, 1, 2, 3}),
        ([1, 1.5, 1.2, 1.1], 0, {0, 1, 2, 3}),
        ([0, 1, 1, 1], 2, {1, 2}),
        ([1, 1, 1, 1], 1, {0}),
        ([NAN, 1, -INF, 1, INF], 3, {1, 3}),
    ],
)
def test_top_k_keeps_the_largest_and_of_equals_the_lowest_ids(
    logits: list[float], top_k: int, expected: set[int]
) -> None:
    assert support(logits, top_k=top_k) == expected


@pytest.mark.parametrize(
    ("top_p", "expected"),
    [
        (1e-9, {0}),
        (0.5, {0}),
        (0.5001, {0, 1}),
        (0.75, {0, 1}),
        (0.7501, {0, 1, 2}),
        (0.875, {0, 1, 2}),
        (0.8751, {0, 1, 2, 3}),
        (1.0, {0, 1, 2, 3}),
    ],
)
def test_top_p_keeps_the_smallest_set_that_reaches_it(top_p: float, expected: set[int]) -> None:
    assert support(logs(0.5, 0.25, 0.125, 0.125), top_p=top_p) == expected


@pytest.mark.parametrize(
    ("equal", "top_p"), [*((n, k / n) for n in (2, 3, 7, 10) for k in range(1, n + 1)), (100, 0.07), (100, 0.14)]
)
def test_top_p_is_reached_exactly_in_spite_of_rounding(equal: int, top_p: float) -> None:
    """Eight of ten equal tokens have 0.8 and seven of a hundred 0.07, though 8 x 0.1 is smaller and 100 x 0.07 larger
    in floating point. The lowest ids are kept."""
    assert support([0.0] * equal, top_p=top_p) == set(range(round(top_p * equal)))


def test_of_many_equal_tokens_the_lowest_ids_come_first() -> None:
    """So many that an unstable sort would show."""
    assert support([float(i % 3) for i in range(300)], top_p=0.02) == {2, 5, 8, 11}


# The order of the steps


def test_the_penalty_comes_before_top_k() -> None:
    assert support([3, 2, 1], prompt=[0], repeat_penalty=4.0, top_k=2) == {1, 2}


def test_top_k_comes_before_top_p() -> None:
    """Of 0.4 and 0.3 the first has 0.57, so it alone reaches one half."""
    assert support(logs(0.4, 0.3, 0.2, 0.1), top_k=2, top_p=0.5) == {0}


@pytest.mark.parametrize(("temperature", "expected"), [(1.0, {0}), (2.0, {0, 1})])
def test_temperature_comes_before_top_p(temperature: float, expected: set[int]) -> None:
    """The first of logits 2 and 0 has 0.88 at temperature 1, and 0.73 at 2."""
    assert support([2, 0], temperature=temperature, top_p=0.8) == expected


# Repeat penalty


@pytest.mark.parametrize(
    ("logits", "token"),
    [
        pytest.param([2.0, 1.5], 1, id="positive logits are divided"),
        pytest.param([-1.0, -1.5], 1, id="negative ones multiplied"),
        pytest.param([0.0, -0.1], 0, id="zero stays"),
        pytest.param([2.0, 0.9], 0, id="enough is left"),
    ],
)
def test_seen_tokens_are_penalised(logits: list[float], token: int) -> None:
    assert greedy(logits, prompt=[0], repeat_penalty=2.0) == token


def test_a_penalty_below_1_favours_seen_tokens() -> None:
    assert greedy([1.0, 1.5], prompt=[0], repeat_penalty=0.5) == 0


def test_presence_counts_and_not_how_often() -> None:
    assert greedy([2.1, 1.0], prompt=[0, 0, 0], repeat_penalty=2.0) == 0


def test_drawn_tokens_are_seen_from_then_on() -> None:
    drawing = sampler(3, temperature=0.0, repeat_penalty=2.0)
    assert [drawing.draw(array([2.0, 1.5, 0.9])) for _ in range(4)] == [0, 1, 0, 0]


# What is never drawn


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_masked_tokens_are_never_drawn(temperature: float) -> None:
    assert support([9, 1, 1, 9], masked=[0, 3], temperature=temperature) == ({1, 2} if temperature else {1})


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("settings", [{"temperature": 0.0}, {}, {"prompt": [0], "repeat_penalty": 1.5}])
def test_a_logit_that_is_no_number_is_never_drawn(value: float, settings: dict[str, Any]) -> None:
    assert support([value, 1.0], **settings) == {1}


@pytest.mark.parametrize(("logits", "masked"), [([NAN, INF, -INF], []), ([NAN, 1, 2], [1, 2]), ([1, 2, 3], [0, 1, 2])])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nothing_that_can_be_drawn_is_an_error(logits: list[float], masked: list[int], temperature: float) -> None:
    with pytest.raises(ValueError, match="no finite logits"):
        sampler(3, masked=masked, temperature=temperature).draw(array(logits))


def test_logits_are_not_changed() -> None:
    logits = np.array([1.0, NAN, 2.0, 3.0], np.float32)
    sampler(4, prompt=[0], masked=[3], repeat_penalty=2.0, top_k=2, top_p=0.9).draw(logits)
    np.testing.assert_array_equal(logits, np.array([1.0, NAN, 2.0, 3.0], np.float32))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"temperature": 5e-324}, {1}),
        ({"temperature": 1e300}, {0, 1, 2}),
        ({"repeat_penalty": 1e-320, "prompt": [0]}, {0}),
        ({"repeat_penalty": 1e308, "prompt": [0, 1]}, {0, 1, 2}),
        ({"top_p": 5e-324}, {1}),
    ],
)
def test_settings_at_the_edge_of_their_range_work_without_a_warning(
    settings: dict[str, Any], expected: set[int]
) -> None:
    assert support([0.5, 1.0, 0.0], **settings) == expected


def test_the_largest_logits_work_without_a_warning() -> None:
    largest = float(np.finfo(np.float32).max)
    assert support([-largest, largest, 0.0], repeat_penalty=0.5, prompt=[0, 1]) == {1}


logit_lists = st.lists(st.floats(width=32), min_size=1, max_size=12)


@given(
    logit_lists,
    st.sets(st.integers(0, 11)),
    st.integers(0, 13),
    st.floats(0, 1, exclude_min=True),
    st.floats(0, 2),
    st.integers(0, 2**32 - 1),
)
def test_what_is_drawn_belongs_to_the_kept_tokens(
    logits: list[float], masked: set[int], top_k: int, top_p: float, temperature: float, seed: int
) -> None:
    open_tokens = {i for i, z in enumerate(logits) if math.isfinite(z) and i not in masked}
    drawing = sampler(
        len(logits), masked=[i for i in masked if i < len(logits)],
        top_k=top_k, top_p=top_p, temperature=temperature, seed=seed,
    )  # fmt: skip
    if not open_tokens:
        with pytest.raises(ValueError, match="no finite logits"):
            drawing.draw(array(logits))
        return
    token = drawing.draw(array(logits))
    assert token in open_tokens
    before = [i for i in open_tokens if (-logits[i], i) < (-logits[token], token)]
    assert top_k == 0 or len(before) < top_k
    assert temperature > 0 or not before
    if before and temperature > 0:
        kept = sorted(open_tokens, key=lambda i: (-logits[i], i))[: top_k or None]
        weights = {i: math.exp(max((logits[i] - logits[kept[0]]) / temperature, -745.0)) for i in kept}
        assert sum(weights[i] for i in before) / sum(weights.values()) < top_p + 1e-9


# Settings


@pytest.mark.parametrize(
    ("wanted", "defaults", "settings"),
    [
        (Sampling(seed=1), Sampling(), Settings(1.0, 1.0, 0, 1.0, 1)),
        (Sampling(seed=1), Sampling(0.7, 0.95, 20, 1.1), Settings(0.7, 0.95, 20, 1.1, 1)),
        (Sampling(0.0, 0.5, 0, 1.0, 1), Sampling(0.7, 0.95, 20, 1.1), Settings(0.0, 0.5, 0, 1.0, 1)),
        (Sampling(top_k=3, seed=0), Sampling(0.7), Settings(0.7, 1.0, 3, 1.0, 0)),
        (Sampling(seed=-1), Sampling(), Settings(1.0, 1.0, 0, 1.0, 4294967295)),
        (Sampling(seed=2**32 + 5), Sampling(), Settings(1.0, 1.0, 0, 1.0, 5)),
    ],
)
def test_the_requests_settings_win_over_the_packages(wanted: Sampling, defaults: Sampling, settings: Settings) -> None:
    assert Settings.decide(wanted, defaults) == settings


def test_a_fresh_seed_has_32_bits_and_is_not_the_last_one() -> None:
    seeds = [Settings.decide(Sampling(), Sampling()).seed for _ in range(20)]
    assert len(set(seeds)) == 20 and all(0 <= seed < 2**32 for seed in seeds)


@pytest.mark.parametrize(
    ("generation", "defaults"),
    [
        ({}, Sampling()),
        ({"temperature": 1.0, "top_p": 0.95, "top_k": 20, "eos_token_id": 3}, Sampling(1.0, 0.95, 20)),
        ({"repetition_penalty": 1.1}, Sampling(repeat_penalty=1.1)),
        ({"temperature": 0}, Sampling(temperature=0.0)),
        ({"do_sample": False, "temperature": 0.6}, Sampling(temperature=0.0)),
        ({"do_sample": True, "temperature": 0.6}, Sampling(temperature=0.6)),
        ({"temperature": "hot", "top_p": 0, "top_k": -1, "repetition_penalty": 0}, Sampling()),
        ({"temperature": 2.5, "top_p": 1.5, "top_k": None, "repetition_penalty": True}, Sampling()),
        ({"top_k": 20.0}, Sampling(top_k=20)),
    ],
)
def test_a_packages_settings_are_taken_where_they_are_usable(generation: dict[str, Any], defaults: Sampling) -> None:
    assert defaults_of(generation) == defaults
