"""C++ kernels and the thread pool.

Arrays are C-contiguous; inputs may be read-only (memory mapped). Every call checks its arrays and raises ValueError
that names the argument; all release the interpreter lock while they compute. Results do not depend on the number of
threads, rows or groups, nor on the variant. Sources: `native/src`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

class Pool:
    """Worker threads; the calling thread takes part. Regions of different callers take turns.

    With `cpus`, worker i (from 1) is pinned to `cpus[i % len(cpus)]` and `cpus[0]` is left to the caller, whose
    affinity is not touched. If the system refuses a CPU, nothing is pinned and `pinned` is False. In a forked child
    everything runs on the calling thread.
    """

    def __init__(self, threads: int, cpus: Sequence[int] | None = None) -> None: ...
    @property
    def threads(self) -> int: ...
    @property
    def pinned(self) -> bool: ...
    def run(self, kernel_address: int, items: int, args: list[Any], grain: int = 1) -> None:
        """Call `void kernel(const int64_t* args, int64_t begin, int64_t end)` until [0, items) is done, in any order.

        `args`: an array becomes [address, *shape], an int one word, a float the bits of a double. The chunks have
        `grain` items; a single-threaded run gets all items in one call. TypeError for any other kind of argument.
        """

def w4_matmul(
    pool: Pool,
    weights: NDArray[np.uint8],
    scale: NDArray[np.float32],
    q: NDArray[np.int8],
    a_scale: NDArray[np.float32],
    experts: NDArray[np.int32],
    offsets: NDArray[np.int32],
    y: NDArray[np.float32],
) -> None:
    """y[r] = sum over K tiles t, in order, of float(q[r] . weights[e]) * (a_scale[r, t] * scale[e, t]).

    Rows offsets[g] to offsets[g + 1] meet expert e = experts[g]. weights: [E, N/64, K/32, 64, 16] uint8, even k in the
    low nibble; scale: [E, T, N]; q: [rows, K]; a_scale: [rows, T]; experts: [G]; offsets: [G + 1] from 0 to rows;
    y: [rows, columns], columns <= N.
    """

def w8_matmul(
    pool: Pool,
    weights: NDArray[np.int8],
    scale: NDArray[np.float32],
    q: NDArray[np.int8],
    a_scale: NDArray[np.float32],
    experts: NDArray[np.int32],
    offsets: NDArray[np.int32],
    y: NDArray[np.float32],
) -> None:
    """As `w4_matmul` with weights: [E, N/32, K/32, 32, 32] int8."""

def w4_accumulate(
    pool: Pool, weights: NDArray[np.uint8], q: NDArray[np.int8], acc: NDArray[np.int32], variant: str
) -> None:
    """acc: [rows, T, N] = exact sums per K tile, by the named variant. weights: [N/64, K/32, 64, 16]; q: [rows, K]."""

def w8_accumulate(
    pool: Pool, weights: NDArray[np.int8], q: NDArray[np.int8], acc: NDArray[np.int32], variant: str
) -> None:
    """As `w4_accumulate` with weights: [N/32, K/32, 32, 32] int8."""

def f32_matmul(
    pool: Pool,
    weights: NDArray[np.float32],
    x: NDArray[np.float32],
    experts: NDArray[np.int32],
    offsets: NDArray[np.int32],
    y: NDArray[np.float32],
) -> None:
    """y[r] = weights[e] @ x[r]. weights: [E, N, K]; x: [rows, K]; y: [rows, N]; groups as in `w4_matmul`."""

def bf16_matmul(
    pool: Pool,
    weights: NDArray[np.uint16],
    x: NDArray[np.float32],
    experts: NDArray[np.int32],
    offsets: NDArray[np.int32],
    y: NDArray[np.float32],
) -> None:
    """As `f32_matmul` with weights: [E, N, K], the upper halves of float32 values."""

def quantise_rows(
    pool: Pool, x: NDArray[np.float32], tile: int, q: NDArray[np.int8], scale: NDArray[np.float32]
) -> None:
    """q: [rows, Kp] and scale: [rows, Kp / tile] from x: [rows, K], K <= Kp; columns from K on become zero.

    scale = max|x| / 127 of the tile (at least the smallest normal float, 1 for a tile of zeros); q = x times the
    float32 reciprocal of the scale, half to even, within +-127. ValueError if x holds an infinity or NaN.
    """

def gather_w8_rows(
    weights: NDArray[np.int8], scale: NDArray[np.float32], ids: NDArray[np.int64], out: NDArray[np.float32]
) -> None:
    """out[i] = row ids[i] of a W8 matrix.

    weights: [N/32, K/32, 32, 32]; scale: [T, N]; ids: [n]; out: [n, columns], columns <= K.
    """

def variants() -> list[str]:
    """Kernel variants that this CPU runs, best first; always ends with "scalar"."""

def active_variant() -> str:
    """The variant that the matmuls use: the environment variable LING3_KERNEL, else the best.

    It is read once per process. ValueError if LING3_KERNEL names a variant that this CPU does not run.
    """
