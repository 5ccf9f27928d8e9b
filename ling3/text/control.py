"""Control text: the literals that stand for control tokens, kept apart from the same letters in user text (M-63).

A rendered prompt is one string. The markers in it that the chat template wrote become control tokens; the same
letters inside a message must stay ordinary text. So every literal inside user text gets a *shield* in front of it
before rendering, and after rendering only unshielded literals count as markers. The shield is a lone surrogate:
user text is refused if it holds one (`messages.py`), so it cannot be forged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

SHIELD = "\ud800"


class ControlText:
    """Shields user text and finds the markers of a rendered prompt. `ids` maps literal to token id."""

    def __init__(self, ids: Mapping[str, int]) -> None:
        self._ids = dict(ids)
        any_literal = _alternatives(self._ids)
        self._start = re.compile(f"(?={any_literal})")
        self._marker = re.compile(f"(?<!{SHIELD})({any_literal})")

    def shield(self, value: Any) -> Any:
        """Copy of a JSON value with every literal in its strings, keys included, shielded."""
        if isinstance(value, str):
            return self._start.sub(SHIELD, value)
        if isinstance(value, Mapping):
            return {self.shield(key): self.shield(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.shield(item) for item in value]
        return value

    def split(self, rendered: str) -> list[int | str]:
        """Marker ids and the (unshielded, possibly empty) text between them, in order."""
        parts = self._marker.split(rendered)
        return [self._ids[part] if index % 2 else unshield(part) for index, part in enumerate(parts)]


def unshield(text: str) -> str:
    """`text` as its author wrote it."""
    return text.replace(SHIELD, "")


def _alternatives(literals: Iterable[str]) -> str:
    """Pattern of any literal, the longest first; the look-ahead skips at once what cannot start one."""
    longest_first = sorted(literals, key=len, reverse=True)
    first_characters = "".join(sorted({re.escape(literal[0]) for literal in longest_first}))
    return f"(?=[{first_characters}])(?:{'|'.join(map(re.escape, longest_first))})"
