"""Float32 packages against `transformers`, configuration by configuration (M-85)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from configurations import CONFIGURATIONS, PROMPTS, STEPS, Configuration
from networks import build, evaluate, evaluate_with_cache, save, tokens
from numpy.typing import NDArray
from packages import byte_tokenizer_json

from ling3.convert import convert
from ling3.model import Decoder, Package

pytestmark = pytest.mark.reference

TOLERANCE = 1e-3
"""Largest absolute difference of a logit. Seen: 2e-4, most of it the error of `transformers`: float64 is 5e-5 away."""
MARGIN = 1e-5
"""Closest routing decision that rounding surely does not turn; scores differ by about 1e-6 (M-42)."""


@dataclass(frozen=True)
class Case:
    """One configuration: its model, the tokens, the logits `transformers` gives after each, and our decoder."""

    configuration: Configuration
    model: Any
    ids: NDArray[np.int64]
    logits: NDArray[np.float32]
    margin: float
    decoder: Decoder


@pytest.fixture(scope="module", params=CONFIGURATIONS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    configuration = CONFIGURATIONS[request.param]
    model, ids = build(configuration), tokens(configuration)
    logits, margin = evaluate(model, ids)
    folder = tmp_path_factory.mktemp(request.param)
    save(model, configuration, folder / "source")
    (folder / "source" / "tokenizer.json").write_bytes(byte_tokenizer_json())
    convert(folder / "source", folder / "model.l3r", weights="f32")
    return Case(configuration, model, ids, logits, margin, Decoder(Package.open(folder / "model.l3r"), context=512))


def test_reference_logits_tell_networks_apart(case: Case) -> None:
    assert case.logits.std() >= 1.0
    assert case.margin >= MARGIN, "choose another seed: a routing decision hangs on rounding"


@pytest.mark.parametrize("prompt", PROMPTS)
def test_prompt_and_single_steps_agree(case: Case, prompt: int) -> None:
    decoder = case.decoder
    decoder.reset()
    got = [decoder.eval_batch(case.ids[:prompt].tolist())]
    got += [decoder.eval(int(token)) for token in case.ids[prompt : prompt + STEPS]]
    difference = np.abs(np.stack(got) - case.logits[prompt - 1 : prompt + STEPS])
    print(f"largest difference {difference.max():.1e}")
    assert difference.max() <= TOLERANCE


def test_single_steps_agree_with_the_cache_of_transformers(case: Case) -> None:
    wanted = evaluate_with_cache(case.model, case.ids[:36], prompt=20)
    decoder = case.decoder
    decoder.reset()
    got = [decoder.eval_batch(case.ids[:20].tolist()), *(decoder.eval(int(token)) for token in case.ids[20:36])]
    assert np.abs(np.stack(got) - wanted).max() <= TOLERANCE


def test_folder_is_in_shards(case: Case, tmp_path: Path) -> None:
    save(case.model, case.configuration, tmp_path)
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
