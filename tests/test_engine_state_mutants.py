"""A sample of the states of all scenarios with one field changed; tests/deep has all."""

from __future__ import annotations

from tests.state_mutants import run


def test_each_change_of_a_state_is_seen_by_an_invariant() -> None:
    ends, unseen = run(most_states=8, share=0.01)
    assert unseen[:10] == []
    assert ends["seen"] > 300
    assert ends["history"] < ends["seen"] / 20
