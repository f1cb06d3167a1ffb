"""The long tests of tests/test_prover_covering_walk.py, which the quick tier leaves out."""

from __future__ import annotations

import pytest

from dispatchlab.model.sequence import format_sequence
from dispatchlab.prover.result import Flaw, Verdict
from tests.test_prover_covering_walk import NEEDLES, walk
from tests.toy_engines import Planted, toy


@pytest.mark.parametrize(("planted", "flaw", "expected", "actual"), NEEDLES)
def test_a_needle_is_reported_in_the_shortest_sequences(
    planted: Planted, flaw: Flaw, expected: str, actual: str
) -> None:
    found = walk(toy(5, planted))
    assert found.verdict is Verdict.ORDER_DEPENDENT
    counterexample = found.counterexample
    assert counterexample is not None
    assert (
        counterexample.flaw,
        format_sequence(counterexample.expected_sequence),
        format_sequence(counterexample.actual_sequence),
    ) == (
        flaw,
        expected,
        actual,
    )
