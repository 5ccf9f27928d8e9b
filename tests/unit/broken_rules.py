"""Every rule of the network, broken once (M-10 to M-43, M-88).

Not here, because their effect lies below the tolerance: the eps of the L2 norm (M-22), of the two inner norms (M-31)
and of the weights' sum (M-41).
"""

from __future__ import annotations

from mutation import Mutation

DECODER = [
    Mutation(
        "M-11 embeddings are not scaled", "decoder",
        "x = self._embedding.rows(ids)",
        "x = self._embedding.rows(ids) * np.float32(self.geometry.hidden_size**0.5)",
    ),
    Mutation(
        "M-11 the mixer reads normed rows", "decoder",
        "normed = rms_norm(pool, x, layer.norm_mixer, g.norm_eps)",
        "normed = x.copy()",
    ),
    Mutation(
        "M-11 the feed-forward part has a residual", "decoder",
        "x += layer.mlp(",
        "x = layer.mlp(",
    ),
    Mutation(
        "M-11 final norm", "decoder",
        "rms_norm(self.pool, x, self._norm, self.geometry.norm_eps)",
        "np.ascontiguousarray(x)",
    ),
    Mutation(
        "M-11 head of its own unless tied", "decoder",
        "self._embedding if g.tied_head else",
        "self._embedding if g.hidden_size else",
    ),
    Mutation(
        "M-4 every layer has a state of its own", "decoder",
        "count[kind] += 1",
        "count[kind] += 0",
    ),
    Mutation(
        "M-32 theta of the config", "decoder",
        "g.rope_theta **",
        "10000.0 **",
    ),
    Mutation(
        "M-32 the whole width turns, not half of it", "decoder",
        "self._frequencies = g.rope_theta ** (-np.arange(half, dtype=np.float64) / half)",
        "turning = np.arange(half // 2) / (half // 2)\n"
        "        self._frequencies = np.append(g.rope_theta**-turning, np.zeros(half - half // 2))",
    ),
    Mutation(
        "M-32 absolute positions", "decoder",
        "self._angles(state.position, ids.size)",
        "self._angles(0, ids.size)",
    ),
    Mutation(
        "M-11 norm weights as stored, not 1 + w", "norm",
        "weight[i] * (x[i] * factor)",
        "(np.float32(1.0) + weight[i]) * (x[i] * factor)",
    ),
]  # fmt: skip

REFUSED = [
    Mutation(
        "M-10 the last layer of a group is MLA, not the first", "geometry",
        '"mla" if (i + 1) % group == 0',
        '"mla" if i % group == 0',
    ),
    Mutation(
        "M-10 a trailing incomplete group is MLA", "geometry",
        "or i >= trailing else",
        "else",
    ),
    Mutation(
        "M-1 tied head", "geometry",
        'tied_head=read.flag("tie_word_embeddings", False)',
        "tied_head=False",
    ),
]  # fmt: skip
"""These ask for tensors that the checkpoint does not have, so that it is refused."""

KDA = [
    Mutation(
        "M-21 tap order", "kda",
        "weight = taps[stream * count + j,",
        "weight = taps[stream * count + count - 1 - j,",
    ),
    Mutation(
        "M-21 SiLU after the convolution", "kda",
        "out[c] = silu32(out[c])",
        "out[c] = out[c]",
    ),
    Mutation(
        "M-21 history holds raw projections", "kda",
        "if source < 0 else projected[source, c]",
        "if source < 0 else silu32(projected[source, c])",
    ),
    Mutation(
        "M-21 history is oldest first", "kda",
        "past = history[source + count - 1,",
        "past = history[-source - 1,",
    ),
    Mutation(
        "M-21 rows before a call come from its history", "kda",
        "out[c] += weight[c] * past[c]",
        "out[c] += np.float32(0.0) * past[c]",
    ),
    Mutation(
        "M-22 L2 norm", "kda",
        "factor = scale / np.sqrt(total + _L2_EPS)",
        "factor = scale",
    ),
    Mutation(
        "M-22 scale of the query", "kda",
        "q_scale = np.float32(1.0) / np.sqrt(np.float32(width))",
        "q_scale = np.float32(1.0)",
    ),
    Mutation(
        "M-27 eps of the norm per head", "kda",
        "eps=g.norm_eps",
        "eps=1e-4",
    ),
    Mutation(
        "M-23 safe gate, not softplus", "kda",
        "g[d] = lower_bound * sigmoid32(rate * (f[d] + dt_bias[d]))",
        "g[d] = -rate * np.float32(np.log(np.float32(1.0) + exp32(f[d] + dt_bias[d])))",
    ),
    Mutation(
        "M-23 dt_bias is added before scaling", "kda",
        "sigmoid32(rate * (f[d] + dt_bias[d]))",
        "sigmoid32(rate * f[d] + dt_bias[d])",
    ),
    Mutation(
        "M-23 dt_bias", "kda",
        "sigmoid32(rate * (f[d] + dt_bias[d]))",
        "sigmoid32(rate * f[d])",
    ),
    Mutation(
        "M-23 decay per channel, not per head", "kda",
        "sigmoid32(rate * (f[d] + dt_bias[d]))",
        "sigmoid32(rate * (f[0] + dt_bias[0]))",
    ),
    Mutation(
        "M-23 A_log is exponentiated", "kda",
        "rate = exp32(a_log)",
        "rate = a_log",
    ),
    Mutation(
        "M-23 lower bound of the config", "kda",
        "lower_bound=g.gate_lower_bound",
        "lower_bound=-4.0",
    ),
    Mutation(
        "M-24 sigmoid of beta", "kda",
        "beta[i] = sigmoid32(beta_raw[row, head])",
        "beta[i] = beta_raw[row, head]",
    ),
    Mutation(
        "M-26 step: what the state already says is subtracted", "kda",
        "m[e] = beta * (v[e] - m[e])",
        "m[e] = beta * v[e]",
    ),
    Mutation(
        "M-26 step: the state decays before it is read", "kda",
        "ak, aq = alpha * k[d], alpha * q[d]",
        "ak, aq = k[d], q[d]",
    ),
    Mutation(
        "M-26 step: the state decays before it is updated", "kda",
        "row[e] = alpha * row[e] + kd * m[e]",
        "row[e] = alpha * (row[e] + kd * m[e])",
    ),
    Mutation(
        "M-26 step: the output sees the current token", "kda",
        "o[e] += kq * m[e]",
        "o[e] += np.float32(0.0) * kq",
    ),
    Mutation(
        "M-28 block: what the state already says is subtracted", "kda",
        "v[i, e] = beta[i] * (v[i, e] - read[i, e])",
        "v[i, e] = beta[i] * v[i, e]",
    ),
    Mutation(
        "M-28 block: what earlier rows say is subtracted", "kda",
        "v[i, e] -= factor * v[j, e]",
        "v[i, e] -= np.float32(0.0) * factor",
    ),
    Mutation(
        "M-28 block: beta in A", "kda",
        "a[i, j] = beta[i] * _dot(k[i], k_down[j])",
        "a[i, j] = _dot(k[i], k_down[j])",
    ),
    Mutation(
        "M-28 block: B includes the row itself", "kda",
        "for j in range(i + 1):",
        "for j in range(i):",
    ),
    Mutation(
        "M-28 block: keys read the entry state through exp(G)", "kda",
        "k[i, d] *= to_entry[d]",
        "k[i, d] *= np.float32(1.0)",
    ),
    Mutation(
        "M-28 block: queries read the entry state through exp(G)", "kda",
        "q[i, d] *= to_entry[d]",
        "q[i, d] *= np.float32(1.0)",
    ),
    Mutation(
        "M-28 block: rows decay until the exit", "kda",
        "k_down[i, d] *= to_exit[d]",
        "k_down[i, d] *= np.float32(1.0)",
    ),
    Mutation(
        "M-28 block: the state decays until the exit", "kda",
        "row[e] *= alpha[d]",
        "row[e] *= np.float32(1.0)",
    ),
    Mutation(
        "M-28 block: G sums are inclusive", "kda",
        "g[i, d] += g[i - 1, d]  # G, inclusive sums",
        "pass",
    ),
    Mutation(
        "M-27 sigmoid gate, not SiLU", "kda",
        "out[d] *= sigmoid32(z[d])",
        "out[d] *= silu32(z[d])",
    ),
    Mutation(
        "M-27 norm before gate", "kda",
        "    rms_row(o, weight, out, eps)\n    for d in range(out.shape[0]):\n        out[d] *= sigmoid32(z[d])",
        "    for d in range(out.shape[0]):\n"
        "        out[d] = o[d] * sigmoid32(z[d])\n"
        "    rms_row(out, weight, out, eps)",
    ),
]  # fmt: skip

MLA = [
    Mutation(
        "M-31 norm of the latent", "mla",
        "rms_row(source[:rank], norm, values[:rank], np.float32(_INNER_EPS))",
        "values[:rank] = source[:rank]",
    ),
    Mutation(
        "M-31 norm of the query's low-rank half", "mla",
        "self.q_up(pool, rms_norm(pool, query, self.q_norm, _INNER_EPS))",
        "self.q_up(pool, query)",
    ),
    Mutation(
        "M-32 neighbouring pairs, not halves", "mla",
        "even, odd = x[2 * j], x[2 * j + 1]",
        "even, odd = x[j], x[x.shape[0] // 2 + j]",
    ),
    Mutation(
        "M-32 keys turn", "mla",
        "_rotate(source[rank:], angles[row], values[rank:])",
        "values[rank:] = source[rank:]",
    ),
    Mutation(
        "M-32 queries turn", "mla",
        "_rotate(query[row, first + plain : first + plain + turned], angles[row], rope[head, row])",
        "rope[head, row] = query[row, first + plain : first + plain + turned]",
    ),
    Mutation(
        "M-33 causal", "mla",
        "seen = min(stop, position + row + 1) - start",
        "seen = stop - start",
    ),
    Mutation(
        "M-33 softmax over all tiles of keys", "mla",
        "acc[d] *= shrink",
        "acc[d] *= np.float32(1.0)",
    ),
    Mutation(
        "M-33 gate", "mla",
        "factor = sigmoid32(gate[row, head])",
        "factor = np.float32(1.0)",
    ),
    Mutation(
        "M-33 sigmoid gate, not SiLU", "mla",
        "factor = sigmoid32(gate[row, head])",
        "factor = gate[row, head] * sigmoid32(gate[row, head])",
    ),
    Mutation(
        "M-33 gate before the output matrix", "mla",
        "pool.run(_gate_entry.address, rows, [values, self.gate(pool, x), gated])\n"
        "        return self.out(pool, gated)",
        "pool.run(_gate_entry.address, rows, [values, np.full((rows, g.heads), 50, np.float32), gated])\n"
        "        late = np.repeat(1 / (1 + np.exp(-self.gate(pool, x))), g.hidden_size // g.heads, axis=1)\n"
        "        return self.out(pool, gated) * late",
    ),
]  # fmt: skip

SCALE = Mutation(
    "M-33 scores are divided by the root of the whole head width", "mla",
    "scale = g.qk_head_dim**-0.5",
    "scale = g.qk_nope_head_dim**-0.5",
)  # fmt: skip
"""Compiles nothing."""

MOE = [
    Mutation(
        "M-40 SiLU", "moe",
        "silu32(both[row, i]) * both[row, width + i]",
        "both[row, i] * both[row, width + i]",
    ),
    Mutation(
        "M-40 SiLU of the gate, not of up", "moe",
        "silu32(both[row, i]) * both[row, width + i]",
        "both[row, i] * silu32(both[row, width + i])",
    ),
    Mutation(
        "M-41 sigmoid router, not softmax", "moe",
        "score[e] = sigmoid32(logits[row, e])",
        "score[e] = np.exp(logits[row, e]) / np.exp(logits[row]).sum()",
    ),
    Mutation(
        "M-41 bias in the choice", "moe",
        "choice[e] = score[e] + bias[e]",
        "choice[e] = score[e]",
    ),
    Mutation(
        "M-41 no bias in the weights", "moe",
        "weights[row, at] = score[e]\n                total += score[e]",
        "weights[row, at] = choice[e]\n                total += choice[e]",
    ),
    Mutation(
        "M-41 group limit", "moe",
        "if kept < groups:",
        "if kept < 0:",
    ),
    Mutation(
        "M-41 group score is the sum of two", "moe",
        "return first + second",
        "return first",
    ),
    Mutation(
        "M-41 experts of other groups are out, not at 0", "moe",
        "choice[e] = _OUT",
        "choice[e] = np.float32(0.0)",
    ),
    Mutation(
        "M-41 weights are normalised", "moe",
        "scale = factor / (total + _WEIGHT_EPS) if normalise else factor",
        "scale = factor",
    ),
    Mutation(
        "M-43 weights are not normalised if the config says so", "moe",
        "scale = factor / (total + _WEIGHT_EPS) if normalise else factor",
        "scale = factor / (total + _WEIGHT_EPS)",
    ),
    Mutation(
        "M-41 routed scaling", "moe",
        "g.groups, g.groups_kept, int(g.normalise_weights), g.routed_scaling,",
        "g.groups, g.groups_kept, int(g.normalise_weights), 1.0,",
    ),
    Mutation(
        "M-41 no routed scaling of the shared expert", "moe",
        "else self.shared(pool, x)\n        pool.run(",
        "else self.shared(pool, x) * np.float32(self.geometry.routed_scaling)\n        pool.run(",
    ),
    Mutation(
        "M-41 shared expert", "moe",
        "if self.shared is None else self.shared(pool, x)\n        pool.run(",
        "\n        pool.run(",
    ),
]  # fmt: skip

COMPILED = [*DECODER, *KDA, *MLA, *MOE]
