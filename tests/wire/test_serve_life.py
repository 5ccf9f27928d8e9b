"""The table of a connection's life, and that nothing leaves it."""

from __future__ import annotations

import pytest

from ling3.serve.life import TRANSITIONS, Life, State


@pytest.mark.parametrize("start", State)
@pytest.mark.parametrize("end", State)
def test_advance_follows_the_table(start: State, end: State) -> None:
    life = Life()
    life.state = start
    if end in TRANSITIONS[start]:
        life.advance(end)
        assert life.state is end
    else:
        with pytest.raises(RuntimeError, match=f"from {start.value} to {end.value}"):
            life.advance(end)
        assert life.state is start


def test_every_state_can_be_reached_and_left_but_the_last() -> None:
    reached, new = set(), {State.HEAD}
    while new:
        reached |= new
        new = {after for state in new for after in TRANSITIONS[state]} - reached
    assert reached == set(State)
    assert [state for state in State if not TRANSITIONS[state]] == [State.CLOSED]


def test_every_living_connection_can_be_closed() -> None:
    assert all(State.CLOSED in TRANSITIONS[state] for state in State if state is not State.CLOSED)


def test_an_answer_is_begun_once() -> None:
    assert [state for state in State if State.STREAMING in TRANSITIONS[state]] == [State.RUNNING]
