"""Breaking any single rule of the network must move the logits far beyond the tolerance of the parity tests."""

from __future__ import annotations

from pathlib import Path

import mutation
import pytest
import stored_networks
from broken_rules import COMPILED, REFUSED, SCALE
from mutation import Mutation
from stored_networks import NAMES

from ling3.errors import PackageError
from ling3.model import decoder as decoder_module
from ling3.model.package import Package

LEAST = 0.1
"""A broken rule moves some logit by more than this; a right decoder stays below 3e-4. Seen: 0.88 and more."""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("stored")
    return {name: stored_networks.load(name).convert(folder / f"{name}.l3r") for name in NAMES}


def deviation(packages: dict[str, Path]) -> float:
    """The largest deviation of a logit in any stored network, by the decoder as it is now."""
    found = []
    for name, path in packages.items():
        decoder = decoder_module.Decoder(Package.open(path), context=320, threads=1)
        found.append(stored_networks.load(name).deviation(decoder))
    print("deviation", *(f"{name}={value:.2g}" for name, value in zip(packages, found, strict=True)))
    return max(found)


def test_wrong_softmax_scale_shows(packages: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.apply(SCALE, tmp_path, monkeypatch)
    assert deviation(packages) > LEAST


@pytest.mark.slow
@pytest.mark.parametrize("broken", COMPILED, ids=lambda broken: broken.rule)
def test_broken_rule_shows(
    broken: Mutation, packages: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation.apply(broken, tmp_path, monkeypatch)
    assert deviation(packages) > LEAST


@pytest.mark.parametrize("broken", REFUSED, ids=lambda broken: broken.rule)
def test_broken_geometry_is_refused(broken: Mutation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.apply(broken, tmp_path, monkeypatch)
    with pytest.raises(PackageError):
        stored_networks.load("trailing_tied").convert(tmp_path / "model.l3r")


def test_text_that_is_gone_fails_with_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = Mutation("a rule", "kda", "text that the source does not have", "")
    with pytest.raises(pytest.fail.Exception, match="a rule: the text to replace occurs 0 times in ling3.model.kda"):
        mutation.apply(gone, tmp_path, monkeypatch)
