"""What the skills pass around: one exchange of lines, and what has been said so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random


@dataclass(frozen=True)
class Exchange:
    """One user line with its reply. `thought` is used when thinking is on. With `call`, the reply follows the
    tool's `result`. `plain` lines are used exactly as written, without typing noise."""

    user: str
    reply: str
    thought: str
    plain: bool = False
    call: tuple[str, dict[str, object]] | None = None
    result: str = ""


@dataclass
class Memory:
    """What the conversation holds so far: `told` maps a subject ("name", "dog", "story hero") to what was said."""

    assistant_name: str = ""
    told: dict[str, str] = field(default_factory=dict)
    last_user: str = ""
    last_reply: str = ""


# Most questions about something never told are left out: else "not told" would be the answer that is right most often.
SKIP_UNTOLD = 0.93

Skill = Callable[[Random, Memory], Exchange | None]
