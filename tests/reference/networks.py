"""Random networks in `transformers`, float32 on the CPU: the independent reference (M-85)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from configurations import PROMPTS, STEPS, Configuration
from numpy.typing import NDArray
from transformers.models.bailing_hybrid import BailingHybridConfig, BailingHybridForCausalLM

LENGTH = max(PROMPTS) + STEPS


def build(configuration: Configuration) -> Any:
    """A model whose weights are all away from the values that would hide a missing rule."""
    torch.manual_seed(configuration.seed)
    model = BailingHybridForCausalLM(BailingHybridConfig(**configuration.arguments)).float().eval()
    model.set_attn_implementation("eager")
    model.set_experts_implementation("eager")
    with torch.no_grad():
        for name, values in [*model.named_parameters(), *model.named_buffers()]:
            if not name.endswith("inv_freq"):
                values.copy_(_random(name, values, configuration))
        if configuration.tied:
            model.lm_head.weight.copy_(model.model.embed_tokens.weight)
    return model


def _random(name: str, like: Any, configuration: Configuration) -> Any:
    normal = torch.randn_like(like)
    if name.endswith("A_log"):
        return torch.rand_like(like) * 1.5 - 0.5
    if name.endswith("dt_bias"):
        return normal - 1.0
    if name.endswith("e_score_correction_bias"):
        return configuration.bias + 0.2 * normal
    if like.ndim == 1:  # norms
        return 1.0 + 0.3 * normal
    if "conv1d" in name:
        return 0.5 * normal
    if "embed_tokens" in name:
        return normal * (1.5 / like.shape[-1] ** 0.5 if configuration.tied else 1.0)
    return normal * (1.5 / like.shape[-1] ** 0.5)


def tokens(configuration: Configuration, length: int = LENGTH) -> NDArray[np.int64]:
    """Random token ids; every prompt is a beginning of them."""
    return np.random.default_rng(configuration.seed).integers(0, configuration.arguments["vocab_size"], length)


def evaluate(model: Any, ids: NDArray[np.int64]) -> tuple[NDArray[np.float32], float]:
    """Logits after every position, [len(ids), vocab], and the smallest routing margin on the way (M-42)."""
    with torch.no_grad():
        result = model(torch.from_numpy(ids)[None], output_router_logits=True, use_cache=False)
    gates = [layer.mlp.gate for layer in model.model.layers if hasattr(layer.mlp, "gate")]
    margins = [_margin(logits, gate) for logits, gate in zip(result.router_logits or (), gates, strict=True)]
    return result.logits[0].numpy(), min(margins, default=float("inf"))


def evaluate_with_cache(model: Any, ids: NDArray[np.int64], prompt: int) -> NDArray[np.float32]:
    """Logits after the prompt and after each single step behind it, by the model's own cache."""
    row = torch.from_numpy(ids)[None]
    with torch.no_grad():
        result = model(row[:, :prompt], use_cache=True)
        logits = [result.logits[0, -1]]
        for at in range(prompt, len(ids)):
            result = model(row[:, at : at + 1], cache=result.cache, use_cache=True)
            logits.append(result.logits[0, -1])
    stacked: NDArray[np.float32] = torch.stack(logits).numpy()
    return stacked


def _margin(logits: Any, gate: Any) -> float:
    """How far the closest decision between a chosen and a rejected group or expert was, in units of the score."""
    choice = (logits.sigmoid() + gate.e_score_correction_bias).reshape(len(logits), gate.num_group, -1)
    margins = [float("inf")]
    if gate.topk_group < gate.num_group:
        groups = choice.topk(2, dim=2)[0].sum(dim=2)
        ranked, order = groups.sort(dim=1, descending=True)
        margins.append(float((ranked[:, gate.topk_group - 1] - ranked[:, gate.topk_group]).min()))
        choice = choice.gather(1, order[:, : gate.topk_group, None].expand(-1, -1, choice.shape[2]))
    experts = choice.flatten(1).sort(dim=1, descending=True)[0]
    if gate.top_k < experts.shape[1]:
        margins.append(float((experts[:, gate.top_k - 1] - experts[:, gate.top_k]).min()))
    return min(margins)


def save(model: Any, configuration: Configuration, folder: Path, shard: str = "100KB") -> None:
    """A checkpoint folder as `save_pretrained` writes it, in several shards."""
    model.save_pretrained(folder, max_shard_size=shard)
    if configuration.vendor_form:
        config = vendor_config(configuration)
        (folder / "config.json").write_text(json.dumps(config, indent=1))


def vendor_config(configuration: Configuration) -> dict[str, Any]:
    """The config.json that the model's vendor would write for this network (M-1), with the fields that mislead."""
    a = configuration.arguments
    same = (
        "vocab_size", "hidden_size", "num_hidden_layers", "layer_group_size", "num_attention_heads",
        "num_key_value_heads", "head_dim", "short_conv_kernel_size", "kda_lower_bound", "q_lora_rank", "kv_lora_rank",
        "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "first_k_dense_replace", "intermediate_size",
        "num_experts_per_tok", "n_group", "topk_group", "moe_intermediate_size", "eos_token_id", "pad_token_id",
        "tie_word_embeddings",
    )  # fmt: skip
    return {
        "architectures": ["BailingMoeV3ForCausalLM"], "model_type": "bailing_hybrid", "dtype": "float32",
        **{field: a[field] for field in same},
        "num_kv_heads_for_linear_attn": 0, "kda_safe_gate": True, "no_kda_lora": True, "use_kda_lora": False,
        "linear_silu": True, "group_norm_size": 1, "qk_head_dim": a["qk_nope_head_dim"] + a["qk_rope_head_dim"],
        "rope_theta": a.get("rope_theta", 6000000), "rope_interleave": True, "rope_scaling": None,
        "partial_rotary_factor": 0.5, "rotary_dim": a["qk_rope_head_dim"], "max_position_embeddings": 131072,
        "gated_attention_proj_granularity_type": "head_wise", "rms_norm_eps": a.get("rms_norm_eps", 1e-6),
        "num_experts": a["num_local_experts"], "num_shared_experts": a["n_shared_experts"],
        "moe_shared_expert_intermediate_size": a["moe_intermediate_size"],
        "score_function": "sigmoid", "scoring_func": "sigmoid", "topk_method": "noaux_tc",
        "moe_router_enable_expert_bias": True, "router_dtype": "fp32",
        "norm_topk_prob": a.get("norm_topk_prob", True), "routed_scaling_factor": a.get("routed_scaling_factor", 2.5),
        "expert_swiglu_limit_list": None, "share_expert_swiglu_limit_list": None,
        "num_nextn_predict_layers": 0, "mtp_use_kda": False, "mtp_loss_scaling_factor": 0,
        "use_bias": False, "use_qkv_bias": False, "value_norm": False, "up_proj_norm": False, "use_nGPT": False,
        "scale_router_input": False, "use_mla_nope": False, "use_qk_norm": True, "hidden_act": "silu",
        "initializer_range": 0.02, "max_window_layers": 20, "seq_aux": True, "output_router_logits": False,
        "use_cache": True,
    }  # fmt: skip
