"""Tiny checkpoint folders for tests, and their values decoded by other means than the product's."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from random_checkpoint import TINY, write_checkpoint, write_safetensors

from ling3.convert import convert
from ling3.model.package import Package
from ling3.model.tensor_file import TensorFile

Tensors = dict[str, tuple[str, NDArray[Any]]]
"""Name -> dtype and bits."""


CHAT_TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"
"""Compiles much faster than the one of Ling-3.0."""


def checkpoint(folder: Path, form: str = "bf16", shard_bytes: int = 1 << 60, **changes: Any) -> Path:
    """Write a tiny checkpoint with a chat template; `changes` replace fields of the config."""
    write_checkpoint(folder, TINY | changes, form, shard_bytes)
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    return folder


def package(source: Path, **options: Any) -> Package:
    """Convert beside the source and open."""
    out = source.with_suffix(".l3r")
    convert(source, out, **options)
    return Package.open(out)


def read_tensors(folder: Path) -> Tensors:
    """All tensors of all shards."""
    tensors: Tensors = {}
    for shard in sorted(folder.glob("*.safetensors")):
        file = TensorFile.open(shard)
        tensors |= {name: (info.dtype, file.array(name).copy()) for name, info in file.tensors.items()}
    return tensors


def write_tensors(folder: Path, tensors: Tensors) -> None:
    """Put all tensors in one file, in place of what is there."""
    for old in [*folder.glob("*.safetensors"), *folder.glob("*.index.json")]:
        old.unlink()
    described = [(name, dtype, array.shape) for name, (dtype, array) in tensors.items()]
    write_safetensors(folder / "model.safetensors", described, lambda tensor: iter([tensors[tensor[0]][1]]))


def change(folder: Path, edit: Callable[[Tensors], None]) -> Path:
    """Edit the tensors of a folder."""
    tensors = read_tensors(folder)
    edit(tensors)
    write_tensors(folder, tensors)
    return folder


def edit_json(path: Path, **changes: Any) -> None:
    """Replace fields of a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def values(folder: Path) -> dict[str, NDArray[np.float32]]:
    """The network's tensors of a folder as float32, decoded one format rule at a time."""
    tensors = read_tensors(folder)
    result: dict[str, NDArray[np.float32]] = {}
    for name, (dtype, bits) in tensors.items():
        if name.endswith("_packed"):
            result[name.removesuffix("_packed")] = _int4(tensors, name.removesuffix("_packed"))
        elif dtype == "F8_E4M3":
            result[name] = _fp8(bits, tensors[name + "_scale_inv"][1])
        elif not name.endswith(("_scale", "_shape", "_scale_inv")):
            result[name] = _bf16(bits) if dtype == "BF16" else bits.astype(np.float32)
    return result


def _bf16(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    halves = np.zeros((*bits.shape, 2), np.uint16)
    halves[..., 1] = bits
    return halves.view(np.float32)[..., 0]


def _int4(tensors: Mapping[str, tuple[str, NDArray[Any]]], name: str) -> NDArray[np.float32]:
    words = tensors[name + "_packed"][1].view(np.uint32)
    nibbles = np.stack([words >> np.uint32(4 * j) & np.uint32(15) for j in range(8)], axis=-1)
    q = nibbles.reshape(words.shape[0], -1).astype(np.float32) - 8
    return q * np.repeat(_bf16(tensors[name + "_scale"][1]), 32, axis=1)


def _fp8(codes: NDArray[np.uint8], scale: NDArray[np.uint8]) -> NDArray[np.float32]:
    one = np.vectorize(_e4m3, otypes=[np.float64])
    factor = 2.0 ** (scale.astype(np.float64) - 127)
    blocks = np.repeat(np.repeat(factor, 128, axis=0), 128, axis=1)[: codes.shape[0], : codes.shape[1]]
    return np.asarray(one(codes) * blocks, np.float32)


def _e4m3(code: int) -> float:
    sign, exponent, fraction = (-1.0) ** (code >> 7), code >> 3 & 15, code & 7
    return float(sign * (fraction / 8 * 2**-6 if exponent == 0 else (1 + fraction / 8) * 2.0 ** (int(exponent) - 7)))
