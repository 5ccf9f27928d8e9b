"""Tiny configurations that differ in everything a config can differ in (M-1, M-10, M-43, M-85)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from packages import EOS, VOCABULARY

PROMPTS = (1, 15, 16, 17, 127, 128, 129, 300)
"""Prompt lengths around the sub-block of 16 and the block of 128."""
STEPS = 3
"""Single tokens evaluated after each prompt."""

BASE: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 4, "layer_group_size": 4,
    "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16, "short_conv_kernel_size": 4,
    "kda_lower_bound": -5.0,
    "q_lora_rank": 16, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
    "first_k_dense_replace": 1, "intermediate_size": 96,
    "num_local_experts": 8, "num_experts_per_tok": 2, "n_group": 4, "topk_group": 2,
    "moe_intermediate_size": 32, "n_shared_experts": 1,
    "num_mtp_layers": 0, "eos_token_id": EOS, "pad_token_id": 0,
}  # fmt: skip
"""Arguments of a `transformers` configuration; each entry below names what it changes."""


@dataclass(frozen=True)
class Configuration:
    """One network: changes to `BASE` and what `transformers` has no argument for."""

    changes: Mapping[str, Any]
    seed: int
    tied: bool = False
    """The head is a copy of the embedding."""
    vendor_form: bool = False
    """The folder's config.json has the vendor's field names (M-1), so that layer kinds follow from M-10."""
    bias: float = 0.0
    """Mean of expert_bias."""

    @property
    def arguments(self) -> dict[str, Any]:
        """All arguments, with the layer kinds of M-10: `transformers` by itself has no trailing-group rule."""
        merged = {**BASE, **self.changes}
        layers, group = merged["num_hidden_layers"], merged["layer_group_size"]
        whole = layers // group * group
        is_mla = [(i + 1) % group == 0 or i >= whole for i in range(layers)]
        kinds = ["full_attention" if mla else "linear_attention" for mla in is_mla]
        return {**merged, "layer_types": kinds, "tie_word_embeddings": self.tied}


CONFIGURATIONS: dict[str, Configuration] = {
    "plain": Configuration({}, seed=1),
    "vendor_names": Configuration({}, seed=2, vendor_form=True),
    "trailing_group_full_query": Configuration(
        {
            "num_hidden_layers": 6, "q_lora_rank": None, "first_k_dense_replace": 2, "n_shared_experts": 2,
            "short_conv_kernel_size": 2, "kda_lower_bound": -2.5,
        },
        seed=1, vendor_form=True,
    ),
    "tied_all_groups_kept": Configuration(
        {
            "num_hidden_layers": 5, "layer_group_size": 2, "first_k_dense_replace": 3, "n_shared_experts": 3,
            "short_conv_kernel_size": 3, "topk_group": 4, "norm_topk_prob": False, "num_experts_per_tok": 3,
        },
        seed=1, tied=True, vendor_form=True,
    ),
    "real_head_widths": Configuration(
        {
            "hidden_size": 256, "num_hidden_layers": 2, "layer_group_size": 2, "head_dim": 128, "q_lora_rank": 64,
            "kv_lora_rank": 128, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        },
        seed=1,
    ),
    "negative_bias_uneven_widths": Configuration(
        {
            "hidden_size": 60, "num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": 20, "v_head_dim": 12,
            "qk_nope_head_dim": 10, "qk_rope_head_dim": 6, "kv_lora_rank": 24, "q_lora_rank": 10,
            "intermediate_size": 50, "moe_intermediate_size": 18, "num_local_experts": 12, "n_group": 3,
            "topk_group": 1, "num_experts_per_tok": 3, "routed_scaling_factor": 1.3, "rope_theta": 10000.0,
            "kda_lower_bound": -0.5, "rms_norm_eps": 1e-5,
        },
        seed=1, bias=-1.3,
    ),
    "every_layer_mla": Configuration({"num_hidden_layers": 3, "layer_group_size": 1, "topk_group": 3}, seed=1),
    "dense_only": Configuration({"num_hidden_layers": 3, "layer_group_size": 3, "first_k_dense_replace": 3}, seed=1),
}  # fmt: skip

_SMALL = {
    "hidden_size": 32, "q_lora_rank": 12, "kv_lora_rank": 16, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8,
    "v_head_dim": 8, "intermediate_size": 48, "moe_intermediate_size": 16,
}  # fmt: skip
VECTORS: dict[str, Configuration] = {
    # biases so low that most scores for choice are negative: a masked group must not win by a zero (M-41)
    "grouped": Configuration(_SMALL, seed=4, bias=-1.3),
    "trailing_tied": Configuration(
        {
            **_SMALL, "num_hidden_layers": 6, "q_lora_rank": None, "first_k_dense_replace": 2, "n_shared_experts": 2,
            "short_conv_kernel_size": 2, "kda_lower_bound": -2.5, "num_local_experts": 6, "n_group": 3, "topk_group": 3,
            "num_experts_per_tok": 3, "norm_topk_prob": False,
        },
        seed=23, tied=True, vendor_form=True,
    ),
}  # fmt: skip
"""Networks whose weights and logits are stored with the unit tests. Between them every rule shows."""
