"""What all suites share."""

from __future__ import annotations

from hypothesis import settings

# Boards and shared machines stall for longer than any limit that would still tell something.
settings.register_profile("ling3", deadline=None)
settings.load_profile("ling3")
