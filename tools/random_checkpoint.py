"""Writes a random checkpoint in the public layout: a tiny one, or one of the full geometry (M-1, M-50...M-53).

    python tools/random_checkpoint.py OUT [--full] [--form bf16|fp16|fp32|fp8|int4] [--shard-mb 1000] [--seed 0]

The weights are normal with a spread of 1 / sqrt(inputs), and norms, decays and router biases lie away from their
neutral values, so that every rule of the network shows in its output. The full BF16 folder takes 15.8 GB of disk;
memory stays small. The tokenizer is a stand-in: single bytes, the special tokens, and fillers up to their public ids.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray

Array = NDArray[Any]
Described = tuple[str, str, tuple[int, ...]]
"""Name, safetensors dtype, shape."""

FULL: dict[str, Any] = {
    "architectures": ["BailingMoeV3ForCausalLM"],
    "model_type": "bailing_hybrid",
    "dtype": "bfloat16",
    "vocab_size": 157184,
    "hidden_size": 1536,
    "num_hidden_layers": 24,
    "layer_group_size": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "head_dim": 128,
    "num_kv_heads_for_linear_attn": 0,
    "short_conv_kernel_size": 4,
    "kda_safe_gate": True,
    "kda_lower_bound": -5.0,
    "no_kda_lora": True,
    "use_kda_lora": False,
    "linear_silu": True,
    "group_norm_size": 1,
    "q_lora_rank": 256,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "qk_head_dim": 192,
    "v_head_dim": 128,
    "rope_theta": 6000000,
    "rope_interleave": True,
    "rope_scaling": None,
    "partial_rotary_factor": 0.5,
    "rotary_dim": 64,
    "max_position_embeddings": 131072,
    "gated_attention_proj_granularity_type": "head_wise",
    "rms_norm_eps": 1e-6,
    "first_k_dense_replace": 1,
    "intermediate_size": 4608,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "n_group": 8,
    "topk_group": 4,
    "moe_intermediate_size": 512,
    "num_shared_experts": 1,
    "moe_shared_expert_intermediate_size": 512,
    "score_function": "sigmoid",
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "moe_router_enable_expert_bias": True,
    "router_dtype": "fp32",
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "expert_swiglu_limit_list": None,
    "share_expert_swiglu_limit_list": None,
    "tie_word_embeddings": False,
    "num_nextn_predict_layers": 0,
    "mtp_use_kda": False,
    "mtp_loss_scaling_factor": 0,
    "use_bias": False,
    "use_qkv_bias": False,
    "value_norm": False,
    "up_proj_norm": False,
    "use_nGPT": False,
    "scale_router_input": False,
    "use_mla_nope": False,
    "use_qk_norm": True,
    "hidden_act": "silu",
    "eos_token_id": 156895,
    "pad_token_id": 156892,
    "initializer_range": 0.02,
    "max_window_layers": 20,
    "seq_aux": True,
    "output_router_logits": False,
    "use_cache": True,
}
"""The public `config.json` of the tiny model (M-1)."""

TINY: dict[str, Any] = FULL | {
    "vocab_size": 288,
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "q_lora_rank": 32,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "qk_head_dim": 48,
    "v_head_dim": 32,
    "max_position_embeddings": 4096,
    "intermediate_size": 96,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "n_group": 4,
    "topk_group": 2,
    "moe_intermediate_size": 32,
    "moe_shared_expert_intermediate_size": 32,
    "eos_token_id": 260,
    "pad_token_id": 257,
}
"""A model of a few hundred kilobytes with every kind of layer."""

SPECIAL = (
    "<|startoftext|>", "<|endoftext|>", "<role>", "</role>", "<|role_end|>", "<tool_call>", "</tool_call>",
    "<tool_response>", "</tool_response>", "<arg_key>", "</arg_key>", "<arg_value>", "<think>", "</think>",
    "</arg_value>",
)  # fmt: skip
"""Special tokens, in an order that puts those of M-62 on their public ids; the first is 156891 there."""

_DTYPE = {"bf16": "BF16", "fp16": "F16", "fp32": "F32", "fp8": "BF16", "int4": "BF16"}
_BITS: dict[str, type[np.generic]] = {
    "BF16": np.uint16, "F16": np.float16, "F32": np.float32, "F8_E4M3": np.uint8, "F8_E8M0": np.uint8,
    "I32": np.int32, "I64": np.int64, "U8": np.uint8,
}  # fmt: skip
_SLICE = 1 << 23
"""Values made in one piece."""


def tensor_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of the public BF16 layout (M-50)."""
    c = config
    h, heads = c["hidden_size"], c["num_attention_heads"]
    width = heads * c["head_dim"]
    shapes: dict[str, tuple[int, ...]] = {"model.word_embeddings.weight": (c["vocab_size"], h)}
    for i in range(c["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        shapes[f"{layer}input_layernorm.weight"] = (h,)
        shapes |= {f"{layer}attention.{name}": s for name, s in _mixer(c, i, h, heads, width).items()}
        shapes[f"{layer}post_attention_layernorm.weight"] = (h,)
        shapes |= {f"{layer}mlp.{name}": s for name, s in _mlp(c, i, h).items()}
    shapes["model.norm.weight"] = (h,)
    if not c["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (c["vocab_size"], h)
    return shapes


def _mixer(c: Mapping[str, Any], i: int, h: int, heads: int, width: int) -> dict[str, tuple[int, ...]]:
    group = c["layer_group_size"]
    if (i + 1) % group and i < c["num_hidden_layers"] // group * group:
        taps = c["short_conv_kernel_size"]
        shapes: dict[str, tuple[int, ...]] = {f"{s}_proj.weight": (width, h) for s in "qkvfg"}
        shapes |= {f"{s}_conv1d.weight": (width, 1, taps) for s in "qkv"}
        shapes |= {"b_proj.weight": (heads, h), "A_log": (heads,), "dt_bias": (width,)}
        return shapes | {"o_norm.weight": (c["head_dim"],), "o_proj.weight": (h, width)}
    nope, rope, v = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
    latent, rank = c["kv_lora_rank"], c["q_lora_rank"]
    if rank is None:
        shapes = {"q_proj.weight": (heads * (nope + rope), h)}
    else:
        shapes = {"q_a_proj.weight": (rank, h), "q_a_layernorm.weight": (rank,)}
        shapes["q_b_proj.weight"] = (heads * (nope + rope), rank)
    shapes |= {"kv_a_proj_with_mqa.weight": (latent + rope, h), "kv_a_layernorm.weight": (latent,)}
    shapes |= {"kv_b_proj.weight": (heads * (nope + v), latent), "g_proj.weight": (heads, h)}
    return shapes | {"dense.weight": (h, heads * v)}


def _mlp(c: Mapping[str, Any], i: int, h: int) -> dict[str, tuple[int, ...]]:
    if i < c["first_k_dense_replace"]:
        return _swiglu("", c["intermediate_size"], h)
    shapes: dict[str, tuple[int, ...]] = {"gate.weight": (c["num_experts"], h), "gate.expert_bias": (c["num_experts"],)}
    for expert in range(c["num_experts"]):
        shapes |= _swiglu(f"experts.{expert}.", c["moe_intermediate_size"], h)
    shared = c["num_shared_experts"] * c["moe_shared_expert_intermediate_size"]
    return shapes | (_swiglu("shared_experts.", shared, h) if shared else {})


def _swiglu(prefix: str, width: int, h: int) -> dict[str, tuple[int, ...]]:
    ends = {"gate": (width, h), "up": (width, h), "down": (h, width)}
    return {f"{prefix}{end}_proj.weight": shape for end, shape in ends.items()}


def stored_tensors(name: str, shape: tuple[int, ...], form: str) -> list[Described]:
    """How one tensor of the network lies in a file of a form."""
    if name.endswith(("A_log", "dt_bias", "expert_bias")):
        return [(name, "F32", shape)]
    if form == "int4" and ".mlp.experts." in name:
        out, width = shape
        return [
            (f"{name}_packed", "I32", (out, width // 8)),
            (f"{name}_scale", "BF16", (out, width // 32)),
            (f"{name}_shape", "I64", (2,)),
        ]
    if form == "fp8" and _in_fp8(name, shape):
        return [(name, "F8_E4M3", shape), (f"{name}_scale_inv", "F8_E8M0", tuple(-(-n // 128) for n in shape))]
    return [(name, _DTYPE[form], shape)]


def _in_fp8(name: str, shape: tuple[int, ...]) -> bool:
    """Whether the public FP8 form quantises a matrix (M-53)."""
    kept = ("b_proj", "q_a_proj", "q_b_proj", "q_proj", "kv_a_proj_with_mqa", "kv_b_proj", "g_proj")
    kda = name.rsplit(".attention.", 1)[-1] in {f"{s}_proj.weight" for s in "qkvfgo"} and shape[0] % 128 == 0
    if ".attention." in name:
        return len(shape) == 2 and (kda or not any(f".{k}." in name for k in kept))
    return len(shape) == 2 and ".mlp." in name and not name.endswith("mlp.gate.weight")


class Values:
    """Makes the contents of tensors, always the same for one seed."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def slices(self, name: str, dtype: str, shape: tuple[int, ...]) -> Iterator[Array]:
        """The values of a tensor in slices of bits, in order."""
        if name.endswith("_shape"):
            raise ValueError(f"{name} is not random")
        left = math.prod(shape)
        while left:
            count = min(left, _SLICE)
            left -= count
            yield self._bits(name, dtype, shape, count)

    def _bits(self, name: str, dtype: str, shape: tuple[int, ...], count: int) -> Array:
        if dtype == "I32":
            return self._rng.integers(-(1 << 31), 1 << 31, count, np.int32)
        if dtype == "F8_E4M3":  # magnitudes 2**-4 .. 2 with any fraction; no NaN
            return self._rng.integers(3, 8, count, np.uint8) << 3 | self._rng.integers(0, 256, count, np.uint8) & 0x87
        spread = 1.0 / math.sqrt(shape[-1])
        if dtype == "F8_E8M0":
            blocks = 127 - 3 - self._rng.integers(0, 3, count, np.uint8)
            return np.asarray(blocks, np.uint8)
        mean = 0.0
        if name.endswith("_scale"):
            mean, spread = 0.02, 0.002
        elif name.endswith(("norm.weight", "layernorm.weight")):
            mean, spread = 1.0, 0.2
        elif name.endswith(("A_log", "dt_bias")):
            spread = 0.5
        elif name.endswith("expert_bias"):
            spread = 0.05
        picks: Array = _normal_table(dtype, mean, spread)[self._rng.integers(0, 65536, count, np.uint16)]
        return picks


@cache
def _quantiles() -> NDArray[np.float64]:
    """The standard normal distribution in 65536 equal parts."""
    quantile = NormalDist().inv_cdf
    return np.array([quantile((i + 0.5) / 65536) for i in range(65536)])


@lru_cache(maxsize=64)
def _normal_table(dtype: str, mean: float, spread: float) -> Array:
    """A normal distribution as 65536 equally likely values of a type: drawing becomes a look-up of random 16 bits."""
    values = (_quantiles() * spread + mean).astype(np.float32)
    if dtype != "BF16":
        return values.astype(_BITS[dtype])
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def write_safetensors(path: Path, tensors: list[Described], contents: Callable[[Described], Iterator[Array]]) -> int:
    """Write one file, tensor by tensor, and push it out of the page cache; its bytes of data."""
    header: dict[str, Any] = {}
    end = 0
    for name, dtype, shape in tensors:
        begin, end = end, end + nbytes((name, dtype, shape))
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors:
            for part in contents(tensor):
                file.write(part.data)
        file.flush()
        os.fdatasync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return end


def nbytes(tensor: Described) -> int:
    _, dtype, shape = tensor
    return math.prod(shape) * np.dtype(_BITS[dtype]).itemsize


def write_checkpoint(
    folder: Path, config: Mapping[str, Any] = TINY, form: str = "bf16", shard_bytes: int = 1 << 60, seed: int = 0
) -> None:
    """Write a whole folder: config, shards (with an index if there are several), tokenizer, generation settings."""
    folder.mkdir(parents=True, exist_ok=True)
    shapes = tensor_shapes(config)
    shards: list[list[Described]] = [[]]
    filled = 0
    for name, shape in shapes.items():
        for tensor in stored_tensors(name, shape, form):
            if filled and filled + nbytes(tensor) > shard_bytes:
                shards.append([])
                filled = 0
            shards[-1].append(tensor)
            filled += nbytes(tensor)
    values = Values(seed)

    def contents(tensor: Described) -> Iterator[Array]:
        name, dtype, shape = tensor
        if name.endswith("weight_shape"):
            return iter([np.array(shapes[name.removesuffix("_shape")], np.int64)])
        return values.slices(name, dtype, shape)

    places: dict[str, str] = {}
    total = 0
    for number, tensors in enumerate(shards, 1):
        single = len(shards) == 1
        file = "model.safetensors" if single else f"model-{number:05}-of-{len(shards):05}.safetensors"
        total += write_safetensors(folder / file, tensors, contents)
        places |= {name: file for name, _, _ in tensors}
    if len(shards) > 1:
        index = {"metadata": {"total_size": total}, "weight_map": places}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    generation = {"eos_token_id": config["eos_token_id"], "temperature": 1.0, "top_p": 0.95, "top_k": 20}
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2))
    (folder / "tokenizer.json").write_bytes(stand_in_tokenizer(config["eos_token_id"] - SPECIAL.index("<|role_end|>")))


def stand_in_tokenizer(first_special: int) -> bytes:
    """A `tokenizer.json`: 256 bytes, fillers that no text meets, and from the id `first_special` on the specials."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocab = {letter: i for i, letter in enumerate(alphabet)}
    vocab |= {f"unused{i}": i for i in range(len(alphabet), first_special)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens([tokenizers.AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    return tokenizer.to_str().encode()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--full", action="store_true", help="the public geometry instead of a tiny one")
    parser.add_argument("--form", choices=tuple(_DTYPE), default="bf16")
    parser.add_argument("--shard-mb", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    config = FULL if options.full else TINY
    write_checkpoint(options.out, config, options.form, options.shard_mb * 10**6, options.seed)


if __name__ == "__main__":
    main()
