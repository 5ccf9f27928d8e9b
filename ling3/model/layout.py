"""Which tensors a package holds, by geometry: the one list that convert writes and the decoder reads.

A linear's stored names carry its format, so the package needs no table beside them:

    NAME.w4 + .scale + .corr + .cert    u8 [E, N/64, K/32, 64, 16], f32 [E, T, N], i32 [E, T, N], i32 [E, T, 2]
    NAME.w8 + .scale                    i8 [E, N/32, K/32, 32, 32], f32 [E, T, N]
    NAME.bf16 / NAME.f32                [E, n, k]

E is the number of experts (1 for a plain linear), N and K are n and k padded to whole tiles. Matrices that
read the same input are joined along n, in the order their name or comment tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ling3.linear.formats import K_BLOCK, N_BLOCK, Format, round_up
from ling3.model.geometry import Geometry

FORMAT = "l3r/1"
TOKENIZER, CHAT_TEMPLATE, GENERATION = "tokenizer.json", "chat_template.jinja", "generation_config.json"

FAMILY_FORMATS: dict[str, tuple[Format, ...]] = {
    "embedding": ("w8", "bf16", "f32"),
    "head": ("w4", "w8", "bf16", "f32"),
    "attention": ("w4", "w8", "bf16", "f32"),
    "kv_b": ("bf16", "f32"),
    "gate": ("bf16", "f32"),
    "router": ("bf16", "f32"),
    "dense": ("w4", "w8", "bf16", "f32"),
    "shared": ("w4", "w8", "bf16", "f32"),
    "experts": ("w4", "w8", "bf16", "f32"),
}
"""The tensor families of a recipe and the formats each may have. Router and the scalar gates decide, they do not
carry: rounding them saves nothing and changes the chosen experts (M-41). kv_b is used transposed in
the absorbed form (M-35), where a scale per output would sit on the wrong axis."""


@dataclass(frozen=True, slots=True)
class LinearSpec:
    """One stored linear: y[n] = sum over k of w[n, k] x[k], `experts` times."""

    name: str
    family: str
    n: int
    k: int
    experts: int = 1

    def stored(self, fmt: Format, tiles: int) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Stored tensors of this linear in a format: suffix -> (dtype, shape)."""
        if fmt in ("bf16", "f32"):
            return {fmt: (fmt.upper(), (self.experts, self.n, self.k))}
        block = N_BLOCK[fmt]
        n, k = round_up(self.n, block), round_up(self.k, K_BLOCK)
        packed = (self.experts, n // block, k // K_BLOCK, block, K_BLOCK // 2 if fmt == "w4" else K_BLOCK)
        result = {fmt: ("U8" if fmt == "w4" else "I8", packed), "scale": ("F32", (self.experts, tiles, n))}
        if fmt == "w4":
            result["corr"] = ("I32", (self.experts, tiles, n))
            result["cert"] = ("I32", (self.experts, tiles, 2))
        return result


@dataclass(frozen=True, slots=True)
class VectorSpec:
    """One stored float32 tensor that is not a linear."""

    name: str
    shape: tuple[int, ...]


def linear_specs(g: Geometry) -> Iterator[LinearSpec]:
    """Every linear of a model, in the order of evaluation."""
    h = g.hidden_size
    yield LinearSpec("embedding", "embedding", g.vocab_size, h)
    for i, mixer in enumerate(g.mixers):
        p = f"layers.{i}."
        if mixer == "kda":
            yield LinearSpec(p + "kda.in", "attention", 5 * g.kda_width, h)  # q, k, v, f, g
            yield LinearSpec(p + "kda.beta", "gate", g.heads, h)
            yield LinearSpec(p + "kda.out", "attention", h, g.kda_width)
        else:
            q_width = g.heads * g.qk_head_dim
            # query (its low-rank half where there is one), latent, rotary key
            yield LinearSpec(p + "mla.in", "attention", (g.q_lora_rank or q_width) + g.latent_width, h)
            if g.q_lora_rank is not None:
                yield LinearSpec(p + "mla.q_up", "attention", q_width, g.q_lora_rank)
            # kv_b cut per head: latent -> key transposed, and latent -> value
            yield LinearSpec(p + "mla.k_absorb", "kv_b", g.kv_lora_rank, g.qk_nope_head_dim, g.heads)
            yield LinearSpec(p + "mla.v_absorb", "kv_b", g.v_head_dim, g.kv_lora_rank, g.heads)
            yield LinearSpec(p + "mla.gate", "gate", g.heads, h)
            yield LinearSpec(p + "mla.out", "attention", h, g.heads * g.v_head_dim)
        if g.is_dense(i):
            yield LinearSpec(p + "dense.gate_up", "dense", 2 * g.dense_width, h)
            yield LinearSpec(p + "dense.down", "dense", h, g.dense_width)
        else:
            yield LinearSpec(p + "moe.router", "router", g.experts, h)
            yield LinearSpec(p + "moe.gate_up", "experts", 2 * g.expert_width, h, g.experts)
            yield LinearSpec(p + "moe.down", "experts", h, g.expert_width, g.experts)
            if g.shared_width:
                yield LinearSpec(p + "shared.gate_up", "shared", 2 * g.shared_width, h)
                yield LinearSpec(p + "shared.down", "shared", h, g.shared_width)
    if not g.tied_head:
        yield LinearSpec("head", "head", g.vocab_size, h)


def vector_specs(g: Geometry) -> Iterator[VectorSpec]:
    """Every stored tensor that is not a linear: norms, convolutions, decays, router bias."""
    for i, mixer in enumerate(g.mixers):
        p = f"layers.{i}."
        yield VectorSpec(p + "norm_mixer", (g.hidden_size,))
        if mixer == "kda":
            yield VectorSpec(p + "kda.conv", (3, g.kda_width, g.conv_taps))  # q, k, v; last tap = current token
            yield VectorSpec(p + "kda.a_log", (g.heads,))
            yield VectorSpec(p + "kda.dt_bias", (g.kda_width,))
            yield VectorSpec(p + "kda.o_norm", (g.kda_head_dim,))
        else:
            if g.q_lora_rank is not None:
                yield VectorSpec(p + "mla.q_norm", (g.q_lora_rank,))
            yield VectorSpec(p + "mla.kv_norm", (g.kv_lora_rank,))
        yield VectorSpec(p + "norm_mlp", (g.hidden_size,))
        if not g.is_dense(i):
            yield VectorSpec(p + "moe.bias", (g.experts,))
    yield VectorSpec("norm", (g.hidden_size,))
