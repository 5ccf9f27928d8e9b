"""Which form of MLA attention suits prefill: absorbed or expanded (M-35)?

Times one layer's attention of the full model for one block of rows at several cache lengths, both forms in turn,
on one set of worker threads. The expanded form must first turn every cached latent into keys and values.
Run: python bench/mla_forms.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from ling3.linear.formats import to_bf16
from ling3.linear.matmul import Linear, equal_groups
from ling3.linear.pool import Pool, default_threads
from ling3.model.mla import ROW_TILE, _attend_bf16_entry, _attend_f32_entry

HEADS, NOPE, ROPE, RANK, VALUE = 16, 128, 64, 512, 128
BLOCK = 128


def milliseconds(work: Callable[[], object], other: Callable[[], object], runs: int = 5) -> tuple[float, float]:
    """Median time of two jobs that take turns."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(runs):
        for job, kept in zip((work, other), times, strict=True):
            begun = time.perf_counter()
            job()
            kept.append((time.perf_counter() - begun) * 1000)
    return statistics.median(times[0]), statistics.median(times[1])


def main() -> None:
    pool = Pool(default_threads())
    random = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return random.standard_normal(shape, np.float32)

    def linear(n: int, k: int, experts: int) -> Linear:
        return Linear("lab", "bf16", n, k, k, to_bf16(normal(experts, n, k) * np.float32(k**-0.5)), None)

    expand = linear(HEADS * (NOPE + VALUE), RANK, 1)
    k_absorb, v_absorb = linear(RANK, NOPE, HEADS), linear(VALUE, RANK, HEADS)
    print(f"{BLOCK} rows, {pool.threads} threads, median of 5, ms\ncached  absorbed  expanded")
    for cached in (0, 512, 2048, 8192):
        length = cached + BLOCK
        latents, rope = normal(length, RANK), normal(HEADS, BLOCK, ROPE)
        cache = to_bf16(np.concatenate([latents, normal(length, ROPE)], axis=1))
        nope = normal(HEADS, BLOCK, NOPE)
        groups = equal_groups(HEADS, BLOCK)

        def absorbed(nope=nope, cache=cache, rope=rope, cached=cached, groups=groups) -> None:  # type: ignore[no-untyped-def]
            query = k_absorb(pool, nope.reshape(-1, NOPE), groups).reshape(HEADS, BLOCK, RANK)
            mixed = np.empty_like(query)
            items = HEADS * (BLOCK // ROW_TILE)
            pool.run(_attend_bf16_entry.address, items, [query, rope, cache, mixed, cached, 192**-0.5])
            v_absorb(pool, mixed.reshape(-1, RANK), groups)

        def expanded(nope=nope, latents=latents, rope=rope, cached=cached) -> None:  # type: ignore[no-untyped-def]
            # Keys of 192 and values of 128 a head. The kernel takes its values from the first columns of the keys:
            # wrong numbers, the right amount of work.
            keys = np.ascontiguousarray(expand(pool, latents)[:, : HEADS * (NOPE + ROPE)])
            for head in range(HEADS):
                one = np.ascontiguousarray(keys[:, head * 192 : head * 192 + 192])
                mixed = np.empty((1, BLOCK, NOPE), np.float32)
                arguments = [nope[head : head + 1], rope[head : head + 1], one, mixed, cached, 192**-0.5]
                pool.run(_attend_f32_entry.address, BLOCK // ROW_TILE, arguments)

        first, second = milliseconds(absorbed, expanded)
        print(f"{cached:6d}  {first:8.1f}  {second:8.1f}")


if __name__ == "__main__":
    main()
