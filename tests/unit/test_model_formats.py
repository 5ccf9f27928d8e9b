"""Packages in reduced precision: what they add to the rounding of their weights is the rounding of activations (M-86).

A package and its twin, a float32 package of the weights as the first one decodes them, must say nearly the same.
Nearly, since an expert flips now and then; so the median over positions is judged.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from packages import CONFIG, VOCABULARY, tiny_package, write_package

from ling3.convert.recipe import Weights
from ling3.linear.formats import dequantise, from_bf16, unpack_w4, unpack_w8
from ling3.model import Decoder, Package
from ling3.model.layout import LinearSpec

IDS: list[int] = np.random.default_rng(0).integers(0, VOCABULARY, 80).tolist()


def decoded(package: Package, spec: LinearSpec) -> NDArray[np.float32]:
    """The weights of a linear as stored, [experts, n, k] float32."""
    linear = package.linear(spec.name)
    if linear.format == "f32":
        return np.asarray(linear.weights, np.float32)
    if linear.format == "bf16":
        return from_bf16(linear.weights)
    unpack = unpack_w4 if linear.format == "w4" else unpack_w8
    assert linear.scale is not None
    experts = [dequantise(unpack(w), scale) for w, scale in zip(linear.weights, linear.scale, strict=True)]
    return np.stack(experts)[:, : spec.n, : spec.k]


def logits(path: Path) -> NDArray[np.float32]:
    """Logits after each of the last 60 tokens."""
    decoder = Decoder(Package.open(path), context=len(IDS), threads=1)
    decoder.eval_batch_state(IDS[:20])
    return np.stack([decoder.eval(token) for token in IDS[20:]])


@pytest.mark.parametrize(
    ("weights", "correlation"),
    # Seen: 1.00000, 0.9975, 0.9978
    [("bf16", 0.9999), ("w8", 0.99), ("w4", 0.99)],
)
def test_package_says_what_its_weights_say(weights: Weights, correlation: float, tmp_path: Path) -> None:
    package = Package.open(tiny_package(tmp_path / "reduced.l3r", weights))
    twin = write_package(
        tmp_path / "twin.l3r", CONFIG, "f32", lambda vector: package.vector(vector.name), lambda x: decoded(package, x)
    )
    pairs = zip(logits(tmp_path / "reduced.l3r"), logits(twin), strict=True)
    found = [float(np.corrcoef(a, b)[0, 1]) for a, b in pairs]
    print(f"{weights}: median {np.median(found):.5f}, least {min(found):.3f}")
    assert np.median(found) >= correlation
