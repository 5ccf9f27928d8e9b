"""The network's sizes and switches, read from a model's `config.json` (M-1, M-2).

Every value outside what this engine computes is refused by the name of its field; nothing is guessed.
`transformers` writes some fields under other names and reuses `head_dim` for the rotary width;
`_ALIASES` lists those names, the first one present wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ling3.errors import PackageError

ARCHITECTURES = ("BailingMoeV3ForCausalLM", "BailingHybridForCausalLM")

_ALIASES: dict[str, tuple[str, ...]] = {
    "head_dim": ("linear_head_dim", "head_dim"),
    "short_conv_kernel_size": ("short_conv_kernel_size", "linear_conv_kernel_dim"),
    "n_group": ("n_group", "num_expert_group"),
    "num_experts": ("num_experts", "num_local_experts"),
    "num_experts_per_tok": ("num_experts_per_tok", "num_experts_per_token"),
    "num_shared_experts": ("num_shared_experts", "n_shared_experts"),
    "norm_topk_prob": ("norm_topk_prob", "moe_renormalize"),
    "max_position_embeddings": ("max_position_embeddings", "model_max_length"),
}

_REQUIRED_VALUES: dict[str, tuple[Any, ...]] = {
    "model_type": ("bailing_hybrid",),
    "kda_safe_gate": (True,),
    "no_kda_lora": (True,),
    "use_kda_lora": (False,),
    "linear_silu": (True,),
    "group_norm_size": (1,),
    "rope_interleave": (True,),
    "rope_scaling": (None,),
    "gated_attention_proj_granularity_type": ("head_wise",),
    "score_function": ("sigmoid",),
    "scoring_func": ("sigmoid",),
    "topk_method": ("noaux_tc",),
    "moe_router_enable_expert_bias": (True,),
    "router_dtype": ("fp32", None),
    "num_nextn_predict_layers": (0,),
    "mtp_use_kda": (False,),
    "use_bias": (False,),
    "use_qkv_bias": (False,),
    "attention_bias": (False,),
    "value_norm": (False,),
    "up_proj_norm": (False,),
    "use_nGPT": (False,),
    "scale_router_input": (False,),
    "use_mla_nope": (False,),
    "hidden_act": ("silu",),
}
"""Fields that have one meaning here; absent counts as right (M-2)."""

_CLAMPS = ("expert_swiglu_limit_list", "share_expert_swiglu_limit_list")
_NO_VALUE = object()
_LARGEST = (1 << 31) - 1
_LIMITS = {"num_hidden_layers": 1024, "num_experts": 65536}
"""Sizes that a loop runs over before any tensor has been looked for."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """All sizes of one model. `mixers[i]` tells the kind of layer i; names follow `config.json` where it has one."""

    vocab_size: int
    hidden_size: int
    mixers: tuple[str, ...]
    heads: int
    kda_head_dim: int
    conv_taps: int
    gate_lower_bound: float
    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    rope_theta: float
    dense_layers: int
    dense_width: int
    experts: int
    experts_per_token: int
    groups: int
    groups_kept: int
    expert_width: int
    shared_width: int
    normalise_weights: bool
    routed_scaling: float
    norm_eps: float
    tied_head: bool
    native_context: int

    @property
    def layers(self) -> int:
        return len(self.mixers)

    @property
    def kda_width(self) -> int:
        """P = heads x KDA head width."""
        return self.heads * self.kda_head_dim

    @property
    def qk_head_dim(self) -> int:
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def latent_width(self) -> int:
        """Values cached per position of an MLA layer: the latent and the rotated key (M-35)."""
        return self.kv_lora_rank + self.qk_rope_head_dim

    def is_dense(self, layer: int) -> bool:
        return layer < self.dense_layers

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Geometry:
        """Read and check a `config.json` object. Raises PackageError that names the field."""
        read = _Reader(config)
        architecture = config.get("architectures")
        if not isinstance(architecture, list) or not set(architecture) & set(ARCHITECTURES):
            raise PackageError(
                f"config field architectures is {architecture!r}; this engine runs {ARCHITECTURES[0]} only "
                "(model_type bailing_hybrid alone also names an older, different network)"
            )
        for field, allowed in _REQUIRED_VALUES.items():
            value = config.get(field, allowed[0])
            if value not in allowed or isinstance(value, bool) != isinstance(allowed[0], bool):
                raise PackageError(f"config field {field} is {value!r}; only {allowed[0]!r} is supported")
        for field in _CLAMPS:
            limits = config.get(field)
            if limits is not None and any(limits if isinstance(limits, list) else [limits]):
                raise PackageError(f"config field {field} is set; the SwiGLU clamp of the flash model is not supported")
        heads = read.size("num_attention_heads")
        for field in ("num_key_value_heads", "num_kv_heads_for_linear_attn"):
            value = config.get(field)
            if value not in (None, heads) and not (field == "num_kv_heads_for_linear_attn" and value == 0):
                raise PackageError(f"config field {field} is {value!r}; it must equal num_attention_heads = {heads}")
        layers = read.size("num_hidden_layers")
        dense_layers = min(read.size("first_k_dense_replace", least=0), layers)
        _check_mlp_types(config.get("mlp_layer_types"), layers, dense_layers)
        has_moe = dense_layers < layers
        rope = read.size("qk_rope_head_dim")
        if rope % 2:
            raise PackageError(f"config field qk_rope_head_dim is {rope}; rotation needs an even width")
        shared = read.size("num_shared_experts", least=0) if has_moe else 0
        expert_width = read.size("moe_intermediate_size") if has_moe else 0
        q_rank = config.get("q_lora_rank", _NO_VALUE)
        if q_rank is _NO_VALUE:
            raise PackageError("config field q_lora_rank is missing; null means one full q_proj")
        shared_field = config.get("moe_shared_expert_intermediate_size")
        shared_width = expert_width if shared_field is None else read.size("moe_shared_expert_intermediate_size")
        geometry = cls(
            vocab_size=read.size("vocab_size"),
            hidden_size=read.size("hidden_size"),
            mixers=_mixers(config, layers, read.size("layer_group_size")),
            heads=heads,
            kda_head_dim=read.size("head_dim"),
            conv_taps=read.size("short_conv_kernel_size"),
            gate_lower_bound=_lower_bound(read.number("kda_lower_bound")),
            q_lora_rank=None if q_rank is None else read.size("q_lora_rank"),
            kv_lora_rank=read.size("kv_lora_rank"),
            qk_nope_head_dim=read.size("qk_nope_head_dim"),
            qk_rope_head_dim=rope,
            v_head_dim=read.size("v_head_dim"),
            rope_theta=_rope_theta(config, read),
            dense_layers=dense_layers,
            dense_width=read.size("intermediate_size") if dense_layers else 0,
            experts=read.size("num_experts") if has_moe else 0,
            experts_per_token=read.size("num_experts_per_tok") if has_moe else 0,
            groups=read.size("n_group") if has_moe else 0,
            groups_kept=read.size("topk_group") if has_moe else 0,
            expert_width=expert_width,
            shared_width=shared * shared_width,
            normalise_weights=read.flag("norm_topk_prob", True),
            routed_scaling=read.positive("routed_scaling_factor", 2.5),
            norm_eps=read.positive("rms_norm_eps", 1e-6),
            tied_head=read.flag("tie_word_embeddings", False),
            native_context=read.size("max_position_embeddings", default=131072),
        )
        if has_moe:
            _check_routing(geometry)
        return geometry


class _Reader:
    """Typed access to a config under its aliases."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config

    def _find(self, field: str, default: Any) -> Any:
        for name in _ALIASES.get(field, (field,)):
            if self._config.get(name) is not None:
                return self._config[name]
        if default is None:
            raise PackageError(f"config field {field} is missing; it has no default")
        return default

    def size(self, field: str, least: int = 1, default: int | None = None) -> int:
        value = self._find(field, default)
        most = _LIMITS.get(field, _LARGEST)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise PackageError(f"config field {field} is {value!r}; it must be an integer from {least} to {most}")
        return value

    def number(self, field: str, default: float | None = None) -> float:
        value = self._find(field, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) <= _LARGEST:
            raise PackageError(f"config field {field} is {value!r}; it must be a number of at most {_LARGEST}")
        return float(value)

    def positive(self, field: str, default: float) -> float:
        value = self.number(field, default)
        if not value > 0.0:
            raise PackageError(f"config field {field} is {value!r}; it must be above 0")
        return value

    def flag(self, field: str, default: bool) -> bool:
        value = self._find(field, default)
        if not isinstance(value, bool):
            raise PackageError(f"config field {field} is {value!r}; it must be true or false")
        return value


def _mixers(config: Mapping[str, Any], layers: int, group: int) -> tuple[str, ...]:
    """The mixer of every layer: an explicit `layer_types` wins, else the rule of M-10 with its trailing group."""
    names = {"linear_attention": "kda", "full_attention": "mla"}
    explicit = config.get("layer_types")
    if explicit is None:
        trailing = layers // group * group
        return tuple("mla" if (i + 1) % group == 0 or i >= trailing else "kda" for i in range(layers))
    if not isinstance(explicit, list) or len(explicit) != layers or not all(kind in list(names) for kind in explicit):
        raise PackageError(f"config field layer_types must list {layers} of {', '.join(names)}")
    return tuple(names[kind] for kind in explicit)


def _check_mlp_types(explicit: Any, layers: int, dense_layers: int) -> None:
    expected = ["dense"] * dense_layers + ["sparse"] * (layers - dense_layers)
    if explicit is not None and explicit != expected:
        raise PackageError("config field mlp_layer_types does not agree with first_k_dense_replace")


def _rope_theta(config: Mapping[str, Any], read: _Reader) -> float:
    parameters = config.get("rope_parameters")
    if isinstance(parameters, Mapping):
        if parameters.get("rope_type", "default") != "default":
            raise PackageError(f"config field rope_parameters.rope_type is {parameters['rope_type']!r}; only 'default'")
        if "rope_theta" in parameters:
            return _Reader(parameters).positive("rope_theta", 6_000_000.0)
    return read.positive("rope_theta", 6_000_000.0)


def _lower_bound(value: float) -> float:
    """Block prefill keeps exp of a 16-token sum in float32 only for bounds in [-5, 0) (M-29)."""
    if not -5.0 <= value < 0.0:
        raise PackageError(f"config field kda_lower_bound is {value}; it must lie in [-5, 0)")
    return value


def _check_routing(g: Geometry) -> None:
    if g.experts % g.groups:
        raise PackageError(f"config field n_group is {g.groups}; it must divide num_experts = {g.experts}")
    if g.groups_kept > g.groups:
        raise PackageError(f"config field topk_group is {g.groups_kept}; it must not exceed n_group = {g.groups}")
    if g.experts_per_token > g.experts // g.groups * g.groups_kept:
        raise PackageError(
            f"config field num_experts_per_tok is {g.experts_per_token}; the kept groups hold only "
            f"{g.experts // g.groups * g.groups_kept} experts"
        )
    if g.groups_kept < g.groups and g.experts // g.groups < 2:
        raise PackageError(f"config field n_group is {g.groups}; a group score needs two experts in a group")
