"""The picture of states has the states of the report, or says why not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dispatchlab.analysis.run_scenario import RunOptions, run_scenario
from dispatchlab.explore.result import Verdict

SCENARIOS = Path(__file__).parent.parent / "scenarios"
SOME = sorted(
    path.relative_to(SCENARIOS).as_posix()
    for folder in ("basics", "order", "several", "defects")
    for path in (SCENARIOS / folder).glob("*.yaml")
)


@pytest.mark.parametrize("name", SOME)
def test_a_picture_has_the_states_that_the_report_counts_or_says_why_not(name: str) -> None:
    outcome = run_scenario(str(SCENARIOS / name), RunOptions(graph="states.svg"))
    found, graph = outcome.report.exploration, outcome.graph
    if graph is None:
        assert "too many to read" in str(outcome.not_drawn)
        return
    counted = [note for note in graph.notes if "the report counts" in note]
    if found.verdict is Verdict.ORDER_INDEPENDENT:
        assert (len(graph.nodes), counted) == (found.states, [])
        assert sum(not node.members for node in graph.nodes) >= found.components
    elif graph.is_cut or len(graph.nodes) == found.states:
        assert counted == []
    else:
        (note,) = counted
        assert re.fullmatch(
            rf"{len(graph.nodes)} states are drawn; the report counts {found.states}, since its walk ended at the "
            "counterexample",
            note,
        )


def test_parts_are_drawn_side_by_side_and_the_counterexample_in_its_part(tmp_path: Path) -> None:
    scenario = tmp_path / "two.yaml"
    scenario.write_text(
        "claim: Two operators.\nexpect: order-dependent\nregistrations:\n"
        "  - def: bar(Tensor x) -> Tensor\n  - impl: bar\n    dispatch: CPU\n"
        "  - impl: foo\n    dispatch: CPU\n    debug: a\n  - impl: foo\n    dispatch: CPU\n    debug: b\n"
    )
    outcome = run_scenario(str(scenario), RunOptions(graph="states.svg"))
    graph = outcome.graph
    assert graph is not None
    assert outcome.report.exploration.components == 2
    assert {node.members for node in graph.nodes if node.mark} == {(2, 3)}
    assert {edge.step for edge in graph.edges if edge.mark} == {2, 3}
    assert not any({0, 1} & {*node.members} and {2, 3} & {*node.members} for node in graph.nodes)
    for edge in graph.edges:  # each edge adds or takes what its step names
        before, after = {*graph.nodes[edge.source].members}, {*graph.nodes[edge.target].members}
        assert edge.refused or before ^ after == {max(edge.step, ~edge.step)}


def test_a_walk_that_was_stopped_is_named_in_the_picture() -> None:
    path = str(SCENARIOS / "order" / "the_newest_kernel_wins.yaml")
    for options, why in (
        (RunOptions(graph="x.svg", max_states=2), "its walk was stopped"),
        (
            RunOptions(graph="x.svg", walk="sample", samples=1, max_states=1),
            "the walk 'sample' does not count every state",
        ),
    ):
        graph = run_scenario(path, options).graph
        assert graph is not None
        assert graph.notes[0].endswith(f"since {why}")
