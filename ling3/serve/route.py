"""What a route is: the request it gets, the client it may write to, and where it is found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from ling3.serve.answer import Answer


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request. `path` is normalised (router.normal_path), header names are lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = b""


class Exchange(Protocol):
    """The client's side of a running request, for routes that stream or must know whether anyone still listens."""

    def start_stream(self) -> bool:
        """Send the head of an event stream (E-72). False: the client is gone."""

    def send(self, data: bytes) -> bool:
        """Send at once. False: the client is gone, now or earlier."""

    def alive(self) -> bool:
        """Whether the client is connected and the server is not shutting down (E-81, E-82)."""


Handler = Callable[[HttpRequest, Exchange], Answer | None]
"""Answers a request, or returns None after having streamed the answer itself."""


@dataclass(frozen=True, slots=True)
class Route:
    """`inference` marks routes that run the engine and so count against `Limits.inference_slots`."""

    path: str
    method: str
    handler: Handler
    inference: bool = False
