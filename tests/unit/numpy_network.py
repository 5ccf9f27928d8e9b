"""The network in plain NumPy and float64, written from the statements of the model's description (M-10 to M-43).

Slow and obvious on purpose: one token after the other, one head after the other, no block forms.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ling3.model.geometry import Geometry

Array = NDArray[np.float64]
Tensors = Callable[[str], Array]
"""A checkpoint: public tensor name (M-50) without `.weight` -> values."""


def sigmoid(x: Array) -> Array:
    """Logistic function."""
    return 1.0 / (1.0 + np.exp(-x))


def silu(x: Array) -> Array:
    """x times its sigmoid."""
    return x * sigmoid(x)


def rms(x: Array, weight: Array, eps: float) -> Array:
    """RMS norm of the last axis (M-11)."""
    normed: Array = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps)
    return weight * normed


def convolve(rows: Array, taps: Array) -> Array:
    """Causal depthwise convolution and SiLU; rows before the first are zero (M-21). rows: [T, C]; taps: [C, K]."""
    count = taps.shape[1]
    padded = np.concatenate([np.zeros((count - 1, rows.shape[1])), rows])
    return silu(sum((padded[j : j + len(rows)] * taps[:, j] for j in range(count)), np.zeros(rows.shape)))


def unit(x: Array) -> Array:
    """L2 norm of the last axis (M-22)."""
    length: Array = np.sqrt((x**2).sum(axis=-1, keepdims=True) + 1e-6)
    return x / length


def recurrence(q: Array, k: Array, v: Array, g: Array, beta: Array, state: Array) -> tuple[Array, Array]:
    """The delta rule of one head (M-25): outputs [T, D] and the state after them. q, k, v, g: [T, D]; state: [D, D]."""
    outputs = []
    for t in range(len(q)):
        state = np.exp(g[t])[:, None] * state
        u = beta[t] * (v[t] - state.T @ k[t])
        state = state + np.outer(k[t], u)
        outputs.append(state.T @ q[t])
    return np.array(outputs), state


def kda_heads(
    streams: Array, beta_raw: Array, taps: Array, a_log: Array, dt_bias: Array, o_norm: Array, bound: float, eps: float
) -> tuple[Array, Array]:
    """Everything between the projections of a KDA layer, from an empty state (M-21 to M-27).

    streams: [5, T, P] = q, k, v, f, g; beta_raw: [T, H]; taps: [3, P, K]. Result: [T, P] and the states [H, D, D].
    """
    heads, width = beta_raw.shape[1], len(o_norm)
    q, k, v = (convolve(streams[s], taps[s]) for s in range(3))
    outputs, states = [], []
    for h in range(heads):
        own = slice(h * width, (h + 1) * width)
        g = bound * sigmoid(np.exp(a_log[h]) * (streams[3][:, own] + dt_bias[own]))
        qh, kh = unit(q[:, own]) * width**-0.5, unit(k[:, own])
        o, state = recurrence(qh, kh, v[:, own], g, sigmoid(beta_raw[:, h]), np.zeros((width, width)))
        outputs.append(rms(o, o_norm, eps) * sigmoid(streams[4][:, own]))
        states.append(state)
    return np.concatenate(outputs, axis=1), np.array(states)


def rotate(x: Array, theta: float) -> Array:
    """Neighbouring pairs of row p turned by p times their frequency (M-32). x: [T, rope]."""
    half = x.shape[1] // 2
    angle = np.arange(len(x))[:, None] * theta ** (-2.0 * np.arange(half) / x.shape[1])
    turned = (x[:, 0::2] + 1j * x[:, 1::2]) * np.exp(1j * angle)
    return np.stack([turned.real, turned.imag], axis=2).reshape(x.shape)


def attention(q: Array, latent: Array, key_rope: Array, kv_b: Array, g: Geometry) -> Array:
    """Causal softmax attention in the expanded form (M-33): [T, H v].

    q: [T, H (nope + rope)] before rotation; latent: [T, rank], normed; key_rope: [T, rope] before rotation;
    kv_b: [H (nope + v), rank].
    """
    rows, nope = len(q), g.qk_nope_head_dim
    future = np.triu(np.full((rows, rows), -np.inf), 1)
    turned_key = rotate(key_rope, g.rope_theta)
    outputs = []
    for h in range(g.heads):
        own = q[:, h * g.qk_head_dim : (h + 1) * g.qk_head_dim]
        expanded = latent @ kv_b[h * (nope + g.v_head_dim) : (h + 1) * (nope + g.v_head_dim)].T
        score = own[:, :nope] @ expanded[:, :nope].T + rotate(own[:, nope:], g.rope_theta) @ turned_key.T
        score = score * g.qk_head_dim**-0.5 + future
        weight = np.exp(score - score.max(axis=1, keepdims=True))
        outputs.append(weight / weight.sum(axis=1, keepdims=True) @ expanded[:, nope:])
    return np.concatenate(outputs, axis=1)


def route(logits: Array, bias: Array, g: Geometry) -> Array:
    """Weight of every expert for every row, 0 for those not chosen (M-41, M-43). logits: [T, E] -> [T, E]."""
    score = sigmoid(logits)
    weights = np.zeros(score.shape)
    for row, own in enumerate(score):
        choice = own + bias
        if g.groups_kept < g.groups:
            groups = choice.reshape(g.groups, -1)
            ranking = np.argsort(-np.sort(groups, axis=1)[:, -2:].sum(axis=1), kind="stable")
            groups[ranking[g.groups_kept :]] = -np.inf
        chosen = np.argsort(-choice, kind="stable")[: g.experts_per_token]
        total = own[chosen].sum() + 1e-20 if g.normalise_weights else 1.0
        weights[row, chosen] = own[chosen] / total * g.routed_scaling
    return weights


def swiglu(x: Array, name: str, tensors: Tensors) -> Array:
    """Gate, up and down projections of one feed-forward part (M-40)."""
    hidden = silu(x @ tensors(f"{name}.gate_proj").T) * (x @ tensors(f"{name}.up_proj").T)
    return hidden @ tensors(f"{name}.down_proj").T


def kda_mixer(x: Array, name: str, tensors: Tensors, g: Geometry) -> Array:
    """A KDA layer (M-20 to M-27). x: [T, hidden]."""
    streams = np.stack([x @ tensors(f"{name}.{s}_proj").T for s in "qkvfg"])
    taps = np.stack([tensors(f"{name}.{s}_conv1d")[:, 0] for s in "qkv"])
    beta = x @ tensors(f"{name}.b_proj").T
    decay = tensors(f"{name}.A_log"), tensors(f"{name}.dt_bias")
    mixed, _ = kda_heads(streams, beta, taps, *decay, tensors(f"{name}.o_norm"), g.gate_lower_bound, g.norm_eps)
    return mixed @ tensors(f"{name}.o_proj").T


def mla_mixer(x: Array, name: str, tensors: Tensors, g: Geometry) -> Array:
    """An MLA layer (M-31 to M-33). x: [T, hidden]."""
    if g.q_lora_rank is None:
        q = x @ tensors(f"{name}.q_proj").T
    else:
        low = rms(x @ tensors(f"{name}.q_a_proj").T, tensors(f"{name}.q_a_layernorm"), 1e-6)
        q = low @ tensors(f"{name}.q_b_proj").T
    kv = x @ tensors(f"{name}.kv_a_proj_with_mqa").T
    latent = rms(kv[:, : g.kv_lora_rank], tensors(f"{name}.kv_a_layernorm"), 1e-6)
    context = attention(q, latent, kv[:, g.kv_lora_rank :], tensors(f"{name}.kv_b_proj"), g)
    gate = np.repeat(sigmoid(x @ tensors(f"{name}.g_proj").T), g.v_head_dim, axis=1)
    return (gate * context) @ tensors(f"{name}.dense").T


def moe(x: Array, name: str, tensors: Tensors, g: Geometry) -> Array:
    """Routed and shared experts (M-41). x: [T, hidden]."""
    weights = route(x @ tensors(f"{name}.gate").T, tensors(f"{name}.gate.expert_bias"), g)
    routed = [weights[:, e, None] * swiglu(x, f"{name}.experts.{e}", tensors) for e in range(g.experts)]
    return sum(routed, swiglu(x, f"{name}.shared_experts", tensors))


def forward(ids: NDArray[np.int64], tensors: Tensors, g: Geometry) -> Array:
    """Logits after every token, [T, vocab] (M-11)."""
    x = tensors("model.word_embeddings")[ids]
    for i, kind in enumerate(g.mixers):
        layer = f"model.layers.{i}"
        mixer = kda_mixer if kind == "kda" else mla_mixer
        x = x + mixer(rms(x, tensors(f"{layer}.input_layernorm"), g.norm_eps), f"{layer}.attention", tensors, g)
        normed = rms(x, tensors(f"{layer}.post_attention_layernorm"), g.norm_eps)
        x = x + (swiglu(normed, f"{layer}.mlp", tensors) if g.is_dense(i) else moe(normed, f"{layer}.mlp", tensors, g))
    head = tensors("model.word_embeddings" if g.tied_head else "lm_head")
    return rms(x, tensors("model.norm"), g.norm_eps) @ head.T
