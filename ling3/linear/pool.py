"""The one pool of worker threads, and how a numba kernel runs on it (D-19).

A kernel is a numba function over a range of items, `f(begin, end, arrays..., numbers...)`, with an entry
beside it that unpacks what the pool hands over:

    @pool_entry
    def _scale_entry(args, begin, end):
        scale(begin, end, f32_2d(args, 0), as_f64(args, 3))

    pool.run(_scale_entry.address, items, [x, factor])

An array takes 1 + ndim words (its address, then its shape), a number one word. Items must be independent
and their arithmetic must not depend on `begin` and `end`: then results are the same for every thread count.
Entries are compiled at first use and kept on disk; `compile_entries` does them all at start.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, call-arg, attr-defined"

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numba
from llvmlite import ir
from numba import carray, types
from numba.extending import intrinsic

from ling3._native import Pool
from ling3.linear.kernel_cache import KERNELS_ARE_KEPT

__all__ = [
    "Entry", "Pool", "as_f32", "as_i64", "bf16_2d", "compile_entries", "default_threads", "f32_1d", "f32_2d", "f32_3d",
    "i32_2d", "pool_entry",
]  # fmt: skip

_SIGNATURE = types.void(types.CPointer(types.int64), types.int64, types.int64)


class Entry:
    """A kernel the pool can run: `void(const int64_t *args, int64_t begin, int64_t end)`."""

    def __init__(self, function: Callable[..., None]) -> None:
        self.name = f"{function.__module__}.{function.__name__}"
        self._function = function

    @cached_property
    def _compiled(self) -> Any:
        return numba.cfunc(_SIGNATURE, cache=KERNELS_ARE_KEPT)(self._function)

    def prepare(self) -> bool:
        """Have the machine code at hand; True if it had to be compiled, False if the cache had it."""
        return bool(self._compiled.cache_hits == 0)

    @cached_property
    def address(self) -> int:
        """Compiles the kernel, or takes it from the cache, when first asked for."""
        return int(self._compiled.address)


_entries: list[Entry] = []


def pool_entry(function: Callable[..., None]) -> Entry:
    """Decorator that makes a function `(args, begin, end)` an entry."""
    entry = Entry(function)
    _entries.append(entry)
    return entry


def compile_entries() -> Iterator[tuple[int, int, bool]]:
    """Make every entry of the loaded modules ready, yielding (done, total, whether it had to be compiled)."""
    for done, entry in enumerate(_entries, 1):
        yield done, len(_entries), entry.prepare()


@intrinsic
def _pointer(typingctx: Any, address: Any, dtype: Any) -> Any:
    """An address as a pointer to numbers of a type."""

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.inttoptr(values[0], context.get_value_type(signature.return_type))

    return types.CPointer(dtype.dtype)(types.int64, dtype), codegen


@intrinsic
def _float_of_bits(typingctx: Any, bits: Any) -> Any:
    """The double whose bits these are."""

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.bitcast(values[0], ir.DoubleType())

    return types.float64(types.int64), codegen


_inline = numba.njit(inline="always")


@_inline
def f32_1d(args, at):
    return carray(_pointer(args[at], numba.float32), (args[at + 1],))


@_inline
def f32_2d(args, at):
    return carray(_pointer(args[at], numba.float32), (args[at + 1], args[at + 2]))


@_inline
def f32_3d(args, at):
    return carray(_pointer(args[at], numba.float32), (args[at + 1], args[at + 2], args[at + 3]))


@_inline
def bf16_2d(args, at):
    return carray(_pointer(args[at], numba.uint16), (args[at + 1], args[at + 2]))


@_inline
def i32_2d(args, at):
    return carray(_pointer(args[at], numba.int32), (args[at + 1], args[at + 2]))


@_inline
def as_f32(args, at):
    return numba.float32(_float_of_bits(args[at]))


@_inline
def as_i64(args, at):
    return args[at]


def default_threads(root: Path = Path("/")) -> int:
    """Threads for this process: what affinity and the container's CPU quota leave, at most 4 (S-23)."""
    threads = len(os.sched_getaffinity(0))
    quota = _cpu_quota(root)
    return max(1, min(threads, 4, quota or threads))


def _cpu_quota(root: Path) -> int | None:
    """Whole CPUs of the cgroup's quota, v2 then v1; None where there is no limit or it cannot be read."""
    try:
        limit, period = (root / "sys/fs/cgroup/cpu.max").read_text().split()
        return None if limit == "max" else max(1, -(-int(limit) // int(period)))
    except (OSError, ValueError, ZeroDivisionError):
        pass
    try:
        folder = root / "sys/fs/cgroup/cpu"
        limit_us = int((folder / "cpu.cfs_quota_us").read_text())
        period_us = int((folder / "cpu.cfs_period_us").read_text())
        return max(1, -(-limit_us // period_us)) if limit_us > 0 and period_us > 0 else None
    except (OSError, ValueError):
        return None
