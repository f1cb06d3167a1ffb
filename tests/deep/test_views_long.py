"""The long tests of tests/test_views.py, which the quick tier leaves out."""

from __future__ import annotations

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.prover.result import Counterexample, Flaw
from dispatchlab.questions.order.state_graph import PartOfGraph, state_graph
from dispatchlab.scenario import parse_scenario
from tests.test_views import hidden


def test_the_way_of_a_counterexample_is_never_grouped() -> None:
    scenario = parse_scenario(hidden(6))
    space = LabEngine().space(scenario.registrations, scenario.operators)
    counterexample = Counterexample(Flaw.NON_COMMUTING, (0, 1, 5), (0, 2, 5), "")
    whole = PartOfGraph(space, tuple(range(6)), ())
    picture = state_graph([whole], ["impl"] * 6, title="t", counterexample=counterexample)
    way = {(), (0,), (0, 1), (0, 1, 5), (0, 2), (0, 2, 5)}
    assert way <= {node.members for node in picture.nodes if not node.sets}
    assert any(node.sets for node in picture.nodes)
    assert sum(bool(edge.mark) for edge in picture.edges) == 5
