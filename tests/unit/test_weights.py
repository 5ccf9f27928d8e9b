"""What start lines and `/health` say of a package's weights (E-26, E-27)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from packages import tiny_package

from ling3.convert.recipe import Weights
from ling3.model import Package
from ling3.weights import weight_format, weight_memory


def opened(folder: Path, weights: Weights) -> Package:
    return Package.open(tiny_package(folder / f"{weights}.l3r", weights))


@pytest.fixture(scope="module")
def w4(tmp_path_factory: pytest.TempPathFactory) -> Package:
    return opened(tmp_path_factory.mktemp("package"), "w4")


def test_a_package_of_both_integer_formats_names_the_families(w4: Package) -> None:
    formats = weight_format(w4)
    assert (formats["source"], formats["execution"]) == ("self_contained_selective_w4_w8", "mixed_W4A8_W8A8")
    assert formats["w8_families"] == "embedding,head"
    assert formats["families"]["w4"] == ["attention", "dense", "experts", "shared"]


@pytest.mark.parametrize(
    ("weights", "execution", "w8_families"),
    [("w8", "W8A8", "attention,dense,embedding,experts,head,shared"), ("bf16", "float", ""), ("f32", "float", "")],
)
def test_a_package_of_one_format_is_not_mixed(
    tmp_path: Path, weights: Weights, execution: str, w8_families: str
) -> None:
    formats = weight_format(opened(tmp_path, weights))
    assert (formats["source"], formats["execution"]) == ("self_contained", execution)
    assert formats["w8_families"] == w8_families


def test_every_linear_is_counted_once(w4: Package) -> None:
    """Embedding and head; four layers with seven linears of attention and MLP each, three routers among them."""
    counts: dict[str, Any] = weight_format(w4)["linear_counts"]
    assert counts["w8"] == 2
    assert sum(counts.values()) == sum(name.endswith((".w4", ".w8", ".bf16", ".f32")) for name in w4.file.tensors)


SMAPS = """\
7f0000000000-7f0000010000 r--s 00000000 fe:01 42    {path}
Size:                 64 kB
Rss:                  48 kB
Pss:                  48 kB
7f0000010000-7f0000020000 rw-p 00000000 00:00 0     [heap]
Rss:                 999 kB
7f0000020000-7f0000030000 r--s 00010000 fe:01 42    {path}
Rss:                  16 kB
VmFlags: rd sh
7f0000040000-7f0000050000 r--s 00000000 fe:01 43    {path}.other
Rss:                 999 kB
7f0000050000-7f0000060000 r--s 00000000 fe:01 43    /other{path}
Rss:                 999 kB
"""


def test_the_resident_part_of_the_mapped_file_is_told(w4: Package, tmp_path: Path) -> None:
    smaps = tmp_path / "smaps"
    smaps.write_text(SMAPS.format(path=w4.file.path.resolve()))
    assert weight_memory(w4, smaps) == {
        "source_weight_discard_advised_mib": 0.0,
        "source_weight_pagecache_resident_mib": 64 / 1024,
        "source_weight_cache_advice_failures": 0,
    }


def test_a_system_without_smaps_tells_nothing(w4: Package, tmp_path: Path) -> None:
    assert weight_memory(w4, tmp_path / "smaps")["source_weight_pagecache_resident_mib"] == 0.0


def test_what_was_read_is_resident(w4: Package) -> None:
    for name in w4.file.tensors:
        w4.file.raw(name)
    size = w4.file.path.stat().st_size / (1 << 20)
    assert 0 < weight_memory(w4)["source_weight_pagecache_resident_mib"] <= size + 0.01
