"""Fixtures of the unit tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from engine_fixtures import Bench, MakeBench, Script


@pytest.fixture
def make_bench(tmp_path: Path) -> Iterator[MakeBench]:
    """Engines on scripted decoders: `make_bench(script, context=4096, echo=None)`."""
    benches: list[Bench] = []

    def make(script: Script, context: int = 4096, echo: IO[str] | None = None) -> Bench:
        benches.append(Bench(tmp_path, script, context, echo))
        return benches[-1]

    yield make
    for bench in benches:
        bench.close()
