"""Our own errors: told to whoever reads stderr, never to the client."""

from __future__ import annotations

import traceback

from ling3.tell import tell


def report_fault(where: str) -> None:
    """Write the exception that is being handled, and where it arose. `where` must not hold prompt text."""
    tell(f"inference_error: {where}\n{traceback.format_exc().rstrip()}")
