"""Stop strings in streamed text (E-108)."""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Releases text up to the first stop string, and never a letter that may still turn out to be part of one.

    The text released depends on the whole text only, not on how it was cut into pushes: it ends where the earliest
    occurrence of any stop begins. So a stop that is complete inside a longer one, begun earlier and still possible,
    waits until the longer one is decided ("bc" in "abc" with the stops "abcd" and "bc").

    Each stop is followed by its Knuth-Morris-Pratt automaton: linear time whatever the stops are.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [_Progress(stop) for stop in stops]
        self._held = ""
        self._match: int | None = None  # where in `_held` the earliest complete stop begins
        self.stopped = False

    def push(self, text: str) -> str:
        """Text that is safe to show after `text` arrived; empty once `stopped`."""
        for index, character in enumerate(text):
            end = len(self._held) + index + 1
            for stop in self._stops:
                if stop.advance(character):
                    begin = end - len(stop.text)
                    self._match = begin if self._match is None else min(self._match, begin)
            if self._match is not None and end - self._longest() >= self._match:
                return self._stop(self._held + text)
        self._held += text
        safe = len(self._held) - self._longest()
        if self._match is not None:
            self._match -= safe
        released, self._held = self._held[:safe], self._held[safe:]
        return "" if self.stopped else released

    def flush(self) -> str:
        """What is still held when no more text comes; a complete stop in it counts."""
        if self._match is not None:
            return self._stop(self._held)
        released, self._held = self._held, ""
        return released

    def _longest(self) -> int:
        """Length of the longest end of the text so far that may begin a stop."""
        return max((stop.matched for stop in self._stops), default=0)

    def _stop(self, text: str) -> str:
        released = text[: self._match]
        self.stopped, self._held, self._match, self._stops = True, "", None, []
        return released


class _Progress:
    """How much of one stop the text so far ends with: `matched` characters, always fewer than all."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.matched = 0
        # _border[n]: length of the longest proper prefix of text[:n] that is also its end
        self._border = [0, 0]
        for n in range(1, len(text)):
            self._border.append(self._extend(self._border[n], text[n]))

    def advance(self, character: str) -> bool:
        """Take one character; true if it completes the stop."""
        self.matched = self._extend(self.matched, character)
        if self.matched < len(self.text):
            return False
        self.matched = self._border[self.matched]
        return True

    def _extend(self, matched: int, character: str) -> int:
        while matched and self.text[matched] != character:
            matched = self._border[matched]
        return matched + (self.text[matched] == character)
