"""The long tests of tests/test_state_graph.py, which the quick tier leaves out."""

from __future__ import annotations

import re

import pytest

from dispatchlab.prover.result import Verdict
from dispatchlab.questions.order.run_scenario import RunOptions, run_scenario
from tests.test_state_graph import SCENARIOS, SOME


@pytest.mark.parametrize("name", SOME)
def test_a_picture_has_the_states_that_the_report_counts_or_says_why_not(name: str) -> None:
    outcome = run_scenario(str(SCENARIOS / name), RunOptions(graph="states.dot"))
    found, graph = outcome.report.exploration, outcome.graph
    if graph is None:
        assert "too many to read" in str(outcome.not_drawn)
        return
    counted = [note for note in graph.notes if "the report counts" in note]
    if found.verdict is Verdict.ORDER_INDEPENDENT:
        assert (graph.states, counted) == (found.states, [])
        assert sum(not node.members for node in graph.nodes) >= found.components
    elif graph.is_cut or graph.states == found.states:
        assert counted == []
    else:
        (note,) = counted
        assert re.fullmatch(
            rf"{graph.states} states are drawn; the report counts {found.states}, since its walk ended at the "
            "counterexample",
            note,
        )
