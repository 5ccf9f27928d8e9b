"""The terminal chat: the other face of the engine beside `serve`."""

from __future__ import annotations

from ling3.console.chat import Console, open_console
from ling3.console.piped import PipedPrompt, open_piped_prompt
from ling3.console.terminal import InputKind, input_kind

__all__ = ["Console", "InputKind", "PipedPrompt", "input_kind", "open_console", "open_piped_prompt"]
