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
from ling3.model.tensor_file import DTYPES

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
    """A chunk as stored: `weights` in native order; `beside` by suffix: scale and corr [T, rows], cert [T, 2]."""

    chunk: Chunk
    tile: int
    weights: NDArray[Any]
    beside: dict[str, NDArray[Any]]


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
        return Encoded(chunk, tile, w, {})
    if fmt == "bf16":
        return Encoded(chunk, tile, to_bf16(w), {})
    if fmt == "w8":
        q = quantise(w, "w8", tile)
        return Encoded(chunk, q.tile, pack_w8(q.values), {"scale": q.scale})
    q = quantise_certified(w, tile)
    sums, bounds = correction(q.values, q.tile), certificate(q.values, q.tile)
    return Encoded(chunk, q.tile, pack_w4(q.values), {"scale": q.scale, "corr": sums, "cert": bounds})


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
    beside = {suffix: np.zeros(shape, DTYPES[dtype]) for suffix, (dtype, shape) in shapes.items() if suffix != fmt}
    done = 0.0
    writer.begin(f"{spec.name}.{fmt}", *shapes[fmt])
    for made in _in_order(pool, lambda chunk: encode(chunk, rows(chunk), fmt, tile), chunks(spec)):
        if made.tile != tile:
            writer.abandon()
            advance(-done)
            return made.tile
        expert, begin, end = made.chunk.expert, made.chunk.begin, made.chunk.end
        writer.write(made.weights)
        for suffix, values in made.beside.items():
            if suffix == "cert":
                np.maximum(beside[suffix][expert], values, out=beside[suffix][expert])
            else:
                beside[suffix][expert, :, begin : begin + values.shape[1]] = values
        share = (end - begin) / (spec.n * spec.experts)
        done += share
        advance(share)
    writer.end()
    for suffix, array in beside.items():
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
