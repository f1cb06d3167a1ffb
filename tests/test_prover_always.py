"""A predicate is checked in every state, and fails after a shortest sequence."""

from __future__ import annotations

import pytest

from dispatchlab import explore, parse_scenario
from dispatchlab.api import TooManyStatesError
from dispatchlab.model.snapshot import Snapshot
from tests.scenario_texts import FIVE, TWICE


def test_a_predicate_that_holds_was_tested_in_every_state() -> None:
    seen: list[tuple[Snapshot, ...]] = []

    def is_seen(operators: tuple[Snapshot, ...]) -> bool:
        seen.append(operators)
        return True

    found = explore(parse_scenario(FIVE), always=is_seen)
    assert (found.holds, found.states, len(seen), str(found)) == (True, 32, 32, "holds in every state (32)")


def test_a_predicate_fails_after_a_shortest_sequence_and_shows_what_is_there() -> None:
    scenario = parse_scenario(TWICE)
    found = explore(
        scenario, always=lambda operators: "fn_b" not in operators[0].dump or "fn_a" not in operators[0].dump
    )
    assert (found.holds, found.sequence) == (False, (0, 1))
    assert "fn_a" in found.snapshots[0].dump
    ordered = parse_scenario(TWICE.replace("registrations:", "order: [1, 0]\nregistrations:"))
    assert explore(ordered, always=lambda operators: "fn_b" not in operators[0].dump).sequence == (1,)


def test_too_many_states_are_no_proof() -> None:
    with pytest.raises(TooManyStatesError, match=r"holds in 1\d states"):
        explore(parse_scenario(FIVE), always=lambda operators: True, max_states=10)
