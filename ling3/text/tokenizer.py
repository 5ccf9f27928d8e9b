"""Tokenizer of a package: text to token ids, token ids to bytes.

Byte-level BPE over the `tokenizers` library (M-60, M-61). All ids are read from `tokenizer.json`. An entry of its
`added_tokens` is a *control token*, whether the file flags it special or not; text never encodes to one (M-63).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import tokenizers

from ling3.errors import PackageError

THINK = "<think>"
END_THINK = "</think>"
TOOL_CALL = "<tool_call>"
END_TOOL_CALL = "</tool_call>"
END_OF_TEXT = "<|endoftext|>"
ARGUMENT_TAGS = ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")

REQUIRED = (THINK, END_THINK, TOOL_CALL, END_TOOL_CALL)

# What an answer may contain beside text. `<think>` is not among them: the template opens the reasoning of every
# turn itself, so a second opening could only put text on the wrong channel.
DRAWABLE = frozenset({END_THINK, TOOL_CALL, END_TOOL_CALL, *ARGUMENT_TAGS})


@dataclass(frozen=True, slots=True)
class ControlToken:
    """An added token. `exact` is false if the file wants it to swallow the space around it or to respect words."""

    id: int
    exact: bool


class Tokenizer:
    """Encodes text and gives the bytes of tokens.

    `size`: one more than the largest id of the file (M-62); ids from there to `vocab_size` are padding rows.
    `control`: literal → ControlToken.
    `eos_token_ids`: the given ones and that of `<|endoftext|>`; each ends an answer (M-62).
    `masked_ids`: ids a sampler must never draw, ascending: ids without a token (padding rows included) and control
    tokens other than the end-of-sequence ones and those an answer is made of (`DRAWABLE`).

    PackageError if the file is no byte-level BPE tokenizer, lacks a marker of `REQUIRED`, or does not fit
    `vocab_size` (rows of the embedding) or `eos_token_ids`.
    """

    def __init__(self, tokenizer_json: bytes, eos_token_ids: frozenset[int], vocab_size: int) -> None:
        definition = _read(tokenizer_json)
        self.control = _control_tokens(definition)
        vocab = _text_vocab(definition, self.control)
        self._pieces = _pieces(vocab)
        self.longest_piece = max(map(len, self._pieces.values()))
        """Bytes of the longest token: a text of n bytes has at least n / longest_piece tokens."""
        ids = set(self._pieces) | {token.id for token in self.control.values()}
        self.size = max(ids) + 1
        if self.size > vocab_size:
            raise PackageError(f"tokenizer.json: token id {self.size - 1}, but the model has {vocab_size} rows")
        if not eos_token_ids or not eos_token_ids <= ids:
            raise PackageError(f"eos_token_id: {sorted(eos_token_ids)} are not ids of tokenizer.json")
        self.eos_token_ids = eos_token_ids | {t.id for s, t in self.control.items() if s == END_OF_TEXT}
        drawable = set(self._pieces) | self.eos_token_ids | {t.id for s, t in self.control.items() if s in DRAWABLE}
        self.masked_ids = tuple(i for i in range(vocab_size) if i not in drawable)
        self._encoder = _encoder(definition, vocab)
        self._try_out()

    def encode_text(self, text: str) -> list[int]:
        """Ids of plain text; literals of control tokens in it are ordinary letters. `text` is valid Unicode."""
        return self._encoder.encode(text, add_special_tokens=False).ids

    def piece(self, token_id: int) -> bytes:
        """Exact bytes of a token, perhaps a fragment of a character; empty for a control token (E-121)."""
        return self._pieces.get(token_id, b"")

    def _try_out(self) -> None:
        probe = " Tea,\n\n 12 é 中文 😀 <think>\t"
        if b"".join(map(self.piece, self.encode_text(probe))) != probe.encode():
            raise PackageError("tokenizer.json: text does not survive encoding; not a plain byte-level tokenizer")


def _read(tokenizer_json: bytes) -> dict[str, Any]:
    try:
        definition = orjson.loads(tokenizer_json)
    except orjson.JSONDecodeError as error:
        raise PackageError(f"tokenizer.json: not JSON: {error}") from None
    model = definition.get("model") if isinstance(definition, dict) else None
    if not isinstance(model, dict) or model.get("type") != "BPE" or not isinstance(model.get("vocab"), dict):
        raise PackageError("tokenizer.json: not a BPE tokenizer")
    return dict(definition)


def _control_tokens(definition: dict[str, Any]) -> dict[str, ControlToken]:
    control: dict[str, ControlToken] = {}
    for entry in definition.get("added_tokens") or ():
        match entry:
            case {"id": int(token_id), "content": str(literal)} if token_id >= 0 and literal:
                exact = not any(entry.get(flag) for flag in ("lstrip", "rstrip", "single_word"))
                control[literal] = ControlToken(token_id, exact)
            case _:
                raise PackageError(f"tokenizer.json: added token without id or content: {entry!r}")
    for literal in REQUIRED:
        if literal not in control:
            raise PackageError(f"tokenizer.json: no added token {literal}")
    return control


def _text_vocab(definition: dict[str, Any], control: Mapping[str, ControlToken]) -> dict[str, int]:
    """The vocabulary without control tokens, which a trainer may have listed in it as well."""
    vocab = {token: token_id for token, token_id in definition["model"]["vocab"].items() if token not in control}
    if not vocab or not all(isinstance(token_id, int) and token_id >= 0 for token_id in vocab.values()):
        raise PackageError("tokenizer.json: the vocabulary must map tokens to ids")
    return vocab


def _pieces(vocab: Mapping[str, int]) -> dict[int, bytes]:
    """Bytes by id. Tokens are spelled in the byte-level alphabet, one character a byte."""
    pieces = {}
    for token, token_id in vocab.items():
        try:
            pieces[token_id] = token.translate(_TO_LATIN_1).encode("latin-1")
        except UnicodeEncodeError:
            raise PackageError(f"tokenizer.json: token {token!r} is not spelled in the byte-level alphabet") from None
    missing = {bytes([value]) for value in range(256)} - set(pieces.values())
    if missing:
        raise PackageError(f"tokenizer.json: no token for byte 0x{min(missing).hex()}")
    return pieces


def _encoder(definition: dict[str, Any], vocab: dict[str, int]) -> tokenizers.Tokenizer:
    """The tokenizer of the file without control tokens and without anything that adds, cuts or pads."""
    plain = {
        **definition,
        "model": {**definition["model"], "vocab": vocab},
        "added_tokens": [],
        "post_processor": None,
        "truncation": None,
        "padding": None,
    }
    try:
        return tokenizers.Tokenizer.from_str(orjson.dumps(plain).decode())
    except Exception as error:  # the library raises nothing more special
        raise PackageError(f"tokenizer.json: {error}") from None


def _byte_alphabet() -> dict[str, int]:
    """Character → byte of the byte-level alphabet: printable Latin-1 stands for itself, the rest from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (value for value in range(256) if value not in printable)
    return {chr(value): value for value in printable} | {chr(0x100 + n): value for n, value in enumerate(others)}


_ALPHABET = _byte_alphabet()

# Characters below U+0100 that are no letter of the alphabet go where Latin-1 cannot encode them.
_TO_LATIN_1 = {value: 0xFFFF for value in range(256)} | {ord(c): value for c, value in _ALPHABET.items()}
