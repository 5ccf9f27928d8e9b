"""The gate of a run (E-79, E-80)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ling3.engine.flow import TRANSITIONS, FlowGate, RunState

STEPS: dict[str, Callable[[FlowGate], object]] = {
    "begin": lambda gate: gate.begin("run-1"),
    "decoding": lambda gate: gate.decoding(),
    "cancel": lambda gate: gate.cancel(),
    "commit": lambda gate: gate.try_commit(),
    "end": lambda gate: gate.end(),
}


def gate_after(steps: str) -> FlowGate:
    gate = FlowGate()
    for step in steps.split():
        STEPS[step](gate)
    return gate


@pytest.mark.parametrize(
    ("steps", "state", "active"),
    [
        ("", "idle", False),
        ("begin", "prefill", True),
        ("begin decoding", "decode", True),
        ("begin cancel", "canceling", True),
        ("begin cancel decoding", "canceling", True),
        ("begin decoding cancel", "canceling", True),
        ("begin decoding cancel cancel", "canceling", True),
        ("begin decoding cancel commit", "canceling", True),
        ("begin decoding commit", "committed", True),
        ("begin decoding commit cancel", "committed", True),
        ("begin decoding commit end", "idle", False),
        ("begin end", "idle", False),
        ("begin decoding end", "idle", False),
        ("begin cancel end", "idle", False),
        ("begin cancel end begin", "prefill", True),
        ("cancel", "idle", False),
    ],
)
def test_where_steps_lead(steps: str, state: str, active: bool) -> None:
    gate = gate_after(steps)
    assert (gate.status()["state"], gate.active) == (state, active)


@pytest.mark.parametrize("steps", ["begin begin", "begin decoding begin", "commit", "begin commit", "end"])
def test_steps_that_are_no_part_of_a_run_are_errors_of_ours(steps: str) -> None:
    with pytest.raises(RuntimeError, match="a run cannot go from"):
        gate_after(steps)


@pytest.mark.parametrize(
    ("steps", "committed", "canceled"),
    [
        ("begin decoding", True, False),
        ("begin decoding cancel", False, True),
        ("begin cancel decoding", False, True),
    ],
)
def test_either_the_commit_or_the_cancel_wins(steps: str, committed: bool, canceled: bool) -> None:
    gate = gate_after(steps)
    assert (gate.try_commit(), gate.cancel()) == (committed, canceled)


@pytest.mark.parametrize(("request_id", "canceled"), [("", True), ("run-1", True), ("run-2", False), ("run-", False)])
def test_a_cancel_names_its_run_or_none(request_id: str, canceled: bool) -> None:
    gate = gate_after("begin")
    assert (gate.cancel(request_id), gate.alive()) == (canceled, not canceled)


def test_pieces_and_steps_are_counted_anew_in_each_run() -> None:
    gate = gate_after("begin")
    assert [gate.prepare(), gate.prepare()] == [1, 2]
    gate.step()
    gate.end()
    assert (gate.status()["sequence"], gate.status()["evaluated_steps"]) == (2, 1)
    gate.begin("run-2")
    assert gate.status() == {
        "active": True, "request_id": "run-2", "state": "prefill", "sequence": 0, "cancel_requested": False,
        "evaluated_steps": 0,
    }  # fmt: skip
    assert gate.prepare() == 1


def test_every_state_can_be_reached_and_left() -> None:
    reached: set[RunState] = {"idle"}
    for _ in TRANSITIONS:
        reached |= {following for state in reached for following in TRANSITIONS[state]}
    assert reached == set(TRANSITIONS)
    assert all("idle" in following for state, following in TRANSITIONS.items() if state != "idle")
