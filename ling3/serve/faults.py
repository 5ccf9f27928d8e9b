"""Our own errors: told to whoever reads stderr, never to the client."""

from __future__ import annotations

import sys
import traceback


def report_fault(where: str) -> None:
    """Write the exception that is being handled, and where it arose. `where` must not hold prompt text."""
    print(f"inference_error: {where}\n{traceback.format_exc()}", end="", file=sys.stderr, flush=True)
