"""A safetensors file, mapped: header checks and arrays without copies.

The safetensors library's NumPy side knows neither bfloat16 nor FP8 and offers no mapping, so the
header, 8 bytes of length and one JSON object, is read here. All checks happen at opening.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from ling3.errors import PackageError

DTYPES: dict[str, type[np.generic]] = {
    "F32": np.float32, "F16": np.float16, "BF16": np.uint16, "F8_E4M3": np.uint8, "F8_E8M0": np.uint8,
    "I64": np.int64, "I32": np.int32, "I8": np.int8, "U8": np.uint8,
}  # fmt: skip
"""NumPy type of the bits of each dtype; bfloat16 and the FP8 forms come as raw bits."""
_MAX_HEADER = 100_000_000


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where one tensor lies: `begin` and `end` are file offsets in bytes."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


class TensorFile:
    """An open file: `metadata` (the strings of `__metadata__`), `tensors`, `array(name)`, `raw(name)`."""

    def __init__(self, path: Path, metadata: Mapping[str, str], tensors: Mapping[str, TensorInfo], data: mmap.mmap):
        self.path = path
        self.metadata = metadata
        self.tensors = tensors
        self._data = data

    @classmethod
    def open(cls, path: Path) -> TensorFile:
        """Map a file and check its header. Raises PackageError naming the file and what is wrong."""
        try:
            with path.open("rb") as file:
                size = file.seek(0, 2)
                if size < 16:
                    raise PackageError(f"{path}: {size} bytes are too short for a safetensors file")
                data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        except OSError as error:
            raise PackageError(f"{path}: {error.strerror or error}") from error
        length = int.from_bytes(data[:8], "little")
        if not 2 <= length <= _MAX_HEADER or data[8:9] != b"{":
            raise PackageError(f"{path}: not a safetensors file (no header at its start)")
        if 8 + length > size:
            raise PackageError(f"{path}: truncated in its header, {size} of at least {8 + length} bytes")
        try:
            header = orjson.loads(data[8 : 8 + length])
        except orjson.JSONDecodeError as error:
            raise PackageError(f"{path}: damaged header: {error}") from error
        if not isinstance(header, dict):
            raise PackageError(f"{path}: damaged header: not an object")
        metadata = header.pop("__metadata__", {})
        if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
            raise PackageError(f"{path}: damaged header: __metadata__ must map names to text")
        tensors = {name: _info(path, name, entry, 8 + length, size) for name, entry in header.items()}
        return cls(path, metadata, tensors, data)

    def array(self, name: str) -> NDArray[Any]:
        """The mapped, read-only array of a tensor; KeyError if there is none."""
        info = self.tensors[name]
        dtype = np.dtype(DTYPES[info.dtype])
        count = (info.end - info.begin) // dtype.itemsize
        return np.frombuffer(self._data, dtype, count, info.begin).reshape(info.shape)

    def raw(self, name: str) -> bytes:
        """A tensor's raw bytes, copied."""
        info = self.tensors[name]
        return self._data[info.begin : info.end]


def _info(path: Path, name: str, entry: Any, base: int, size: int) -> TensorInfo:
    try:
        dtype, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        sane = isinstance(dtype, str) and all(type(n) is int and n >= 0 for n in (*shape, begin, end))
    except (TypeError, KeyError, ValueError):
        sane = False
    if not sane:
        raise PackageError(f"{path}: damaged header: tensor {name} is not described properly")
    if dtype not in DTYPES:
        raise PackageError(f"{path}: tensor {name} has the unknown dtype {dtype!r}")
    count = 1
    for n in shape:
        count *= n
    if end - begin != count * np.dtype(DTYPES[dtype]).itemsize:
        raise PackageError(f"{path}: damaged header: tensor {name}, shape {list(shape)}, cannot be {end - begin} bytes")
    if base + end > size:
        raise PackageError(f"{path}: truncated: tensor {name} ends at byte {base + end}, the file at {size}")
    return TensorInfo(dtype, shape, base + begin, base + end)
