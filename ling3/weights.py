"""What `/health` and the start lines say of a package's weights (E-26, E-27)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from ling3.model import Package
from ling3.model.layout import linear_specs


def weight_format(package: Package) -> dict[str, Any]:
    """Formats by family, counted from the package itself (E-26)."""
    formats: dict[str, set[str]] = {}
    counts: Counter[str] = Counter()
    for spec in linear_specs(package.geometry):
        fmt = package.format_of(spec.name)
        formats.setdefault(fmt, set()).add(spec.family)
        counts[fmt] += 1
    integer = [f"{fmt.upper()}A8" for fmt in ("w4", "w8") if fmt in formats]
    mixed = len(integer) == 2
    return {
        "source": "self_contained_selective_w4_w8" if mixed else "self_contained",
        "execution": f"mixed_{'_'.join(integer)}" if mixed else (integer or ["float"])[0],
        "w8_families": ",".join(sorted(formats.get("w8", ()))),
        "families": {fmt: sorted(families) for fmt, families in sorted(formats.items())},
        "linear_counts": dict(sorted(counts.items())),
        "experimental": False,
    }


def weight_memory(package: Package, smaps: Path = Path("/proc/self/smaps")) -> dict[str, Any]:
    """Mapped weights that are in memory now (E-27). Weights are used where they are mapped, so none is advised away."""
    resident, inside = 0, False
    name = str(package.file.path.resolve())
    try:
        for line in smaps.read_text().splitlines():
            fields = line.split(maxsplit=5)  # of a mapping: range, mode, offset, device, inode, path
            if "-" in fields[0]:
                inside = fields[5:] == [name]
            elif inside and line.startswith("Rss:"):
                resident += int(fields[1])
    except (OSError, ValueError, IndexError):
        pass
    return {
        "source_weight_discard_advised_mib": 0.0,
        "source_weight_pagecache_resident_mib": resident / 1024,
        "source_weight_cache_advice_failures": 0,
    }
