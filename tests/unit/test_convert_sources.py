"""Every form of checkpoint becomes the same network: values of `f32` packages against those of the source."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import Tensors, change, checkpoint, edit_json, package, read_tensors, values
from numpy.typing import NDArray

from ling3.convert.encodings import decode_fp8, decode_int4
from ling3.model.package import Package

Values = dict[str, NDArray[np.float32]]


def linear(p: Package, name: str) -> NDArray[np.float32]:
    """A stored f32 linear: [E, n, k], or [n, k] if it has no experts."""
    array: NDArray[np.float32] = p.file.array(f"{name}.f32")
    return array[0] if array.shape[0] == 1 else array


def assert_same_network(p: Package, v: Values) -> None:
    """Everything in the package against the source tensors, joined as the layout says."""
    g = p.geometry
    for i, mixer in enumerate(g.mixers):
        to, a, m = f"layers.{i}.", f"model.layers.{i}.attention.", f"model.layers.{i}.mlp."
        assert np.array_equal(p.vector(to + "norm_mixer"), v[f"model.layers.{i}.input_layernorm.weight"])
        assert np.array_equal(p.vector(to + "norm_mlp"), v[f"model.layers.{i}.post_attention_layernorm.weight"])
        if mixer == "kda":
            joined = [v[f"{a}{s}_proj.weight"] for s in "qkvfg"]
            assert np.array_equal(linear(p, to + "kda.in"), np.concatenate(joined))
            assert np.array_equal(linear(p, to + "kda.beta"), v[a + "b_proj.weight"])
            assert np.array_equal(linear(p, to + "kda.out"), v[a + "o_proj.weight"])
            taps = [v[f"{a}{s}_conv1d.weight"][:, 0] for s in "qkv"]
            assert np.array_equal(p.vector(to + "kda.conv"), np.stack(taps))
            assert np.array_equal(p.vector(to + "kda.a_log"), v[a + "A_log"])
            assert np.array_equal(p.vector(to + "kda.dt_bias"), v[a + "dt_bias"])
            assert np.array_equal(p.vector(to + "kda.o_norm"), v[a + "o_norm.weight"])
        else:
            query = v[a + ("q_proj.weight" if g.q_lora_rank is None else "q_a_proj.weight")]
            latent = v[a + "kv_a_proj_with_mqa.weight"]
            assert np.array_equal(linear(p, to + "mla.in"), np.concatenate([query, latent]))
            if g.q_lora_rank is not None:
                assert np.array_equal(linear(p, to + "mla.q_up"), v[a + "q_b_proj.weight"])
                assert np.array_equal(p.vector(to + "mla.q_norm"), v[a + "q_a_layernorm.weight"])
            heads = v[a + "kv_b_proj.weight"].reshape(g.heads, g.qk_nope_head_dim + g.v_head_dim, g.kv_lora_rank)
            assert np.array_equal(linear(p, to + "mla.k_absorb"), heads[:, : g.qk_nope_head_dim].transpose(0, 2, 1))
            assert np.array_equal(linear(p, to + "mla.v_absorb"), heads[:, g.qk_nope_head_dim :])
            assert np.array_equal(p.vector(to + "mla.kv_norm"), v[a + "kv_a_layernorm.weight"])
            assert np.array_equal(linear(p, to + "mla.gate"), v[a + "g_proj.weight"])
            assert np.array_equal(linear(p, to + "mla.out"), v[a + "dense.weight"])
        if g.is_dense(i):
            assert_swiglu(linear(p, to + "dense.gate_up"), linear(p, to + "dense.down"), v, m)
            continue
        assert np.array_equal(linear(p, to + "moe.router"), v[m + "gate.weight"])
        assert np.array_equal(p.vector(to + "moe.bias"), v[m + "gate.expert_bias"])
        for e in range(g.experts):
            one = linear(p, to + "moe.gate_up")[e], linear(p, to + "moe.down")[e]
            assert_swiglu(*one, v, f"{m}experts.{e}.")
        if g.shared_width:
            assert_swiglu(linear(p, to + "shared.gate_up"), linear(p, to + "shared.down"), v, m + "shared_experts.")
    assert np.array_equal(p.vector("norm"), v["model.norm.weight"])
    assert np.array_equal(linear(p, "embedding"), v["model.word_embeddings.weight"])
    if not g.tied_head:
        assert np.array_equal(linear(p, "head"), v["lm_head.weight"])


def assert_swiglu(gate_up: NDArray[np.float32], down: NDArray[np.float32], v: Values, source: str) -> None:
    joined = [v[f"{source}gate_proj.weight"], v[f"{source}up_proj.weight"]]
    assert np.array_equal(gate_up, np.concatenate(joined))
    assert np.array_equal(down, v[f"{source}down_proj.weight"])


@pytest.mark.parametrize("form", ["bf16", "fp16", "fp32", "fp8", "int4"])
def test_every_form_keeps_every_value(tmp_path: Path, form: str) -> None:
    source = checkpoint(tmp_path / form, form)
    p = package(source, weights="f32")
    assert p.source["kind"] == form
    assert_same_network(p, values(source))


@pytest.mark.parametrize(
    "changes",
    [
        {"q_lora_rank": None},
        {"tie_word_embeddings": True},
        {"num_shared_experts": 2},
        {"num_shared_experts": 0},
        {"first_k_dense_replace": 3},
        {"first_k_dense_replace": 4},
        {"num_hidden_layers": 6},
        {"layer_group_size": 1, "num_hidden_layers": 1},
        {"short_conv_kernel_size": 2},
        {"head_dim": 48, "v_head_dim": 16, "qk_nope_head_dim": 24},
    ],
    ids=str,
)
def test_every_shape_of_network_keeps_every_value(tmp_path: Path, changes: dict[str, Any]) -> None:
    source = checkpoint(tmp_path / "source", **changes)
    assert_same_network(package(source, weights="f32"), values(source))


def test_shards_are_read_by_their_index(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "source", shard_bytes=100_000)
    assert len(list(source.glob("model-*.safetensors"))) > 3
    assert_same_network(package(source, weights="f32"), values(source))


# Other spellings (M-51)

SPELLINGS: dict[str, Callable[[str], str]] = {
    "embed_tokens": lambda name: name.replace("word_embeddings", "embed_tokens"),
    "self_attn": lambda name: name.replace(".attention.", ".self_attn."),
    "correction bias": lambda name: name.replace("gate.expert_bias", "gate.e_score_correction_bias"),
    "dense in every layer": lambda name: name.replace("attention.o_proj", "attention.dense"),
    "o_proj in every layer": lambda name: name.replace("attention.dense", "attention.o_proj"),
    "forget gate": lambda name: re.sub(r"attention\.(A_log|dt_bias|f_proj)", r"self_attn.forget_gate.\1", name),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_other_names_mean_the_same_tensors(tmp_path: Path, spelling: str) -> None:
    source = checkpoint(tmp_path / "source")
    expected = values(source)

    def rename(tensors: Tensors) -> None:
        for name in list(tensors):
            tensors[SPELLINGS[spelling](name)] = tensors.pop(name)

    assert set(read_tensors(change(source, rename))) != set(expected)
    assert_same_network(package(source, weights="f32"), expected)


@pytest.mark.parametrize("fused", ["conv1d", "qkv_conv1d"])
def test_joined_convolutions_are_taken_apart(tmp_path: Path, fused: str) -> None:
    source = checkpoint(tmp_path / "source")
    expected = values(source)

    def join(tensors: Tensors) -> None:
        for name in [name for name in tensors if name.endswith("q_conv1d.weight")]:
            parts = [tensors.pop(name.replace("q_conv1d", f"{s}_conv1d"))[1] for s in "qkv"]
            tensors[name.replace("q_conv1d", fused)] = ("BF16", np.concatenate(parts))

    assert_same_network(package(change(source, join), weights="f32"), expected)


def test_rotary_buffers_are_ignored(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "source")
    expected = values(source)

    def add(tensors: Tensors) -> None:
        tensors["model.layers.3.attention.rotary_emb.inv_freq"] = ("F32", np.ones(8, np.float32))

    assert_same_network(package(change(source, add), weights="f32"), expected)


def test_a_tied_head_may_repeat_the_embedding(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "source")
    expected = values(source)

    def repeat(tensors: Tensors) -> None:
        tensors["lm_head.weight"] = tensors["model.word_embeddings.weight"]

    edit_json(change(source, repeat) / "config.json", tie_word_embeddings=True)
    p = package(source, weights="f32")
    assert "head.f32" not in p.file.tensors
    assert_same_network(p, expected)


def test_parameters_may_be_of_any_float_type_each(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "source")
    expected = values(source)

    def widen(tensors: Tensors) -> None:
        for name in list(tensors)[::2]:
            tensors[name] = ("F32", expected[name])

    assert_same_network(package(change(source, widen), weights="f32"), expected)


# Encodings, value by value


@pytest.mark.parametrize(
    ("code", "value"),
    [(0x00, 0.0), (0x01, 2**-9), (0x08, 2**-6), (0x38, 1.0), (0x3F, 1.875), (0x7E, 448.0), (0xC0, -2.0)],
)
def test_fp8_codes(code: int, value: float) -> None:
    assert decode_fp8(np.array([[code]], np.uint8), np.array([[127]], np.uint8), 0).tolist() == [[value]]


def test_fp8_scales_are_powers_of_two_for_blocks_of_128() -> None:
    ones = np.full((130, 129), 0x38, np.uint8)
    scale = np.array([[127, 128], [126, 125]], np.uint8)
    decoded = decode_fp8(ones, scale, 0)
    assert [decoded[0, 0], decoded[0, 128], decoded[128, 127], decoded[129, 128]] == [1.0, 2.0, 0.5, 0.25]


def test_fp8_rows_from_the_middle_take_their_own_scales() -> None:
    ones = np.full((200, 8), 0x38, np.uint8)
    scale = np.array([[127], [130]], np.uint8)
    assert np.array_equal(decode_fp8(ones[100:], scale, 100), decode_fp8(ones, scale, 0)[100:])


def test_int4_nibbles_from_the_low_end() -> None:
    words = np.full((1, 4), 0x76543210, np.uint32).view(np.int32)
    scale = np.array([[0x4000]], np.uint16)  # 2.0
    assert decode_int4(words, scale)[0, :8].tolist() == [-16.0, -14.0, -12.0, -10.0, -8.0, -6.0, -4.0, -2.0]
