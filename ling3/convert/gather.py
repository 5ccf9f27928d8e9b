"""Where the tensors of a package come from in a checkpoint: joins, splits and turns (M-31, M-35, M-50).

`matrix_parts` and `vector_parts` are the one place that knows both sides; the rest reads what they list.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ling3.convert.checkpoint import Checkpoint, SourceTensor
from ling3.errors import PackageError
from ling3.model.geometry import Geometry
from ling3.model.layout import LinearSpec, VectorSpec, linear_specs, vector_specs

LM_HEAD, EMBEDDINGS = "lm_head.weight", "model.word_embeddings.weight"
_LARGEST = np.float32(3.3895314e38)
"""Largest finite bfloat16: what rounds beyond it is no weight."""


@dataclass(frozen=True, slots=True)
class Part:
    """Rows begin:end of a source tensor of `shape`; `transposed`: its columns become rows."""

    source: str
    shape: tuple[int, ...]
    begin: int
    end: int
    transposed: bool = False

    @property
    def rows(self) -> int:
        return self.shape[1] if self.transposed else self.end - self.begin


def matrix_parts(g: Geometry, spec: LinearSpec, expert: int) -> list[Part]:
    """Parts whose rows, one after the other, are the matrix [n, k] of one expert of a linear."""
    if spec.name == "embedding":
        return [_whole(EMBEDDINGS, spec.n, spec.k)]
    if spec.name == "head":
        return [_whole(LM_HEAD, spec.n, spec.k)]
    layer, role = _split(spec.name)
    attention, mlp = f"{layer}attention.", f"{layer}mlp."
    match role:
        case "kda.in":
            return [_whole(f"{attention}{stream}_proj.weight", g.kda_width, spec.k) for stream in "qkvfg"]
        case "kda.beta":
            return [_whole(f"{attention}b_proj.weight", spec.n, spec.k)]
        case "kda.out":
            return [_whole(f"{attention}o_proj.weight", spec.n, spec.k)]
        case "mla.in":
            query = "q_proj" if g.q_lora_rank is None else "q_a_proj"
            return [
                _whole(f"{attention}{query}.weight", spec.n - g.latent_width, spec.k),
                _whole(f"{attention}kv_a_proj_with_mqa.weight", g.latent_width, spec.k),
            ]
        case "mla.q_up":
            return [_whole(f"{attention}q_b_proj.weight", spec.n, spec.k)]
        case "mla.k_absorb" | "mla.v_absorb":
            head = g.qk_nope_head_dim + g.v_head_dim
            shape = (g.heads * head, g.kv_lora_rank)
            begin, middle, end = expert * head, expert * head + g.qk_nope_head_dim, (expert + 1) * head
            if role == "mla.k_absorb":
                return [Part(f"{attention}kv_b_proj.weight", shape, begin, middle, transposed=True)]
            return [Part(f"{attention}kv_b_proj.weight", shape, middle, end)]
        case "mla.gate":
            return [_whole(f"{attention}g_proj.weight", spec.n, spec.k)]
        case "mla.out":
            return [_whole(f"{attention}dense.weight", spec.n, spec.k)]
        case "moe.router":
            return [_whole(f"{mlp}gate.weight", spec.n, spec.k)]
    owner = {"dense": mlp, "shared": f"{mlp}shared_experts.", "moe": f"{mlp}experts.{expert}."}[role.split(".")[0]]
    if role.endswith(".gate_up"):
        return [_whole(f"{owner}{half}_proj.weight", spec.n // 2, spec.k) for half in ("gate", "up")]
    return [_whole(f"{owner}down_proj.weight", spec.n, spec.k)]


def vector_parts(checkpoint: Checkpoint, spec: VectorSpec) -> list[Part]:
    """Parts that, one after the other, hold the values of a vector in order."""
    if spec.name == "norm":
        return [_whole("model.norm.weight", *spec.shape)]
    layer, role = _split(spec.name)
    attention = f"{layer}attention."
    if role == "kda.conv":
        streams, width, taps = spec.shape
        if f"{attention}conv1d.weight" in checkpoint:
            return [_whole(f"{attention}conv1d.weight", streams * width, 1, taps)]
        return [_whole(f"{attention}{stream}_conv1d.weight", width, 1, taps) for stream in "qkv"]
    source = {
        "norm_mixer": f"{layer}input_layernorm.weight",
        "norm_mlp": f"{layer}post_attention_layernorm.weight",
        "kda.a_log": f"{attention}A_log",
        "kda.dt_bias": f"{attention}dt_bias",
        "kda.o_norm": f"{attention}o_norm.weight",
        "mla.q_norm": f"{attention}q_a_layernorm.weight",
        "mla.kv_norm": f"{attention}kv_a_layernorm.weight",
        "moe.bias": f"{layer}mlp.gate.expert_bias",
    }[role]
    return [_whole(source, *spec.shape)]


def read_rows(checkpoint: Checkpoint, parts: Sequence[Part], begin: int, end: int) -> NDArray[np.float32]:
    """Rows begin:end of joined parts, float32. PackageError naming the tensor if a value is not finite."""
    pieces, start = [], 0
    for part in parts:
        first, last = max(begin - start, 0), min(end - start, part.rows)
        start += part.rows
        if first < last:
            pieces.append(_read_part(checkpoint, part, first, last))
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def source_bytes(checkpoint: Checkpoint, parts: Sequence[Part]) -> int:
    """Bytes of the checkpoint behind these parts."""
    total = 0
    for part in parts:
        stored = sum(tensor.nbytes for tensor in checkpoint.tensor(part.source, part.shape).stored)
        total += stored * (part.end - part.begin) // part.shape[0]
    return total


def check_complete(checkpoint: Checkpoint, g: Geometry) -> None:
    """Every tensor of the network is there with its shape, and none beside: an unknown weight means another network."""
    needed = [part for spec in linear_specs(g) for e in range(spec.experts) for part in matrix_parts(g, spec, e)]
    needed += [part for spec in vector_specs(g) for part in vector_parts(checkpoint, spec)]
    used: set[str] = set()
    for part in needed:
        used.update(tensor.name for tensor in checkpoint.tensor(part.source, part.shape).stored)
    if g.tied_head and LM_HEAD in checkpoint:
        used.update(tensor.name for tensor in _check_tied(checkpoint, g).stored)
    unknown = sorted(checkpoint.names - used)
    if unknown:
        raise PackageError(
            f"{checkpoint.folder}: tensor {unknown[0]} is not part of this network"
            + (f" (nor are {len(unknown) - 1} others)" if len(unknown) > 1 else "")
        )


def _check_tied(checkpoint: Checkpoint, g: Geometry) -> SourceTensor:
    """The head of a checkpoint that says it has none; it must repeat the embedding."""
    shape = (g.vocab_size, g.hidden_size)
    head, embedding = (checkpoint.tensor(name, shape) for name in (LM_HEAD, EMBEDDINGS))
    for begin, end in _slices(g.vocab_size, 1024):
        if not np.array_equal(head.rows(begin, end), embedding.rows(begin, end)):
            raise PackageError(
                f"{checkpoint.folder}: tensor {LM_HEAD} differs from the embedding, though config field "
                "tie_word_embeddings is true"
            )
    return head


def _slices(rows: int, step: int) -> Iterator[tuple[int, int]]:
    for begin in range(0, rows, step):
        yield begin, min(begin + step, rows)


def _read_part(checkpoint: Checkpoint, part: Part, first: int, last: int) -> NDArray[np.float32]:
    tensor = checkpoint.tensor(part.source, part.shape)
    if part.transposed:
        values = np.ascontiguousarray(tensor.rows(part.begin, part.end).T[first:last])
    else:
        values = tensor.rows(part.begin + first, part.begin + last)
    if values.size and not (-_LARGEST <= values.min() and values.max() <= _LARGEST):
        raise PackageError(f"{tensor.weight.path}: tensor {tensor.weight.name} holds a weight that is not finite")
    return values


def _split(name: str) -> tuple[str, str]:
    """`layers.3.kda.in` -> (`model.layers.3.`, `kda.in`)."""
    _, layer, role = name.split(".", 2)
    return f"model.layers.{layer}.", role


def _whole(source: str, *shape: int) -> Part:
    return Part(source, shape, 0, shape[0])
