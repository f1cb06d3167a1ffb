"""The states of all scenarios with one field changed."""

from __future__ import annotations

from tests.effort import share
from tests.state_mutants import run


def test_each_change_of_a_state_is_seen_by_an_invariant_the_same_state_or_history() -> None:
    ends, unseen = run(most_states=20, share=max(3, share(10)) / 100)
    assert unseen[:10] == []
    assert ends.total() > 20_000
    assert ends["history"] < ends["seen"] / 50
