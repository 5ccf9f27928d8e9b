"""Reading the intent, fact and list files below `text/`; their form is described in the first lines of each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

TEXT_DIR = Path(__file__).parent / "text"

Row = tuple[str, str]


@dataclass(frozen=True)
class Intent:
    """One thing a user may want: its phrasings, replies, thought, and the table whose rows fill the slots."""

    name: str
    questions: tuple[str, ...]
    follow_ups: tuple[str, ...]
    answers: tuple[str, ...]
    thought: str
    rows: tuple[Row, ...]


def fill(template: str, row: Row) -> str:
    """Put a table row into a template: `{a}` and `{b}` are the row's values, `{A}` is `{a}` with a capital."""
    key, value = row
    return template.replace("{A}", key[:1].upper() + key[1:]).replace("{a}", key).replace("{b}", value)


def text_lines(name: str) -> list[str]:
    """The lines of a file below `text/` without comments and empty ones."""
    text = (TEXT_DIR / name).read_text(encoding="utf-8")
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


@cache
def load_tables(language: str) -> dict[str, tuple[Row, ...]]:
    """The fact tables of a language ("en" or "zh"), by name."""
    tables: dict[str, list[Row]] = {}
    rows: list[Row] = []
    for line in text_lines(f"{language}_facts.txt"):
        if line.startswith("["):
            rows = tables.setdefault(line.strip("[]"), [])
            continue
        key, separator, value = line.partition(": ")
        rows.append((key, value) if separator else (line, ""))
    return {name: tuple(table) for name, table in tables.items()}


@cache
def load_lists(language: str) -> dict[str, tuple[str, ...]]:
    """The word lists of a language, by name."""
    lists = {}
    for line in text_lines(f"{language}_lists.txt"):
        name, _, words = line.partition(" = ")
        lists[name] = tuple(word.strip() for word in words.split(","))
    return lists


@cache
def load_intents(language: str) -> tuple[Intent, ...]:
    """All intents of a language, with their tables joined."""
    tables = load_tables(language)
    intents: list[Intent] = []
    head = ""
    fields: dict[str, str] = {}
    for line in [*text_lines(f"{language}_intents.txt"), "[end]"]:
        if not line.startswith("["):
            key, _, value = line.partition(": ")
            fields[key] = value
            continue
        if head:
            name, _, table = head.partition("] table=")
            intents.append(_intent(name.strip("[]"), fields, tables[table] if table else ()))
        head, fields = line, {}
    return tuple(intents)


def _intent(name: str, fields: dict[str, str], rows: tuple[Row, ...]) -> Intent:
    def variants(key: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in fields.get(key, "").split("|") if part.strip())

    return Intent(name, variants("q"), variants("f"), variants("a"), fields["t"], rows)
