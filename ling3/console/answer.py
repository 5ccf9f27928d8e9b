"""One answer on the screen: the engine's sink, and the figures under it."""

from __future__ import annotations

from typing import Protocol

from ling3.console.screen import Screen
from ling3.console.texts import Texts
from ling3.engine.request import ChatRequest, Reply, Sink
from ling3.text.output import Channel, Piece


class ChatEngine(Protocol):
    """What the console needs of the engine."""

    def run(self, request: ChatRequest, sink: Sink) -> Reply:
        """Runs on the calling thread until the answer is complete or the sink says no."""

    def cancel(self, request_id: str = "", /) -> bool:
        """Cancels the active run, whoever started it; False when there is none."""


class AnswerPrinter:
    """The sink of one run: prints pieces as they come, reasoning (if shown) set apart and dim.

    A cancel is only a flag that the engine meets at its next question (E-82), so it may be set in a
    signal handler: no lock is taken.
    """

    def __init__(self, screen: Screen, texts: Texts, *, show_reasoning: bool = True) -> None:
        self._screen = screen
        self._headings: dict[Channel, str] = {"reasoning": texts.reasoning_heading, "content": texts.answer_heading}
        self._show_reasoning = show_reasoning
        self._channel: Channel = "content"
        self.cancelled = False
        self.screen_is_lost = False

    def cancel(self) -> None:
        self.cancelled = True

    def begin(self, request_id: str, created: int) -> bool:
        return self.alive()

    def write(self, piece: Piece, sequence: int) -> bool:
        if not self.alive():
            return False
        if piece.channel == "content" or (piece.channel == "reasoning" and self._show_reasoning):
            try:
                self._print(piece)
            except OSError:
                self.screen_is_lost = True
        return self.alive()

    def alive(self) -> bool:
        return not (self.cancelled or self.screen_is_lost)

    def _print(self, piece: Piece) -> None:
        dim = piece.channel == "reasoning"
        if piece.channel != self._channel:
            self._channel = piece.channel
            self._screen.line(self._headings[piece.channel], dim=dim)
        self._screen.write(piece.text, dim=dim)


def figures(reply: Reply, texts: Texts) -> str:
    """The line under an answer (E-116); a figure that has no value, as before the first token, is left out."""
    first_token_ms = reply.metrics.get("ttft_ms")
    tokens_per_second = reply.metrics.get("decode_tokens_per_second")
    parts = [texts.first_token.format(first_token_ms)] if first_token_ms is not None else []
    if tokens_per_second:
        parts.append(texts.decode_rate.format(tokens_per_second))
    parts.append(texts.token_count.format(reply.usage["completion_tokens"]))
    parts.append(texts.finish_reason.format(reply.finish_reason))
    return f"[{texts.separator.join(parts)}]"
