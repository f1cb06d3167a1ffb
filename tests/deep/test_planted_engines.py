"""The graph walk against the definition of "order does not matter", and proofs against sandboxes: planted engines."""

from __future__ import annotations

from dispatchlab.explore.result import Verdict
from tests.brute_force import merging_is_sound
from tests.planted_spaces import verdicts_of_wrong_spaces


def test_merging_is_sound_on_a_thousand_engines_with_planted_hidden_state() -> None:
    assert merging_is_sound(range(1_000)) == {Verdict.ORDER_INDEPENDENT: 697, Verdict.ORDER_DEPENDENT: 303}


def test_none_of_a_thousand_engines_with_a_wrong_space_is_proved() -> None:
    verdicts = verdicts_of_wrong_spaces(1_000)
    assert verdicts.total() == 1_000
    assert Verdict.ORDER_INDEPENDENT not in verdicts
