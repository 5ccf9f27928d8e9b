"""KDA mixer: a recurrent layer with one matrix of state per head (M-20 to M-29).

One pool region does everything between the projections of a layer, a head an item. A single
token takes the recurrent step (M-26); more rows take the block form (M-28) in sub-blocks of 16 that begin
at absolute positions that are multiples of 16, so where a prompt is cut into calls does not matter.
"""
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from ling3.linear.matmul import Linear
from ling3.linear.pool import Pool, as_f32, as_i64, f32_1d, f32_2d, f32_3d, pool_entry
from ling3.model.geometry import Geometry
from ling3.model.norm import rms_row
from ling3.model.package import Package
from ling3.model.scalar import FASTMATH, exp32, sigmoid32, silu32

SUB_BLOCK = 16
"""Rows of a sub-block: exp of a 16-row sum of decays, each above -5, stays finite in float32 (M-29)."""
_L2_EPS = np.float32(1e-6)


@numba.njit(fastmath=FASTMATH)
def _convolve(projected, stream, row, channel, taps, history, out):
    """Causal depthwise convolution and SiLU of one row, channels of one head (M-21).

    projected: [rows, 5P]; taps: [3 K, P] (last tap = current token); history: [K - 1, 3P], oldest first.
    """
    count = taps.shape[0] // 3
    width = out.shape[0]
    heads_width = taps.shape[1]
    offset = stream * heads_width + channel
    for c in range(width):
        out[c] = np.float32(0.0)
    for j in range(count):
        source = row - (count - 1) + j
        weight = taps[stream * count + j, channel : channel + width]
        if source < 0:
            past = history[source + count - 1, offset : offset + width]
            for c in range(width):
                out[c] += weight[c] * past[c]
        else:
            present = projected[source, offset : offset + width]
            for c in range(width):
                out[c] += weight[c] * present[c]
    for c in range(width):
        out[c] = silu32(out[c])


@numba.njit(fastmath=FASTMATH)
def _unit(x, scale):
    """x * scale / sqrt(sum of squares + 1e-6), in place (M-22)."""
    total = np.float32(0.0)
    for i in range(x.shape[0]):
        total += x[i] * x[i]
    factor = scale / np.sqrt(total + _L2_EPS)
    for i in range(x.shape[0]):
        x[i] *= factor


@numba.njit(fastmath=FASTMATH)
def _decay(f, dt_bias, a_log, lower_bound, g):
    """Log decay per channel: g = lower_bound * sigmoid(exp(A_log) * (f + dt_bias)) (M-23)."""
    rate = exp32(a_log)
    for d in range(g.shape[0]):
        g[d] = lower_bound * sigmoid32(rate * (f[d] + dt_bias[d]))


@numba.njit(fastmath=FASTMATH)
def _recurrent_step(q, k, v, g, beta, state, m, o):
    """One token (M-26). q, k, v, g: [D]; state: [D, D], rows = key channels; m: scratch [D]; o: [D]."""
    width = q.shape[0]
    for e in range(width):
        m[e] = np.float32(0.0)
        o[e] = np.float32(0.0)
    kq = np.float32(0.0)
    for d in range(width):
        kq += k[d] * q[d]
        alpha = exp32(g[d])
        g[d] = alpha
        ak, aq = alpha * k[d], alpha * q[d]
        row = state[d]
        for e in range(width):
            m[e] += ak * row[e]
            o[e] += aq * row[e]
    for e in range(width):
        m[e] = beta * (v[e] - m[e])
        o[e] += kq * m[e]
    for d in range(width):
        alpha, kd = g[d], k[d]
        row = state[d]
        for e in range(width):
            row[e] = alpha * row[e] + kd * m[e]


@numba.njit(fastmath=FASTMATH)
def _add_product(out, left, right):
    """out += left @ right, four terms at a time. out: [C, E], left: [C, D], right: [D, E]."""
    terms = left.shape[1]
    whole = terms // 4 * 4
    for d in range(0, whole, 4):
        r0, r1, r2, r3 = right[d], right[d + 1], right[d + 2], right[d + 3]
        for i in range(out.shape[0]):
            a0, a1, a2, a3 = left[i, d], left[i, d + 1], left[i, d + 2], left[i, d + 3]
            row = out[i]
            for e in range(row.shape[0]):
                row[e] += (a0 * r0[e] + a1 * r1[e]) + (a2 * r2[e] + a3 * r3[e])
    for d in range(whole, terms):
        last = right[d]
        for i in range(out.shape[0]):
            a = left[i, d]
            row = out[i]
            for e in range(row.shape[0]):
                row[e] += a * last[e]


@numba.njit(fastmath=FASTMATH)
def _dot(a, b):
    total = np.float32(0.0)
    for i in range(a.shape[0]):
        total += a[i] * b[i]
    return total


@numba.njit(fastmath=FASTMATH)
def _block(q, k, v, g, beta, state, o):
    """Up to 16 tokens of one head (M-28). q, k, v, g, o: [C, D]; beta: [C]; state: [D, D], advanced in place.

    Products with exp(G_i - G_j) are split at the middle row: both factors then stay within e^40 of one,
    far from overflow and from denormals. q, k, v and g are used as scratch.
    """
    rows, width = q.shape
    middle = rows // 2
    for i in range(1, rows):
        for d in range(width):
            g[i, d] += g[i - 1, d]  # G, inclusive sums
    k_down = np.empty((rows, width), np.float32)  # k * exp(G_mid - G)
    to_entry = np.empty(width, np.float32)  # exp(G_mid)
    to_exit = np.empty(width, np.float32)  # exp(G_last - G_mid)
    alpha = np.empty(width, np.float32)  # exp(G_last)
    for d in range(width):
        to_entry[d] = exp32(g[middle, d])
        to_exit[d] = exp32(g[rows - 1, d] - g[middle, d])
        alpha[d] = exp32(g[rows - 1, d])
    for i in range(rows):
        for d in range(width):
            difference = g[i, d] - g[middle, d]
            up = exp32(difference)
            k_down[i, d] = k[i, d] * exp32(-difference)
            k[i, d] *= up
            q[i, d] *= up
    a = np.zeros((rows, rows), np.float32)
    b = np.zeros((rows, rows), np.float32)
    for i in range(rows):
        for j in range(i):
            a[i, j] = beta[i] * _dot(k[i], k_down[j])
        for j in range(i + 1):
            b[i, j] = _dot(q[i], k_down[j])
    # From here k and q carry exp(G): what each row reads of the entry state.
    for i in range(rows):
        for d in range(width):
            k[i, d] *= to_entry[d]
            q[i, d] *= to_entry[d]
            k_down[i, d] *= to_exit[d]
            o[i, d] = np.float32(0.0)
    read = np.zeros((rows, width), np.float32)
    _add_product(read, k, state)
    _add_product(o, q, state)
    for i in range(rows):  # forward substitution: v becomes N, the rows written into the state
        for e in range(width):
            v[i, e] = beta[i] * (v[i, e] - read[i, e])
        for j in range(i):
            factor = a[i, j]
            for e in range(width):
                v[i, e] -= factor * v[j, e]
    _add_product(o, b, v)
    for d in range(width):
        row = state[d]
        for e in range(width):
            row[e] *= alpha[d]
    _add_product(state, np.ascontiguousarray(k_down.T), v)


@numba.njit(fastmath=FASTMATH)
def _finish(o, z, weight, eps, out):
    """Per-head norm, then the sigmoid gate (M-27)."""
    rms_row(o, weight, out, eps)
    for d in range(out.shape[0]):
        out[d] *= sigmoid32(z[d])


@numba.njit(fastmath=FASTMATH)
def _head(head, projected, beta_raw, taps, history, a_log, dt_bias, o_norm, state, out, position, lower_bound, eps):
    """Everything of one head between the projections: rows `projected` into rows of `out`, state advanced."""
    rows, width = projected.shape[0], state.shape[1]
    kda_width = out.shape[1]
    channel = head * width
    q_scale = np.float32(1.0) / np.sqrt(np.float32(width))
    q = np.empty((SUB_BLOCK, width), np.float32)
    k = np.empty((SUB_BLOCK, width), np.float32)
    v = np.empty((SUB_BLOCK, width), np.float32)
    g = np.empty((SUB_BLOCK, width), np.float32)
    o = np.empty((SUB_BLOCK, width), np.float32)
    beta = np.empty(SUB_BLOCK, np.float32)
    done = 0
    while done < rows:
        count = min(SUB_BLOCK - (position + done) % SUB_BLOCK, rows - done)
        for i in range(count):
            row = done + i
            _convolve(projected, 0, row, channel, taps, history, q[i])
            _convolve(projected, 1, row, channel, taps, history, k[i])
            _convolve(projected, 2, row, channel, taps, history, v[i])
            _unit(q[i], q_scale)
            _unit(k[i], np.float32(1.0))
            f = projected[row, 3 * kda_width + channel : 3 * kda_width + channel + width]
            _decay(f, dt_bias[channel : channel + width], a_log[head], lower_bound, g[i])
            beta[i] = sigmoid32(beta_raw[row, head])
        if rows == 1:
            _recurrent_step(q[0], k[0], v[0], g[0], beta[0], state, q[1], o[0])
        else:
            _block(q[:count], k[:count], v[:count], g[:count], beta, state, o[:count])
        for i in range(count):
            row = done + i
            z = projected[row, 4 * kda_width + channel : 4 * kda_width + channel + width]
            _finish(o[i], z, o_norm, eps, out[row, channel : channel + width])
        done += count
    _keep_history(projected, history, kda_width, channel, width)


@numba.njit
def _keep_history(projected, history, kda_width, channel, width):
    """The last raw projections of one head's channels, for the next call (M-21)."""
    rows, kept = projected.shape[0], history.shape[0]
    for stream in range(3):
        first = stream * kda_width + channel
        for j in range(kept):
            source = rows - kept + j
            for c in range(first, first + width):
                history[j, c] = history[j + rows, c] if source < 0 else projected[source, c]


@pool_entry
def _entry(args, begin, end):
    projected, beta_raw, taps, history = f32_2d(args, 0), f32_2d(args, 3), f32_2d(args, 6), f32_2d(args, 9)
    a_log, dt_bias, o_norm = f32_1d(args, 12), f32_1d(args, 14), f32_1d(args, 16)
    state, out = f32_3d(args, 18), f32_2d(args, 22)
    position, lower_bound, eps = as_i64(args, 25), as_f32(args, 26), as_f32(args, 27)
    for head in range(begin, end):
        _head(
            head, projected, beta_raw, taps, history, a_log, dt_bias, o_norm, state[head], out,
            position, lower_bound, eps,
        )  # fmt: skip


@dataclass(frozen=True)
class KdaMixer:
    """The weights of one KDA layer."""

    project: Linear
    beta: Linear
    out: Linear
    taps: NDArray[np.float32]
    a_log: NDArray[np.float32]
    dt_bias: NDArray[np.float32]
    o_norm: NDArray[np.float32]
    lower_bound: float
    eps: float

    @classmethod
    def load(cls, package: Package, prefix: str, g: Geometry) -> KdaMixer:
        taps = package.vector(prefix + "kda.conv").transpose(0, 2, 1).reshape(3 * g.conv_taps, g.kda_width)
        return cls(
            project=package.linear(prefix + "kda.in"),
            beta=package.linear(prefix + "kda.beta"),
            out=package.linear(prefix + "kda.out"),
            taps=np.ascontiguousarray(taps),
            a_log=package.vector(prefix + "kda.a_log"),
            dt_bias=package.vector(prefix + "kda.dt_bias"),
            o_norm=package.vector(prefix + "kda.o_norm"),
            lower_bound=g.gate_lower_bound,
            eps=g.norm_eps,
        )

    def __call__(
        self,
        pool: Pool,
        x: NDArray[np.float32],
        position: int,
        matrices: NDArray[np.float32],
        history: NDArray[np.float32],
    ) -> NDArray[np.float32]:
        """x: [rows, hidden], normed -> [rows, hidden]. matrices: [H, D, D] and history: [K - 1, 3P] are advanced."""
        projected = self.project(pool, x)
        beta = self.beta(pool, x)
        mixed = np.empty((x.shape[0], self.out.k), np.float32)
        pool.run(
            _entry.address,
            matrices.shape[0],
            [
                projected, beta, self.taps, history, self.a_log, self.dt_bias, self.o_norm, matrices, mixed,
                position, self.lower_bound, self.eps,
            ],
        )  # fmt: skip
        return self.out(pool, mixed)
