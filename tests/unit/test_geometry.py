"""Reading `config.json`: the public one, other spellings of it, and a refusal that names the field for the rest."""

from __future__ import annotations

from typing import Any

import pytest
from random_checkpoint import FULL

from ling3.errors import PackageError
from ling3.model.geometry import Geometry

ONLY_VALUE: dict[str, Any] = {
    "model_type": "bailing_moe",
    "kda_safe_gate": False,
    "no_kda_lora": False,
    "use_kda_lora": True,
    "linear_silu": False,
    "group_norm_size": 4,
    "rope_interleave": False,
    "rope_scaling": {"type": "yarn", "factor": 2.0},
    "gated_attention_proj_granularity_type": "element_wise",
    "score_function": "softmax",
    "scoring_func": "softmax",
    "topk_method": "greedy",
    "moe_router_enable_expert_bias": False,
    "router_dtype": "bf16",
    "num_nextn_predict_layers": 1,
    "mtp_use_kda": True,
    "use_bias": True,
    "use_qkv_bias": True,
    "attention_bias": True,
    "value_norm": True,
    "up_proj_norm": True,
    "use_nGPT": True,
    "scale_router_input": True,
    "use_mla_nope": True,
    "hidden_act": "gelu",
}
"""Fields of M-1 that have one meaning here, each with a value that means another network."""

NO_DEFAULT = (
    "vocab_size", "hidden_size", "num_hidden_layers", "layer_group_size", "num_attention_heads", "head_dim",
    "short_conv_kernel_size", "kda_lower_bound", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim",
    "qk_rope_head_dim", "v_head_dim", "first_k_dense_replace", "intermediate_size", "num_experts",
    "num_experts_per_tok", "n_group", "topk_group", "moe_intermediate_size", "num_shared_experts",
)  # fmt: skip
"""Dimensional fields (M-2)."""

OPTIONAL = sorted(set(FULL) - set(NO_DEFAULT) - {"architectures"})

SAVED_BY_TRANSFORMERS: dict[str, str] = {
    "short_conv_kernel_size": "linear_conv_kernel_dim",
    "n_group": "num_expert_group",
    "num_experts": "num_local_experts",
    "num_experts_per_tok": "num_experts_per_token",
    "num_shared_experts": "n_shared_experts",
    "norm_topk_prob": "moe_renormalize",
    "max_position_embeddings": "model_max_length",
}


def full(**changes: Any) -> dict[str, Any]:
    return FULL | changes


def without(field: str) -> dict[str, Any]:
    return {key: value for key, value in FULL.items() if key != field}


def test_the_public_config() -> None:
    g = Geometry.from_config(FULL)
    assert [i for i, mixer in enumerate(g.mixers) if mixer == "mla"] == [3, 7, 11, 15, 19, 23]
    assert (g.vocab_size, g.hidden_size, g.layers, g.heads) == (157184, 1536, 24, 16)
    assert (g.kda_head_dim, g.kda_width, g.conv_taps, g.gate_lower_bound) == (128, 2048, 4, -5.0)
    assert (g.q_lora_rank, g.kv_lora_rank, g.qk_head_dim, g.v_head_dim, g.latent_width) == (256, 512, 192, 128, 576)
    assert (g.dense_layers, g.dense_width) == (1, 4608)
    assert (g.experts, g.experts_per_token, g.groups, g.groups_kept) == (128, 8, 8, 4)
    assert (g.expert_width, g.shared_width, g.routed_scaling, g.normalise_weights) == (512, 512, 2.5, True)
    assert (g.rope_theta, g.norm_eps, g.tied_head, g.native_context) == (6e6, 1e-6, False, 131072)


@pytest.mark.parametrize(("field", "value"), ONLY_VALUE.items())
def test_another_meaning_is_refused_by_field(field: str, value: Any) -> None:
    with pytest.raises(PackageError, match=rf"config field {field} is "):
        Geometry.from_config(full(**{field: value}))


@pytest.mark.parametrize("field", NO_DEFAULT)
def test_a_missing_size_is_refused_by_field(field: str) -> None:
    with pytest.raises(PackageError, match=f"config field {field} is missing"):
        Geometry.from_config(without(field))


@pytest.mark.parametrize("field", OPTIONAL)
def test_a_missing_optional_field_has_the_public_value(field: str) -> None:
    assert Geometry.from_config(without(field)) == Geometry.from_config(FULL)


@pytest.mark.parametrize("field", [f for f in NO_DEFAULT if f not in ("q_lora_rank", "kda_lower_bound")])
@pytest.mark.parametrize("value", ["8", 8.0, True, -1, 1 << 40])
def test_a_size_must_be_a_sane_integer(field: str, value: Any) -> None:
    with pytest.raises(PackageError, match=f"config field {field} is {value!r}"):
        Geometry.from_config(full(**{field: value}))


@pytest.mark.parametrize("architectures", [None, [], ["BailingMoeV2_5ForCausalLM"], "BailingMoeV3ForCausalLM"])
def test_the_architecture_must_be_named(architectures: Any) -> None:
    with pytest.raises(PackageError, match="config field architectures"):
        Geometry.from_config(full(architectures=architectures))


@pytest.mark.parametrize("field", ["expert_swiglu_limit_list", "share_expert_swiglu_limit_list"])
def test_the_clamp_of_the_flash_model_is_refused(field: str) -> None:
    with pytest.raises(PackageError, match=f"config field {field} is set"):
        Geometry.from_config(full(**{field: [0.0, 7.0]}))


@pytest.mark.parametrize("limits", [None, [], [0, 0.0], [None]])
def test_clamps_that_clamp_nothing_are_fine(limits: Any) -> None:
    assert Geometry.from_config(full(expert_swiglu_limit_list=limits)) == Geometry.from_config(FULL)


@pytest.mark.parametrize("field", ["num_key_value_heads", "num_kv_heads_for_linear_attn"])
def test_fewer_key_heads_are_refused(field: str) -> None:
    with pytest.raises(PackageError, match=f"config field {field} is 4"):
        Geometry.from_config(full(**{field: 4}))


@pytest.mark.parametrize("bound", [0.0, 1.0, -5.5])
def test_the_gate_bound_must_let_block_prefill_stay_finite(bound: float) -> None:
    with pytest.raises(PackageError, match="config field kda_lower_bound"):
        Geometry.from_config(full(kda_lower_bound=bound))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n_group", 7),
        ("topk_group", 9),
        ("num_experts_per_tok", 65),
        ("qk_rope_head_dim", 63),
        ("norm_topk_prob", 1),
        ("tie_word_embeddings", "no"),
        ("rms_norm_eps", "small"),
        ("rms_norm_eps", -1.0),
        ("rope_theta", 0),
        ("routed_scaling_factor", float("nan")),
        ("routed_scaling_factor", 1e308),
        ("num_hidden_layers", 10**9),
    ],
)
def test_impossible_values_are_refused_by_field(field: str, value: Any) -> None:
    with pytest.raises(PackageError, match=f"config field {field} is"):
        Geometry.from_config(full(**{field: value}))


@pytest.mark.parametrize(
    ("layers", "group", "expected"),
    [
        (8, 4, "KKKMKKKM"),
        (6, 4, "KKKMMM"),
        (3, 4, "MMM"),
        (5, 2, "KMKMM"),
        (3, 1, "MMM"),
    ],
)
def test_the_last_layer_of_a_group_and_an_incomplete_group_are_mla(layers: int, group: int, expected: str) -> None:
    g = Geometry.from_config(full(num_hidden_layers=layers, layer_group_size=group))
    assert "".join("K" if mixer == "kda" else "M" for mixer in g.mixers) == expected


def test_explicit_layer_types_win() -> None:
    kinds = ["full_attention", "linear_attention"]
    assert Geometry.from_config(full(num_hidden_layers=2, layer_types=kinds)).mixers == ("mla", "kda")


@pytest.mark.parametrize("kinds", [["full_attention"], ["sliding_attention"] * 24, [[]] * 24, "full_attention"])
def test_unusable_layer_types_are_refused(kinds: Any) -> None:
    with pytest.raises(PackageError, match="config field layer_types"):
        Geometry.from_config(full(layer_types=kinds))


def test_mlp_types_must_agree() -> None:
    with pytest.raises(PackageError, match="config field mlp_layer_types"):
        Geometry.from_config(full(mlp_layer_types=["sparse"] * 24))


@pytest.mark.parametrize(("field", "alias"), SAVED_BY_TRANSFORMERS.items())
def test_other_spellings_mean_the_same(field: str, alias: str) -> None:
    assert Geometry.from_config(without(field) | {alias: FULL[field]}) == Geometry.from_config(FULL)


def test_transformers_reuses_head_dim_for_the_rotary_width() -> None:
    assert Geometry.from_config(full(head_dim=64, linear_head_dim=128)) == Geometry.from_config(FULL)


def test_rope_theta_may_stand_in_rope_parameters() -> None:
    parameters = {"rope_type": "default", "rope_theta": 10000.0}
    assert Geometry.from_config(full(rope_parameters=parameters)).rope_theta == 10000.0


def test_other_rope_types_are_refused() -> None:
    with pytest.raises(PackageError, match=r"config field rope_parameters\.rope_type is 'yarn'"):
        Geometry.from_config(full(rope_parameters={"rope_type": "yarn", "rope_theta": 6e6}))


def test_a_null_query_rank_means_one_full_projection() -> None:
    assert Geometry.from_config(full(q_lora_rank=None)).q_lora_rank is None


def test_several_shared_experts_are_one_wide_expert() -> None:
    assert Geometry.from_config(full(num_shared_experts=3)).shared_width == 1536


def test_the_shared_width_defaults_to_the_experts_width() -> None:
    config = without("moe_shared_expert_intermediate_size") | {"moe_intermediate_size": 256}
    assert Geometry.from_config(config).shared_width == 256


def test_a_model_of_dense_layers_needs_no_expert_fields() -> None:
    config = full(first_k_dense_replace=24)
    for field in ("num_experts", "num_experts_per_tok", "n_group", "topk_group", "moe_intermediate_size"):
        del config[field]
    g = Geometry.from_config(config)
    assert (g.dense_layers, g.experts, g.shared_width) == (24, 0, 0)


def test_a_group_score_needs_two_experts_in_a_group() -> None:
    with pytest.raises(PackageError, match="config field n_group is 128; a group score needs two experts"):
        Geometry.from_config(full(n_group=128, topk_group=64))
