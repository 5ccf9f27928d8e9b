"""Everything text of one package: chats to token ids, token ids to pieces of an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ling3.errors import PackageError, context_length_exceeded
from ling3.text.control import ControlText
from ling3.text.messages import normalise_messages, normalise_tools
from ling3.text.stream import OutputFilter
from ling3.text.template import ChatTemplate
from ling3.text.tokenizer import Tokenizer
from ling3.text.tool_calls import ToolParser


class ChatText:
    """Tokenizer and chat template of a package.

    `vocab_size`: rows of the embedding, at least as many as the tokenizer has ids. PackageError naming
    `tokenizer.json` or the chat template if one of them is unusable, alone or with the other.
    """

    def __init__(
        self, tokenizer_json: bytes, chat_template: str, eos_token_ids: frozenset[int], vocab_size: int
    ) -> None:
        self.tokenizer = Tokenizer(tokenizer_json, eos_token_ids, vocab_size)
        self._template = ChatTemplate(chat_template)
        self._control = ControlText({literal: token.id for literal, token in self.tokenizer.control.items()})
        for literal, token in self.tokenizer.control.items():
            if not token.exact and literal in chat_template:
                raise PackageError(f"tokenizer.json: added token {literal} with lstrip, rstrip or single_word")

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        enable_thinking: bool = False,
        most: int | None = None,
    ) -> list[int]:
        """Token ids of the prompt, ending with the opening of the answer (M-75).

        Only the template makes control tokens; their literals inside messages and tools are text (M-63). Without
        such literals the ids are those of the rendered string parsed as a whole. RequestError 400
        `invalid_parameter` with the path of a field that is unusable.

        `most`: a prompt that is sure to have more tokens is refused with 400 `context_length_exceeded` before the
        work of encoding it, which takes seconds for megabytes of text.
        """
        if most is not None and len(messages) > most:  # every message costs its own markers
            raise context_length_exceeded(f"at least {len(messages)}", most)
        shielded_messages = self._control.shield(normalise_messages(messages))
        shielded_tools = self._control.shield(normalise_tools(tools))
        rendered = self._template.render(shielded_messages, shielded_tools, enable_thinking)
        parts = list(self._control.split(rendered))
        letters = sum(len(part) for part in parts if isinstance(part, str))
        least = letters // self.tokenizer.longest_piece
        if most is not None and least > most:
            raise context_length_exceeded(f"at least {least}", most)
        ids: list[int] = []
        for part in parts:
            if isinstance(part, int):
                ids.append(part)
            else:
                ids += self.tokenizer.encode_text(part)
        return ids

    def output(
        self, stops: Sequence[str], thinking: bool, tools: Sequence[Mapping[str, Any]] | None = None
    ) -> OutputFilter:
        """Filter for one answer. `thinking`: the prompt ended inside `<think>`; `tools`: those of the prompt."""
        return OutputFilter(self.tokenizer, stops, thinking, ToolParser(tools) if tools else None)
