"""A `.l3r` package: one safetensors file with everything a model needs (D-15).

Opening maps the file and checks version, sizes, required tensors and their shapes at once;
`verify` reads every byte and compares the stored SHA-256 sums.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from ling3.errors import PackageError
from ling3.linear.formats import K_BLOCK, MAX_K_TILE, Format, certified, round_up
from ling3.linear.matmul import Linear
from ling3.model.geometry import Geometry
from ling3.model.layout import CHAT_TEMPLATE, FORMAT, GENERATION, TOKENIZER, LinearSpec, linear_specs, vector_specs
from ling3.model.tensor_file import TensorFile

_FORMATS: tuple[Format, ...] = ("w4", "w8", "bf16", "f32")


@dataclass(frozen=True)
class Package:
    """An open package. `recipe` is the precision recipe by family, `source` tells what it was made from."""

    file: TensorFile
    config: dict[str, Any]
    geometry: Geometry
    recipe: dict[str, Any]
    source: dict[str, Any]
    generation: dict[str, Any]

    @classmethod
    def open(cls, path: str | Path) -> Package:
        """Map and check a package. Raises PackageError that names the file and what is wrong."""
        file = TensorFile.open(Path(path))
        version = file.metadata.get("format")
        if version != FORMAT:
            raise PackageError(f"{path}: not a ling3 package: its format is {version!r}, this version reads {FORMAT!r}")
        parts = [_json_object(file, key) for key in ("config", "recipe", "source")]
        try:
            geometry = Geometry.from_config(parts[0])
        except PackageError as error:
            raise PackageError(f"{path}: {error}") from error
        for name in (TOKENIZER, CHAT_TEMPLATE, GENERATION):
            if name not in file.tensors:
                raise PackageError(f"{path}: tensor {name} is missing")
        generation = _parse_object(path, GENERATION, file.raw(GENERATION))
        package = cls(file, parts[0], geometry, parts[1], parts[2], generation)
        for linear in linear_specs(geometry):
            package._check_linear(linear)
        for vector in vector_specs(geometry):
            package._check(vector.name, "F32", vector.shape)
        return package

    @property
    def tokenizer_json(self) -> bytes:
        return self.file.raw(TOKENIZER)

    @cached_property
    def chat_template(self) -> str:
        try:
            return self.file.raw(CHAT_TEMPLATE).decode()
        except UnicodeDecodeError as error:
            raise PackageError(f"{self.file.path}: tensor {CHAT_TEMPLATE} is not UTF-8") from error

    @cached_property
    def eos_token_ids(self) -> frozenset[int]:
        """Ids that end a turn: of the generation settings and of the config (M-62)."""
        found: set[int] = set()
        for owner in (self.generation, self.config):
            value = owner.get("eos_token_id")
            found.update(i for i in (value if isinstance(value, list) else [value]) if isinstance(i, int))
        if not found:
            raise PackageError(f"{self.file.path}: eos_token_id is missing in config and generation settings")
        return frozenset(found)

    def vector(self, name: str) -> NDArray[np.float32]:
        """A stored float32 tensor."""
        return self.file.array(name)

    def linear(self, name: str) -> Linear:
        """A stored linear, weights mapped from the file."""
        spec = next(s for s in linear_specs(self.geometry) if s.name == name)
        fmt = self.format_of(name)
        weights = self.file.array(f"{name}.{fmt}")
        if fmt in ("bf16", "f32"):
            return Linear(name, fmt, spec.n, spec.k, spec.k, weights, None)
        scale = self.file.array(f"{name}.scale")
        return Linear(name, fmt, spec.n, spec.k, round_up(spec.k, K_BLOCK) // scale.shape[1], weights, scale)

    def format_of(self, name: str) -> Format:
        """The format a linear is stored in; PackageError if it is not there."""
        for fmt in _FORMATS:
            if f"{name}.{fmt}" in self.file.tensors:
                return fmt
        raise PackageError(f"{self.file.path}: tensor {name} is missing (in any of the formats {', '.join(_FORMATS)})")

    @cached_property
    def identity(self) -> str:
        """Short text that tells two packages apart: a hash over the stored sums and the config."""
        text = self.file.metadata.get("sha256", "") + self.file.metadata["config"]
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def verify(self) -> Iterator[tuple[str, int]]:
        """Hash tensor after tensor, yielding (name, bytes) as each is done. PackageError at the first wrong one."""
        sums = _json_object(self.file, "sha256")
        for name, info in self.file.tensors.items():
            if hashlib.sha256(self.file.array(name).data).hexdigest() != sums.get(name):
                raise PackageError(f"{self.file.path}: tensor {name} is damaged: its SHA-256 is not the stored one")
            yield name, info.end - info.begin

    def _check(self, name: str, dtype: str, shape: tuple[int, ...]) -> None:
        info = self.file.tensors.get(name)
        if info is None:
            raise PackageError(f"{self.file.path}: tensor {name} is missing")
        if (info.dtype, info.shape) != (dtype, shape):
            raise PackageError(
                f"{self.file.path}: tensor {name} is {info.dtype} {list(info.shape)}, expected {dtype} {list(shape)}"
            )

    def _check_linear(self, spec: LinearSpec) -> None:
        fmt = self.format_of(spec.name)
        tiles = 1
        if fmt in MAX_K_TILE:
            scale = self.file.tensors.get(f"{spec.name}.scale")
            tiles = scale.shape[1] if scale is not None and len(scale.shape) == 3 else 1
            k = round_up(spec.k, K_BLOCK)
            if tiles == 0 or k % tiles or (k // tiles) % K_BLOCK or k // tiles > MAX_K_TILE[fmt]:
                raise PackageError(f"{self.file.path}: tensor {spec.name}.scale cuts K = {k} into {tiles} wrong tiles")
        for suffix, (dtype, shape) in spec.stored(fmt, tiles).items():
            self._check(f"{spec.name}.{suffix}", dtype, shape)
        if fmt == "w4" and not certified(self.file.array(f"{spec.name}.cert")):
            raise PackageError(f"{self.file.path}: tensor {spec.name}.cert exceeds the int16 bounds of one NPU run")


def _json_object(file: TensorFile, key: str) -> dict[str, Any]:
    return _parse_object(file.path, key, file.metadata.get(key, "").encode())


def _parse_object(path: str | Path, name: str, text: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise PackageError(f"{path}: {name} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise PackageError(f"{path}: {name} must be a JSON object")
    return value
