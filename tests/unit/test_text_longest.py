"""A prompt that cannot fit is refused before it is encoded."""

from __future__ import annotations

import pytest
from text_fixtures import chat_text

from ling3.errors import RequestError


def test_a_hopeless_prompt_is_refused_unencoded(monkeypatch: pytest.MonkeyPatch) -> None:
    text = chat_text()
    monkeypatch.setattr(text.tokenizer, "encode_text", lambda part: pytest.fail("the prompt was encoded"))
    letters = 101 * text.tokenizer.longest_piece
    with pytest.raises(RequestError, match=r"at least 10\d tokens, the context holds 100") as refusal:
        text.encode_chat([{"role": "user", "content": "x" * letters}], most=100)
    assert (refusal.value.status, refusal.value.code) == (400, "context_length_exceeded")


def test_a_prompt_that_may_fit_is_encoded() -> None:
    text = chat_text()
    messages = [{"role": "user", "content": "x" * 50}]
    assert text.encode_chat(messages, most=1000) == text.encode_chat(messages)


def test_more_messages_than_positions_are_refused_unrendered() -> None:
    with pytest.raises(RequestError, match="at least 101 tokens"):
        chat_text().encode_chat([{"role": "user", "content": ""}] * 101, most=100)
