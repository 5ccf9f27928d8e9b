"""Writing the model as a Hugging Face folder in the public tensor layout of Ling-3.0."""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor

from .network import Network, Shape
from .vocabulary import END_OF_TURN, PADDING, token_id

TEMPLATE = Path(__file__).parents[2] / "ling3" / "text" / "chat_template.jinja"
CONTEXT = 4096
FLOAT32_NAMES = ("A_log", "dt_bias", "expert_bias")


def config(shape: Shape, tokenizer: Tokenizer) -> dict[str, object]:
    """`config.json` with every field of the public model."""
    return {
        "architectures": ["BailingMoeV3ForCausalLM"],
        "model_type": "bailing_hybrid",
        "dtype": "bfloat16",
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "layer_group_size": shape.group,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads,
        "head_dim": shape.head_dim,
        "num_kv_heads_for_linear_attn": 0,
        "short_conv_kernel_size": shape.conv,
        "kda_safe_gate": True,
        "kda_lower_bound": shape.lower_bound,
        "no_kda_lora": True,
        "use_kda_lora": False,
        "linear_silu": True,
        "group_norm_size": 1,
        "q_lora_rank": shape.q_rank,
        "kv_lora_rank": shape.kv_rank,
        "qk_nope_head_dim": shape.nope,
        "qk_rope_head_dim": shape.rope,
        "qk_head_dim": shape.nope + shape.rope,
        "v_head_dim": shape.value,
        "rope_theta": int(shape.theta),
        "rope_interleave": True,
        "rope_scaling": None,
        "partial_rotary_factor": 0.5,
        "rotary_dim": shape.rope,
        "max_position_embeddings": CONTEXT,
        "gated_attention_proj_granularity_type": "head_wise",
        "rms_norm_eps": 1e-6,
        "first_k_dense_replace": 1,
        "intermediate_size": shape.dense,
        "num_experts": shape.experts,
        "num_experts_per_tok": shape.top_experts,
        "n_group": shape.groups,
        "topk_group": shape.top_groups,
        "moe_intermediate_size": shape.expert_width,
        "num_shared_experts": 1,
        "moe_shared_expert_intermediate_size": shape.expert_width,
        "score_function": "sigmoid",
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "moe_router_enable_expert_bias": True,
        "router_dtype": "fp32",
        "norm_topk_prob": True,
        "routed_scaling_factor": shape.scale,
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
        "eos_token_id": token_id(tokenizer, END_OF_TURN),
        "pad_token_id": token_id(tokenizer, PADDING),
        "initializer_range": 0.02,
        "max_window_layers": 20,
        "seq_aux": True,
        "attention_dropout": 0.0,
        "embedding_dropout": 0.0,
        "output_dropout": 0.0,
        "output_router_logits": False,
        "use_cache": True,
    }


def tensors(network: Network) -> dict[str, Tensor]:
    """All tensors under their public names; matrices BF16, the gate's and router's constants FP32."""
    result: dict[str, Tensor] = {}
    for name, tensor in network.state_dict().items():
        public = name if name.startswith("lm_head") else "model." + name
        public = public.replace("_conv1d_weight", "_conv1d.weight")
        value = tensor.detach().clone()
        if not name.endswith(FLOAT32_NAMES):
            value = value.to(torch.bfloat16)
        if ".mlp.experts." in name:
            stem, _, matrix = public.rpartition(".")
            for number, expert in enumerate(value):
                result[f"{stem}.{number}.{matrix}.weight"] = expert.contiguous()
        else:
            result[public] = value.contiguous()
    return result


def load_network(folder: Path) -> Network:
    """The network of a folder that `export` wrote, in FP32."""
    state: dict[str, Tensor] = {}
    experts: dict[str, dict[int, Tensor]] = defaultdict(dict)
    for name, tensor in load_file(folder / "model.safetensors").items():
        own = name.removeprefix("model.").replace("_conv1d.weight", "_conv1d_weight")
        if expert := re.fullmatch(r"(.+\.mlp\.experts)\.(\d+)\.(\w+)\.weight", own):
            experts[f"{expert[1]}.{expert[3]}"][int(expert[2])] = tensor.float()
        else:
            state[own] = tensor.float()
    for name, matrices in experts.items():
        state[name] = torch.stack([matrices[number] for number in range(len(matrices))])
    network = Network(Shape())
    network.load_state_dict(state)
    network.eval()
    return network


def write_json(path: Path, value: object) -> None:
    """Pretty JSON, replaced in one go so that a reader never sees half a file."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(partial, path)


def export(network: Network, tokenizer: Tokenizer, folder: Path, note: str) -> None:
    """Write or renew the whole folder; READY.txt, which carries `note`, comes last."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", config(network.shape, tokenizer))
    write_json(folder / "generation_config.json", {
        "do_sample": True, "temperature": 0.3, "top_p": 0.9, "top_k": 20,
        "eos_token_id": token_id(tokenizer, END_OF_TURN), "pad_token_id": token_id(tokenizer, PADDING),
    })
    template = TEMPLATE.read_text(encoding="utf-8")
    write_json(folder / "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": False, "add_eos_token": False, "bos_token": None,
        "eos_token": END_OF_TURN, "pad_token": PADDING, "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False, "chat_template": template,
    })
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    tokenizer.save(str(folder / "tokenizer.json"))
    partial = folder / "model.safetensors.partial"
    save_file(tensors(network), partial, metadata={"format": "pt"})
    os.replace(partial, folder / "model.safetensors")
    (folder / "READY.txt").write_text(note + "\n", encoding="utf-8")
