"""The graph of states as text has the states and steps of the walk, and the counterexample marked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dispatchlab.prover.result import Verdict
from dispatchlab.questions.order.run_scenario import RunOptions, run_scenario
from dispatchlab.questions.order.state_graph import dot_text, mermaid_text

SCENARIOS = Path(__file__).parent.parent / "scenarios"
SOME = sorted(
    path.relative_to(SCENARIOS).as_posix()
    for folder in ("basics", "order", "several", "defects")
    for path in (SCENARIOS / folder).glob("*.yaml")
)


@pytest.mark.parametrize("name", SOME)
def test_both_languages_have_each_node_and_each_edge(name: str) -> None:
    outcome = run_scenario(str(SCENARIOS / name), RunOptions(graph="states.dot", timeout_s=20))
    found, graph = outcome.report.exploration, outcome.graph
    if graph is None:
        pytest.skip("it has too many states to be drawn")
    dot, mermaid = dot_text(graph), mermaid_text(graph)
    if found.verdict is Verdict.ORDER_INDEPENDENT:
        assert len(graph.nodes) == found.states
    edges = [(str(edge.source), str(edge.target)) for edge in graph.edges]
    assert re.findall(r"^  n(\d+) -> n(\d+) ", dot, re.MULTILINE) == edges
    assert re.findall(r'^  n(\d+) [-=.]+>(?:\|".*?"\|)? n(\d+)$', mermaid, re.MULTILINE) == edges
    assert len(re.findall(r"^  n\d+ \[", dot, re.MULTILINE)) == len(graph.nodes)
    assert len(re.findall(r"^  n\d+\(", mermaid, re.MULTILINE)) == len(graph.nodes)
    marked = sum(bool(node.mark) for node in graph.nodes)
    assert len(re.findall(r"^  style n", mermaid, re.MULTILINE)) == marked
    if graph.counterexample is not None:
        assert "Violated: " in dot
        assert "%% Violated: " in mermaid
        assert marked


def test_parts_are_drawn_side_by_side_and_the_counterexample_in_its_part(tmp_path: Path) -> None:
    scenario = tmp_path / "two.yaml"
    scenario.write_text(
        "claim: Two operators.\nexpect: order-dependent\nregistrations:\n"
        "  - def: bar(Tensor x) -> Tensor\n  - impl: bar\n    dispatch: CPU\n"
        "  - impl: foo\n    dispatch: CPU\n    debug: a\n  - impl: foo\n    dispatch: CPU\n    debug: b\n"
    )
    graph = run_scenario(str(scenario), RunOptions(graph="states.dot")).graph
    assert graph is not None
    assert {node.members for node in graph.nodes if node.mark} == {(2, 3)}
    assert {edge.step for edge in graph.edges if edge.mark} == {2, 3}
    for edge in graph.edges:  # each edge adds or takes what its step names
        before, after = {*graph.nodes[edge.source].members}, {*graph.nodes[edge.target].members}
        assert edge.refused or before ^ after == {max(edge.step, ~edge.step)}
