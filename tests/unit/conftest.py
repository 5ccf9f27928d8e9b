"""Fixtures of the unit tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_fixtures import Bench, MakeBench, Script


@pytest.fixture
def make_bench(tmp_path: Path) -> Iterator[MakeBench]:
    """Engines on scripted decoders: `make_bench(script, **arguments of Bench)`. The log is a file of the test."""
    benches: list[Bench] = []

    def make(script: Script, log: str = "metrics.jsonl", **arguments: Any) -> Bench:
        benches.append(Bench(tmp_path / log, script, **arguments))
        return benches[-1]

    yield make
    for bench in benches:
        bench.close()
