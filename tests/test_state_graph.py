"""The picture of states has the states of the report, or says why not."""

from __future__ import annotations

import itertools
import shlex
import shutil
from pathlib import Path

import pytest

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.model.short_names import short_names
from dispatchlab.questions.order.run_scenario import RunOptions, run_scenario
from dispatchlab.questions.order.state_graph import PartOfGraph, state_graph
from dispatchlab.questions.order.state_picture import svg
from dispatchlab.questions.order.state_picture.layout import Layout, laid_out
from dispatchlab.questions.order.state_picture.picture import picture_of
from dispatchlab.scenario import parse_scenario
from tests.scenario_texts import COMPOSITES, FIVE, many

SCENARIOS = Path(__file__).parent.parent / "scenarios"
SOME = sorted(
    path.relative_to(SCENARIOS).as_posix()
    for folder in ("basics", "order", "several", "defects")
    for path in (SCENARIOS / folder).glob("*.yaml")
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


# -- positions


def _overlaps(layout: Layout, *, with_labels: bool) -> list[tuple[str, str]]:
    """The boxes and labels of a picture that cover one another."""
    picture = layout.picture
    found = [
        (f"box {box.lines}", x - box.width / 2, y - box.height / 2, x + box.width / 2, y + box.height / 2)
        for box, (x, y) in zip(picture.boxes, layout.boxes, strict=True)
    ]
    for line, curve in zip(picture.lines, layout.curves, strict=True):
        if with_labels and curve.label is not None:
            (x, y), half = curve.label, len(line.text) * 3.3
            found.append((f"label {line.text}", x - half, y - 7, x + half, y + 5))
    return [
        (one[0], other[0])
        for one, other in itertools.combinations(found, 2)
        if one[1] < other[3] and other[1] < one[3] and one[2] < other[4] and other[2] < one[4]
    ]


@pytest.mark.parametrize("plain", [False, True])
def test_no_box_and_no_label_covers_another(plain: bool) -> None:  # noqa: FBT001  a parameter of a test
    if not plain and shutil.which("dot") is None:
        pytest.skip("the program dot of Graphviz is not installed")
    checked = 0
    for name in SOME[::4]:
        graph = run_scenario(str(SCENARIOS / name), RunOptions(graph="states.svg", timeout_s=20)).graph
        if graph is None:
            continue
        layout = laid_out(picture_of(graph), plain=plain)
        assert layout.by_graphviz is not plain
        assert _overlaps(layout, with_labels=not plain) == [], name
        assert all(0 <= x <= layout.width and 0 <= y <= layout.height for x, y in layout.boxes), name
        checked += len(layout.boxes)
    assert checked > 50


def test_eight_registrations_are_256_boxes_that_can_all_be_read() -> None:
    scenario = parse_scenario(many(8))
    space = LabEngine().space(scenario.registrations, scenario.operators)
    graph = state_graph(
        [PartOfGraph(space, tuple(range(8)))],
        [f"registration {index}" for index in range(8)],
        title="t",
        names=short_names(scenario.registrations),
    )
    layout = laid_out(picture_of(graph))
    assert len(layout.boxes) == 256
    assert _overlaps(layout, with_labels=True) == []
    assert layout.height < 256 * 12
    assert "all but CPU, CUDA" in {box.lines[0] for box in layout.picture.boxes}


def test_a_picture_is_laid_out_the_same_twice_and_without_graphviz_too(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = run_scenario(str(SCENARIOS / SOME[0]), RunOptions(graph="states.svg")).graph
    assert graph is not None
    assert svg(graph) == svg(graph)
    monkeypatch.setenv("PATH", "")
    assert svg(graph) == svg(graph, plain=True)


@pytest.mark.parametrize("answer", ["", "[]", "{}", '{"bb": "0,0,1,1", "objects": [], "edges": []}', "exit 1"])
def test_a_dot_that_answers_nonsense_leaves_the_plain_picture(
    answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "dot"
    fake.write_text(f"#!/bin/sh\n{answer if answer == 'exit 1' else f'echo {shlex.quote(answer)}'}\n")
    fake.chmod(0o755)
    graph = run_scenario(str(SCENARIOS / SOME[0]), RunOptions(graph="states.svg")).graph
    assert graph is not None
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert svg(graph) == svg(graph, plain=True)


def test_what_is_seen_in_a_node_is_what_its_registrations_give() -> None:
    """Of a group it is what its first set gives, and every set of it has that table."""
    checked = grouped = 0
    for text in (FIVE, COMPOSITES, many(6)):
        scenario = parse_scenario(text)
        space = LabEngine().space(scenario.registrations, scenario.operators)
        count = len(scenario.registrations)
        whole = PartOfGraph(space, tuple(range(count)))
        graph = state_graph([whole], ["registration"] * count, title="t")
        for node in graph.nodes:
            for at, members in enumerate(node.sets or (node.members,)):
                state = space.empty()
                for index in members:
                    state, refusal = space.register(state, index)
                    assert refusal is None
                seen = space.observe(state)
                if at == 0 and node.state == 0:
                    assert graph.sights[node.seen] == seen
                elif at:
                    grouped += 1
                    assert [one.table for one in graph.sights[node.seen]] == [one.table for one in seen]
                checked += 1
    assert checked >= 32 + 4 + 64
    assert grouped == 0  # the kernels of each change its table


def test_the_first_set_of_a_group_is_the_one_that_is_shown() -> None:
    scenario = parse_scenario(
        "claim: Kernels beneath others.\norder: [0, 1, 2, 3, 4, 5]\nregistrations:\n"
        + "".join(f"  - impl: foo\n    dispatch: CPU\n    debug: fn_{index}\n" for index in range(6))
    )
    space = LabEngine().space(scenario.registrations, scenario.operators)
    whole = PartOfGraph(space, tuple(range(6)), scenario.order)
    graph = state_graph([whole], ["registration"] * 6, title="t")
    groups = [node for node in graph.nodes if node.sets]
    assert len(groups) == 5
    for node in groups:
        (seen,) = graph.sights[node.seen]
        assert seen.dump.count("fn_") == len(node.sets[0]) == 1
