"""The chat template: a sandboxed Jinja2 program that renders messages to one prompt string (M-70).

Packages carry their template; `builtin_chat_template` is the one of Ling-3.0 (M-70…M-77) for checkpoints without.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib.resources import files
from typing import Any, NoReturn

from jinja2.exceptions import TemplateError, TemplateSyntaxError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ling3.errors import PackageError, invalid_parameter
from ling3.text.control import SHIELD, unshield


def builtin_chat_template() -> str:
    """Source of the template of Ling-3.0."""
    return files("ling3.text").joinpath("chat_template.jinja").read_text(encoding="utf-8")


class ChatTemplate:
    """A compiled chat template, with the functions that templates of public checkpoints rely on.

    PackageError if the source is no template or cannot render the simplest conversation.
    """

    def __init__(self, source: str) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        try:
            self._template = environment.from_string(source)
            rendered = self._render([{"role": "user", "content": "Hello"}], [], False)
        except TemplateSyntaxError as error:
            raise PackageError(f"chat template: line {error.lineno}: {error.message}") from None
        # A template is a program: it may raise whatever its operators raise.
        except Exception as error:
            raise PackageError(f"chat template: {error}") from None
        if "Hello" not in rendered:
            raise PackageError("chat template: leaves out the text of the user's message")

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any], enable_thinking: bool) -> str:
        """The prompt up to and including the opening of the answer. RequestError 400 if the template objects."""
        try:
            return self._render(messages, tools, enable_thinking)
        except Exception as error:
            raise invalid_parameter("messages", f"refused by the chat template: {unshield(str(error))}") from None

    def _render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any], enable_thinking: bool) -> str:
        return self._template.render(
            messages=messages, tools=tools or None, enable_thinking=enable_thinking, add_generation_prompt=True
        )


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as Python's `json` writes it, without the HTML escapes of Jinja's own filter."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys)
    if not ensure_ascii:
        return text
    # Escaped here and not by `dumps`, which would turn shields into visible text.
    return "".join(c if c.isascii() or c == SHIELD else json.dumps(c)[1:-1] for c in text)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)
