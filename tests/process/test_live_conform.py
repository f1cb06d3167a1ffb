"""`permute --conform`: the running PyTorch and its model, on generated scenarios and from the command line."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.live.sandbox.sandbox import LocalEngine
from dispatchlab.model.registration import Registration
from dispatchlab.prover.lockstep import lockstep
from dispatchlab.prover.result import Verdict
from dispatchlab.strategies import OPERATORS, registrations
from tests.effort import examples
from tests.live.packages import ROOT, dispatchlab, dispatchlab_started
from tests.scenario_texts import COMPOSITES, FIVE


@pytest.mark.filterwarnings("ignore")
def test_generated_scenarios_conform_at_every_step() -> None:
    tried, seen = examples(300), Counter[str]()

    @settings(tried, suppress_health_check=list(HealthCheck))
    @given(st.lists(registrations, min_size=2, max_size=4))
    def walk(scenario: list[Registration]) -> None:
        live = LocalEngine(scenario)
        found = lockstep(LabEngine("torch-2.13"), live, scenario, OPERATORS)
        counterexample = found.counterexample
        assert found.verdict is Verdict.NO_VIOLATION_FOUND, (
            counterexample and counterexample.actual_sequence,
            counterexample and counterexample.diff,
        )
        seen["scenarios"] += 1
        seen["steps"] += found.edges

    walk()
    assert seen["scenarios"] >= tried.max_examples
    assert seen["steps"] > tried.max_examples * 5_000 / 300


def test_agreement_is_reported_with_what_it_covers(tmp_path: Path) -> None:
    (tmp_path / "five.yaml").write_text(FIVE)
    done = dispatchlab(tmp_path, "permute", "five.yaml", "--engine", "torch", "--conform", "--passes", "2")
    assert done.returncode == 0, done.stderr
    assert re.search(
        r"^note: the engine and its model agree \(320 edges tried in \d+ steps of 2 passes, each in a fresh sandbox\)$",
        done.stdout,
        re.MULTILINE,
    )


def test_a_difference_exits_with_1_and_has_the_shortest_sequence(tmp_path: Path) -> None:
    (tmp_path / "composites.yaml").write_text(COMPOSITES)
    (tmp_path / "sitecustomize.py").write_text(
        "import dispatchlab.questions.order.conformance as c\n"
        "original = c.beside_its_model\n"
        "c.beside_its_model = lambda engine, registrations, operators, model, *rest, **more: "
        "original(engine, registrations, operators, 'strict', *rest, **more)\n"
    )
    done = dispatchlab_started(
        tmp_path, "permute", "composites.yaml", "--engine", "torch", "--conform", "--format", "json", "--seed", "3"
    )
    report = json.loads(done.stdout)
    assert (done.returncode, report["exit_code"], report["as_expected"]) == (1, 1, False), done.stderr
    note = next(each for each in report["notes"] if "differ" in each)
    assert re.match(
        r"the engine and its model differ after \+\d: strict and torch-2\.13 differ in table of test::foo\n", note
    )
    assert "\n+++ actual: test::foo, table\n" in note


def test_a_folder_of_scenarios_is_held_to_the_model() -> None:
    more = "scenarios/defects/stale_slots_torch.yaml", "scenarios/basics/five_registrations.yaml"
    how = "--engine", "torch", "--conform", "--passes", "1", "--format", "json"
    done = dispatchlab(ROOT, "permute", "scenarios/order", *more, *how)
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr
    assert len(reports) == 2 + len(list((ROOT / "scenarios" / "order").glob("*.yaml"))) > 9
    assert all("the engine and its model agree" in report["notes"][-1] for report in reports)
