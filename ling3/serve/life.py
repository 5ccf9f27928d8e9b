"""The life of a connection, as a table.

Rule 1: everything that decides which state may follow which stands here.
Rule 2: this file knows nothing of sockets, HTTP or threads.

A connection has exactly one owner at a time, and only the owner touches it: the reader thread while it is HEAD, BODY or
LINGERING, nobody while it is QUEUED, one worker while it is RUNNING or STREAMING.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class State(Enum):
    HEAD = "head"
    """Waiting for the blank line."""
    BODY = "body"
    """The head is accepted, the body is arriving."""
    QUEUED = "queued"
    """The request is complete and waits for a worker."""
    RUNNING = "running"
    """A worker runs the route; no byte of the answer has been sent."""
    STREAMING = "streaming"
    """The head of an event stream is out."""
    LINGERING = "lingering"
    """The answer is out and our side is shut; input is dropped until the peer closes."""
    CLOSED = "closed"


TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.HEAD: frozenset({State.BODY, State.LINGERING, State.CLOSED}),
    State.BODY: frozenset({State.QUEUED, State.LINGERING, State.CLOSED}),
    State.QUEUED: frozenset({State.RUNNING, State.CLOSED}),
    State.RUNNING: frozenset({State.STREAMING, State.LINGERING, State.CLOSED}),
    State.STREAMING: frozenset({State.LINGERING, State.CLOSED}),
    State.LINGERING: frozenset({State.CLOSED}),
    State.CLOSED: frozenset(),
}

READING = frozenset({State.HEAD, State.BODY})
"""The states in which a request is still arriving."""


class Life:
    """The present state; `advance` refuses what the table does not allow."""

    def __init__(self) -> None:
        self.state = State.HEAD

    def advance(self, state: State) -> None:
        if state not in TRANSITIONS[self.state]:
            raise RuntimeError(f"a connection cannot go from {self.state.value} to {state.value}")
        self.state = state
