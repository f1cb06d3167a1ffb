"""The graph walk against the definition of "order does not matter", on a thousand engines with planted hidden state."""

from __future__ import annotations

from dispatchlab.explore.result import Verdict
from tests.brute_force import merging_is_sound


def test_merging_is_sound_on_a_thousand_engines_with_planted_hidden_state() -> None:
    assert merging_is_sound(range(1_000)) == {Verdict.ORDER_INDEPENDENT: 697, Verdict.ORDER_DEPENDENT: 303}
