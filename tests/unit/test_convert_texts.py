"""Tokenizer, chat template and generation settings of a package."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from checkpoints import checkpoint, edit_json
from random_checkpoint import TINY

from ling3.convert.texts import Texts, read_texts
from ling3.errors import PackageError
from ling3.text.template import builtin_chat_template

OWN = "{% for message in messages %}{{ message.role }}: {{ message.content }}{% endfor %}"
OTHER = "{{ messages[0].content }}"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A checkpoint without a chat template."""
    folder = checkpoint(tmp_path / "source", num_hidden_layers=1)
    (folder / "chat_template.jinja").unlink()
    return folder


def texts(source: Path) -> Texts:
    return read_texts(source, json.loads((source / "config.json").read_text()), TINY["vocab_size"])


def test_the_tokenizer_is_taken_as_it_is(source: Path) -> None:
    assert texts(source).tokenizer_json == (source / "tokenizer.json").read_bytes()


def test_without_a_template_the_builtin_one_is_taken_with_a_notice(source: Path) -> None:
    found = texts(source)
    assert found.chat_template == builtin_chat_template()
    assert found.notices == ("no chat template in the checkpoint: taking the one of Ling-3.0",)


def test_a_template_in_the_tokenizers_settings(source: Path) -> None:
    (source / "tokenizer_config.json").write_text(json.dumps({"chat_template": OWN}))
    assert texts(source).chat_template == OWN
    assert texts(source).notices == ()


def test_the_default_of_several_named_templates(source: Path) -> None:
    named = [{"name": "tool_use", "template": OTHER}, {"name": "default", "template": OWN}]
    (source / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    assert texts(source).chat_template == OWN


def test_a_template_file_wins(source: Path) -> None:
    (source / "tokenizer_config.json").write_text(json.dumps({"chat_template": OTHER}))
    (source / "chat_template.jinja").write_text(OWN)
    assert texts(source).chat_template == OWN


def test_generation_settings_are_taken_as_they_are(source: Path) -> None:
    assert texts(source).generation == {"eos_token_id": 260, "temperature": 1.0, "top_p": 0.95, "top_k": 20}


def test_without_generation_settings_the_end_of_turn_comes_from_the_config(source: Path) -> None:
    (source / "generation_config.json").unlink()
    assert texts(source).generation == {"eos_token_id": 260}


def test_no_end_of_turn_anywhere_is_refused(source: Path) -> None:
    (source / "generation_config.json").write_text("{}")
    edit_json(source / "config.json", eos_token_id=None)
    with pytest.raises(PackageError, match=r"eos_token_id is missing in config\.json and generation_config\.json"):
        texts(source)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("tokenizer.json", "{", r"tokenizer\.json: not JSON"),
        ("tokenizer.json", "{}", r"tokenizer\.json: not a BPE tokenizer"),
        ("chat_template.jinja", "{% if %}", r"chat template: line 1"),
        ("generation_config.json", "[]", r"generation_config\.json: must be a JSON object"),
        ("tokenizer_config.json", '{"chat_template": 3}', r"tokenizer_config\.json: chat_template must be text"),
    ],
)
def test_an_unusable_file_is_refused_by_name(source: Path, file: str, content: str, message: str) -> None:
    (source / file).write_text(content)
    with pytest.raises(PackageError, match=message):
        texts(source)


def test_a_template_that_is_no_utf8_is_refused(source: Path) -> None:
    (source / "chat_template.jinja").write_bytes(b"\xff{{ messages }}")
    with pytest.raises(PackageError, match=r"chat_template\.jinja: "):
        texts(source)


def test_a_tokenizer_larger_than_the_embedding_is_refused(source: Path) -> None:
    with pytest.raises(PackageError, match=r"tokenizer\.json: token id 270, but the model has 200 rows"):
        read_texts(source, {"eos_token_id": 260}, 200)
