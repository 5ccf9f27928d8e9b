"""What a conversion writes: rounded weights, K tiles, the file's layout, and that a failure leaves nothing."""

from __future__ import annotations

import errno
import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from checkpoints import checkpoint, package, values
from numpy.typing import NDArray
from safetensors import safe_open

from ling3.convert import convert, encode
from ling3.convert.encode import Chunk, write_linear
from ling3.convert.writer import PackageWriter
from ling3.errors import PackageError
from ling3.linear.formats import (
    Format,
    certificate,
    correction,
    quantise,
    quantise_certified,
    to_bf16,
    unpack_w4,
    unpack_w8,
)
from ling3.model.layout import LinearSpec
from ling3.model.package import Package
from ling3.model.tensor_file import TensorFile

GATE_UP = "layers.1.moe.gate_up"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("writing") / "source")


@pytest.fixture(scope="module")
def w4(source: Path) -> Package:
    return package(source)


def expert(source: Path, e: int) -> NDArray[np.float32]:
    v = values(source)
    return np.concatenate([v[f"model.layers.1.mlp.experts.{e}.{half}_proj.weight"] for half in ("gate", "up")])


# Weights


def test_w4_holds_the_rounded_weights_of_every_expert(source: Path, w4: Package) -> None:
    for e in range(8):
        q = quantise_certified(expert(source, e))
        assert np.array_equal(unpack_w4(w4.file.array(f"{GATE_UP}.w4")[e]), q.values)
        assert np.array_equal(w4.file.array(f"{GATE_UP}.scale")[e], q.scale)
        assert np.array_equal(w4.file.array(f"{GATE_UP}.corr")[e], correction(q.values, q.tile))
        assert np.array_equal(w4.file.array(f"{GATE_UP}.cert")[e], certificate(q.values, q.tile))


def test_w8_holds_the_rounded_embedding(source: Path, w4: Package) -> None:
    q = quantise(values(source)["model.word_embeddings.weight"], "w8")
    assert np.array_equal(unpack_w8(w4.file.array("embedding.w8")[0]), q.values)
    assert np.array_equal(w4.file.array("embedding.scale")[0], q.scale)


def test_bf16_keeps_the_bits_of_a_bfloat16_source(source: Path, tmp_path: Path) -> None:
    convert(source, tmp_path / "bf16.l3r", weights="bf16")
    stored = Package.open(tmp_path / "bf16.l3r").file.array("head.bf16")[0]
    assert np.array_equal(stored, to_bf16(values(source)["lm_head.weight"]))


@pytest.mark.parametrize("weights", ["w4", "w8"])
def test_the_result_does_not_depend_on_chunks(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weights: str
) -> None:
    convert(source, tmp_path / "whole.l3r", weights=weights)
    monkeypatch.setattr(encode, "CHUNK_WEIGHTS", 1)
    convert(source, tmp_path / "chunks.l3r", weights=weights)
    assert (tmp_path / "chunks.l3r").read_bytes() == (tmp_path / "whole.l3r").read_bytes()


# K tiles


def stored_linear(folder: Path, fmt: Format, wish: int | None, w: NDArray[np.float32]) -> tuple[TensorFile, float]:
    """Write one linear w [E, n, k], as chunks of 64 outputs, and read it back; also the sum of all progress."""
    experts, n, k = w.shape
    spec = LinearSpec("linear", "experts", n, k, experts)
    expected = [(f"linear.{suffix}", *shape) for suffix, shape in spec.stored(fmt, -(-k // 32)).items()]
    shares: list[float] = []

    def rows(chunk: Chunk) -> NDArray[np.float32]:
        return w[chunk.expert, chunk.begin : chunk.end]

    with PackageWriter(folder / "one.l3r", {}, expected) as writer, ThreadPoolExecutor(2) as pool:
        write_linear(writer, spec, fmt, wish, rows, pool, shares.append)
        writer.seal()
        writer.publish()
    return TensorFile.open(folder / "one.l3r"), sum(shares)


def test_one_column_that_would_overflow_shortens_the_tile_of_the_whole_linear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last output of the last expert has only weights of one size: 1024 of them times 7 times 8 exceed int16."""
    monkeypatch.setattr(encode, "CHUNK_WEIGHTS", 64 * 1024)
    w = np.random.default_rng(0).standard_normal((3, 128, 1024), dtype=np.float32)
    w[2, 127] = 1.0
    file, progress = stored_linear(tmp_path, "w4", None, w)
    assert file.array("linear.scale").shape == (3, 2, 128)
    assert file.array("linear.cert")[2].max() == 7 * 8 * 512
    for e in range(3):
        q = quantise(w[e], "w4", 512)
        assert np.array_equal(unpack_w4(file.array("linear.w4")[e]), q.values)
        assert np.array_equal(file.array("linear.scale")[e], q.scale)
    assert progress == pytest.approx(1.0)


@pytest.mark.parametrize("fmt", ["w4", "w8"])
@pytest.mark.parametrize(("wish", "tiles"), [(None, 1), (512, 2), (256, 4)])
def test_a_wished_tile_is_kept(tmp_path: Path, fmt: Format, wish: int | None, tiles: int) -> None:
    w = np.random.default_rng(0).standard_normal((1, 64, 1024), dtype=np.float32) * np.float32(0.02)
    assert stored_linear(tmp_path, fmt, wish, w)[0].array("linear.scale").shape == (1, tiles, 64)


# The file


def test_the_safetensors_library_reads_a_package(w4: Package) -> None:
    with safe_open(w4.file.path, "np") as file:
        assert file.metadata()["format"] == "l3r/1"
        assert set(file.keys()) == set(w4.file.tensors)
        assert np.array_equal(file.get_tensor("layers.0.kda.a_log"), w4.vector("layers.0.kda.a_log"))


def test_every_tensor_begins_at_a_multiple_of_64_and_the_data_at_one_of_4096(w4: Package) -> None:
    begins = [info.begin for name, info in w4.file.tensors.items() if not name.startswith("~pad.")]
    assert {begin % 64 for begin in begins} == {0}
    assert min(begins) % 4096 == 0


def test_there_is_no_hole_between_tensors(w4: Package) -> None:
    infos = sorted(w4.file.tensors.values(), key=lambda info: info.begin)
    assert [info.begin for info in infos[1:]] == [info.end for info in infos[:-1]]
    assert infos[-1].end == w4.file.path.stat().st_size


def test_every_hash_is_right(w4: Package) -> None:
    assert {name for name, _ in w4.verify()} == set(w4.file.tensors)


def test_the_source_is_identified(source: Path, w4: Package) -> None:
    config_sum = hashlib.sha256((source / "config.json").read_bytes()).hexdigest()
    assert w4.source["folder"] == "source"
    assert w4.source["kind"] == "bf16"
    assert w4.source["sha256"] == {"config.json": config_sum}


def test_config_and_recipe_are_kept(source: Path, w4: Package) -> None:
    assert w4.config == json.loads((source / "config.json").read_text())
    assert w4.recipe["weights"] == "w4"
    assert w4.recipe["tile"] == "full"
    assert w4.recipe["families"]["embedding"] == "w8"


def test_converting_twice_gives_the_same_bytes(source: Path, w4: Package, tmp_path: Path) -> None:
    convert(source, tmp_path / "again.l3r")
    assert (tmp_path / "again.l3r").read_bytes() == w4.file.path.read_bytes()


# Failures


def test_a_package_is_replaced_only_by_a_whole_one(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.l3r"
    out.write_bytes(b"old")

    def fails(*_: object) -> None:
        assert out.read_bytes() == b"old"
        assert (tmp_path / "out.l3r.part").exists()
        raise KeyboardInterrupt

    monkeypatch.setattr("ling3.convert.conversion.write_linear", fails)
    with pytest.raises(KeyboardInterrupt):
        convert(source, out)
    assert [path.name for path in tmp_path.iterdir()] == ["out.l3r"]
    assert out.read_bytes() == b"old"


def test_the_leftover_of_a_killed_run_is_overwritten(source: Path, w4: Package, tmp_path: Path) -> None:
    (tmp_path / "out.l3r.part").write_bytes(bytes(10_000_000))
    convert(source, tmp_path / "out.l3r")
    assert (tmp_path / "out.l3r").read_bytes() == w4.file.path.read_bytes()


def test_a_full_disk_is_one_error_and_leaves_nothing(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(PackageError, match=r"out\.l3r\.part: No space left on device"):
        convert(source, tmp_path / "out.l3r")
    assert not list(tmp_path.iterdir())


def test_a_disk_without_room_is_refused_before_writing(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage:
        free = 1000

    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage)
    with pytest.raises(PackageError, match=r"the package needs 0\.0 GB, only 0\.0 GB are free"):
        convert(source, tmp_path / "out.l3r")


def test_an_output_folder_that_is_not_there(source: Path, tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="nowhere: No such file or directory"):
        convert(source, tmp_path / "nowhere" / "out.l3r")


def test_an_output_that_is_a_folder(source: Path, tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="is a folder"):
        convert(source, tmp_path)
