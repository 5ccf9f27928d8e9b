"""Activations to int8, and rows of a W8 matrix back to floats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from native_reference import pack_w8, quantised
from numpy.typing import NDArray

from ling3 import _native
from ling3._native import Pool

POOL = Pool(2)


def quantise(x: NDArray[np.float32], tile: int, k: int) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    q = np.full((len(x), k), 99, np.int8)
    scale = np.full((len(x), k // tile), np.nan, np.float32)
    _native.quantise_rows(POOL, x, tile, q, scale)
    return q, scale


floats = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(st.lists(floats, min_size=1, max_size=96), st.sampled_from([32, 96]))
def test_any_finite_row_is_rounded_like_the_reference(row: list[float], tile: int) -> None:
    x = np.array([row], np.float32)
    q, scale = quantise(x, tile, 96)
    expected_q, expected_scale = quantised(x, tile, 96)
    assert (q == expected_q).all()
    assert (scale == expected_scale).all()


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_many_rows_are_rounded_like_the_reference(threads: int) -> None:
    x = np.random.default_rng(1).standard_normal((130, 250), np.float32)
    q, scale = np.empty((130, 256), np.int8), np.empty((130, 4), np.float32)
    _native.quantise_rows(Pool(threads), x, 64, q, scale)
    expected_q, expected_scale = quantised(x, 64, 256)
    assert (q == expected_q).all()
    assert (scale == expected_scale).all()


def test_halves_go_to_the_even_neighbour() -> None:
    row = np.zeros((1, 32), np.float32)
    row[0, :7] = [127, 0.5, 1.5, 2.5, -0.5, -1.5, -127]
    q, scale = quantise(row, 32, 32)
    assert scale[0, 0] == 1
    assert q[0, :7].tolist() == [127, 0, 2, 2, 0, -2, -127]


def test_a_tile_of_zeros_has_scale_one_and_padding_is_zero() -> None:
    row = np.zeros((1, 40), np.float32)
    row[0, 0] = 254
    q, scale = quantise(row, 32, 96)
    assert scale.tolist() == [[2.0, 1.0, 1.0]]
    assert q.tolist() == [[127] + [0] * 95]


def test_scales_stay_normal_numbers() -> None:
    smallest = np.full((1, 32), 1e-45, np.float32)
    q, scale = quantise(smallest, 32, 32)
    assert scale[0, 0] == np.finfo(np.float32).tiny
    assert (q == 0).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [(0, 0), (2, 39)])
def test_values_that_are_not_finite_are_refused(value: float, place: tuple[int, int]) -> None:
    x = np.ones((3, 40), np.float32)
    x[place] = value
    with pytest.raises(ValueError, match="x: holds a value that is not finite"):
        quantise(x, 32, 64)


@pytest.mark.parametrize(
    ("tile", "q", "scale", "message"),
    [
        (0, (2, 64), (2, 2), "tile: must be a positive multiple of 32"),
        (48, (2, 96), (2, 2), "tile: must be a positive multiple of 32"),
        (32, (2, 32), (2, 1), "q: the columns must be a multiple of tile = 32 and at least 40"),
        (64, (2, 96), (2, 1), "q: the columns must be a multiple of tile = 64"),
        (32, (3, 64), (2, 2), r"q: shape \[2, any\]"),
        (32, (2, 64), (2, 1), r"scale: shape \[2, 2\]"),
    ],
)
def test_wrong_arguments_are_refused_by_name(tile: int, q: Any, scale: Any, message: str) -> None:
    x = np.zeros((2, 40), np.float32)
    with pytest.raises(ValueError, match=message):
        _native.quantise_rows(POOL, x, tile, np.zeros(q, np.int8), np.zeros(scale, np.float32))


def test_gathered_rows_are_values_times_scales() -> None:
    rng = np.random.default_rng(2)
    values = rng.integers(-128, 128, (64, 96))
    scale = rng.random((3, 64), np.float32)
    ids = np.array([0, 63, 31, 32, 31], np.int64)
    out = np.empty((5, 90), np.float32)
    _native.gather_w8_rows(pack_w8(values), scale, ids, out)
    expected = values[ids].astype(np.float32) * scale.T[ids].repeat(32, axis=1)
    assert (out == expected[:, :90]).all()


@pytest.mark.parametrize(
    ("id_", "columns", "message"), [(64, 96, "ids: entry 64"), (-1, 96, "ids: entry -1"), (0, 97, "out:")]
)
def test_rows_and_columns_that_do_not_exist_are_refused(id_: int, columns: int, message: str) -> None:
    weights, scale = np.zeros((2, 3, 32, 32), np.int8), np.zeros((1, 64), np.float32)
    with pytest.raises(ValueError, match=message):
        _native.gather_w8_rows(weights, scale, np.array([id_], np.int64), np.zeros((1, columns), np.float32))
