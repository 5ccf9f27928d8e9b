"""The life of a run: one table of allowed transitions, and the gate that holds it (E-79, E-80).

The gate is the only thing that control requests touch while a run holds the engine; every method returns at once.
"""

from __future__ import annotations

import threading
from typing import Any, Literal

RunState = Literal["idle", "prefill", "decode", "canceling", "committed"]

TRANSITIONS: dict[RunState, frozenset[RunState]] = {
    "idle": frozenset({"prefill"}),
    "prefill": frozenset({"decode", "canceling", "idle"}),
    "decode": frozenset({"canceling", "committed", "idle"}),
    "canceling": frozenset({"idle"}),
    "committed": frozenset({"idle"}),
}
"""state -> states that may follow. A run that fails goes back to `idle` from wherever it was."""


class FlowGate:
    """Which run is active, whether it was canceled, and how many pieces it has put out."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state: RunState = "idle"
        self._request_id: str | None = None
        self._sequence = 0
        self._evaluated_steps = 0

    @property
    def active(self) -> bool:
        return self._state != "idle"

    def begin(self, request_id: str) -> None:
        with self._lock:
            self._move("prefill")
            self._request_id = request_id
            self._sequence = 0
            self._evaluated_steps = 0

    def decoding(self) -> None:
        """Prefill is done; a cancel that came first stands."""
        with self._lock:
            if self._state == "prefill":
                self._move("decode")

    def step(self) -> None:
        """Count one evaluation of the decoder: a prefill block or a decode step (E-63)."""
        self._evaluated_steps += 1

    def prepare(self) -> int:
        """The number of the next piece, from 1 (E-76)."""
        self._sequence += 1
        return self._sequence

    def alive(self) -> bool:
        return self._state != "canceling"

    def cancel(self, request_id: str = "") -> bool:
        """Cancel the active run if it is the one meant (empty: whichever) and not yet committed."""
        with self._lock:
            if self._state in ("idle", "committed") or request_id not in ("", self._request_id):
                return False
            if self._state != "canceling":
                self._move("canceling")
            return True

    def try_commit(self) -> bool:
        """False if the run was canceled; after True no cancel can succeed (E-80)."""
        with self._lock:
            if self._state == "canceling":
                return False
            self._move("committed")
            return True

    def end(self) -> None:
        with self._lock:
            self._move("idle")
            self._request_id = None

    def status(self) -> dict[str, Any]:
        """What `/health` and the status endpoint show (E-63, E-79)."""
        with self._lock:
            return {
                "active": self.active,
                "request_id": self._request_id,
                "state": self._state,
                "sequence": self._sequence,
                "cancel_requested": self._state == "canceling",
                "evaluated_steps": self._evaluated_steps,
            }

    def _move(self, state: RunState) -> None:
        if state not in TRANSITIONS[self._state]:
            raise RuntimeError(f"a run cannot go from {self._state} to {state}")
        self._state = state
