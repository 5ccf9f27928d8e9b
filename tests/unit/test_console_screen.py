"""What the console shows: the text filter, the screen, the two languages."""

from __future__ import annotations

import dataclasses
import string
import unicodedata

import pytest
from console_fixtures import make_screen
from hypothesis import given
from hypothesis import strategies as st

from ling3.console.screen import without_controls
from ling3.console.texts import CHINESE, ENGLISH, Texts, choose_texts


@given(st.text())
def test_only_controls_are_taken_from_a_text(text: str) -> None:
    kept = [c for c in text if c in "\n\t" or unicodedata.category(c) != "Cc"]
    assert without_controls(text) == "".join(kept)


@given(st.lists(st.text(alphabet="\x1b\x9b\x07\r[]31mA\n")))
def test_a_cut_into_pieces_changes_nothing(pieces: list[str]) -> None:
    assert "".join(map(without_controls, pieces)) == without_controls("".join(pieces))


def test_a_dim_piece_ends_plain() -> None:
    screen, shown = make_screen(styled=True)
    screen.write("soft\x1b[1m", dim=True)
    assert shown() == "\x1b[2msoft[1m\x1b[0m"


def test_a_piece_without_visible_text_sends_nothing() -> None:
    screen, shown = make_screen(styled=True)
    screen.write("\x1b", dim=True)
    assert shown() == ""


def test_a_line_of_its_own_ends_an_open_line_first() -> None:
    screen, shown = make_screen()
    screen.write("open")
    screen.line("own")
    screen.line("next")
    assert shown() == "open\nown\nnext\n"


@pytest.mark.parametrize(("encoding", "expected"), [("latin-1", "caf\xe9 ??"), ("utf-8", "café 你好")])
def test_characters_the_terminal_lacks_become_question_marks(encoding: str, expected: str) -> None:
    screen, shown = make_screen(encoding)
    screen.write("café 你好")
    assert shown() == expected


def test_a_lone_surrogate_is_shown_as_a_question_mark() -> None:
    screen, shown = make_screen()
    screen.write("a\ud800b")
    assert shown() == "a?b"




@pytest.mark.parametrize(
    ("environ", "texts"),
    [
        ({}, ENGLISH),
        ({"LANG": "zh_CN.UTF-8"}, CHINESE),
        ({"LANG": "zh"}, CHINESE),
        ({"LANG": "zh-Hant"}, CHINESE),
        ({"LANG": "zha"}, ENGLISH),
        ({"LANG": "de_DE.UTF-8"}, ENGLISH),
        ({"LC_MESSAGES": "zh_TW.UTF-8", "LANG": "en_US.UTF-8"}, CHINESE),
        ({"LC_ALL": "C", "LC_MESSAGES": "zh_CN", "LANG": "zh_CN"}, ENGLISH),
        ({"LC_ALL": "", "LANG": "zh_CN"}, CHINESE),
    ],
)
def test_the_locale_chooses_the_language(environ: dict[str, str], texts: Texts) -> None:
    assert choose_texts(environ, "utf-8") is texts


def test_a_terminal_without_chinese_characters_speaks_english() -> None:
    assert choose_texts({"LANG": "zh_CN"}, "latin-1") is ENGLISH


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Texts)])
def test_both_languages_have_the_same_blanks(field: str) -> None:
    blanks = [
        [(spec, name) for _, name, spec, _ in string.Formatter().parse(getattr(texts, field)) if name is not None]
        for texts in (ENGLISH, CHINESE)
    ]
    assert blanks[0] == blanks[1]


