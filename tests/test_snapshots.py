"""Snapshots at every step: what is shown of all orders is what each sequence shows when it is run by itself."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

import pytest
from expecttest import assert_expected_inline

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.errors import RequestError
from dispatchlab.model.sequence import StepSequence
from dispatchlab.model.snapshot import Snapshot
from dispatchlab.questions.order.snapshots import (
    Snapshots,
    rows_between,
    snapshots_of,
)
from dispatchlab.questions.order.snapshots_blocks import snapshot_lines
from dispatchlab.scenario import Scenario, load_scenario
from dispatchlab.views.text import text_of
from tests.command_line import run
from tests.random_scenarios import random_scenario
from tests.replays import Replayed, replay

pytestmark = pytest.mark.filterwarnings("ignore::dispatchlab.engine.dispatcher.OverrideWarning")
SCENARIOS = Path(__file__).parent.parent / "scenarios"
SOME = sorted(
    path
    for topic in ("pr35061_tests", "pr35061", "basics", "order", "defects", "lifetimes")
    for path in (SCENARIOS / topic).glob("*.yaml")
)


def _generated(seed: int, most: int) -> tuple[str, Scenario]:
    semantics, registrations, operators, order = random_scenario(seed, most)
    return semantics, Scenario("A sentence.", registrations, operators, order=order)


def _run(scenario: Scenario, sequence: StepSequence, semantics: str) -> tuple[Replayed, ...]:
    return replay(LabEngine(semantics), scenario.registrations, scenario.operators, sequence)


def _check(scenario: Scenario, found: Snapshots, semantics: str) -> int:
    """Hold each order of registration, then of release, against a run in a fresh sandbox; how many orders there are."""
    known = {(moment.registered, moment.look) for moment in found.moments}
    reached, orders = set(), 0
    for order in permutations(range(len(scenario.registrations))):
        if any([index for index in order if index in chain] != [*chain] for chain in scenario.order):
            continue
        orders += 1
        taken = [
            step.step for step in _run(scenario, order, semantics) if step.refusal is None and step.step is not None
        ]
        for released in permutations(taken):
            active = set[int]()
            for step in _run(scenario, (*order, *(~index for index in released)), semantics):
                if step.step is not None and step.refusal is None:
                    (active.discard if step.step < 0 else active.add)(max(step.step, ~step.step))
                reached.add((tuple(sorted(active)), (step.snapshots, step.violations)))
    assert reached <= known
    return orders


@pytest.mark.parametrize("path", SOME, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_sequence_passes_the_snapshots_that_are_listed(path: Path) -> None:
    scenario = load_scenario(path)
    semantics = scenario.semantics or "strict"
    if scenario.modules or len(scenario.registrations) > 3:
        pytest.skip("too many sequences, or none")
    assert _check(scenario, snapshots_of(LabEngine(semantics), scenario), semantics)


@pytest.mark.parametrize("seed", range(40))
def test_generated_scenarios_pass_the_snapshots_that_are_listed(seed: int) -> None:
    semantics, scenario = _generated(seed, 3)
    _check(scenario, snapshots_of(LabEngine(semantics), scenario), semantics)


def _texts(look: tuple[tuple[Snapshot, ...], object]) -> list[str]:
    return [f"{row.key}{row.text}" for row in rows_between(None, look, ()) if row.text]  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(20))
def test_a_difference_leads_from_the_lines_before_to_those_after(seed: int) -> None:
    semantics, scenario = _generated(200 + seed, 3)
    found = snapshots_of(LabEngine(semantics), scenario)
    for moment in found.moments:
        for way in moment.ways:
            before = found.moments[way.source].look
            rows = [row for row in rows_between(before, moment.look, ()) if row.text and not row.text.endswith("use:")]

            def kept(mark: str, rows: Sequence[tuple[str, str, str]] = rows) -> list[str]:
                return sorted(f"{key}{text}" for got, text, key in rows if got in (" ", mark))

            tables = [
                sorted(line for line in _texts(look) if not line.endswith("use:")) for look in (before, moment.look)
            ]
            if all(one.slots in (None, one.table) for look in (before, moment.look) for one in look[0]):
                assert [kept("-"), kept("+")] == tables


def test_the_text_can_be_expected_inline_as_upstream_does() -> None:
    scenario = load_scenario(SCENARIOS / "pr35061_tests" / "test_def_only.yaml")
    text = text_of(snapshot_lines(snapshots_of(LabEngine("pr35061"), scenario)))
    assert_expected_inline(
        text,
        """\
snapshots: 2 snapshots, after every step of 1 order of registration and release

snapshot 0: nothing is registered
  nothing is registered for test::foo

snapshot 1: 0 is registered, 1 order leads here
+0 def test::foo(Tensor x, Tensor y) -> Tensor (registered at /dev/null:0), from snapshot 0
- nothing is registered for test::foo
+ name: test::foo
+ schema: test::foo(Tensor x, Tensor y) -> (Tensor)
+ alias analysis kind: FROM_SCHEMA
""",
    )


def test_a_refused_step_says_why_and_stays_where_it_is() -> None:
    text = text_of(
        snapshot_lines(snapshots_of(LabEngine("strict"), load_scenario(SCENARIOS / "basics" / "a_second_def.yaml")))
    )
    assert re.search(r"^\+1 def .*, from snapshot 1, refused: ", text, re.MULTILINE)
    assert "2 are registered" not in text


def test_more_states_than_anybody_reads_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "many.yaml"
    kernels = "".join(f"  - impl: foo_{at}\n    dispatch: CPU\n" for at in range(11))
    path.write_text(f"claim: Many.\nregistrations:\n{kernels}")
    with pytest.raises(RequestError, match=r"the 11 registrations have more than 1,024 states"):
        snapshots_of(LabEngine("strict"), load_scenario(path))
    done = run("permute", str(path), "--snapshots")
    assert (done.exit_code, "more than 1,024 states" in done.stderr) == (2, True)


def test_all_sequences_of_five_registrations_are_in_one_page(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    started = time.perf_counter()
    path = str(SCENARIOS / "basics" / "five_registrations.yaml")
    done = run("permute", path, "--snapshots", "--report", str(page), "--format", "text")
    took = time.perf_counter() - started
    assert done.exit_code == 0, done.stderr
    assert "32 snapshots, after every step of 14,400 orders of registration and release" in done.stdout
    assert len(re.findall(r"<summary><b>\d+: ", page.read_text(encoding="utf-8"))) == 32
    assert took < 60  # a second here


def test_options_that_have_no_effect_together_are_refused() -> None:
    path = str(SCENARIOS / "basics" / "a_def_alone.yaml")
    other = str(SCENARIOS / "basics" / "a_second_def.yaml")
    for arguments, error in (
        ((path, other, "--snapshots"), "--snapshots works with one scenario"),
        ((path, "--snapshots", "--engine", "torch"), "the states of PyTorch cannot be read"),
    ):
        done = run("permute", *arguments)
        assert (done.exit_code, error in done.stderr) == (2, True), done.stderr


def test_snapshots_of_a_scenario_with_modules_are_refused(tmp_path: Path) -> None:
    text = "claim: Two modules.\nregistrations:\n  - def: foo(Tensor x) -> Tensor\n  - {impl: foo, dispatch: CPU}\n"
    (tmp_path / "two.yaml").write_text(f"{text}modules: {{first: [0], second: [1]}}\n")
    scenario = load_scenario(tmp_path / "two.yaml")
    with pytest.raises(
        RequestError, match="the modules of the scenario come as a whole: leave it out, or take `modules`"
    ):
        snapshots_of(LabEngine("torch-2.13"), scenario)
