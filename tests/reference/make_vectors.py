"""Writes the networks and logits that the unit tests keep:

    PYTHONPATH=.:tests/unit python tests/reference/make_vectors.py [FOLDER]

Each is a checkpoint folder in the public layout, weights in bfloat16 as published, plus `expected.safetensors`: the
token `ids`, some `positions`, and the float32 `logits` of `transformers` after each of these positions.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from configurations import PROMPTS, STEPS, VECTORS, Configuration
from networks import build, evaluate, save, tokens
from numpy.typing import NDArray
from safetensors import numpy as numpy_files
from safetensors import torch as torch_files

DATA = Path(__file__).parents[1] / "unit" / "data"
_FLOAT32 = ("A_log", "dt_bias", "e_score_correction_bias", "expert_bias")
"""Tensors that stay float32 (M-50)."""
_LEAST_MARGIN = 1e-4
"""Routing decisions closer than this could turn on another machine (M-42)."""


def write(name: str, configuration: Configuration, folder: Path) -> None:
    """One network with its logits."""
    model, ids = build(configuration), tokens(configuration)
    with torch.no_grad():
        for key, values in model.named_parameters():
            if not key.endswith(_FLOAT32):
                values.copy_(values.bfloat16().float())
    logits, margin = evaluate(model, ids)
    assert margin >= _LEAST_MARGIN, f"{name}: choose another seed, the closest routing decision differs by {margin:.1e}"
    with tempfile.TemporaryDirectory() as scratch:
        save(model, configuration, Path(scratch), shard="1GB")
        weights = torch_files.load_file(Path(scratch) / "model.safetensors")
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(Path(scratch) / "config.json", folder / "config.json")
    stored: dict[str, Any] = {
        key: values if key.endswith(_FLOAT32) else values.bfloat16()
        for key, values in weights.items()
        if not (configuration.tied and key == "lm_head.weight")
    }
    torch_files.save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    positions = compared_positions()
    expected: dict[str, NDArray[Any]] = {
        "ids": ids,
        "positions": positions,
        "logits": np.ascontiguousarray(logits[positions]),
    }
    numpy_files.save_file(expected, folder / "expected.safetensors")
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{name}: {size / 1e3:.0f} kB, logit deviation {logits.std():.2f}, routing margin {margin:.1e}")


def compared_positions() -> NDArray[np.int64]:
    """The last token of every prompt and the single steps behind it."""
    ends = np.array(PROMPTS)[:, None] - 1
    return np.unique(ends + np.arange(STEPS + 1))


if __name__ == "__main__":
    for one, network in VECTORS.items():
        write(one, network, Path(sys.argv[1] if len(sys.argv) > 1 else DATA) / one)
