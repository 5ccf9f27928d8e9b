"""Text on its way to a terminal: nothing a model or a client wrote can control it."""

from __future__ import annotations

from typing import TextIO

_DIM = "\x1b[2m"
_PLAIN = "\x1b[0m"

# C0 controls, DEL and C1 controls, but line feed and tab. The rule is per character, so a sequence
# that is cut into several pieces loses its introducer just the same.
_CONTROLS = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)])
del _CONTROLS[ord("\n")], _CONTROLS[ord("\t")]


def without_controls(text: str) -> str:
    """The text without control characters, ESC among them; line feeds and tabs stay."""
    return text.translate(_CONTROLS)


class Screen:
    """Writes to one stream at once, and knows whether the cursor stands at the start of a line.

    Characters the stream's encoding lacks become `?`. An `OSError` means that the terminal or the
    reader of the pipe is gone.
    """

    def __init__(self, stream: TextIO, *, styled: bool = False) -> None:
        self._stream = stream
        self._encoding = stream.encoding or "utf-8"
        self._styled = styled
        self._line_is_open = False

    def write(self, text: str, *, dim: bool = False) -> None:
        """A piece of text as it comes. Each dim piece ends plain, so a cut leaves no style behind."""
        shown = without_controls(text).encode(self._encoding, "replace").decode(self._encoding)
        if not shown:
            return
        self._stream.write(f"{_DIM}{shown}{_PLAIN}" if dim and self._styled else shown)
        self._stream.flush()
        self._line_is_open = not shown.endswith("\n")

    def send(self, own: str) -> None:
        """The console's own text, escape sequences included; the cursor is taken as not moved."""
        self._stream.write(own)
        self._stream.flush()

    def start_line(self) -> None:
        """Ends the current line if anything stands on it."""
        if self._line_is_open:
            self.write("\n")

    def line(self, text: str, *, dim: bool = False) -> None:
        """One line (or a few) of its own."""
        self.start_line()
        self.write(f"{text}\n", dim=dim)
