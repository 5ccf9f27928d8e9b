"""Writes a package: tensors streamed behind a header that is filled in last, then one rename (D-15).

The safetensors format allows no holes, so alignment is made of bytes that belong to something: spaces at
the end of the header, and small tensors `~pad.N` behind those whose size is no multiple of 64.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from ling3.errors import PackageError
from ling3.linear.formats import round_up

ALIGNMENT, DATA_ALIGNMENT = 64, 4096
PAD = "~pad."
_FLUSH_BYTES = 64 << 20
"""Written pages are pushed to the disk and dropped from the page cache in steps of this size."""
_SHA256 = "sha256"

Described = tuple[str, str, tuple[int, ...]]
"""Name, dtype and shape of a tensor."""


class PackageWriter:
    """Use as a context: on leaving without `finish`, or with an error, the temporary file is removed.

    `expected`: all tensors to come, no shape smaller than in the end; it fixes the room for the header.
    PackageError naming the file if the disk is full or refuses.
    """

    def __init__(self, out: Path, metadata: Mapping[str, str], expected: Iterable[Described]) -> None:
        self._out = out
        self.path = out.with_name(out.name + ".part")
        self._metadata = dict(metadata)
        self._base = _header_room(metadata, expected)
        self._entries: dict[str, dict[str, Any]] = {}
        self._sums: dict[str, str] = {}
        self._open: Described | None = None
        self._begin = self._end = self._flushed = 0
        self._hash = hashlib.sha256()
        try:
            self._file = self.path.open("wb", buffering=0)
            self._file.seek(self._base)
        except OSError as error:
            raise self._refused(error) from error

    def __enter__(self) -> PackageWriter:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._file.closed:
            self._file.close()
            self.path.unlink(missing_ok=True)

    def begin(self, name: str, dtype: str, shape: tuple[int, ...]) -> None:
        """Start a tensor; its bytes come by `write`."""
        assert self._open is None and name not in self._entries
        self._open = (name, dtype, shape)
        self._begin = self._end
        self._hash = hashlib.sha256()

    def write(self, array: NDArray[Any]) -> None:
        """Append to the open tensor."""
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        self._hash.update(data)
        self._end += len(data)
        try:
            while data:
                data = data[self._file.write(data) or 0 :]
            if self._end - self._flushed >= _FLUSH_BYTES:
                os.fdatasync(self._file.fileno())
                os.posix_fadvise(self._file.fileno(), self._base + self._flushed, 0, os.POSIX_FADV_DONTNEED)
                self._flushed = self._end
        except OSError as error:
            raise self._refused(error) from error

    def end(self) -> None:
        """The open tensor is whole."""
        assert self._open is not None
        name, dtype, shape = self._open
        self._open = None
        self._entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [self._begin, self._end]}
        self._sums[name] = self._hash.hexdigest()
        if missing := -self._end % ALIGNMENT:
            self.add(f"{PAD}{len(self._entries)}", "U8", (missing,), np.zeros(missing, np.uint8))

    def abandon(self) -> None:
        """Forget the open tensor and what was written of it."""
        self._open = None
        self._end = self._begin
        self._flushed = min(self._flushed, self._end)
        self._file.seek(self._base + self._end)

    def add(self, name: str, dtype: str, shape: tuple[int, ...], array: NDArray[Any]) -> None:
        """A whole tensor at once."""
        self.begin(name, dtype, shape)
        self.write(array)
        self.end()

    def seal(self) -> None:
        """Write the header; the temporary file is then a complete package on the disk."""
        assert self._open is None
        header = _header(self._metadata | {_SHA256: orjson.dumps(self._sums).decode()}, self._entries)
        room = self._base - 8
        assert len(header) <= room, "the header outgrew the room that `expected` promised"
        try:
            self._file.truncate(self._base + self._end)
            self._file.seek(0)
            self._file.write(room.to_bytes(8, "little") + header.ljust(room))
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._refused(error) from error

    def publish(self) -> None:
        """Put the sealed file in the place of `out`, for good."""
        try:
            os.replace(self.path, self._out)
            folder = os.open(self._out.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise self._refused(error) from error
        self._file.close()

    def _refused(self, error: OSError) -> PackageError:
        return PackageError(f"{self.path}: {error.strerror or error}")


def _header(metadata: Mapping[str, str], entries: Mapping[str, Any]) -> bytes:
    return orjson.dumps({"__metadata__": metadata, **entries})


def _header_room(metadata: Mapping[str, str], expected: Iterable[Described]) -> int:
    """Bytes before the data, enough for any outcome: every tensor hashed, and with a filler behind it."""
    digest, last = "0" * 64, 10**15
    entries: dict[str, Any] = {}
    for number, (name, dtype, shape) in enumerate(expected):
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [last, last]}
        entries[f"{PAD}{10**6 + number}"] = {"dtype": "U8", "shape": [ALIGNMENT], "data_offsets": [last, last]}
    sums = orjson.dumps(dict.fromkeys(entries, digest)).decode()
    return round_up(8 + len(_header({**metadata, _SHA256: sums}, entries)), DATA_ALIGNMENT)
