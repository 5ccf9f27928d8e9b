"""What of a prompt need not be evaluated again.

For now every request starts from an empty decoder; this is the one place that decides it (E-91).
"""

from __future__ import annotations

from dataclasses import dataclass

from ling3.engine.request import ChatRequest
from ling3.model import Decoder


@dataclass(frozen=True, slots=True)
class Restored:
    """What a run starts from: `cached_tokens` positions need no evaluation. `status` is E-91's."""

    status: str
    cached_tokens: int


class PrefixCache:
    """The state a decoder can be brought back to before a run, and cleared after a bad one."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder

    def restore(self, request: ChatRequest) -> Restored:
        self._decoder.reset()
        return Restored("miss" if request.cache_prompt else "disabled", 0)

    def clear(self) -> None:
        self._decoder.reset()
