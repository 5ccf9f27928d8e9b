"""Tensor names of checkpoints, brought to those of the public repository (M-50, M-51).

`transformers` and other tools write some tensors under other names; `_RENAMED` is the one table of them.
"""

from __future__ import annotations

import re

_RENAMED: tuple[tuple[str, str], ...] = (
    (r"^model\.embed_tokens\.", "model.word_embeddings."),
    (r"\.self_attn\.", ".attention."),
    (r"\.attention\.forget_gate\.", ".attention."),
    # One name for the output matrix of both mixers: public KDA layers say o_proj, public MLA layers dense.
    (r"\.attention\.dense\.", ".attention.o_proj."),
    (r"\.attention\.qkv_conv1d\.", ".attention.conv1d."),
    (r"\.mlp\.gate\.e_score_correction_bias$", ".mlp.gate.expert_bias"),
)
_RULES = tuple((re.compile(pattern), replacement) for pattern, replacement in _RENAMED)

_BUFFER = re.compile(r"rotary_emb\.(inv_freq|original_inv_freq|cos_cached|sin_cached)$")


def canonical(name: str) -> str:
    """The name under which all spellings of one tensor meet."""
    for pattern, replacement in _RULES:
        name = pattern.sub(replacement, name)
    return name


def is_rotary_buffer(name: str) -> bool:
    """Whether a tensor holds rotary angles, which follow from the config and are not weights."""
    return _BUFFER.search(name) is not None
