"""Every format of weights, from a sharded folder of `save_pretrained` to logits (M-86)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from configurations import CONFIGURATIONS
from networks import build, save, tokens
from numpy.typing import NDArray
from packages import byte_tokenizer_json

from ling3.convert import convert
from ling3.convert.recipe import WEIGHTS, Weights
from ling3.model import Decoder, Package

pytestmark = pytest.mark.reference

LEAST_CORRELATION: dict[Weights, float] = {"f32": 0.99999, "bf16": 0.999, "w8": 0.99, "w4": 0.8}
"""Median over positions of the correlation with float32 logits. Seen: 1.0000, 1.0000, 0.9988, 0.90 to 0.91;
random weights are the worst case of w4, trained ones have fewer directions that matter."""


@pytest.fixture(scope="module", params=["real_head_widths", "dense_only"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint in several shards."""
    configuration = CONFIGURATIONS[request.param]
    path = tmp_path_factory.mktemp(request.param) / "source"
    save(build(configuration), configuration, path)
    (path / "tokenizer.json").write_bytes(byte_tokenizer_json())
    assert len(list(path.glob("model-*.safetensors"))) > 1
    return path


@pytest.fixture(scope="module")
def exact(folder: Path) -> NDArray[np.float32]:
    return logits(folder, "f32")


def logits(folder: Path, weights: Weights) -> NDArray[np.float32]:
    """Logits of a converted package after each of 64 tokens behind a prompt."""
    out = folder.with_name(f"{weights}.l3r")
    convert(folder, out, weights=weights)
    ids = tokens(CONFIGURATIONS["plain"], 164).tolist()
    decoder = Decoder(Package.open(out), context=200)
    decoder.eval_batch_state(ids[:100])
    return np.stack([decoder.eval(token) for token in ids[100:]])


@pytest.mark.parametrize("weights", WEIGHTS)
def test_folder_converts_and_evaluates(weights: Weights, folder: Path, exact: NDArray[np.float32]) -> None:
    found = logits(folder, weights)
    assert np.isfinite(found).all()
    correlation = np.median([np.corrcoef(a, b)[0, 1] for a, b in zip(found, exact, strict=True)])
    print(f"{weights}: median correlation {correlation:.4f}")
    assert correlation >= LEAST_CORRELATION[weights]
