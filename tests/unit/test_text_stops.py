"""Stop strings in streamed text (E-108)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ling3.text.stops import StopMatcher

# Few letters, so that stops overlap themselves and each other.
stop_lists = st.lists(st.text("ab", min_size=1, max_size=6), max_size=4)
chunk_lists = st.lists(st.text("ab", max_size=4), max_size=10)


def released(stops: list[str], chunks: list[str]) -> tuple[list[str], bool]:
    """What each push and the flush let through, and whether a stop was found."""
    matcher = StopMatcher(stops)
    texts = [matcher.push(chunk) for chunk in chunks] + [matcher.flush()]
    return texts, matcher.stopped


def cut(text: str, stops: list[str]) -> str:
    """The whole text up to the earliest occurrence of any stop."""
    return text[: min((text.index(stop) for stop in stops if stop in text), default=len(text))]


@pytest.mark.parametrize(
    ("stops", "chunks", "texts", "stopped"),
    [
        pytest.param(["beta gamma"], ["alpha", " beta", " gam", "ma"], ["alpha", " ", "", "", ""], True, id="spans"),
        pytest.param(["DEFGHIJ"], ["ABC", "DEF", "G", "HI", "JK"], ["ABC", "", "", "", "", ""], True, id="in pieces"),
        pytest.param(["DEFGHIJ"], ["ABCDEF", "GHX", "Y"], ["ABC", "DEFGHX", "Y", ""], False, id="false alarm"),
        pytest.param(["\nUser:", "\n\n"], ["so", "\nUser", ":"], ["so", "", "", ""], True, id="prefix of two"),
        pytest.param(["\nUser:", "\n\n"], ["so", "\n", "then"], ["so", "", "\nthen", ""], False, id="newline"),
        pytest.param(["aab"], ["aaa", "ab"], ["a", "a", ""], True, id="overlaps itself"),
        pytest.param(["END"], ["the EN"], ["the ", "EN"], False, id="held to the end"),
        pytest.param(["one", "two"], ["two one"], ["", ""], True, id="earliest position"),
        pytest.param(["a", "ab"], ["xab"], ["x", ""], True, id="same position"),
        pytest.param(["abcd", "bc"], ["abc", "x"], ["", "a", ""], True, id="longer one fails"),
        pytest.param(["abcd", "bc"], ["abc", "d"], ["", "", ""], True, id="longer one wins"),
        pytest.param(["abcd", "bc"], ["abc"], ["", "a"], True, id="longer one undecided at the end"),
        pytest.param([], ["a", "", "b"], ["a", "", "b", ""], False, id="no stops"),
        pytest.param(["😀"], ["x", "😀y"], ["x", "", ""], True, id="beyond ASCII"),
    ],
)
def test_releases(stops: list[str], chunks: list[str], texts: list[str], stopped: bool) -> None:
    assert released(stops, chunks) == (texts, stopped)


def test_nothing_follows_a_stop() -> None:
    matcher = StopMatcher(["."])
    assert [matcher.push("a.b"), matcher.push("c"), matcher.flush(), matcher.push(".d")] == ["a", "", "", ""]


@given(stop_lists, chunk_lists)
def test_streamed_text_is_the_whole_text_cut_at_the_earliest_stop(stops: list[str], chunks: list[str]) -> None:
    whole = "".join(chunks)
    texts, stopped = released(stops, chunks)
    assert ("".join(texts), stopped) == (cut(whole, stops), any(stop in whole for stop in stops))


@given(stop_lists, chunk_lists)
def test_holds_no_more_than_could_begin_a_stop(stops: list[str], chunks: list[str]) -> None:
    matcher, shown, whole = StopMatcher(stops), "", ""
    for chunk in chunks:
        shown, whole = shown + matcher.push(chunk), whole + chunk
        if any(stop in whole for stop in stops):
            return
        held = max((n for stop in stops for n in range(len(stop)) if whole.endswith(stop[:n])), default=0)
        assert shown == whole[: len(whole) - held]
