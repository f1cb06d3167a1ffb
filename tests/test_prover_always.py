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


MODULES = """\
claim: Two modules.
order: [1, 2]
modules: {first: [0, 1], second: [2]}
registrations:
  - def: foo(Tensor x) -> Tensor
  - {impl: foo, dispatch: CPU, debug: fn_a}
  - {impl: foo, dispatch: CUDA, debug: fn_b}
"""


def test_modules_are_imported_as_a_whole_in_their_order_and_nothing_is_released() -> None:
    seen: list[list[str]] = []

    def is_seen(operators: tuple[Snapshot, ...]) -> bool:
        seen.append([fn for fn in ("fn_a", "fn_b") if fn in operators[0].dump])
        return True

    assert explore(parse_scenario(MODULES), always=is_seen).states == 3
    assert seen == [[], ["fn_a"], ["fn_a", "fn_b"]]
    both = explore(parse_scenario(MODULES), always=lambda operators: "fn_b" not in operators[0].dump)
    assert (bool(both), both.sequence) == (False, (0, 1, 2))
    free = explore(parse_scenario(MODULES.replace("order: [1, 2]\n", "")), always=lambda operators: True)
    assert (bool(free), free.states) == (True, 4)


def test_an_import_ends_at_a_refusal() -> None:
    text = MODULES.replace("impl: foo, dispatch: CUDA, debug: fn_b", "def: foo(Tensor x) -> Tensor")
    assert explore(parse_scenario(text), always=lambda operators: True).states == 2


def test_too_many_states_are_no_proof() -> None:
    with pytest.raises(TooManyStatesError, match="holds in 10 states, but there are more"):
        explore(parse_scenario(FIVE), always=lambda operators: True, max_states=10)
