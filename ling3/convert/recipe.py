"""The precision recipe: which format each family of tensors is stored in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from ling3.convert.checkpoint import read_json
from ling3.errors import PackageError, StartError
from ling3.linear.formats import Format
from ling3.model.geometry import Geometry
from ling3.model.layout import FAMILY_FORMATS, linear_specs

Weights = Literal["w4", "w8", "bf16", "f32"]
WEIGHTS: tuple[Weights, ...] = get_args(Weights)
TILES = (512, 256)
"""K tiles that may be wished for; None is the full width."""

_PREFERRED: dict[Weights, dict[str, Format]] = {
    "w4": {"embedding": "w8", "head": "w8", "kv_b": "bf16", "gate": "f32", "router": "f32"},
    "w8": {"kv_b": "bf16", "gate": "f32", "router": "f32"},
    "bf16": {"gate": "f32", "router": "f32"},
    "f32": {},
}
"""Families that do not simply take the format of the recipe's name."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """`families`: format by family, of those the model has; `tile`: longest K tile of `w4` and `w8`, None = full."""

    weights: str
    tile: int | None
    families: Mapping[str, Format]

    def as_json(self) -> dict[str, Any]:
        return {"weights": self.weights, "tile": self.tile or "full", "families": dict(self.families)}


def make_recipe(g: Geometry, weights: str = "w4", tile: int | None = None, overrides: Path | None = None) -> Recipe:
    """The recipe for a model. `overrides`: a JSON file {family: format}. StartError naming what is not known."""
    name = next((known for known in WEIGHTS if known == weights), None)
    if name is None:
        raise StartError(f"--weights is {weights!r}; known are {', '.join(WEIGHTS)}")
    if tile is not None and tile not in TILES:
        raise StartError(f"--tile is {tile}; known are full, {', '.join(map(str, TILES))}")
    preferred = _PREFERRED[name]
    families: dict[str, Format] = {family: preferred.get(family, name) for family in FAMILY_FORMATS}
    if overrides is not None:
        families.update(_read_overrides(overrides))
    present = {spec.family for spec in linear_specs(g)}
    return Recipe(name, tile, {family: fmt for family, fmt in families.items() if family in present})


def _read_overrides(path: Path) -> dict[str, Format]:
    result: dict[str, Format] = {}
    for family, wanted in read_json(path).items():
        if family not in FAMILY_FORMATS:
            raise PackageError(f"{path}: family {family!r} is unknown; known are {', '.join(FAMILY_FORMATS)}")
        fmt = next((known for known in FAMILY_FORMATS[family] if known == wanted), None)
        if fmt is None:
            allowed = ", ".join(FAMILY_FORMATS[family])
            raise PackageError(f"{path}: format {wanted!r} of family {family} is not possible; possible are {allowed}")
        result[family] = fmt
    return result
