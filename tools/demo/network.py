"""The Ling-3.0 network in torch, for training: KDA in block form, MLA expanded, experts grouped by token.

Shapes: B sequences of T tokens (T a multiple of BLOCK), H heads of width D, rows = B * T. Parameter names are those of
the public checkpoint without the prefix `model.`, but experts are stacked, one tensor for each of their three
matrices.
"""

# Where the type checker runs without torch, its classes are unknown.
# mypy: disallow-subclassing-any=False

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BLOCK = 16
EPSILON = 1e-6


@dataclass(frozen=True)
class Shape:
    """Sizes of the demonstration model."""

    vocabulary: int = 4096
    hidden: int = 256
    layers: int = 4
    group: int = 4
    heads: int = 4
    head_dim: int = 64
    conv: int = 4
    lower_bound: float = -5.0
    q_rank: int = 128
    kv_rank: int = 128
    nope: int = 64
    rope: int = 32
    value: int = 64
    theta: float = 6_000_000.0
    dense: int = 768
    experts: int = 8
    groups: int = 4
    top_groups: int = 2
    top_experts: int = 2
    expert_width: int = 128
    scale: float = 2.5


class RmsNorm(nn.Module):
    """Root mean square norm over the last axis."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, EPSILON)


def linear(inputs: int, outputs: int, gain: float = 1.0) -> nn.Linear:
    """A matrix without bias, started with variance gain² / inputs."""
    layer = nn.Linear(inputs, outputs, bias=False)
    nn.init.normal_(layer.weight, std=gain / math.sqrt(inputs))
    return layer


class SwiGlu(nn.Module):
    """down(SiLU(gate x) * up x)."""

    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.gate_proj = linear(hidden, width, 0.6)
        self.up_proj = linear(hidden, width, 0.6)
        self.down_proj = linear(width, hidden, 0.3)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return y


class Router(nn.Module):
    """Sigmoid scores, chosen with a bias inside the best groups; the bias never enters the weights."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.weight = nn.Parameter(torch.randn(shape.experts, shape.hidden) * 0.02)
        self.register_buffer("expert_bias", torch.zeros(shape.experts))
        self.expert_bias: Tensor
        self.counts = torch.zeros(shape.experts)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Weights and expert numbers, both [rows, top_experts]."""
        s = self.shape
        scores = F.linear(x, self.weight).sigmoid()
        with torch.no_grad():
            choice = (scores + self.expert_bias).view(-1, s.groups, s.experts // s.groups)
            best = choice.topk(min(2, s.experts // s.groups), dim=-1)[0].sum(-1).topk(s.top_groups, dim=-1)[1]
            kept = torch.zeros(choice.shape[:2], dtype=torch.bool).scatter_(1, best, True)
            choice = choice.masked_fill(~kept.unsqueeze(-1), -math.inf).flatten(1)
            chosen = choice.topk(s.top_experts, dim=-1)[1]
            self.counts = torch.bincount(chosen.flatten(), minlength=s.experts).float()
        weights = scores.gather(1, chosen)
        return weights / (weights.sum(-1, keepdim=True) + 1e-20) * s.scale, chosen


class Experts(nn.Module):
    """The routed experts: rows are sorted by expert, so that every expert is one matrix product over its rows."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        e, h, w = shape.experts, shape.hidden, shape.expert_width
        self.top = shape.top_experts
        self.gate_proj = nn.Parameter(torch.randn(e, w, h) * 0.6 / math.sqrt(h))
        self.up_proj = nn.Parameter(torch.randn(e, w, h) * 0.6 / math.sqrt(h))
        self.down_proj = nn.Parameter(torch.randn(e, h, w) * 0.2 / math.sqrt(w))

    def forward(self, x: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        order = chosen.flatten().argsort(stable=True)
        rows = order // self.top
        sizes = torch.bincount(chosen.flatten(), minlength=len(self.gate_proj)).tolist()
        parts = []
        for part, gate, up, down in zip(x[rows].split(sizes), self.gate_proj, self.up_proj, self.down_proj,
                                        strict=True):
            parts.append(F.linear(F.silu(F.linear(part, gate)) * F.linear(part, up), down))
        y = torch.cat(parts) * weights.flatten()[order].unsqueeze(-1)
        return torch.zeros_like(x).index_add(0, rows, y)


class MixtureOfExperts(nn.Module):
    """Routed experts plus one shared expert."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate = Router(shape)
        self.experts = Experts(shape)
        self.shared_experts = SwiGlu(shape.hidden, shape.expert_width)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(0, 1)
        weights, chosen = self.gate(rows)
        y: Tensor = self.experts(rows, weights, chosen) + self.shared_experts(rows)
        return y.view_as(x)


def delta_attention(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
    """The delta rule over blocks of BLOCK tokens. q, k, v, g: [B*H, T, D]; beta: [B*H, T, 1]; result like v."""
    heads, length, width = q.shape
    q, k, v, g, beta = (x.view(heads, length // BLOCK, BLOCK, -1) for x in (q, k, v, g, beta))
    total = g.cumsum(2)
    # Anchored in the middle of the block, no exponent exceeds 40: both factors stay finite in FP32.
    middle = total - total[:, :, BLOCK // 2 - 1 : BLOCK // 2]
    rising, falling = middle.exp(), (-middle).exp()
    k_falling = (k * falling).transpose(2, 3)
    inner = ((k * rising) @ k_falling).tril(-1) * beta
    mixed = ((q * rising) @ k_falling).tril()
    decay = total.exp()
    last = total[:, :, -1:]
    right = torch.cat((k * decay, v), -1) * beta
    solved = torch.linalg.solve_triangular(inner + torch.eye(BLOCK), right, upper=False, unitriangular=True)
    w, u = solved.split(width, -1)
    k_out = (k * (last - total).exp()).transpose(2, 3)
    carry = last.exp().transpose(2, 3)
    state = q.new_zeros(heads, width, width)
    states, updates = [], []
    for w_block, u_block, k_block, carry_block in zip(w.unbind(1), u.unbind(1), k_out.unbind(1), carry.unbind(1),
                                                      strict=True):
        states.append(state)
        update = torch.baddbmm(u_block, w_block, state, alpha=-1)
        updates.append(update)
        state = torch.baddbmm(carry_block * state, k_block, update)
    out = (q * decay) @ torch.stack(states, 1) + mixed @ torch.stack(updates, 1)
    return out.view(heads, length, width)


class KimiDeltaAttention(nn.Module):
    """KDA mixer with the safe gate."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        width = shape.heads * shape.head_dim
        self.q_proj = linear(shape.hidden, width)
        self.k_proj = linear(shape.hidden, width)
        self.v_proj = linear(shape.hidden, width)
        self.f_proj = linear(shape.hidden, width, 0.3)
        self.g_proj = linear(shape.hidden, width, 0.5)
        self.b_proj = linear(shape.hidden, shape.heads)
        self.o_proj = linear(width, shape.hidden, 0.3)
        for stream in "qkv":
            taps = torch.randn(width, 1, shape.conv) * 0.2
            taps[:, :, -1] += 0.7
            self.register_parameter(f"{stream}_conv1d_weight", nn.Parameter(taps))
        self.A_log = nn.Parameter(torch.zeros(shape.heads))
        # Decay rates from slow to fast: g starts log-uniform between -0.002 and -0.5.
        start = torch.exp(torch.empty(width).uniform_(math.log(0.002), math.log(0.5))) / -shape.lower_bound
        self.dt_bias = nn.Parameter(torch.logit(start))
        self.o_norm = RmsNorm(shape.head_dim)

    def _stream(self, name: str, x: Tensor) -> Tensor:
        """Projection, causal convolution, SiLU: [B, T, hidden] to [B, T, H, D]."""
        taps = self.get_parameter(f"{name}_conv1d_weight")[:, 0].T
        raw = getattr(self, f"{name}_proj")(x)
        padded = F.pad(raw, (0, 0, len(taps) - 1, 0))
        length = x.shape[1]
        y = raw * taps[-1]
        for j in range(len(taps) - 1):
            y = torch.addcmul(y, padded[:, j : j + length], taps[j])
        return F.silu(y).unflatten(-1, (self.shape.heads, -1))

    def forward(self, x: Tensor) -> Tensor:
        s = self.shape
        batch, length, _ = x.shape

        def by_head(y: Tensor) -> Tensor:
            return y.transpose(1, 2).reshape(batch * s.heads, length, -1)

        q, k, v = (self._stream(name, x) for name in "qkv")
        q = q * torch.rsqrt(q.square().sum(-1, keepdim=True) + EPSILON) * s.head_dim**-0.5
        k = k * torch.rsqrt(k.square().sum(-1, keepdim=True) + EPSILON)
        f = (self.f_proj(x) + self.dt_bias).unflatten(-1, (s.heads, -1))
        g = s.lower_bound * torch.sigmoid(self.A_log.exp().unsqueeze(-1) * f)
        beta = self.b_proj(x).sigmoid().unsqueeze(-1)
        out = delta_attention(by_head(q), by_head(k), by_head(v), by_head(g), by_head(beta))
        out = out.view(batch, s.heads, length, -1).transpose(1, 2)
        gate = self.g_proj(x).unflatten(-1, (s.heads, -1)).sigmoid()
        y: Tensor = self.o_proj((self.o_norm(out) * gate).flatten(2))
        return y


class LatentAttention(nn.Module):
    """MLA mixer with low-rank queries and one output gate a head."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.q_a_proj = linear(shape.hidden, shape.q_rank)
        self.q_a_layernorm = RmsNorm(shape.q_rank)
        self.q_b_proj = linear(shape.q_rank, shape.heads * (shape.nope + shape.rope))
        self.kv_a_proj_with_mqa = linear(shape.hidden, shape.kv_rank + shape.rope)
        self.kv_a_layernorm = RmsNorm(shape.kv_rank)
        self.kv_b_proj = linear(shape.kv_rank, shape.heads * (shape.nope + shape.value))
        self.g_proj = linear(shape.hidden, shape.heads, 0.5)
        self.dense = linear(shape.heads * shape.value, shape.hidden, 0.3)

    def _rotate(self, x: Tensor) -> Tensor:
        """Rotary embedding of neighbouring pairs. x: [B, heads, T, rope]."""
        half = torch.arange(0, x.shape[-1], 2, dtype=torch.float32)
        angles = torch.outer(torch.arange(x.shape[-2], dtype=torch.float32), self.shape.theta ** (-half / x.shape[-1]))
        cos, sin = angles.cos(), angles.sin()
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1).flatten(-2)

    def forward(self, x: Tensor) -> Tensor:
        s = self.shape
        q = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x))).unflatten(-1, (s.heads, -1)).transpose(1, 2)
        latent, k_rope = self.kv_a_proj_with_mqa(x).split((s.kv_rank, s.rope), -1)
        kv = self.kv_b_proj(self.kv_a_layernorm(latent)).unflatten(-1, (s.heads, -1)).transpose(1, 2)
        k_nope, v = kv.split((s.nope, s.value), -1)
        q_nope, q_rope = q.split((s.nope, s.rope), -1)
        q = torch.cat((q_nope, self._rotate(q_rope)), -1)
        k = torch.cat((k_nope, self._rotate(k_rope.unsqueeze(1)).expand(-1, s.heads, -1, -1)), -1)
        scores = q @ k.transpose(-1, -2) * (s.nope + s.rope) ** -0.5
        future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        out = scores.masked_fill(future, -math.inf).softmax(-1) @ v
        out = out * self.g_proj(x).sigmoid().transpose(1, 2).unsqueeze(-1)
        y: Tensor = self.dense(out.transpose(1, 2).flatten(2))
        return y


class Layer(nn.Module):
    """Pre-norm mixer and feed-forward part."""

    def __init__(self, shape: Shape, number: int) -> None:
        super().__init__()
        self.input_layernorm = RmsNorm(shape.hidden)
        self.attention = LatentAttention(shape) if (number + 1) % shape.group == 0 else KimiDeltaAttention(shape)
        self.post_attention_layernorm = RmsNorm(shape.hidden)
        self.mlp = SwiGlu(shape.hidden, shape.dense) if number == 0 else MixtureOfExperts(shape)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.input_layernorm(x))
        y: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return y


class Network(nn.Module):
    """Token ids to logits."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.word_embeddings = nn.Embedding(shape.vocabulary, shape.hidden)
        nn.init.normal_(self.word_embeddings.weight, std=0.1)
        self.layers = nn.ModuleList(Layer(shape, number) for number in range(shape.layers))
        self.norm = RmsNorm(shape.hidden)
        self.lm_head = linear(shape.hidden, shape.vocabulary, 0.3)

    def hidden(self, ids: Tensor) -> Tensor:
        """ids: [B, T], T a multiple of BLOCK. Normed hidden vectors [B, T, hidden]."""
        x = self.word_embeddings(ids)
        for layer in self.layers:
            x = layer(x)
        y: Tensor = self.norm(x)
        return y

    def forward(self, ids: Tensor) -> Tensor:
        """ids: [B, T], any T. Logits [B, T, vocabulary]."""
        length = ids.shape[1]
        y: Tensor = self.lm_head(self.hidden(F.pad(ids, (0, -length % BLOCK)))[:, :length])
        return y

    def loss(self, ids: Tensor, learned: Tensor) -> Tensor:
        """Mean cross entropy of the tokens marked in `learned` [B, T], each predicted from the token before it."""
        wanted = learned[:, 1:]
        return F.cross_entropy(self.lm_head(self.hidden(ids)[:, :-1][wanted]), ids[:, 1:][wanted])

    def routers(self) -> list[Router]:
        """The routers, from the first layer on."""
        return [module for module in self.modules() if isinstance(module, Router)]
