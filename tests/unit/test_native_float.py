"""Float products: right to float32, and one fixed order of additions whatever the company of a row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_reference import one_group
from numpy.typing import NDArray

from ling3 import _native
from ling3._native import Pool

MATMUL: dict[str, Any] = {"f32": _native.f32_matmul, "bf16": _native.bf16_matmul}


@pytest.fixture(scope="module")
def pool() -> Pool:
    return Pool(2)


def random_weights(kind: str, experts: int, n: int, k: int) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """Weights as stored, and their values."""
    values = np.random.default_rng(5).standard_normal((experts, n, k), np.float32)
    if kind == "f32":
        return values, values
    upper = (values.view(np.uint32) >> 16).astype(np.uint16)
    return upper, (upper.astype(np.uint32) << 16).view(np.float32)


def random_rows(rows: int, k: int) -> NDArray[np.float32]:
    return np.random.default_rng(6).standard_normal((rows, k), np.float32)


def in_lanes(x: NDArray[np.float32], w: NDArray[np.float32]) -> NDArray[np.float32]:
    """The documented order: sixteen sums, k mod 16 each, then a tree; every step rounded to float32."""
    k = len(x)
    parts = np.zeros(16, np.float32)
    for i in range(k):
        parts[i % 16] += x[i] * w[i]
    while len(parts) > 1:
        parts = parts[: len(parts) // 2] + parts[len(parts) // 2 :]
    return parts


@pytest.mark.parametrize("kind", ["f32", "bf16"])
@pytest.mark.parametrize("k", [1, 15, 16, 17, 40, 256])
@pytest.mark.parametrize("rows", [1, 3, 4, 9])
def test_products_have_the_documented_order(pool: Pool, kind: str, k: int, rows: int) -> None:
    n = 21
    weights, values = random_weights(kind, 1, n, k)
    x, y = random_rows(rows, k), np.empty((rows, n), np.float32)
    MATMUL[kind](pool, weights, x, **one_group(rows), y=y)
    expected = np.array([[in_lanes(x[r], values[0, c])[0] for c in range(n)] for r in range(rows)])
    assert (y == expected).all()


@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_each_group_meets_its_expert(pool: Pool, kind: str) -> None:
    weights, values = random_weights(kind, 3, 33, 100)
    x, y = random_rows(12, 100), np.empty((12, 33), np.float32)
    MATMUL[kind](pool, weights, x, np.array([2, 1, 0], np.int32), np.array([0, 5, 5, 12], np.int32), y)
    expected = np.concatenate([x[:5] @ values[2].T, x[5:] @ values[0].T])
    assert np.allclose(y, expected, atol=1e-4)


@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_results_are_the_same_bits_for_any_threads_and_grouping(kind: str) -> None:
    weights, _ = random_weights(kind, 1, 70, 130)
    x, results = random_rows(50, 130), set()
    for threads in (1, 2, 4):
        for offsets in ([0, 50], list(range(51)), [0, 7, 50]):
            y = np.empty((50, 70), np.float32)
            experts = np.zeros(len(offsets) - 1, np.int32)
            MATMUL[kind](Pool(threads), weights, x, experts, np.array(offsets, np.int32), y)
            results.add(y.tobytes())
    assert len(results) == 1


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("weights", np.zeros((1, 8, 16), np.uint16), "a C-contiguous float32 array with 3 axes"),
        ("x", np.zeros((2, 15), np.float32), r"shape \[any, 16\] is needed, got \[2, 15\]"),
        ("y", np.zeros((2, 9), np.float32), r"shape \[2, 8\]"),
        ("experts", np.array([1], np.int32), r"entry 1 is not in 0\.\.\.0"),
    ],
)
def test_wrong_arguments_are_refused_by_name(pool: Pool, name: str, value: Any, message: str) -> None:
    arguments: dict[str, Any] = {
        "weights": np.zeros((1, 8, 16), np.float32),
        "x": np.zeros((2, 16), np.float32),
        "y": np.zeros((2, 8), np.float32),
        **one_group(2),
    }
    with pytest.raises(ValueError, match=f"{name}: .*{message}"):
        _native.f32_matmul(pool, **arguments | {name: value})
