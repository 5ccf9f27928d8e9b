"""RMS norm of rows (M-11): float32, weight as stored."""
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from ling3.linear.pool import Pool, as_f32, f32_1d, f32_2d, pool_entry
from ling3.model.scalar import FASTMATH


@numba.njit(fastmath=FASTMATH)
def rms_row(x, weight, y, eps):
    """y = weight * x / sqrt(mean(x^2) + eps) of one row; y may be x."""
    total = np.float32(0.0)
    for i in range(x.shape[0]):
        total += x[i] * x[i]
    factor = np.float32(1.0) / np.sqrt(total / np.float32(x.shape[0]) + eps)
    for i in range(x.shape[0]):
        y[i] = weight[i] * (x[i] * factor)


@pool_entry
def _rms_entry(args, begin, end):
    x, weight, y, eps = f32_2d(args, 0), f32_1d(args, 3), f32_2d(args, 5), as_f32(args, 8)
    for row in range(begin, end):
        rms_row(x[row], weight, y[row], eps)


def rms_norm(pool: Pool, x: NDArray[np.float32], weight: NDArray[np.float32], eps: float) -> NDArray[np.float32]:
    """RMS(x; weight) of every row. x: [rows, width] float32 -> the same shape."""
    y = np.empty_like(x)
    pool.run(_rms_entry.address, x.shape[0], [x, weight, y, eps])
    return y
