"""What leaves the model as text: pieces on three channels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Channel = Literal["content", "reasoning", "tool_call"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One parsed call (M-81). `arguments` is a JSON object as text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of safe text on one channel, or one complete tool call (then `text` is empty)."""

    channel: Channel
    text: str
    call: ToolCall | None = None
