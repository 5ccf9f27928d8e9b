"""Plain NumPy references of the native kernels, written from the index formulas of the NPU's tile order.

Independent of `ling3.linear.formats`: the packers here address every element by its formula.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def pack_w4(values: Ints) -> NDArray[np.uint8]:
    """[N, K] integers in -8...7 to [N/64, K/32, 64, 16] bytes; the even k is the low nibble."""
    n_total, k_total = values.shape
    nibbles = np.zeros(n_total * k_total, np.uint8)
    n, k = np.indices(values.shape)
    nibbles[(n // 64 * (k_total // 32) + k // 32) * 2048 + n % 64 * 32 + k % 32] = values & 15
    packed: NDArray[np.uint8] = nibbles[0::2] | nibbles[1::2] << 4
    return packed.reshape(n_total // 64, k_total // 32, 64, 16)


def pack_w8(values: Ints) -> NDArray[np.int8]:
    """[N, K] integers in -128...127 to [N/32, K/32, 32, 32] bytes."""
    n_total, k_total = values.shape
    out = np.zeros(n_total * k_total, np.int8)
    n, k = np.indices(values.shape)
    out[(n // 32 * (k_total // 32) + k // 32) * 1024 + 32 * (n % 32) + k % 32] = values
    return out.reshape(n_total // 32, k_total // 32, 32, 32)


def sums(values: Ints, q: NDArray[np.int8], tiles: int) -> NDArray[np.int32]:
    """[rows, T, N] exact sums of q: [rows, K] and values: [N, K] per K tile."""
    rows, k = q.shape
    a = q.astype(np.int64).reshape(rows, tiles, k // tiles)
    w = values.reshape(len(values), tiles, k // tiles)
    acc: NDArray[np.int32] = np.einsum("rtk,ntk->rtn", a, w).astype(np.int32)
    return acc


def scaled(acc: NDArray[np.int32], scale: NDArray[np.float32], a_scale: NDArray[np.float32]) -> NDArray[np.float32]:
    """[rows, N] = sum over K tiles, in order, of float(acc) * (a_scale * scale), every step rounded to float32.

    acc: [rows, T, N]; scale: [T, N]; a_scale: [rows, T].
    """
    y = np.zeros((acc.shape[0], acc.shape[2]), np.float32)
    for t in range(acc.shape[1]):
        y += acc[:, t].astype(np.float32) * (a_scale[:, t, None] * scale[t])
    return y


def quantised(x: NDArray[np.float32], tile: int, k: int) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """q: [rows, k] and scale: [rows, k / tile] of x, padded with zeros to k columns."""
    padded = np.zeros((len(x), k // tile, tile), np.float32)
    padded.reshape(len(x), k)[:, : x.shape[1]] = x
    largest = np.abs(padded).max(axis=2)
    scale = np.maximum(largest / np.float32(127), np.finfo(np.float32).tiny)
    scale[largest == 0] = 1
    q = np.clip(np.rint(padded * (np.float32(1) / scale)[:, :, None]), -127, 127)
    return q.astype(np.int8).reshape(len(x), k), scale


def one_group(rows: int) -> dict[str, Any]:
    """The grouping arguments of a plain linear."""
    return {"experts": np.zeros(1, np.int32), "offsets": np.array([0, rows], np.int32)}
