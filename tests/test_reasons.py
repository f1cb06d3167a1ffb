"""Every verdict has its reason: which registrations meet, where they come from, what decides, and what helps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dispatchlab.errors import DispatchLabError
from dispatchlab.model.registration import Block, shown_text
from dispatchlab.prover.result import Expectation, Flaw, Verdict
from dispatchlab.questions.order.blocks import report_view
from dispatchlab.questions.order.reasons import FLAWS
from dispatchlab.questions.order.report import Report
from dispatchlab.questions.order.run_scenario import RunOptions, run_scenario
from dispatchlab.registries.debug_text import owner
from dispatchlab.scenario.load import load_scenario
from dispatchlab.scenario.scenario import Scenario
from tests.random_scenarios import random_scenario

SCENARIOS = sorted((Path(__file__).parent.parent / "scenarios").rglob("*.yaml"))
EMPTY = ("does not know", "see the engine", "seen after one", *FLAWS.values())


def check_reason(scenario: Scenario, report: Report) -> None:
    """Hold a report to its reason."""
    found, reason = report.exploration, report.reason
    if report.as_expected and found.counterexample is None:
        assert reason is None
        return
    assert reason is not None
    assert reason.cause
    assert reason.fix
    assert not any(text in reason.cause for text in EMPTY), reason.cause
    lines = report_view(report).text().splitlines()
    assert lines[0].endswith("as expected" if report.as_expected else f"NOT as expected: {report.expected}")
    assert lines[1:3] == [f"cause: {reason.cause}", f"fix: {reason.fix}"]
    if found.counterexample is not None:
        assert reason.registrations
        chosen = [scenario.registrations[at] for at in reason.registrations]
        chosen += [inner for one in chosen if isinstance(one, Block) for inner in one.registrations]
        sites = {owner(shown_text(one)) for one in chosen}
        assert any(site in reason.cause for site in sites), (reason.cause, sites)


def generated(count: int) -> Iterator[Scenario]:
    for seed in range(count):
        semantics, registrations, operators, order = random_scenario(seed, most=4, refused=bool(seed % 2))
        yield Scenario(
            claim="It does not matter.",
            registrations=registrations,
            operators=tuple(operators),
            semantics=semantics,
            order=order,
        )


def test_every_scenario_has_a_reason_whatever_it_expects() -> None:
    flaws: set[Flaw] = set()
    for path in SCENARIOS:
        scenario = load_scenario(str(path))
        for expect in Expectation if len(scenario.registrations) < 5 else (scenario.expect,):
            asked = replace(scenario, expect=expect)
            report = run_scenario(asked, RunOptions()).report
            check_reason(asked, report)
            if report.exploration.counterexample is not None:
                flaws.add(report.exploration.counterexample.flaw)
    assert {Flaw.NON_COMMUTING, Flaw.UNDO, Flaw.RESIDUE, Flaw.OUTCOME, Flaw.ASYMMETRY, Flaw.INVARIANT} <= flaws


def test_every_generated_scenario_has_a_reason() -> None:
    violated = 0
    for scenario in generated(500):
        try:
            report = run_scenario(scenario, RunOptions()).report
        except DispatchLabError:  # nothing to explore
            continue
        check_reason(scenario, report)
        violated += report.exploration.verdict is Verdict.ORDER_DEPENDENT
    assert violated > 50


@pytest.mark.parametrize("name", ["stale_slots_torch", "stale_quantized_torch", "stale_nested_torch"])
def test_what_it_says_to_drop_takes_the_difference_away(name: str) -> None:
    (path,) = (path for path in SCENARIOS if path.stem == name)
    scenario = load_scenario(str(path))
    reason = run_scenario(scenario, RunOptions()).report.reason
    assert reason is not None
    assert reason.fix.startswith("drop one of the two")
    for dropped in reason.registrations:
        left = tuple(one for at, one in enumerate(scenario.registrations) if at != dropped)
        found = run_scenario(replace(scenario, registrations=left), RunOptions()).report.exploration
        assert found.verdict is Verdict.ORDER_INDEPENDENT
