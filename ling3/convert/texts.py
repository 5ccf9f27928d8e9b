"""The texts a package carries: tokenizer, chat template, generation settings (M-60, M-70, M-83)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ling3.convert.checkpoint import read_json
from ling3.errors import PackageError
from ling3.text import ChatText
from ling3.text.template import builtin_chat_template


@dataclass(frozen=True, slots=True)
class Texts:
    """As stored. `notices`: what was taken for something the folder lacks."""

    tokenizer_json: bytes
    chat_template: str
    generation: dict[str, Any]
    notices: tuple[str, ...]


def read_texts(folder: Path, config: Mapping[str, Any], vocab_size: int) -> Texts:
    """Read and try out the texts of a checkpoint. PackageError naming the file that is missing or unusable."""
    tokenizer_path = folder / "tokenizer.json"
    try:
        tokenizer_json = tokenizer_path.read_bytes()
    except OSError as error:
        raise PackageError(f"{tokenizer_path}: {error.strerror or error}") from error
    template = _own_template(folder)
    notices = () if template is not None else ("no chat template in the checkpoint: taking the one of Ling-3.0",)
    texts = Texts(tokenizer_json, template or builtin_chat_template(), _generation(folder, config), notices)
    eos = _token_ids(texts.generation.get("eos_token_id")) | _token_ids(config.get("eos_token_id"))
    if not eos:
        raise PackageError(f"{folder}: eos_token_id is missing in config.json and generation_config.json")
    try:
        ChatText(texts.tokenizer_json, texts.chat_template, eos, vocab_size)
    except PackageError as error:
        raise PackageError(f"{folder}: {error}") from error
    return texts


def _own_template(folder: Path) -> str | None:
    """The checkpoint's chat template: a file of its own, or a field of the tokenizer's settings."""
    path = folder / "chat_template.jinja"
    if path.exists():
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PackageError(f"{path}: {error}") from error
    settings = folder / "tokenizer_config.json"
    template = read_json(settings).get("chat_template") if settings.exists() else None
    if isinstance(template, list):  # several by name; an older form
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = named.get("default")
    if template is not None and not isinstance(template, str):
        raise PackageError(f"{settings}: chat_template must be text")
    return template


def _generation(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    path = folder / "generation_config.json"
    if path.exists():
        return read_json(path)
    return {"eos_token_id": config["eos_token_id"]} if "eos_token_id" in config else {}


def _token_ids(value: Any) -> frozenset[int]:
    ids = value if isinstance(value, list) else [value]
    return frozenset(i for i in ids if isinstance(i, int) and not isinstance(i, bool))
