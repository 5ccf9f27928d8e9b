"""Lines for whoever operates the server. Telling never fails and never waits."""

from __future__ import annotations

import select
import sys
from typing import IO

PATIENCE_MS = 20


def tell(text: str, stream: IO[str] | None = None) -> None:
    """Write a line to `stream`, by default standard error; it is dropped where nobody reads.

    A reader that has left raises, a pipe that nobody empties blocks: neither may cost an answer, a thread or the
    process's end, so a stream that takes nothing within a moment is passed over.
    """
    stream = sys.stderr if stream is None else stream
    if stream is None or not _takes_more(stream):
        return
    try:
        stream.write(f"{text}\n")
        stream.flush()
    except (OSError, ValueError):  # the reader has left; the stream was closed
        pass


def _takes_more(stream: IO[str]) -> bool:
    """Whether a write of a few kilobytes goes through at once; streams without a descriptor always take more."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError, AttributeError):
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return any(event & select.POLLOUT for _, event in poll.poll(PATIENCE_MS))
