"""Tool definitions of a chat request (D-8, M-73)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ling3.errors import invalid_parameter
from ling3.serve.decode import convert
from ling3.text.messages import normalise_tools


class FunctionSignature(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class Tool(msgspec.Struct):
    type: str
    function: FunctionSignature


def offered_tools(tools: Any, choice: Any) -> list[Mapping[str, Any]] | None:
    """The tools as they were sent, since their key order is model input; None when the model must not call.

    `choice` "none" withholds the tools from the prompt: what the model does not see it does not call.
    """
    if choice not in (None, "auto", "none"):
        raise invalid_parameter("tool_choice", 'only "auto" and "none" are supported')
    if tools is None:
        return None
    for index, tool in enumerate(convert(tools, list[Tool], "tools")):
        if tool.type != "function":
            raise invalid_parameter(f"tools[{index}].type", 'only "function" is supported')
        if not _usable_name(tool.function.name):
            raise invalid_parameter(
                f"tools[{index}].function.name", "must be text without line breaks, '<' or blanks around it"
            )
    return normalise_tools(tools) if tools and choice != "none" else None


def _usable_name(name: str) -> bool:
    """The call format ends a name at a newline or at `<`, and trims it (M-81)."""
    return bool(name) and name == name.strip() and "\n" not in name and "<" not in name
