"""The long tests of tests/test_prover_replay_proof.py, which the quick tier leaves out."""

from __future__ import annotations

from dispatchlab.prover.result import Verdict
from tests.planted_spaces import verdicts_of_wrong_spaces


def test_no_engine_with_a_wrong_space_is_proved() -> None:
    verdicts = verdicts_of_wrong_spaces(24)
    assert verdicts.total() == 24
    assert set(verdicts) == {Verdict.ORDER_DEPENDENT, Verdict.NONDETERMINISTIC}
