"""What goes into the engine and what comes out: plain objects, no JSON, no sockets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ling3.text.output import Piece, ToolCall

FinishReason = Literal["stop", "length", "tool_calls", "canceled"]


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling settings (E-106, E-107); None means the package's default (E-68)."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    repeat_penalty: float | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One validated chat request (E-66).

    `messages` and `tools` are what the chat template gets: role, content (text), reasoning_content,
    tool_calls with object arguments. `max_tokens` None means unlimited.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None = None
    max_tokens: int | None = None
    sampling: Sampling = field(default_factory=Sampling)
    stop: tuple[str, ...] = ()
    enable_thinking: bool = False
    cache_prompt: bool = True
    reuse_generated_state: bool = True
    user: str = ""
    session_id: str | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """A finished run. `usage` is E-112, `metrics` is E-113; a canceled run has both too."""

    request_id: str
    created: int
    content: str
    reasoning: str
    tool_calls: tuple[ToolCall, ...]
    finish_reason: FinishReason
    usage: dict[str, Any]
    metrics: dict[str, Any]


class Sink(Protocol):
    """Where a run's output goes. Called on the thread that runs the engine, in this order."""

    def begin(self, request_id: str, created: int) -> bool:
        """Called before prefill (E-72). False: the client is gone, nothing is evaluated."""

    def write(self, piece: Piece, sequence: int) -> bool:
        """One non-empty piece; `sequence` counts from 1 (E-76). False: the client is gone."""

    def alive(self) -> bool:
        """Asked before every prefill block and every token (E-82)."""
