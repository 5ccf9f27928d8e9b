"""The verb `ling3 inspect`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from checkpoints import checkpoint, package
from random_checkpoint import FULL

from ling3.errors import PackageError, StartError
from ling3.inspect import describe, main, parameters, weight_bytes_per_token
from ling3.model.geometry import Geometry
from ling3.model.package import Package


@pytest.fixture(scope="module")
def w4(tmp_path_factory: pytest.TempPathFactory) -> Package:
    return package(checkpoint(tmp_path_factory.mktemp("inspect") / "source"))


def test_the_public_model_has_as_many_parameters_as_published() -> None:
    assert parameters(Geometry.from_config(FULL)) == 7_893_392_800


def test_formats_tiles_and_sizes_by_family(w4: Package) -> None:
    families = describe(w4)["families"]
    assert families["router"] == {
        "formats": ["f32"], "k_tiles": [], "linears": 3, "parameters": 3 * 8 * 64, "bytes": 3 * 8 * 64 * 4
    }  # fmt: skip
    assert families["embedding"] == {
        "formats": ["w8"], "k_tiles": [64], "linears": 1, "parameters": 288 * 64, "bytes": 288 * 64 + 288 * 4
    }  # fmt: skip
    # Eight experts of 64 x 64 and 64 x 32 in three layers, with scales, corrections and certificates.
    assert families["experts"]["parameters"] == 3 * 8 * 96 * 64
    assert families["experts"]["bytes"] == 3 * 8 * (96 * 64 // 2 + 2 * (64 * 4 + 64 * 4 + 8))
    assert families["experts"]["k_tiles"] == [32, 64]


def test_a_token_reads_its_share_of_the_experts_and_no_embedding(tmp_path: Path) -> None:
    p = package(checkpoint(tmp_path / "source"), weights="f32")
    families = describe(p)["families"]
    others = sum(family["bytes"] for name, family in families.items() if name not in ("embedding", "experts"))
    assert weight_bytes_per_token(p) == others + families["experts"]["bytes"] * 2 // 8


def test_a_tied_head_reads_the_embedding(tmp_path: Path) -> None:
    p = package(checkpoint(tmp_path / "source", tie_word_embeddings=True), weights="f32")
    families = describe(p)["families"]
    others = sum(family["bytes"] for name, family in families.items() if name != "experts")
    assert weight_bytes_per_token(p) == others + families["experts"]["bytes"] * 2 // 8


def test_the_printed_report(w4: Package, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(w4.file.path)]) == 0
    printed = capsys.readouterr().out
    assert "parameters  322,782\n" in printed
    assert "layers      4: 3 KDA, 1 MLA\n" in printed
    assert "tokenizer   271 ids, " in printed
    assert "embedding   w8      64                     1          18,432    19.58 kB\n" in printed
    assert "verified" not in printed


def test_the_report_as_json(w4: Package, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(w4.file.path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["parameters"] == 322_782
    assert report["geometry"]["experts"] == 8
    assert report["source"]["kind"] == "bf16"
    assert report["tokenizer"]["end_of_turn"] == [260]


def test_verifying_a_whole_package(w4: Package, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(w4.file.path), "--verify"]) == 0
    printed = capsys.readouterr()
    assert f"verified: the SHA-256 sums of all {len(w4.file.tensors)} tensors are right" in printed.out
    assert "verify: " in printed.err


def test_verifying_a_damaged_package(w4: Package, tmp_path: Path) -> None:
    data = bytearray(w4.file.path.read_bytes())
    data[w4.file.tensors["norm"].begin] ^= 1
    (tmp_path / "damaged.l3r").write_bytes(data)
    with pytest.raises(PackageError, match=r"damaged\.l3r: tensor norm is damaged"):
        main([str(tmp_path / "damaged.l3r"), "--verify"])


def test_wrong_options_are_one_error() -> None:
    with pytest.raises(StartError, match="the following arguments are required: PACKAGE"):
        main([])
