"""Float32 packages of the stored networks against the logits of `transformers` (M-85)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy_network
import pytest
import stored_networks
from stored_networks import NAMES, PROMPTS, StoredNetwork

from ling3.model import Decoder, Package

TOLERANCE = 3e-4
"""Largest absolute difference of a logit. Seen: 1.3e-4, mostly the error of `transformers`: float64 is 4e-5 away."""


@pytest.fixture(scope="module", params=NAMES)
def network(request: pytest.FixtureRequest) -> StoredNetwork:
    return stored_networks.load(request.param)


@pytest.fixture(scope="module")
def decoder(network: StoredNetwork, tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    out = network.convert(tmp_path_factory.mktemp("stored") / "model.l3r")
    return Decoder(Package.open(out), context=320, threads=1)


@pytest.mark.parametrize("prompt", PROMPTS)
def test_prompt_and_single_steps_agree_with_transformers(network: StoredNetwork, decoder: Decoder, prompt: int) -> None:
    difference = np.abs(network.evaluate(decoder, prompt) - network.wanted(prompt))
    print(f"largest difference {difference.max():.1e}")
    assert difference.max() <= TOLERANCE


def test_stored_logits_tell_networks_apart(network: StoredNetwork) -> None:
    assert np.stack(list(network.logits.values())).std() >= 1.0


def test_numpy_network_agrees_with_transformers(network: StoredNetwork, decoder: Decoder) -> None:
    logits = numpy_network.forward(network.ids, network.tensors(), decoder.geometry)
    wanted = np.stack(list(network.logits.values()))
    difference = np.abs(logits[list(network.logits)] - wanted)
    print(f"largest difference {difference.max():.1e}")
    assert difference.max() <= TOLERANCE


def test_folder_is_small(network: StoredNetwork, tmp_path: Path) -> None:
    assert sum(file.stat().st_size for file in network.folder.iterdir()) < 300_000
