"""MLA mixer: attention over cached latents, one row of 576 values per position for all heads (M-31 to M-35).

Prefill and decode both use the absorbed form. Calls of 128 rows would have to expand every earlier latent
again for each call, which costs more than the wider dot products do.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, call-arg, attr-defined"

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numba.extending import overload
from numpy.typing import NDArray

from ling3.linear.matmul import Linear, equal_groups
from ling3.linear.pool import Pool, as_f32, as_i64, bf16_2d, f32_1d, f32_2d, f32_3d, pool_entry
from ling3.model.geometry import Geometry
from ling3.model.norm import rms_norm, rms_row
from ling3.model.package import Package
from ling3.model.scalar import FASTMATH, bits_of_float, exp32, float_of_bits, sigmoid32

KEY_TILE = 64
"""Keys whose scores are formed together; tiles begin at absolute positions that are multiples of it."""
ROW_TILE = 8
"""Prefill rows of one head that share a tile of keys."""
_INNER_EPS = 1e-6  # of the two inner norms, whatever rms_norm_eps says (M-1)


def _load(cached: Any, out: Any) -> Any:
    """out = a cached row as float32."""


@overload(_load, jit_options={"fastmath": True})
def _load_typed(cached, out):
    def widen(cached, out):
        for i in range(out.shape[0]):
            out[i] = float_of_bits(np.int32(cached[i]) << np.int32(16))

    def copy(cached, out):
        for i in range(out.shape[0]):
            out[i] = cached[i]

    return widen if cached.dtype == numba.uint16 else copy


def _store(values: Any, cached: Any) -> Any:
    """A cached row = float32 values, rounded to nearest even where the cache holds bfloat16."""


@overload(_store)
def _store_typed(values, cached):
    def narrow(values, cached):
        for i in range(values.shape[0]):
            bits = np.int64(bits_of_float(values[i])) & 0xFFFFFFFF
            cached[i] = np.uint16((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)

    def copy(values, cached):
        for i in range(values.shape[0]):
            cached[i] = values[i]

    return narrow if cached.dtype == numba.uint16 else copy


@numba.njit
def _rotate(x, angles, y):
    """Neighbouring pairs turned by their angle (M-32). x, y: [rope]; angles: [rope / 2, 2] = cos, sin."""
    for j in range(x.shape[0] // 2):
        even, odd = x[2 * j], x[2 * j + 1]
        cos, sin = angles[j, 0], angles[j, 1]
        y[2 * j] = even * cos - odd * sin
        y[2 * j + 1] = odd * cos + even * sin


@numba.njit
def _remember(begin, end, latent, angles, norm, cache, position):
    """Norm each row's latent, turn its key, and cache both. latent: rows whose last values are [rank | rope]."""
    rank, width = norm.shape[0], cache.shape[1]
    values = np.empty(width, np.float32)
    for row in range(begin, end):
        source = latent[row, latent.shape[1] - width :]
        rms_row(source[:rank], norm, values[:rank], np.float32(_INNER_EPS))
        _rotate(source[rank:], angles[row], values[rank:])
        _store(values, cache[position + row])


@numba.njit(fastmath=FASTMATH)
def _accumulate(latent_query, rope_query, keys, seen, scale, scores, largest, total, r, acc):
    """One tile of keys into the running softmax of one row. acc: [rank], divided by the total at the end."""
    rank = latent_query.shape[0]
    top = largest[r]
    for j in range(seen):
        key = keys[j]
        dot = np.float32(0.0)
        for d in range(rank):
            dot += latent_query[d] * key[d]
        for d in range(rope_query.shape[0]):
            dot += rope_query[d] * key[rank + d]
        scores[j] = dot * scale
        top = max(top, scores[j])
    shrink = exp32(largest[r] - top)
    largest[r] = top
    added = np.float32(0.0)
    for j in range(seen):
        scores[j] = exp32(scores[j] - top)
        added += scores[j]
    total[r] = total[r] * shrink + added
    for d in range(rank):
        acc[d] *= shrink
    whole = seen // 4 * 4
    for j in range(0, whole, 4):
        p0, p1, p2, p3 = scores[j], scores[j + 1], scores[j + 2], scores[j + 3]
        k0, k1, k2, k3 = keys[j], keys[j + 1], keys[j + 2], keys[j + 3]
        for d in range(rank):
            acc[d] += (p0 * k0[d] + p1 * k1[d]) + (p2 * k2[d] + p3 * k3[d])
    for j in range(whole, seen):
        p, key = scores[j], keys[j]
        for d in range(rank):
            acc[d] += p * key[d]


@numba.njit
def _attend(begin, end, latent_query, rope_query, cache, out, position, scale):
    """Causal softmax attention (M-33, M-35), running over tiles of keys. Items: heads x row tiles.

    latent_query, out: [H, rows, rank]; rope_query: [H, rows, rope]; cache: [context, rank + rope]. A row's result
    depends on its position alone, not on which rows share the call.
    """
    rows = out.shape[1]
    tiles = (rows + ROW_TILE - 1) // ROW_TILE
    keys = np.empty((KEY_TILE, cache.shape[1]), np.float32)
    scores = np.empty(KEY_TILE, np.float32)
    largest = np.empty(ROW_TILE, np.float32)
    total = np.empty(ROW_TILE, np.float32)
    for item in range(begin, end):
        head, first = item // tiles, item % tiles * ROW_TILE
        count = min(ROW_TILE, rows - first)
        largest[:] = np.float32(-1e30)
        total[:] = np.float32(0.0)
        out[head, first : first + count] = np.float32(0.0)
        for start in range(0, position + first + count, KEY_TILE):
            stop = min(start + KEY_TILE, position + first + count)
            for j in range(start, stop):
                _load(cache[j], keys[j - start])
            for r in range(count):
                row = first + r
                seen = min(stop, position + row + 1) - start
                if seen > 0:
                    _accumulate(
                        latent_query[head, row], rope_query[head, row], keys, seen, scale, scores, largest, total, r,
                        out[head, row],
                    )  # fmt: skip
        for r in range(count):
            inverse = np.float32(1.0) / total[r]
            acc = out[head, first + r]
            for d in range(acc.shape[0]):
                acc[d] *= inverse


@pool_entry
def _split_entry(args, begin, end):
    """Queries into the part that meets latents, per head, and the turned part. Items: rows."""
    query, nope, rope, angles = f32_2d(args, 0), f32_3d(args, 3), f32_3d(args, 7), f32_3d(args, 11)
    plain, turned = nope.shape[2], rope.shape[2]
    for row in range(begin, end):
        for head in range(nope.shape[0]):
            first = head * (plain + turned)
            for d in range(plain):
                nope[head, row, d] = query[row, first + d]
            _rotate(query[row, first + plain : first + plain + turned], angles[row], rope[head, row])


@pool_entry
def _remember_bf16_entry(args, begin, end):
    _remember(begin, end, f32_2d(args, 0), f32_3d(args, 3), f32_1d(args, 7), bf16_2d(args, 9), as_i64(args, 12))


@pool_entry
def _remember_f32_entry(args, begin, end):
    _remember(begin, end, f32_2d(args, 0), f32_3d(args, 3), f32_1d(args, 7), f32_2d(args, 9), as_i64(args, 12))


@pool_entry
def _attend_bf16_entry(args, begin, end):
    latent_query, rope_query, out = f32_3d(args, 0), f32_3d(args, 4), f32_3d(args, 11)
    _attend(begin, end, latent_query, rope_query, bf16_2d(args, 8), out, as_i64(args, 15), as_f32(args, 16))


@pool_entry
def _attend_f32_entry(args, begin, end):
    latent_query, rope_query, out = f32_3d(args, 0), f32_3d(args, 4), f32_3d(args, 11)
    _attend(begin, end, latent_query, rope_query, f32_2d(args, 8), out, as_i64(args, 15), as_f32(args, 16))


@pool_entry
def _gate_entry(args, begin, end):
    """Head outputs times their gate, heads side by side (M-33). values: [H, rows, v] -> out: [rows, H v]."""
    values, gate, out = f32_3d(args, 0), f32_2d(args, 4), f32_2d(args, 7)
    width = values.shape[2]
    for row in range(begin, end):
        for head in range(values.shape[0]):
            factor = sigmoid32(gate[row, head])
            for d in range(width):
                out[row, head * width + d] = factor * values[head, row, d]


@dataclass(frozen=True)
class MlaMixer:
    """The weights of one MLA layer. `q_up` and `q_norm` are None where queries have no low-rank half."""

    project: Linear
    q_up: Linear | None
    q_norm: NDArray[np.float32] | None
    kv_norm: NDArray[np.float32]
    k_absorb: Linear
    v_absorb: Linear
    gate: Linear
    out: Linear
    geometry: Geometry

    @classmethod
    def load(cls, package: Package, prefix: str, g: Geometry) -> MlaMixer:
        low_rank = g.q_lora_rank is not None
        return cls(
            project=package.linear(prefix + "mla.in"),
            q_up=package.linear(prefix + "mla.q_up") if low_rank else None,
            q_norm=package.vector(prefix + "mla.q_norm") if low_rank else None,
            kv_norm=package.vector(prefix + "mla.kv_norm"),
            k_absorb=package.linear(prefix + "mla.k_absorb"),
            v_absorb=package.linear(prefix + "mla.v_absorb"),
            gate=package.linear(prefix + "mla.gate"),
            out=package.linear(prefix + "mla.out"),
            geometry=g,
        )

    def __call__(
        self,
        pool: Pool,
        x: NDArray[np.float32],
        position: int,
        angles: NDArray[np.float32],
        cache: NDArray[Any],
    ) -> NDArray[np.float32]:
        """x: [rows, hidden], normed -> [rows, hidden]. cache: [context, 576] gets a row per new position;
        angles: [rows, rope / 2, 2] are the cosines and sines of the new positions."""
        g, rows = self.geometry, x.shape[0]
        wide = cache.dtype == np.float32
        projected = self.project(pool, x)
        remember = _remember_f32_entry if wide else _remember_bf16_entry
        pool.run(remember.address, rows, [projected, angles, self.kv_norm, cache, position])
        query = np.ascontiguousarray(projected[:, : projected.shape[1] - g.latent_width])
        if self.q_up is not None and self.q_norm is not None:
            query = self.q_up(pool, rms_norm(pool, query, self.q_norm, _INNER_EPS))
        nope = np.empty((g.heads, rows, g.qk_nope_head_dim), np.float32)
        rope = np.empty((g.heads, rows, g.qk_rope_head_dim), np.float32)
        pool.run(_split_entry.address, rows, [query, nope, rope, angles])
        by_head = equal_groups(g.heads, rows)
        latent_query = self.k_absorb(pool, nope.reshape(g.heads * rows, -1), by_head).reshape(g.heads, rows, -1)
        mixed = np.empty_like(latent_query)
        attend = _attend_f32_entry if wide else _attend_bf16_entry
        items = g.heads * -(-rows // ROW_TILE)
        scale = g.qk_head_dim**-0.5
        pool.run(attend.address, items, [latent_query, rope, cache, mixed, position, scale])
        values = self.v_absorb(pool, mixed.reshape(g.heads * rows, -1), by_head).reshape(g.heads, rows, -1)
        gated = np.empty((rows, self.out.k), np.float32)
        pool.run(_gate_entry.address, rows, [values, self.gate(pool, x), gated])
        return self.out(pool, gated)
