"""Weight formats: rounding, NPU tile order, certificate (D-11, D-12; rknpu.md 2.1, 2.2, 3.1, 3.2).

Pure functions on arrays, used when a package is made and by tests. `w4` and `w8` weights are kept
in the NPU's native B order so that one copy serves the NPU and the CPU kernels:

    w4  u8 [N/64, K/32, 64, 16]   two weights a byte, even k in the low nibble
    w8  i8 [N/32, K/32, 32, 32]

with one float32 scale per K tile and output, `scale: [T, N]`. N and K are padded with zero weights
to whole tiles; a padded weight adds nothing to any sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numba
import numpy as np
from numpy.typing import NDArray

from ling3.linear.kernel_cache import KERNELS_ARE_KEPT

Format = Literal["w4", "w8", "bf16", "f32"]

K_BLOCK = 32
"""K is cut in blocks of 32 in every native layout."""
N_BLOCK: dict[str, int] = {"w4": 64, "w8": 32}
"""Outputs in one native tile."""
LEVELS: dict[str, int] = {"w4": 7, "w8": 127}
"""Largest quantised magnitude: symmetric, so -8 and -128 are never produced."""
MAX_K_TILE: dict[str, int] = {"w4": 2048, "w8": 4096}
"""Longest K of one NPU run (R12)."""
_NOTHING = np.float32(1e-30)
"""A tile whose weights are all below this is stored as zeros: its scale would leave the normal floats."""
INT16_MAX, INT16_MIN = 32767, -32768


@dataclass(frozen=True, slots=True)
class Quantised:
    """A matrix rounded to integers: `values: [N, K] int8`, `scale: [T, N] float32`, T = K / tile."""

    values: NDArray[np.int8]
    scale: NDArray[np.float32]
    tile: int


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple of `multiple` that is not below `value`."""
    return -(-value // multiple) * multiple


def choose_tile(k: int, wanted: int | None, longest: int) -> int:
    """The K tile for a padded width `k`: the widest equal part that is a multiple of 32, and at most
    `wanted` (None: no wish) and `longest`."""
    limit = min(k, longest, wanted or k)
    parts = -(-k // limit)
    while k % parts or (k // parts) % K_BLOCK:
        parts += 1
    return k // parts


@numba.njit(nogil=True, cache=KERNELS_ARE_KEPT, error_model="numpy")
def _squared_error(
    row: NDArray[np.float32], scale: np.float32, levels: np.float32, work: NDArray[np.float32]
) -> np.float32:
    """Sum of squared rounding errors of one row at one scale. The sum is folded in halves: vector code whose
    order of additions, and with it the package, is the same on every machine. row, work: [tile]."""
    inverse = np.float32(1.0) / scale
    for k in range(row.size):
        miss = row[k] - min(max(np.rint(row[k] * inverse), -levels), levels) * scale
        work[k] = miss * miss
    width = row.size
    while width % 2 == 0:
        width //= 2
        upper = work[width : 2 * width]
        for k in range(width):
            work[k] += upper[k]
    total = np.float32(0.0)
    for k in range(width):
        total += work[k]
    return total


@numba.njit(nogil=True, cache=KERNELS_ARE_KEPT, error_model="numpy")
def _round_tiles(
    w: NDArray[np.float32], tile: int, largest_level: int, steps: int, q: NDArray[np.int8], scale: NDArray[np.float32]
) -> None:
    """Round every (row, tile) with the scale of least squared error among `steps` candidates.

    Candidates shrink the exact range max|w| / levels in steps of 4 %: cutting a few outliers often
    costs less than a coarser step for all. w: [N, K], q: [N, K], scale: [K / tile, N].
    """
    levels = np.float32(largest_level)
    work = np.empty(tile, np.float32)
    for n in range(w.shape[0]):
        for t in range(w.shape[1] // tile):
            row = w[n, t * tile : (t + 1) * tile]
            rounded = q[n, t * tile : (t + 1) * tile]
            largest = np.float32(0.0)
            for k in range(tile):
                largest = max(largest, abs(row[k]))
            if largest < _NOTHING:
                scale[t, n] = np.float32(1.0)
                rounded[:] = 0
                continue
            best = np.float32(largest / levels)
            if steps > 1:
                best_error = _squared_error(row, best, levels, work)
                for step in range(1, steps):
                    candidate = np.float32(largest / levels * (1.0 - 0.04 * step))
                    error = _squared_error(row, candidate, levels, work)
                    if error < best_error:
                        best, best_error = candidate, error
            scale[t, n] = best
            inverse = np.float32(1.0) / best
            for k in range(tile):
                rounded[k] = np.int8(min(max(np.rint(row[k] * inverse), -levels), levels))


def quantise(w: NDArray[np.float32], fmt: Literal["w4", "w8"], tile: int | None = None) -> Quantised:
    """Round `w: [N, K] float32` to `w4` or `w8` after padding; `tile` is the wished K tile (None: full K).

    Raises ValueError when a weight is not finite.
    """
    n, k = w.shape
    n_padded, k_padded = round_up(n, N_BLOCK[fmt]), round_up(k, K_BLOCK)
    tile = choose_tile(k_padded, tile, MAX_K_TILE[fmt])
    padded = np.zeros((n_padded, k_padded), np.float32)
    padded[:n, :k] = w
    if not np.isfinite(np.abs(padded).max(initial=0.0)):
        raise ValueError("holds a weight that is not finite")
    values = np.empty((n_padded, k_padded), np.int8)
    scale = np.empty((k_padded // tile, n_padded), np.float32)
    _round_tiles(padded, tile, LEVELS[fmt], 12 if fmt == "w4" else 1, values, scale)
    return Quantised(values, scale, tile)


def quantise_certified(w: NDArray[np.float32], tile: int | None = None) -> Quantised:
    """`w4` with the widest K tile, at most `tile`, whose int16 partial sums cannot overflow (3.2)."""
    k = round_up(w.shape[1], K_BLOCK)
    while True:
        result = quantise(w, "w4", tile)
        if result.tile <= 480 or certified(certificate(result.values, result.tile)):
            return result
        tile = choose_tile(k, result.tile - 1, MAX_K_TILE["w4"])


@numba.njit(nogil=True, cache=KERNELS_ARE_KEPT)
def _signed_sums(values: NDArray[np.int8], tile: int, positive: NDArray[np.int32], negative: NDArray[np.int32]) -> None:
    """Sums of the positive and of the negated negative weights. values: [N, K]; positive, negative: [T, N]."""
    for n in range(values.shape[0]):
        for t in range(values.shape[1] // tile):
            row = values[n, t * tile : (t + 1) * tile]
            total, absolute = np.int32(0), np.int32(0)
            for k in range(tile):
                total += np.int32(row[k])
                absolute += abs(np.int32(row[k]))
            positive[t, n] = (absolute + total) // 2
            negative[t, n] = (absolute - total) // 2


def certificate(values: NDArray[np.int8], tile: int) -> NDArray[np.int32]:
    """The bounds of the two int16 products of one run, per K tile: `[T, 2]`, the largest over the columns
    of 7P + 8Q (upper) and 8P + 7Q (lower), P and Q being the sums of positive and negative weights."""
    n, k = values.shape
    p, q = np.empty((2, k // tile, n), np.int32)
    _signed_sums(values, tile, p, q)
    return np.stack([(7 * p + 8 * q).max(axis=1), (8 * p + 7 * q).max(axis=1)], axis=1)


def certified(bounds: NDArray[np.int32]) -> bool:
    """Whether every tile of a certificate fits a saturating int16."""
    return bool((bounds[..., 0] <= INT16_MAX).all() and (bounds[..., 1] <= -INT16_MIN).all())


def correction(values: NDArray[np.int8], tile: int) -> NDArray[np.int32]:
    """`8 * sum of weights` per K tile and output, `[T, N] int32`: what the nibble split of activations owes (3.1)."""
    n, k = values.shape
    sums = values.reshape(n, k // tile, tile).sum(axis=2, dtype=np.int32)
    return np.ascontiguousarray(8 * sums.T)


def pack_w4(values: NDArray[np.int8]) -> NDArray[np.uint8]:
    """Integers -8..7 `[N, K]` into native order, `[N/64, K/32, 64, 16] uint8`."""
    n, k = values.shape
    tiles = values.reshape(n // 64, 64, k // 32, 32).transpose(0, 2, 1, 3).view(np.uint8)
    return np.ascontiguousarray((tiles[..., 0::2] & 15) | (tiles[..., 1::2] << 4))


def unpack_w4(packed: NDArray[np.uint8]) -> NDArray[np.int8]:
    """The inverse of `pack_w4`: `[N, K] int8`."""
    blocks_n, blocks_k = packed.shape[:2]
    tiles = np.empty((blocks_n, blocks_k, 64, 32), np.int8)
    tiles[..., 0::2] = (packed << 4).view(np.int8) >> 4
    tiles[..., 1::2] = packed.view(np.int8) >> 4
    return np.ascontiguousarray(tiles.transpose(0, 2, 1, 3).reshape(blocks_n * 64, blocks_k * 32))


def pack_w8(values: NDArray[np.int8]) -> NDArray[np.int8]:
    """Integers `[N, K]` into native order, `[N/32, K/32, 32, 32] int8`."""
    n, k = values.shape
    return np.ascontiguousarray(values.reshape(n // 32, 32, k // 32, 32).transpose(0, 2, 1, 3))


def unpack_w8(packed: NDArray[np.int8]) -> NDArray[np.int8]:
    """The inverse of `pack_w8`: `[N, K] int8`."""
    blocks_n, blocks_k = packed.shape[:2]
    return np.ascontiguousarray(packed.transpose(0, 2, 1, 3).reshape(blocks_n * 32, blocks_k * 32))


def dequantise(values: NDArray[np.int8], scale: NDArray[np.float32]) -> NDArray[np.float32]:
    """`values: [N, K]` times its scales `[T, N]`, float32 `[N, K]`."""
    n, k = values.shape
    tiles = values.reshape(n, scale.shape[0], -1).astype(np.float32)
    return (tiles * scale.T[:, :, None]).reshape(n, k)


def to_bf16(x: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Float32 to the bits of bfloat16, rounding to nearest even. Finite input only."""
    bits = x.view(np.uint32)
    return ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype(np.uint16)


def from_bf16(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Bits of bfloat16 to float32, exact."""
    return (bits.astype(np.uint32) << 16).view(np.float32)
