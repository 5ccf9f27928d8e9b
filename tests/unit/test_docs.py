"""The documents say what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from engine_fixtures import MakeBench, ask, words

from tools.docs import PAGES, ROOT, fill

FIRST_BLOCK = """# ling3

    make run     # installs into .venv, then serves and chats with the bundled model
    make test    # installs the test tools into .venv and runs the tests
"""


@pytest.mark.parametrize("page", PAGES)
def test_generated_blocks_are_current(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert fill(text) == text, f"{page} is stale: run python tools/docs.py"


def test_the_readme_begins_with_the_two_commands() -> None:
    assert (ROOT / "README.md").read_text(encoding="utf-8").startswith(FIRST_BLOCK)


@pytest.mark.parametrize("page", PAGES)
def test_links_and_folders_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    local = [link for link in re.findall(r"\]\(([^)]+)\)", text) if not link.startswith("http")]
    folders = re.findall(r"^\| `([a-z0-9_/]+/)` ", text, re.MULTILINE)
    missing = [name for name in (*local, *folders) if not ((ROOT / page).parent / name).exists()]
    assert missing == []


def test_every_metric_is_documented_and_no_other(make_bench: MakeBench) -> None:
    section = (ROOT / "docs/api.md").read_text(encoding="utf-8").split("## Metrics", 1)[1]
    documented = {name for row in re.findall(r"^\| (`.+?`) \|", section, re.MULTILINE) for name in _names(row)}
    assert documented == set(make_bench(words("hi")).run(ask()).metrics)


def _names(row: str) -> list[str]:
    return re.findall(r"`(\w+)`", row)


def test_every_source_file_says_what_it_is() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "ling3").rglob("*.py"))
        if not path.read_text(encoding="utf-8").lstrip().startswith('"""')
    ]
    assert silent == []


def test_pages_name_existing_files() -> None:
    assert all(Path(ROOT / page).is_file() for page in PAGES)
