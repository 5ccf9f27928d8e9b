"""A checkpoint folder in the public layout: its config, its shards, and its tensors by name (M-50...M-53).

Tensors are read by slices of rows with plain reads, not through the mapping: a checkpoint is larger than
memory, is read once, and must leave neither resident pages nor page cache behind.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from ling3.convert.encodings import FP8_BLOCK, INT4_GROUP, decode_float, decode_fp8, decode_int4
from ling3.convert.names import canonical, is_rotary_buffer
from ling3.errors import PackageError
from ling3.model.tensor_file import DTYPES, TensorFile, TensorInfo

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
_FLOATS = ("F32", "F16", "BF16")
_KINDS = {"F32": "fp32", "F16": "fp16", "BF16": "bf16"}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor as it lies in a shard; `name` is its name there."""

    name: str
    path: Path
    descriptor: int
    info: TensorInfo

    @property
    def dtype(self) -> str:
        return self.info.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.info.shape

    @property
    def nbytes(self) -> int:
        return self.info.end - self.info.begin

    def rows(self, begin: int, end: int) -> NDArray[Any]:
        """Rows begin:end of the first axis, raw bits for BF16 and the FP8 forms."""
        rows, rest = self.shape[0], self.shape[1:]
        row_bytes = self.nbytes // rows if rows else 0
        offset, size = self.info.begin + begin * row_bytes, (end - begin) * row_bytes
        data = np.empty(size, np.uint8)
        filled = 0
        while filled < size:
            try:
                count = os.preadv(self.descriptor, [data.data[filled:]], offset + filled)
            except OSError as error:
                raise PackageError(f"{self.path}: tensor {self.name}: {error.strerror or error}") from error
            if count == 0:
                raise PackageError(f"{self.path}: tensor {self.name}: the file became shorter while it was read")
            filled += count
        os.posix_fadvise(self.descriptor, offset, size, os.POSIX_FADV_DONTNEED)
        return data.view(DTYPES[self.dtype]).reshape(end - begin, *rest)


@dataclass(frozen=True, slots=True)
class SourceTensor:
    """A tensor of the network: its weight, its scale if it is quantised, and what else is stored about it."""

    shape: tuple[int, ...]
    weight: StoredTensor
    scale: StoredTensor | None = None
    size: StoredTensor | None = None

    @property
    def stored(self) -> tuple[StoredTensor, ...]:
        return tuple(tensor for tensor in (self.weight, self.scale, self.size) if tensor is not None)

    def rows(self, begin: int, end: int) -> NDArray[np.float32]:
        """Rows begin:end of the first axis, exact in float32."""
        raw = self.weight.rows(begin, end)
        if self.scale is None:
            return decode_float(raw, self.weight.dtype)
        if self.weight.dtype == "I32":
            return decode_int4(raw, self.scale.rows(begin, end))
        return decode_fp8(raw, self.scale.rows(0, self.scale.shape[0]), begin)


class Checkpoint:
    """An open folder. `config`: its `config.json`; `kind`: bf16, fp16, fp32, fp8 or int4; `nbytes`: of all tensors."""

    def __init__(self, folder: Path) -> None:
        """Read config, index and the header of every shard. PackageError naming file and tensor if one is unusable."""
        self.folder = folder
        self.config = read_json(folder / "config.json")
        self._files = ExitStack()
        try:
            self._tensors = dict(self._collect())
        except BaseException:
            self._files.close()
            raise
        self.nbytes = sum(tensor.nbytes for tensor in self._tensors.values())
        self.kind = self._kind()

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def __contains__(self, name: str) -> bool:
        return any(canonical(name + ending) in self._tensors for ending in ("", "_packed"))

    def tensor(self, name: str, shape: tuple[int, ...]) -> SourceTensor:
        """A tensor under its public name. PackageError naming it if it is missing or not of `shape` (M-50)."""
        if canonical(name + "_packed") in self._tensors:
            return self._int4(name, shape)
        weight = self._stored(name)
        scale_name = name + "_scale_inv"
        if weight.dtype != "F8_E4M3" and canonical(scale_name) not in self._tensors:
            _expect(weight, _FLOATS, shape)
            return SourceTensor(shape, weight)
        scale = self._stored(scale_name)
        _expect(weight, ("F8_E4M3",), shape)
        _expect(scale, ("F8_E8M0",), tuple(-(-n // FP8_BLOCK) for n in shape))
        return SourceTensor(shape, weight, scale)

    @property
    def names(self) -> set[str]:
        """Names, as stored, of all tensors but rotary buffers."""
        return {tensor.name for key, tensor in self._tensors.items() if not is_rotary_buffer(key)}

    def _int4(self, name: str, shape: tuple[int, ...]) -> SourceTensor:
        packed, scale, size = (self._stored(name + ending) for ending in ("_packed", "_scale", "_shape"))
        if len(shape) != 2 or shape[1] % INT4_GROUP:
            raise PackageError(
                f"{packed.path}: tensor {packed.name}: {list(shape)} cannot be in groups of {INT4_GROUP}"
            )
        _expect(size, ("I64",), (2,))
        if tuple(size.rows(0, 2)) != shape:
            raise PackageError(f"{size.path}: tensor {size.name} is {size.rows(0, 2).tolist()}, expected {list(shape)}")
        _expect(packed, ("I32",), (shape[0], shape[1] // 8))
        _expect(scale, ("BF16",), (shape[0], shape[1] // INT4_GROUP))
        return SourceTensor(shape, packed, scale, size)

    def _stored(self, name: str) -> StoredTensor:
        tensor = self._tensors.get(canonical(name))
        if tensor is None:
            raise PackageError(f"{self.folder}: tensor {name} is missing")
        return tensor

    def _kind(self) -> str:
        if any(name.endswith("_packed") for name in self._tensors):
            return "int4"
        if any(name.endswith("_scale_inv") for name in self._tensors):
            return "fp8"
        embedding = self._stored("model.word_embeddings.weight")
        return _KINDS.get(embedding.dtype, embedding.dtype)

    def _collect(self) -> Iterator[tuple[str, StoredTensor]]:
        seen: dict[str, str] = {}
        for shard, names in _shards(self.folder).items():
            path = self.folder / shard
            file = TensorFile.open(path)
            descriptor = self._files.enter_context(path.open("rb")).fileno()
            # Reads are large already, and those of one linear skip others: reading ahead would fetch bytes twice.
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
            for name in file.tensors if names is None else names:
                info = file.tensors.get(name)
                if info is None:
                    raise PackageError(f"{path}: tensor {name} is missing, though {INDEX} places it here")
                key = canonical(name)
                if key in seen:
                    raise PackageError(f"{path}: tensor {name} is there twice, also as {seen[key]}")
                seen[key] = name
                yield key, StoredTensor(name, path, descriptor, info)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object in a file. PackageError naming the file if there is none."""
    try:
        value = orjson.loads(path.read_bytes())
    except OSError as error:
        raise PackageError(f"{path}: {error.strerror or error}") from error
    except orjson.JSONDecodeError as error:
        raise PackageError(f"{path}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise PackageError(f"{path}: must be a JSON object")
    return value


def _shards(folder: Path) -> dict[str, list[str] | None]:
    """Shard files and the tensors that the index places in each; None: all that the file holds."""
    index = folder / INDEX
    if not index.exists():
        if not (folder / SINGLE).exists():
            raise PackageError(f"{folder}: neither {SINGLE} nor {INDEX} is there")
        return {SINGLE: None}
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise PackageError(f"{index}: weight_map is missing")
    shards: dict[str, list[str] | None] = {}
    for name, shard in places.items():
        if not isinstance(shard, str) or Path(shard).name != shard:
            raise PackageError(f"{index}: tensor {name} lies in {shard!r}, which is no file of this folder")
        names = shards.setdefault(shard, [])
        assert names is not None
        names.append(name)
    return shards


def _expect(tensor: StoredTensor, dtypes: tuple[str, ...], shape: tuple[int, ...]) -> None:
    if tensor.shape != shape:
        raise PackageError(
            f"{tensor.path}: tensor {tensor.name} has the shape {list(tensor.shape)}, expected {list(shape)}"
        )
    if tensor.dtype not in dtypes:
        raise PackageError(f"{tensor.path}: tensor {tensor.name} is {tensor.dtype}, expected {' or '.join(dtypes)}")
