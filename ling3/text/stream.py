"""From sampled token ids to what the reader sees: reasoning, content and tool calls (M-80…M-82, E-108).

The channel changes with control tokens only, told by their id; the same letters made of ordinary tokens are text.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Literal

from ling3.text.output import Piece
from ling3.text.stops import StopMatcher
from ling3.text.tokenizer import ARGUMENT_TAGS, END_THINK, END_TOOL_CALL, TOOL_CALL, Tokenizer
from ling3.text.tool_calls import ToolParser

TextChannel = Literal["reasoning", "content"]
Mode = TextChannel | Literal["tool_call"]

# (mode, control token) → next mode. Any other control token is passed over: it has no text and changes nothing.
# A call inside reasoning ends the reasoning; a call that opens before the last one was closed closes it.
WITH_TOOLS: dict[tuple[Mode, str], Mode] = {
    ("reasoning", END_THINK): "content",
    ("reasoning", TOOL_CALL): "tool_call",
    ("content", TOOL_CALL): "tool_call",
    ("tool_call", TOOL_CALL): "tool_call",
    ("tool_call", END_TOOL_CALL): "content",
}

# Who gave no tools cannot read a call: its inside is delivered as content, the markers are passed over.
WITHOUT_TOOLS: dict[tuple[Mode, str], Mode] = {
    ("reasoning", END_THINK): "content",
    ("reasoning", TOOL_CALL): "content",
}


class OutputFilter:
    """Takes the sampled tokens of one answer, gives the pieces that are safe to send.

    Stop strings are looked for in all text the reader sees, reasoning as well as content, so that no stop reaches
    the client; never across a change of channel, and not inside tool calls, which are data and not text.

    A call arrives whole, as one piece. One that is malformed is delivered as content, without its markers. One that
    the end of the generation cuts off is dropped: half an argument must not be acted upon (the finish reason stays
    what it was, `length` or `stop`). The newline that the model writes before a call, and white space between calls,
    belong to the calls (M-72) and are no content.

    `stopped`: a stop string was found; it and everything after it is discarded. If a stop is complete when the
    generation ends but a longer one was still possible, `finish` decides and sets it.
    """

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str], thinking: bool, tools: ToolParser | None) -> None:
        watched = (END_THINK, TOOL_CALL, END_TOOL_CALL, *ARGUMENT_TAGS)
        self._control = {tokenizer.control[name].id: name for name in watched if name in tokenizer.control}
        self._piece = tokenizer.piece
        self._stops = stops
        self._tools = tools
        self._transitions = WITHOUT_TOOLS if tools is None else WITH_TOOLS
        self._spacing = _CallSpacing() if tools else None
        self.stopped = False
        self._open("reasoning" if thinking else "content")

    def push(self, token_id: int) -> list[Piece]:
        """Pieces that became certain with this token; none once `stopped`."""
        if self.stopped:
            return []
        control = self._control.get(token_id)
        if control is None:
            return self._take(self._piece(token_id))
        following = self._transitions.get((self._mode, control))
        if following is not None:
            pieces = self._close()
            self._open(following)
            return pieces
        if self._mode == "tool_call" and control in ARGUMENT_TAGS:
            self._body.append((control, bytearray()))
        return []

    def finish(self) -> list[Piece]:
        """What is still held when no more tokens come; an unfinished call is dropped."""
        if self.stopped or self._mode == "tool_call":
            return []
        pieces = self._close()
        if self._spacing and not self.stopped:
            pieces += _text_piece("content", self._spacing.end())
        return pieces

    def _open(self, mode: Mode) -> None:
        self._mode: Mode = mode
        self._body: list[tuple[str, bytearray]] = [("", bytearray())]
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._matcher = StopMatcher(self._stops)

    def _take(self, data: bytes) -> list[Piece]:
        if self._mode == "tool_call":
            self._body[-1][1].extend(data)
            return []
        return self._release(self._matcher.push(self._decoder.decode(data)))

    def _close(self) -> list[Piece]:
        """Pieces that the end of the current mode makes certain."""
        if self._mode == "tool_call":
            return self._close_call()
        rest = self._matcher.push(self._decoder.decode(b"", final=True))
        return self._release(rest + self._matcher.flush())

    def _close_call(self) -> list[Piece]:
        assert self._tools is not None and self._spacing is not None
        body = [(tag, data.decode(errors="replace")) for tag, data in self._body]
        call = self._tools.parse(body)
        if call is not None:
            self._spacing.call()
            return [Piece("tool_call", "", call)]
        self._open("content")
        return self._release(self._matcher.push("".join(text for _, text in body)) + self._matcher.flush())

    def _release(self, text: str) -> list[Piece]:
        """The pieces of text that passed the stops."""
        self.stopped = self._matcher.stopped
        channel: TextChannel = "reasoning" if self._mode == "reasoning" else "content"
        if channel == "content" and self._spacing:
            text = self._spacing.push(text)
            if self.stopped:
                text += self._spacing.end()
        return _text_piece(channel, text)


class _CallSpacing:
    """Holds back the white space that belongs to a call if one follows, and is content otherwise.

    Before the first call that is one newline; after a call it is all white space until other text comes.
    """

    def __init__(self) -> None:
        self._held = ""
        self._after_call = False

    def push(self, text: str) -> str:
        text = self._held + text
        if self._after_call and not text.strip():
            kept = len(text)
        else:
            self._after_call = False
            kept = 1 if text.endswith("\n") else 0
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept]

    def call(self) -> None:
        """A call was delivered: what is held was its spacing."""
        self._held = ""
        self._after_call = True

    def end(self) -> str:
        """No call follows."""
        return "" if self._after_call else self._held


def _text_piece(channel: TextChannel, text: str) -> list[Piece]:
    return [Piece(channel, text)] if text else []
