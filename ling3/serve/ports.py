"""What the server needs from the rest of ling3, as protocols; wire tests put scripted objects here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from ling3.engine.request import ChatRequest, Reply, Sink


class ChatEngine(Protocol):
    """The engine as the server sees it. All members but `run` return at once, also during a run (E-56)."""

    @property
    def model_id(self) -> str: ...

    @property
    def context_length(self) -> int: ...

    @property
    def active(self) -> bool:
        """Whether a run is going on."""

    def run(self, request: ChatRequest, sink: Sink) -> Reply:
        """One inference on the calling thread.

        RequestError before `sink.begin` is a plain refusal; one that carries `retry_after` (whole seconds) fills
        `Retry-After`. A run whose sink is no longer alive, or that was canceled, returns with `canceled`.
        """

    def generation_status(self) -> dict[str, Any]: ...

    def request_cancel_all(self) -> None:
        """Cancel what runs now; called repeatedly during shutdown until no worker runs anything."""


class HealthSource(Protocol):
    """The facts of this start that `/health` reports (E-56). `weight_memory` is read anew at each call (E-27)."""

    @property
    def device(self) -> dict[str, Any]: ...

    @property
    def initialization_ms(self) -> float: ...

    @property
    def warmup_ms(self) -> float: ...

    @property
    def weight_memory(self) -> dict[str, Any]: ...

    @property
    def weight_format(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Service:
    """What the routes serve. `thinking` is the answer for requests that do not say (D-7)."""

    engine: ChatEngine
    health: HealthSource
    thinking: bool = False
