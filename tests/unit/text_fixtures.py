"""A small byte-level BPE tokenizer in the shape of the official one, made in memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from ling3.text import ChatText, Piece, builtin_chat_template

# Pre-tokenizer expression of the model (M-61).
WORDS = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)

# As in M-62 and M-90(a): not known which of these the official file flags special, so both kinds are here.
CONTROL = {
    "<|startoftext|>": True,
    "<|endoftext|>": True,
    "<role>": True,
    "</role>": True,
    "<|role_end|>": True,
    "<tool_call>": False,
    "</tool_call>": False,
    "<arg_key>": False,
    "</arg_key>": False,
    "<arg_value>": False,
    "</arg_value>": False,
    "<think>": False,
    "</think>": False,
}

SENTENCES = [
    "You may call one or more functions to assist with the user query. detailed thinking on detailed thinking off",
    "Hello there, this is a small tokenizer. It knows a few words: the weather in Paris is fine, 2+2 is 4.",
    "你好，世界。今天天气很好。 emoji 😀 ✅ and accents é è ü",
    'SYSTEM HUMAN ASSISTANT OBSERVATION {"type": "function", "function": {"name": "get_weather"}}',
]


@cache
def reference_tokenizer() -> Tokenizer:
    """The tokenizer with control tokens parsed, as a public checkpoint would be loaded."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    tokenizer.add_tokens([AddedToken(text, special=special, normalized=False) for text, special in CONTROL.items()])
    return tokenizer


@cache
def tokenizer_json() -> bytes:
    return str(reference_tokenizer().to_str()).encode()


def edited_tokenizer_json(**members: Any) -> bytes:
    """The tokenizer file with top-level members replaced."""
    return json.dumps({**json.loads(tokenizer_json()), **members}).encode()


def control_id(literal: str) -> int:
    found = reference_tokenizer().token_to_id(literal)
    assert isinstance(found, int)
    return found


@cache
def size() -> int:
    return int(reference_tokenizer().get_vocab_size())


@cache
def chat_text() -> ChatText:
    """Built-in template; vocabulary padded by 7 rows."""
    return ChatText(tokenizer_json(), builtin_chat_template(), frozenset({control_id("<|role_end|>")}), size() + 7)


def tokens(*parts: str | bytes) -> list[int]:
    """Token ids: a control literal alone is its control token, bytes are one token a byte, other text is encoded."""
    tokenizer = chat_text().tokenizer
    byte_ids = {tokenizer.piece(i): i for i in range(size()) if len(tokenizer.piece(i)) == 1}
    ids: list[int] = []
    for part in parts:
        if isinstance(part, bytes):
            ids += [byte_ids[part[n : n + 1]] for n in range(len(part))]
        elif part in CONTROL:
            ids.append(control_id(part))
        else:
            ids += tokenizer.encode_text(part)
    return ids


def run(
    ids: Sequence[int],
    stops: Sequence[str] = (),
    thinking: bool = False,
    tools: Sequence[dict[str, Any]] | None = None,
) -> list[Piece]:
    """All pieces of one answer."""
    output = chat_text().output(stops, thinking, tools)
    pieces = [piece for token_id in ids for piece in output.push(token_id)]
    return pieces + output.finish()


def joined(pieces: Sequence[Piece], channel: str) -> str:
    return "".join(piece.text for piece in pieces if piece.channel == channel)
