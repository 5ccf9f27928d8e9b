"""From a checkpoint folder to a package: everything is checked first, then written linear by linear (D-16).

Memory holds a few chunks of one linear at a time, whatever the size of the model.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from ling3 import __version__
from ling3.convert.checkpoint import INDEX, Checkpoint
from ling3.convert.encode import Chunk, first_tile, write_linear
from ling3.convert.gather import check_complete, matrix_parts, read_rows, source_bytes, vector_parts
from ling3.convert.recipe import Recipe, make_recipe
from ling3.convert.texts import Texts, read_texts
from ling3.convert.writer import Described, PackageWriter
from ling3.errors import PackageError
from ling3.linear.formats import K_BLOCK, MAX_K_TILE, round_up
from ling3.model.geometry import Geometry
from ling3.model.layout import CHAT_TEMPLATE, FORMAT, GENERATION, TOKENIZER, LinearSpec, linear_specs, vector_specs
from ling3.model.package import Package
from ling3.model.tensor_file import DTYPES
from ling3.progress import Progress
from ling3.tell import tell


def convert(
    source: Path, out: Path, *, weights: str = "w4", tile: int | None = None, recipe: Path | None = None
) -> None:
    """Make the package `out` of the checkpoint folder `source`, replacing `out` only when all is done.

    `weights` sets the formats of all families, `recipe` (a JSON file {family: format}) overrides some; `tile` is the
    longest K tile of `w4` and `w8`, None the full width. StartError naming option, file or tensor if something is
    wrong; progress and notices go to stderr.
    """
    with Checkpoint(source) as checkpoint:
        try:
            g = Geometry.from_config(checkpoint.config)
        except PackageError as error:
            raise PackageError(f"{source / 'config.json'}: {error}") from error
        plan = make_recipe(g, weights, tile, recipe)
        texts = read_texts(source, checkpoint.config, g.vocab_size)
        check_complete(checkpoint, g)
        _check_room(out, sum(_nbytes(tensor) for tensor in _described(g, plan, texts, longest_tiles=True)))
        for notice in texts.notices:
            tell(f"notice: {notice}")
        metadata = {
            "format": FORMAT,
            "config": orjson.dumps(checkpoint.config).decode(),
            "recipe": orjson.dumps(plan.as_json()).decode(),
            "source": orjson.dumps(_identity(checkpoint)).decode(),
        }
        progress = Progress("convert", checkpoint.nbytes)
        try:
            with PackageWriter(out, metadata, _described(g, plan, texts, longest_tiles=False)) as writer:
                _write(writer, checkpoint, g, plan, texts, progress)
                writer.seal()
                Package.open(writer.path)
                writer.publish()
        except BaseException:
            progress.break_off()
            raise
        progress.finish()


def _write(
    writer: PackageWriter, checkpoint: Checkpoint, g: Geometry, plan: Recipe, texts: Texts, progress: Progress
) -> None:
    for name, data in _byte_tensors(texts).items():
        writer.add(name, "U8", (len(data),), np.frombuffer(data, np.uint8))
    for vector in vector_specs(g):
        parts = vector_parts(checkpoint, vector)
        values = read_rows(checkpoint, parts, 0, sum(part.rows for part in parts))
        writer.add(vector.name, "F32", vector.shape, values)
        progress.advance(source_bytes(checkpoint, parts))
    with ThreadPoolExecutor(min(8, len(os.sched_getaffinity(0)))) as pool:
        for linear in linear_specs(g):
            _write_linear(writer, checkpoint, g, plan, linear, pool, progress)


def _write_linear(
    writer: PackageWriter,
    checkpoint: Checkpoint,
    g: Geometry,
    plan: Recipe,
    linear: LinearSpec,
    pool: ThreadPoolExecutor,
    progress: Progress,
) -> None:
    parts = [matrix_parts(g, linear, expert) for expert in range(linear.experts)]
    size = sum(source_bytes(checkpoint, one) for one in parts)

    def rows(chunk: Chunk) -> NDArray[np.float32]:
        return read_rows(checkpoint, parts[chunk.expert], chunk.begin, chunk.end)

    def advance(share: float) -> None:
        progress.advance(round(share * size))

    write_linear(writer, linear, plan.families[linear.family], plan.tile, rows, pool, advance)


def _described(g: Geometry, plan: Recipe, texts: Texts, longest_tiles: bool) -> Iterator[Described]:
    """All tensors of the package: with the longest K tiles, the likely ones, or else with the shortest."""
    for name, data in _byte_tensors(texts).items():
        yield name, "U8", (len(data),)
    for vector in vector_specs(g):
        yield vector.name, "F32", vector.shape
    for linear in linear_specs(g):
        fmt = plan.families[linear.family]
        tiles = 1
        if fmt in MAX_K_TILE:
            tile = first_tile(linear, fmt, plan.tile) if longest_tiles else K_BLOCK
            tiles = round_up(linear.k, K_BLOCK) // tile
        for suffix, (dtype, shape) in linear.stored(fmt, tiles).items():
            yield f"{linear.name}.{suffix}", dtype, shape


def _byte_tensors(texts: Texts) -> dict[str, bytes]:
    return {
        TOKENIZER: texts.tokenizer_json,
        CHAT_TEMPLATE: texts.chat_template.encode(),
        GENERATION: orjson.dumps(texts.generation),
    }


def _nbytes(tensor: Described) -> int:
    _, dtype, shape = tensor
    return int(np.prod(shape, dtype=np.int64)) * np.dtype(DTYPES[dtype]).itemsize


def _check_room(out: Path, needed: int) -> None:
    folder = out.absolute().parent
    if out.is_dir():
        raise PackageError(f"{out}: is a folder; name the package file")
    if out.suffix != ".l3r":  # a slip must not replace the checkpoint, or any other file
        raise PackageError(f"{out}: a package's name ends in .l3r")
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise PackageError(f"{folder}: {error.strerror or error}") from error
    if free < needed:
        raise PackageError(f"{folder}: the package needs {needed / 1e9:.1f} GB, only {free / 1e9:.1f} GB are free")


def _identity(checkpoint: Checkpoint) -> dict[str, Any]:
    """Where a package comes from. The index names every tensor and shard, so its sum stands for the layout."""
    folder = checkpoint.folder
    names = [name for name in ("config.json", INDEX) if (folder / name).exists()]
    return {
        "folder": folder.absolute().name,
        "kind": checkpoint.kind,
        "bytes": checkpoint.nbytes,
        "sha256": {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names},
        "created": datetime.now(UTC).date().isoformat(),
        "ling3": __version__,
    }
