"""The chat format of Ling-3.0, written apart from the shipped jinja template so that each checks the other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import cast

from .dialogue import Message
from .tool_calls import JsonObject

SPECIAL_TOKENS = (
    "<|startoftext|>", "<|endoftext|>", "<|role_end|>", "<role>", "</role>", "<tool_call>", "</tool_call>",
    "<arg_key>", "</arg_key>",
    "<arg_value>", "</arg_value>", "<think>", "</think>", "<tools>", "</tools>", "<tool_response>", "</tool_response>",
)

_TOOLS_HEAD = """# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
"""
_TOOLS_TAIL = """</tools>

If none of the functions can be used, point it out. \
If the given question lacks the parameters required by the function, also point it out.
If you need to use a function, for each function call, \
output the function name and arguments within the following XML format:
<tool_call>{function-name}
<arg_key>{arg-key-1}</arg_key>
<arg_value>{arg-value-1}</arg_value>
<arg_key>{arg-key-2}</arg_key>
<arg_value>{arg-value-2}</arg_value>
...
</tool_call>
"""


def to_json(value: object) -> str:
    """JSON as the template writes it."""
    return json.dumps(value, ensure_ascii=False)


def render(messages: Sequence[Message], tools: Sequence[JsonObject] = (), thinking: bool = False,
           generate: bool = False) -> str:
    """The conversation as the model reads it; with `generate`, the opening of the next answer is added."""
    parts = ["<role>SYSTEM</role>"]
    rest = list(messages)
    if rest and rest[0]["role"] == "system":
        parts.append(f"{rest.pop(0)['content']}\n")
    if tools:
        parts += [_TOOLS_HEAD, *(to_json(tool) + "\n" for tool in tools), _TOOLS_TAIL]
    parts.append(f"detailed thinking {'on' if thinking else 'off'}<|role_end|>")
    previous = ""
    for message in rest:
        role = message["role"]
        if role == "user":
            parts.append(f"<role>HUMAN</role>{message['content']}<|role_end|>")
        elif role == "assistant":
            parts.append(_assistant(message))
        else:
            if previous == "tool":
                parts[-1] = parts[-1].removesuffix("<|role_end|>")
            else:
                parts.append("<role>OBSERVATION</role>")
            parts.append(f"\n<tool_response>\n{message['content']}\n</tool_response><|role_end|>")
        previous = str(role)
    if generate:
        parts.append("<role>ASSISTANT</role>\n<think>" + ("" if thinking else "</think>"))
    return "".join(parts)


def _assistant(message: Message) -> str:
    content = str(message["content"])
    text = f"<role>ASSISTANT</role>\n<think>{message.get('reasoning_content', '')}</think>{content}"
    for number, entry in enumerate(cast(list[JsonObject], message.get("tool_calls", []))):
        function = cast(JsonObject, entry["function"])
        text += "\n" if number or content else ""
        text += f"<tool_call>{function['name']}\n"
        for key, value in cast(JsonObject, function["arguments"]).items():
            written = value if isinstance(value, str) else to_json(value)
            text += f"<arg_key>{key}</arg_key>\n<arg_value>{written}</arg_value>"
        text += "\n</tool_call>"
    return text + "<|role_end|>"
