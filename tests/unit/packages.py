"""The default fixture: tiny packages with random weights and a byte-level tokenizer, made on the spot.

The network has every kind of layer (three KDA, one MLA; one dense, three with experts in groups), so a
decoder over it runs all code; its texts encode and render any chat, so an engine over it answers, in gibberish.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from text_fixtures import CONTROL, WORDS
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from ling3.convert.encode import Chunk, write_linear
from ling3.convert.recipe import Weights, make_recipe
from ling3.convert.writer import Described, PackageWriter
from ling3.model.geometry import Geometry
from ling3.model.layout import (
    CHAT_TEMPLATE,
    FORMAT,
    GENERATION,
    TOKENIZER,
    LinearSpec,
    VectorSpec,
    linear_specs,
    vector_specs,
)
from ling3.text import builtin_chat_template

VOCABULARY = 272
"""256 bytes, the control tokens, and a few padding rows (M-62)."""
EOS = 256 + list(CONTROL).index("<|role_end|>")

CONFIG: dict[str, Any] = {
    "architectures": ["BailingMoeV3ForCausalLM"], "model_type": "bailing_hybrid",
    "vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 4, "layer_group_size": 4,
    "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16, "short_conv_kernel_size": 4,
    "kda_lower_bound": -5.0,
    "q_lora_rank": 16, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
    "first_k_dense_replace": 1, "intermediate_size": 96,
    "num_experts": 8, "num_experts_per_tok": 2, "n_group": 4, "topk_group": 2,
    "moe_intermediate_size": 32, "num_shared_experts": 1, "eos_token_id": EOS,
}  # fmt: skip


def tiny_package(out: Path, weights: Weights = "f32", seed: int = 0, **changes: Any) -> Path:
    """Write a package with random weights to `out`. `changes` replace fields of `CONFIG`."""
    random = np.random.default_rng(seed)
    config = {**CONFIG, **changes}
    return write_package(out, config, weights, partial(_random_vector, random), partial(_random_linear, random))


def write_package(
    out: Path,
    config: dict[str, Any],
    weights: Weights,
    vector_values: Callable[[VectorSpec], NDArray[np.float32]],
    linear_values: Callable[[LinearSpec], NDArray[np.float32]],
) -> Path:
    """Write a package to `out`: first every vector is asked for, then every linear, [experts, n, k]."""
    g = Geometry.from_config(config)
    recipe = make_recipe(g, weights)
    texts = {
        TOKENIZER: byte_tokenizer_json(),
        CHAT_TEMPLATE: builtin_chat_template().encode(),
        GENERATION: orjson.dumps({"eos_token_id": EOS}),
    }
    metadata = {
        "format": FORMAT,
        "config": orjson.dumps(config).decode(),
        "recipe": orjson.dumps(recipe.as_json()).decode(),
        "source": "{}",
    }
    expected: list[Described] = [(name, "U8", (len(data),)) for name, data in texts.items()]
    expected += [(spec.name, "F32", spec.shape) for spec in vector_specs(g)]
    for linear in linear_specs(g):
        stored = linear.stored(recipe.families[linear.family], tiles=1)
        expected += [(f"{linear.name}.{suffix}", *described) for suffix, described in stored.items()]
    with PackageWriter(out, metadata, expected) as writer, ThreadPoolExecutor(1) as pool:
        for name, data in texts.items():
            writer.add(name, "U8", (len(data),), np.frombuffer(data, np.uint8))
        for vector in vector_specs(g):
            writer.add(vector.name, "F32", vector.shape, vector_values(vector))
        for linear in linear_specs(g):
            values = linear_values(linear)

            def rows(chunk: Chunk, values: NDArray[np.float32] = values) -> NDArray[np.float32]:
                return values[chunk.expert, chunk.begin : chunk.end]

            write_linear(writer, linear, recipe.families[linear.family], None, rows, pool, lambda share: None)
        writer.seal()
        writer.publish()
    return out


@cache
def byte_tokenizer_json() -> bytes:
    """A tokenizer without merges: one token a byte, in the order of the byte-level alphabet, then `CONTROL`."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: index for index, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(text, special=special, normalized=False) for text, special in CONTROL.items()])
    return str(tokenizer.to_str()).encode()


def _random_linear(random: np.random.Generator, spec: LinearSpec) -> NDArray[np.float32]:
    """[experts, n, k], scaled so that an output is about as large as an input."""
    scale = 1.0 if spec.name == "embedding" else 1.5 / spec.k**0.5
    return random.standard_normal((spec.experts, spec.n, spec.k), np.float32) * np.float32(scale)


def _random_vector(random: np.random.Generator, spec: VectorSpec) -> NDArray[np.float32]:
    """Values away from the neutral ones that would hide a missing rule."""
    normal = random.standard_normal(spec.shape, np.float32)
    match spec.name.rsplit(".", 1)[-1]:
        case "a_log":
            return np.float32(0.4) * normal
        case "dt_bias":
            return normal - np.float32(1.0)
        case "bias":
            return np.float32(0.2) * normal
        case "conv":
            return np.float32(0.5) * normal
        case _:
            return np.float32(1.0) + np.float32(0.3) * normal
