"""Every verdict has its reason: which registrations meet, where they come from, what decides, and what helps."""

from __future__ import annotations

import re
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


def pasted(scenario: Scenario, fix: str) -> str:
    """The text of a scenario, with the fields that a fix prints in place of its own."""
    fields = dict(re.findall(r"`(\w+): (.*?)`", fix))
    order = () if "order" in fields else scenario.order
    modules = () if "modules" in fields else scenario.modules
    text = scenario_text(replace(scenario, snapshots=False, order=order, modules=modules))
    head, _, rest = text.partition("registrations:")
    return "".join((head, *(f"{name}: {value}\n" for name, value in fields.items()), "registrations:", rest))


def check_pasted(scenario: Scenario) -> int:
    """Paste the fields that a fix prints into the scenario, and return their number."""
    reason = run_scenario(scenario, RunOptions()).report.reason
    if reason is None or "in the scenario: " not in reason.fix:
        return 0
    text = pasted(scenario, reason.fix)
    verdict = run_scenario(parse_scenario(text), RunOptions()).report.exploration.verdict
    assert verdict in (Verdict.ORDER_INDEPENDENT, Verdict.NO_VIOLATION_FOUND), (reason, text)
    return len(re.findall(r"`\w+: ", reason.fix))


def test_the_fields_that_a_fix_prints_can_be_pasted() -> None:
    scenarios = [load_scenario(str(path)) for path in SCENARIOS]
    assert sum(map(check_pasted, scenarios)) > 40
    apart = (replace(one, modules=modules_of(one)) for one in scenarios if not one.modules and not one.snapshots)
    assert sum(map(check_pasted, apart)) > 20


def modules_of(scenario: Scenario) -> tuple[Module, ...]:
    return tuple(Module(f"module_{index}", (index,)) for index in range(len(scenario.registrations)))


def test_every_fix_takes_the_difference_away() -> None:
    scenarios = (load_scenario(str(path)) for path in SCENARIOS)
    assert sum(check_changes(scenario, is_written=True) for scenario in scenarios) > 80


def test_every_fix_of_modules_takes_the_difference_away() -> None:
    made, ordered = 0, []
    for path in SCENARIOS:
        scenario = load_scenario(str(path))
        scenario = scenario if scenario.modules else replace(scenario, modules=modules_of(scenario))
        made += check_changes(scenario, is_written=True)
        reason = run_scenario(scenario, RunOptions()).report.reason
        ordered += [path.stem] * (reason is not None and "import module_1 before module_0" in reason.fix)
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


def test_stale_slots_of_modules_are_those_that_no_later_line_of_a_module_fills() -> None:
    kernels = {"CompositeImplicitAutograd": "fn_math", "CompositeExplicitAutograd": "fn_any", "Autograd": "fn_autograd"}
    rows = (f"{{impl: foo, dispatch: {key}, debug: {debug}}}" for key, debug in kernels.items())
    modules = "modules: {a: [0], b: [1, 2]}"
    text = f"{{claim: A sentence., semantics: torch-2.13, {modules}, registrations: [{', '.join(rows)}]}}"
    reason = run_scenario(parse_scenario(text), RunOptions()).report.reason
    assert reason is not None
    later = "fn_any is registered after impl test::foo CompositeImplicitAutograd (fn_math)"
    assert reason.cause == (
        f"impl test::foo CompositeExplicitAutograd (fn_any) does not refresh 16 slots of test::foo when {later}: "
        "all 16 still hold fn_math, but all 16 should hold no kernel"
    )
    assert reason.fix == "drop fn_math or fn_any, or import b before a (in the scenario: `order: [1, 0]`)"


def test_a_fix_says_what_it_does_in_the_words_of_its_changes() -> None:
    at_cpu = "{impl: foo, dispatch: CPU, debug: fn_%d}"
    three = ", ".join(at_cpu % number for number in range(3))
    report = run_scenario(parse_scenario(f"{{claim: A sentence., registrations: [{three}]}}"), RunOptions()).report
    assert report.reason is not None
    third = "impl test::foo CPU (fn_2)"
    both = f"always register {third}, fn_0 and fn_1 in the same order (in the scenario: `order: [2, 0, 1]`)"
    assert report.reason.fix == f"drop all but one of fn_0, fn_1 and {third}, or {both}"
    assert [change.dropped for change in report.reason.changes] == [(0, 1), (0, 2), (1, 2), ()]
    assert sorted(report.reason.changes[-1].order) == [0, 1, 2]
