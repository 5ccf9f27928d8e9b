"""One linear from float32 rows to its stored tensors, chunk by chunk on several threads.

Rounding is independent per output, so chunks of whole native tiles can be made apart, in any number of
threads, with the same result, as long as they share the K tile. The tile is not known beforehand: a
chunk that fails the overflow certificate shortens it, and the linear starts over (rknpu.md 3.2).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ling3.convert.writer import PackageWriter
from ling3.linear.formats import (
    K_BLOCK,
    MAX_K_TILE,
    N_BLOCK,
    Format,
    certificate,
    choose_tile,
    correction,
    pack_w4,
    pack_w8,
    quantise,
    quantise_certified,
    round_up,
    to_bf16,
)
from ling3.model.layout import LinearSpec

CHUNK_WEIGHTS = 1 << 21
"""Weights rounded in one piece, 8 MiB of float32: small beside memory, large beside the cost of a call."""
_AHEAD = 16
"""Chunks under way or waiting to be written: enough for the threads of any board, small beside memory."""
_LARGEST_N_BLOCK = max(N_BLOCK.values())

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Chunk:
    """Outputs begin:end of one expert."""

    expert: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Encoded:
    """A chunk as stored: `weights` in native order; the rest as in the layout, [T, rows] and [T, 2]."""

    chunk: Chunk
    tile: int
    weights: NDArray[Any]
    scale: NDArray[np.float32] | None = None
    correction: NDArray[np.int32] | None = None
    certificate: NDArray[np.int32] | None = None


Rows = Callable[[Chunk], NDArray[np.float32]]


def chunks(spec: LinearSpec) -> Iterator[Chunk]:
    """A linear cut into pieces of whole tiles, in stored order."""
    step = max(1, CHUNK_WEIGHTS // spec.k // _LARGEST_N_BLOCK) * _LARGEST_N_BLOCK
    for expert in range(spec.experts):
        for begin in range(0, spec.n, step):
            yield Chunk(expert, begin, min(begin + step, spec.n))


def first_tile(spec: LinearSpec, fmt: Format, wish: int | None) -> int:
    """The K tile a linear gets if no certificate shortens it; its whole width in the float formats."""
    if fmt not in MAX_K_TILE:
        return spec.k
    return choose_tile(round_up(spec.k, K_BLOCK), wish, MAX_K_TILE[fmt])


def encode(chunk: Chunk, w: NDArray[np.float32], fmt: Format, tile: int) -> Encoded:
    """Round one chunk. w: [rows, k]. The result's tile is shorter than `tile` if the certificate demands it."""
    if fmt == "f32":
        return Encoded(chunk, tile, w)
    if fmt == "bf16":
        return Encoded(chunk, tile, to_bf16(w))
    if fmt == "w8":
        q = quantise(w, "w8", tile)
        return Encoded(chunk, q.tile, pack_w8(q.values), q.scale)
    q = quantise_certified(w, tile)
    bounds = certificate(q.values, q.tile)
    return Encoded(chunk, q.tile, pack_w4(q.values), q.scale, correction(q.values, q.tile), bounds)


def write_linear(
    writer: PackageWriter,
    spec: LinearSpec,
    fmt: Format,
    wish: int | None,
    rows: Rows,
    pool: ThreadPoolExecutor,
    advance: Callable[[float], None],
) -> None:
    """Write all tensors of a linear. `rows` reads a chunk and runs on the pool's threads; `advance` hears which
    share of the linear is done, negative when it starts over with a shorter tile."""
    tile = first_tile(spec, fmt, wish)
    while (shorter := _write_with_tile(writer, spec, fmt, tile, rows, pool, advance)) is not None:
        tile = shorter


def _write_with_tile(
    writer: PackageWriter,
    spec: LinearSpec,
    fmt: Format,
    tile: int,
    rows: Rows,
    pool: ThreadPoolExecutor,
    advance: Callable[[float], None],
) -> int | None:
    """Write a linear with one K tile; the shorter tile if this one proves too long, with nothing written."""
    shapes = spec.stored(fmt, round_up(spec.k, K_BLOCK) // tile if fmt in MAX_K_TILE else 1)
    scale, sums, bounds = (
        np.zeros(shapes[suffix][1], dtype) if suffix in shapes else None
        for suffix, dtype in (("scale", np.float32), ("corr", np.int32), ("cert", np.int32))
    )
    done = 0.0
    writer.begin(f"{spec.name}.{fmt}", *shapes[fmt])
    for made in _in_order(pool, lambda chunk: encode(chunk, rows(chunk), fmt, tile), chunks(spec)):
        if made.tile != tile and fmt in MAX_K_TILE:
            writer.abandon()
            advance(-done)
            return made.tile
        expert, begin = made.chunk.expert, made.chunk.begin
        writer.write(made.weights)
        if scale is not None and made.scale is not None:
            scale[expert, :, begin : begin + made.scale.shape[1]] = made.scale
        if sums is not None and made.correction is not None:
            sums[expert, :, begin : begin + made.correction.shape[1]] = made.correction
        if bounds is not None and made.certificate is not None:
            bounds[expert] = np.maximum(bounds[expert], made.certificate)
        share = (made.chunk.end - begin) / (spec.n * spec.experts)
        done += share
        advance(share)
    writer.end()
    for suffix, array in (("scale", scale), ("corr", sums), ("cert", bounds)):
        if array is not None:
            writer.add(f"{spec.name}.{suffix}", *shapes[suffix], array)
    return None


def _in_order(pool: ThreadPoolExecutor, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """`map` over a pool, in order, with at most `_AHEAD` items under way; a caller that stops early waits for none."""
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) >= _AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
