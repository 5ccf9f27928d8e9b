"""Every number that bounds a connection, with its reason, in one frozen object."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20

POLL_S = 0.1
"""How long a server thread sleeps at most before it looks at the quit flag again (E-42, E-117)."""

HEAD_RECEIVE_BYTES = 4096
"""One receive while the blank line is still missing (E-46)."""

BODY_RECEIVE_BYTES = 16384
"""One receive of a body: large enough for uploads, small enough that one flooding client delays the others little."""

LARGE_BODY_BYTES = MIB
"""A body above this is accepted with a `request_warning:` line (E-46)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one server grants its clients; seconds and bytes.

    `workers` threads run routes, and at most `inference_slots` of them run the engine (D-6).
    """

    workers: int = 4
    queued: int = 16
    """Complete requests that may wait for a worker (E-43)."""
    connections: int = 256
    """Sockets being read or lingering at once. A silent one leaves after `receive_idle_s`."""
    head_bytes: int = 65536
    """Bytes received up to and including the receive that brings the blank line (E-46)."""
    max_body_bytes: int = 32 * MIB
    read_total_s: float = 10.0
    receive_idle_s: float = 2.5
    """E-46 ends a receive that is idle for 2 s. The half second more lets through a packet that a proxy delayed by
    exactly that long (user-pain A2)."""
    send_stall_s: float = 5.0
    """One send without any progress for this long is a lost client (E-45)."""
    linger_total_s: float = 10.0
    linger_idle_s: float = 2.0
    """After an answer the rest of an upload is read and dropped, so that a reset does not destroy the answer."""

    def __post_init__(self) -> None:
        if self.workers < 2:
            raise ValueError("at least two workers: one must stay free for control requests")

    @property
    def inference_slots(self) -> int:
        """Three quarters of the workers, so cancel and health always find a free one (D-6)."""
        return self.workers * 3 // 4


DEFAULT_LIMITS = Limits()
