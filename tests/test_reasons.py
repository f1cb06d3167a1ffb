"""Every verdict has its reason: which registrations meet, where they come from, what decides, and what helps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from dispatchlab.errors import DispatchLabError
from dispatchlab.model.registration import Block, shown_text
from dispatchlab.prover.chains import Module
from dispatchlab.prover.result import Expectation, Flaw, Verdict
from dispatchlab.questions.order.blocks import report_view
from dispatchlab.questions.order.fixes import changed
from dispatchlab.questions.order.reasons import FLAWS
from dispatchlab.questions.order.report import Report
from dispatchlab.questions.order.run_scenario import NothingToExploreError, RunOptions, run_scenario
from dispatchlab.registries.debug_text import owner
from dispatchlab.scenario import parse_scenario
from dispatchlab.scenario.load import load_scenario
from dispatchlab.scenario.scenario import Scenario
from dispatchlab.scenario.write import scenario_text
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
    is_refused = report.expected is Expectation.ORDER_INDEPENDENT and found.verdict in (
        Verdict.ORDER_INDEPENDENT,
        Verdict.NO_VIOLATION_FOUND,
    )
    wrong = "a registration is refused" if is_refused else report.expected
    assert lines[0].endswith("as expected" if report.as_expected else f"NOT as expected: {wrong}")
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


def check_changes(scenario: Scenario, *, is_written: bool) -> int:
    """Make each change that a fix names, in the text of a file if there is one, and return how many there are."""
    report = run_scenario(scenario, RunOptions()).report
    if report.exploration.verdict is not Verdict.ORDER_DEPENDENT:
        return 0
    assert report.reason is not None
    assert report.reason.changes, report.reason
    for change in report.reason.changes:
        edited = changed(scenario, change)
        if edited.registrations:
            edited = parse_scenario(scenario_text(edited)) if is_written else edited
            verdict = run_scenario(edited, RunOptions()).report.exploration.verdict
            assert verdict in (Verdict.ORDER_INDEPENDENT, Verdict.NO_VIOLATION_FOUND), (report.reason, change)
    return len(report.reason.changes)


def test_every_fix_takes_the_difference_away() -> None:
    scenarios = (load_scenario(str(path)) for path in SCENARIOS)
    assert sum(check_changes(scenario, is_written=True) for scenario in scenarios) > 80


def test_every_fix_of_modules_takes_the_difference_away() -> None:
    made, ordered = 0, []
    for path in SCENARIOS:
        scenario = load_scenario(str(path))
        bodies = (Module(f"module_{index}", (index,)) for index in range(len(scenario.registrations)))
        scenario = scenario if scenario.modules else replace(scenario, modules=tuple(bodies))
        made += check_changes(scenario, is_written=True)
        reason = run_scenario(scenario, RunOptions()).report.reason
        ordered += [path.stem] * (reason is not None and "in this order" in reason.fix)
    assert made > 50
    assert "stale_nested_torch" in ordered


def test_every_fix_of_a_generated_scenario_takes_the_difference_away() -> None:
    made = 0
    for scenario in generated(300):
        try:
            made += check_changes(scenario, is_written=False)
        except NothingToExploreError:
            continue
    assert made > 200


def test_a_fix_says_what_it_does_in_the_words_of_its_changes() -> None:
    at_cpu = "{impl: foo, dispatch: CPU, debug: fn_%d}"
    three = ", ".join(at_cpu % number for number in range(3))
    report = run_scenario(parse_scenario(f"{{claim: A sentence., registrations: [{three}]}}"), RunOptions()).report
    assert report.reason is not None
    names = "impl test::foo CPU (fn_0), impl test::foo CPU (fn_1) and impl test::foo CPU (fn_2)"
    both = "always register them in the same order (in the scenario: `order: [2, 0, 1]`)"
    assert report.reason.fix == f"drop all but one of {names}, or {both}"
    assert [change.dropped for change in report.reason.changes] == [(0, 1), (0, 2), (1, 2), ()]
    assert sorted(report.reason.changes[-1].order) == [0, 1, 2]
