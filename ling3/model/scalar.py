"""Float32 scalar functions for numba kernels, written so that LLVM can vectorise a loop over them.

The C library's `exp` is a call per value; this one is straight-line code with an error below 2 units
in the last place, and it is the same code on every machine.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, call-arg, attr-defined"

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

FASTMATH = {"reassoc", "contract", "nsz"}
"""Lets a reduction use vector lanes. The order of a sum is then fixed by the loop's length alone."""

_f = np.float32
_LOG2E = _f(1.4426950408889634)
_LN2_HIGH, _LN2_LOW = _f(0.693359375), _f(-2.12194440e-4)
# Taylor terms of exp on [-ln 2 / 2, ln 2 / 2]; the first left out, r^8/8!, is below 1e-8.
_C7, _C6, _C5, _C4, _C3, _C2 = _f(1 / 5040), _f(1 / 720), _f(1 / 120), _f(1 / 24), _f(1 / 6), _f(1 / 2)
_ONE, _HALF, _LOWEST, _HIGHEST = _f(1.0), _f(0.5), _f(-87.0), _f(88.0)


@intrinsic
def float_of_bits(typingctx: Any, bits: Any) -> Any:
    """The float32 whose bits an int32 holds."""

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.bitcast(values[0], ir.FloatType())

    return types.float32(types.int32), codegen


@intrinsic
def bits_of_float(typingctx: Any, value: Any) -> Any:
    """The bits of a float32 as an int32."""

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.bitcast(values[0], ir.IntType(32))

    return types.int32(types.float32), codegen


@numba.njit(inline="always")
def exp32(x):
    """exp(x) in float32; x is held in [-87, 88], so the result is finite and never a denormal."""
    x = min(max(x, _LOWEST), _HIGHEST)
    n = np.floor(x * _LOG2E + _HALF)
    r = x - n * _LN2_HIGH - n * _LN2_LOW
    p = _C7 * r + _C6
    p = p * r + _C5
    p = p * r + _C4
    p = p * r + _C3
    p = p * r + _C2
    p = p * r + _ONE
    p = p * r + _ONE
    return p * float_of_bits((np.int32(n) + np.int32(127)) << np.int32(23))


@numba.njit(inline="always")
def sigmoid32(x):
    """1 / (1 + exp(-x))."""
    return _ONE / (_ONE + exp32(-x))


@numba.njit(inline="always")
def silu32(x):
    """x * sigmoid(x)."""
    return x / (_ONE + exp32(-x))
