"""How checkpoints encode matrices, and how rows of them become float32 (M-50, M-52, M-53).

Every decoding is exact in float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ling3.linear.formats import from_bf16

FP8_BLOCK = 128
"""Rows and columns that share one scale in the official FP8 form."""
INT4_GROUP = 32
"""Columns that share one scale in the official INT4 form."""


def decode_float(raw: NDArray[Any], dtype: str) -> NDArray[np.float32]:
    """Values of an F32, F16 or BF16 tensor as float32, any shape."""
    return from_bf16(raw) if dtype == "BF16" else raw.astype(np.float32)


def decode_fp8(raw: NDArray[np.uint8], scale: NDArray[np.uint8], first: int) -> NDArray[np.float32]:
    """Rows first: of an FP8 matrix. raw: [rows, I] e4m3 bits; scale: e8m0 bits of the whole matrix
    [O / 128, I / 128, both rounded up]. Result: [rows, I]."""
    rows, width = raw.shape
    factors = _E8M0[scale[np.arange(first, first + rows) // FP8_BLOCK]]
    values = _E4M3[raw]
    for block in range(factors.shape[1]):
        values[:, block * FP8_BLOCK : (block + 1) * FP8_BLOCK] *= factors[:, block : block + 1]
    return values


def decode_int4(words: NDArray[np.int32], scale: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Rows of an INT4 matrix. words: [rows, I / 8], eight columns a word from the low nibble on, each stored
    with 8 added; scale: [rows, I / 32] bfloat16 bits. Result: [rows, I]."""
    rows = words.shape[0]
    packed = np.ascontiguousarray(words).view(np.uint8)
    values = np.empty((rows, packed.shape[1], 2), np.float32)
    values[..., 0] = packed & 15
    values[..., 1] = packed >> 4
    groups = values.reshape(rows, -1, INT4_GROUP)
    groups -= 8.0
    groups *= from_bf16(scale)[:, :, None]
    return groups.reshape(rows, -1)


def _e4m3_values() -> NDArray[np.float32]:
    """Value of each e4m3 byte: sign, 4 bits of exponent (bias 7), 3 of fraction; NaN at 0x7F and 0xFF."""
    code = np.arange(128)
    exponent, fraction = code >> 3, (code & 7) / 8.0
    positive = np.where(exponent == 0, fraction * 2.0**-6, (1.0 + fraction) * 2.0 ** (exponent - 7.0))
    positive[127] = np.nan
    return np.concatenate([positive, -positive]).astype(np.float32)


def _e8m0_values() -> NDArray[np.float32]:
    """Value of each e8m0 byte: 2 ** (byte - 127), NaN at 0xFF."""
    values = 2.0 ** (np.arange(256) - 127.0)
    values[255] = np.nan
    return values.astype(np.float32)


_E4M3 = _e4m3_values()
_E8M0 = _e8m0_values()
