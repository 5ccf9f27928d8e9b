"""Linears of every format behind one call: `linear(pool, x) -> y`.

Activations of `w4` and `w8` are rounded to int8 per (row, K tile); the integer sums are exact, so they do
not depend on unit, thread count or batch (D-11). Float formats sum every dot product in one
fixed order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ling3 import _native
from ling3.linear.formats import K_BLOCK, Format, from_bf16, round_up


@dataclass(frozen=True, slots=True)
class Groups:
    """Which rows meet which expert: rows offsets[g] to offsets[g + 1] meet experts[g]. Both int32."""

    experts: NDArray[np.int32]
    offsets: NDArray[np.int32]


@lru_cache(maxsize=1024)
def all_rows(rows: int) -> Groups:
    """One group of all rows, for a linear without experts."""
    return Groups(np.zeros(1, np.int32), np.array([0, rows], np.int32))


@lru_cache(maxsize=1024)
def equal_groups(experts: int, rows: int) -> Groups:
    """Every expert in turn, `rows` rows each."""
    return Groups(np.arange(experts, dtype=np.int32), np.arange(experts + 1, dtype=np.int32) * np.int32(rows))


@dataclass(frozen=True, slots=True)
class Linear:
    """y[r, n] = sum over k of w[e, n, k] x[r, k]. Weights stay where they are mapped; `scale` is [E, T, N] float32."""

    name: str
    format: Format
    n: int
    k: int
    tile: int
    weights: NDArray[Any]
    scale: NDArray[np.float32] | None

    def __call__(self, pool: _native.Pool, x: NDArray[np.float32], groups: Groups | None = None) -> NDArray[np.float32]:
        """x: [rows, k] float32 -> [rows, n] float32. Raises ValueError if a quantised linear meets a non-finite x."""
        rows = x.shape[0]
        g = groups or all_rows(rows)
        y = np.empty((rows, self.n), np.float32)
        if self.scale is None:
            product = _native.f32_matmul if self.format == "f32" else _native.bf16_matmul
            product(pool, self.weights, x, g.experts, g.offsets, y)
            return y
        k = round_up(self.k, K_BLOCK)
        q = np.empty((rows, k), np.int8)
        q_scale = np.empty((rows, k // self.tile), np.float32)
        _native.quantise_rows(pool, x, self.tile, q, q_scale)
        quantised = _native.w4_matmul if self.format == "w4" else _native.w8_matmul
        quantised(pool, self.weights, self.scale, q, q_scale, g.experts, g.offsets, y)
        return y

    def rows(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Rows of the matrix as float32 `[len(ids), k]`: the look-up of an embedding (`w8`, `bf16`, `f32`)."""
        if self.format == "f32":
            return np.ascontiguousarray(self.weights[0, ids])
        if self.format == "bf16":
            return from_bf16(self.weights[0, ids])
        assert self.scale is not None
        out = np.empty((len(ids), self.k), np.float32)
        _native.gather_w8_rows(self.weights[0], self.scale[0], ids, out)
        return out
