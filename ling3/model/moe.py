"""Feed-forward layers: dense SwiGLU and the mixture of experts with its router (M-40 to M-43)."""
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from ling3.linear.matmul import Groups, Linear
from ling3.linear.pool import Pool, as_f32, as_i64, f32_1d, f32_2d, i32_2d, pool_entry
from ling3.model.geometry import Geometry
from ling3.model.package import Package
from ling3.model.scalar import sigmoid32, silu32

_WEIGHT_EPS = np.float32(1e-20)
_OUT = np.float32(-np.inf)


@pool_entry
def _swiglu_entry(args, begin, end):
    """SiLU(gate) * up. both: [rows, 2 width] = gate | up -> out: [rows, width]."""
    both, out = f32_2d(args, 0), f32_2d(args, 3)
    width = out.shape[1]
    for row in range(begin, end):
        for i in range(width):
            out[row, i] = silu32(both[row, i]) * both[row, width + i]


def swiglu(pool: Pool, both: NDArray[np.float32]) -> NDArray[np.float32]:
    """SiLU(gate) * up of every row. both: [rows, 2 width], gate first -> [rows, width]."""
    out = np.empty((both.shape[0], both.shape[1] // 2), np.float32)
    pool.run(_swiglu_entry.address, both.shape[0], [both, out])
    return out


@numba.njit
def _two_largest(values):
    first, second = _OUT, _OUT
    for v in values:
        if v > first:
            first, second = v, first
        elif v > second:
            second = v
    return first + second


@numba.njit
def _mark_largest(values, count, chosen):
    """Set `chosen` at the `count` largest values; of equal values the first wins (M-42)."""
    chosen[:] = False
    for _ in range(count):
        best = -1
        for i in range(values.shape[0]):
            if not chosen[i] and (best < 0 or values[i] > values[best]):
                best = i
        chosen[best] = True


@pool_entry
def _route_entry(args, begin, end):
    """Choose experts and their weights (M-41). ids and weights come in ascending order of expert."""
    logits, bias, ids, weights = f32_2d(args, 0), f32_1d(args, 3), i32_2d(args, 5), f32_2d(args, 8)
    groups, kept, normalise, factor = as_i64(args, 11), as_i64(args, 12), as_i64(args, 13), as_f32(args, 14)
    experts, wanted = logits.shape[1], ids.shape[1]
    size = experts // groups
    score = np.empty(experts, np.float32)
    choice = np.empty(experts, np.float32)
    group_score = np.empty(groups, np.float32)
    group_chosen = np.empty(groups, np.bool_)
    chosen = np.empty(experts, np.bool_)
    for row in range(begin, end):
        for e in range(experts):
            score[e] = sigmoid32(logits[row, e])
            choice[e] = score[e] + bias[e]
        if kept < groups:
            for group in range(groups):
                group_score[group] = _two_largest(choice[group * size : (group + 1) * size])
            _mark_largest(group_score, kept, group_chosen)
            for e in range(experts):
                if not group_chosen[e // size]:
                    choice[e] = _OUT
        _mark_largest(choice, wanted, chosen)
        total = np.float32(0.0)
        at = 0
        for e in range(experts):
            if chosen[e]:
                ids[row, at] = e
                weights[row, at] = score[e]
                total += score[e]
                at += 1
        scale = factor / (total + _WEIGHT_EPS) if normalise else factor
        for j in range(wanted):
            weights[row, j] *= scale


@pool_entry
def _combine_entry(args, begin, end):
    """out[row] += sum over a row's experts, in ascending order, of weight * expert output.

    down: [rows x chosen, hidden], in expert order; place: [rows, chosen] tells each one's row in it.
    """
    down, place, weights, out = f32_2d(args, 0), i32_2d(args, 3), f32_2d(args, 6), f32_2d(args, 9)
    for row in range(begin, end):
        for j in range(place.shape[1]):
            weight, source = weights[row, j], down[place[row, j]]
            for i in range(out.shape[1]):
                out[row, i] += weight * source[i]


def group_by_expert(ids: NDArray[np.int32]) -> tuple[Groups, NDArray[np.int64], NDArray[np.int32]]:
    """Sort (row, expert) pairs by expert. ids: [rows, chosen], ascending in each row.

    Returns the groups of equal expert, the row each sorted pair belongs to, and `place: [rows, chosen]`,
    where each pair went.
    """
    rows, chosen = ids.shape
    flat = ids.reshape(-1)
    order = np.argsort(flat, kind="stable")
    experts, counts = np.unique(flat, return_counts=True)
    offsets = np.zeros(len(experts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    place = np.empty(rows * chosen, np.int32)
    place[order] = np.arange(rows * chosen, dtype=np.int32)
    return Groups(experts, offsets), order // chosen, place.reshape(rows, chosen)


@dataclass(frozen=True)
class Dense:
    """A SwiGLU layer; also the shared expert."""

    gate_up: Linear
    down: Linear

    @classmethod
    def load(cls, package: Package, prefix: str) -> Dense:
        return cls(package.linear(prefix + "gate_up"), package.linear(prefix + "down"))

    def __call__(self, pool: Pool, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """x: [rows, hidden], normed -> [rows, hidden]."""
        return self.down(pool, swiglu(pool, self.gate_up(pool, x)))


@dataclass(frozen=True)
class Moe:
    """Routed experts and the shared one."""

    router: Linear
    bias: NDArray[np.float32]
    gate_up: Linear
    down: Linear
    shared: Dense | None
    geometry: Geometry

    @classmethod
    def load(cls, package: Package, prefix: str, g: Geometry) -> Moe:
        return cls(
            router=package.linear(prefix + "moe.router"),
            bias=package.vector(prefix + "moe.bias"),
            gate_up=package.linear(prefix + "moe.gate_up"),
            down=package.linear(prefix + "moe.down"),
            shared=Dense.load(package, prefix + "shared.") if g.shared_width else None,
            geometry=g,
        )

    def route(self, pool: Pool, x: NDArray[np.float32]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The experts of every row, ascending, and their weights: [rows, chosen] each."""
        g, rows = self.geometry, x.shape[0]
        ids = np.empty((rows, g.experts_per_token), np.int32)
        weights = np.empty((rows, g.experts_per_token), np.float32)
        pool.run(
            _route_entry.address,
            rows,
            [
                self.router(pool, x), self.bias, ids, weights,
                g.groups, g.groups_kept, int(g.normalise_weights), g.routed_scaling,
            ],
        )  # fmt: skip
        return ids, weights

    def __call__(self, pool: Pool, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """x: [rows, hidden], normed -> [rows, hidden]."""
        ids, weights = self.route(pool, x)
        groups, rows, place = group_by_expert(ids)
        hidden = swiglu(pool, self.gate_up(pool, x[rows], groups))
        down = self.down(pool, hidden, groups)
        out = np.zeros_like(x) if self.shared is None else self.shared(pool, x)
        pool.run(_combine_entry.address, x.shape[0], [down, place, weights, out])
        return out
