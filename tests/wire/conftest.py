"""Fixtures of the wire tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fake_engine import FakeEngine
from wire import Running, serving


@pytest.fixture(scope="module")
def shared() -> Iterator[Running]:
    """One server for a file."""
    with serving(FakeEngine()) as running:
        yield running


@pytest.fixture
def server(shared: Running) -> Running:
    """The server of the file, with an engine that has nothing to play yet."""
    shared.engine.play()
    return shared
