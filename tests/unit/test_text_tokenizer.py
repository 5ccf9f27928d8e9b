"""Tokenizer: text to ids, ids to bytes, and which ids an answer may hold."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text_fixtures import (
    CONTROL,
    chat_text,
    control_id,
    edited_tokenizer_json,
    reference_tokenizer,
    size,
    tokenizer_json,
)

from ling3.errors import PackageError
from ling3.text import Tokenizer

EOS = frozenset({control_id("<|role_end|>")})


def edited_model(**members: Any) -> bytes:
    return edited_tokenizer_json(model={**json.loads(tokenizer_json())["model"], **members})


def vocab() -> dict[str, int]:
    found: dict[str, int] = json.loads(tokenizer_json())["model"]["vocab"]
    return found


def without(literal: str) -> bytes:
    added = json.loads(tokenizer_json())["added_tokens"]
    return edited_tokenizer_json(added_tokens=[entry for entry in added if entry["content"] != literal])


@settings(max_examples=50, deadline=None)
@given(st.text())
def test_pieces_of_a_text_join_to_its_bytes(text: str) -> None:
    tokenizer = chat_text().tokenizer
    assert b"".join(map(tokenizer.piece, tokenizer.encode_text(text))) == text.encode()


@settings(max_examples=50, deadline=None)
@given(st.text().filter(lambda text: "<" not in text))
def test_text_is_encoded_as_the_library_does(text: str) -> None:
    assert chat_text().tokenizer.encode_text(text) == reference_tokenizer().encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("literal", CONTROL)
def test_text_never_encodes_to_a_control_token(literal: str) -> None:
    ids = chat_text().tokenizer.encode_text(f"a{literal}b {literal}\n{literal}")
    assert {control_id(other) for other in CONTROL}.isdisjoint(ids)


@pytest.mark.parametrize("literal", CONTROL)
def test_control_tokens_have_no_bytes(literal: str) -> None:
    assert chat_text().tokenizer.piece(control_id(literal)) == b""


def test_every_byte_is_a_token() -> None:
    pieces = {chat_text().tokenizer.piece(token_id) for token_id in range(size())}
    assert {bytes([value]) for value in range(256)} <= pieces


def test_size_counts_the_ids_of_the_file() -> None:
    assert chat_text().tokenizer.size == size() == len(vocab()) + len(CONTROL)


def test_only_text_end_of_turn_and_markers_of_an_answer_can_be_drawn() -> None:
    never = ["<|startoftext|>", "<role>", "</role>", "<think>"]
    padding = range(size(), size() + 7)
    assert chat_text().tokenizer.masked_ids == (*sorted(map(control_id, never)), *padding)


def test_end_of_text_ends_an_answer_as_well() -> None:
    tokenizer = Tokenizer(tokenizer_json(), EOS, size())
    assert tokenizer.eos_token_ids == {control_id("<|role_end|>"), control_id("<|endoftext|>")}


def test_ids_without_a_token_cannot_be_drawn() -> None:
    hole = size()
    added = [*json.loads(tokenizer_json())["added_tokens"], {"id": hole + 2, "content": "<later>"}]
    tokenizer = Tokenizer(edited_tokenizer_json(added_tokens=added), EOS, hole + 3)
    assert tokenizer.size == hole + 3
    assert {hole, hole + 1, hole + 2} <= set(tokenizer.masked_ids)


def test_control_tokens_listed_in_the_vocabulary_are_still_control_tokens() -> None:
    listed = vocab() | {literal: control_id(literal) for literal in CONTROL}
    tokenizer = Tokenizer(edited_model(vocab=listed, ignore_merges=True), EOS, size())
    assert tokenizer.piece(control_id("<think>")) == b""
    assert tokenizer.masked_ids == Tokenizer(tokenizer_json(), EOS, size()).masked_ids
    assert control_id("<role>") not in tokenizer.encode_text("<role>")


def test_settings_of_the_file_that_cut_or_pad_are_not_applied() -> None:
    cutting = reference_tokenizer().from_str(tokenizer_json().decode())
    cutting.enable_truncation(4)
    cutting.enable_padding(length=9, pad_token="<|endoftext|>", pad_id=control_id("<|endoftext|>"))
    tokenizer = Tokenizer(str(cutting.to_str()).encode(), EOS, size())
    text = "Hello there, this is a small tokenizer."
    assert tokenizer.encode_text(text) == chat_text().tokenizer.encode_text(text)
    assert tokenizer.encode_text("") == []


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (b"", "not JSON"),
        (tokenizer_json()[:-9], "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "not a BPE tokenizer"),
        (b'{"model": {"type": "Unigram", "vocab": []}}', "not a BPE tokenizer"),
        (edited_model(vocab={}), "must map tokens to ids"),
        (edited_model(vocab=vocab() | {"x y": 5}), "'x y' is not spelled"),
        (edited_model(vocab=vocab() | {"日": 5}), "'日' is not spelled"),
        (edited_model(vocab=vocab() | {"abc": "7"}), "must map tokens to ids"),
        (edited_model(vocab={t: i for t, i in vocab().items() if t != "Ā"}), "no token for byte 0x00"),
        (edited_model(merges=["q z"]), "tokenizer.json"),
        (edited_tokenizer_json(added_tokens=[{"id": 1}]), "added token without id or content"),
        (edited_tokenizer_json(added_tokens=[{"id": 1, "content": ""}]), "added token without id or content"),
        (edited_tokenizer_json(added_tokens=[{"id": "1", "content": "x"}]), "added token without id or content"),
        (without("</think>"), "no added token </think>"),
        (without("<tool_call>"), "no added token <tool_call>"),
        (edited_tokenizer_json(pre_tokenizer=None), "text does not survive encoding"),
        (edited_tokenizer_json(normalizer={"type": "Lowercase"}), "text does not survive encoding"),
        (edited_tokenizer_json(pre_tokenizer={"type": "Nonsense"}), "tokenizer.json"),
    ],
)
def test_unusable_file_is_named(file: bytes, message: str) -> None:
    with pytest.raises(PackageError, match=message) as caught:
        Tokenizer(file, EOS, size())
    assert "tokenizer.json" in str(caught.value)


def test_tokenizer_larger_than_the_model_is_refused() -> None:
    with pytest.raises(PackageError, match=f"token id {size() - 1}, but the model has {size() - 1} rows"):
        Tokenizer(tokenizer_json(), EOS, size() - 1)


@pytest.mark.parametrize("eos", [frozenset[int](), frozenset({0, 156895}), frozenset({-1})])
def test_end_of_turn_must_be_a_token(eos: frozenset[int]) -> None:
    with pytest.raises(PackageError, match="eos_token_id"):
        Tokenizer(tokenizer_json(), eos, size())
