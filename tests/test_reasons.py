"""Every verdict has its reason: which registrations meet, where they come from, what decides, and what helps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from dispatchlab.errors import DispatchLabError
from dispatchlab.model.registration import Block, describe, shown_text
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
    fixes = [f"fix: {fix}" for fix in reason.fix.splitlines()]
    assert lines[1 : 2 + len(fixes)] == [f"cause: {reason.cause}", *fixes]
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


def edited_texts(scenario: Scenario, fix: str) -> Iterator[str]:
    """Yield the text of a scenario after each edit that a fix prints, and nothing else."""
    for words in (line.removeprefix("or ") for line in fix.splitlines()):
        fields = dict(re.findall(r"`(\w+): (.*?)`(?=[.,]? |\.?$)", words))
        cut = re.sub(r"\. [A-Z].*", "", words)
        what, _, rest = cut.partition(" ")
        named = [
            {at for at in range(len(scenario.registrations)) if is_named(scenario, at, name)}
            for name in re.split(r", | and | or ", rest.removeprefix("all but one of "))
        ]
        if what == "drop":
            assert all(len(numbers) == 1 for numbers in named), (fix, named)
            numbers = [number for found in named for number in found]
            dropped = [[number] for number in numbers]
            if "all but one of " in words:
                dropped = [[one for one in numbers if one != number] for number in numbers]
            elif re.search(r"Dropping (one of the two|fewer) is not enough", words):
                assert ", or " not in rest
                dropped = [numbers]
        else:
            assert fields, fix
            dropped = [[]]
        for numbers in dropped:
            yield written(scenario, numbers, fields)


def is_named(scenario: Scenario, at: int, name: str) -> bool:
    debugs = [owner(shown_text(one)) for one in scenario.registrations]
    names = [re.sub("^define ", "def ", describe(one)) for one in scenario.registrations]
    is_one = debugs.count(debugs[at]) == 1
    name = re.sub(r"^the (custom_op|(?:[a-z_]+ )?[a-z]+) (at (?=\S+:\d+$))?(?=\S+$)", "", name)
    return name == debugs[at] if is_one and name in debugs else name in (names[at], f"registration {at}")


def written(scenario: Scenario, dropped: Sequence[int], fields: dict[str, str]) -> str:
    """The text of a scenario without some registrations, with these fields in place of its own."""
    kept = tuple(one for at, one in enumerate(scenario.registrations) if at not in dropped)
    order = () if "order" in fields else scenario.order
    modules = () if "modules" in fields else scenario.modules
    own = replace(scenario, registrations=kept, order=order, modules=modules)
    own = replace(own, snapshots=scenario.snapshots and "snapshots" not in fields)
    text = scenario_text(own)
    text = re.sub("^expect: .*\n", "", text, flags=re.MULTILINE) if "expect" in fields else text
    head, _, rest = text.partition("registrations:")
    return "".join((head, *(f"{name}: {value}\n" for name, value in fields.items()), "registrations:", rest))


def check_printed(scenario: Scenario) -> int:
    """Make each edit that a fix prints, and return their number; afterwards the verdict is as expected."""
    report = run_scenario(scenario, RunOptions()).report
    if report.reason is None or report.exploration.verdict is not Verdict.ORDER_DEPENDENT:
        return 0
    fix = re.sub(r"^(or )?(declare|give|correct) .*\n?", "", report.reason.fix, flags=re.MULTILINE)
    texts = [*edited_texts(scenario, fix)] if fix else []
    for text in texts:
        assert run_scenario(parse_scenario(text), RunOptions()).report.as_expected, (report.reason, text)
    return len(texts)


def test_every_fix_can_be_made_as_it_is_printed_and_the_verdict_is_then_as_expected() -> None:
    every = (load_scenario(str(path)) for path in SCENARIOS)
    scenarios = [one for one in every if one.expect is Expectation.ORDER_DEPENDENT]
    assert sum(map(check_printed, scenarios)) == 92
    asked = (replace(one, expect=Expectation.ORDER_INDEPENDENT) for one in scenarios)
    assert sum(map(check_printed, asked)) == 92
    apart = (replace(one, modules=modules_of(one)) for one in scenarios if not one.modules and not one.snapshots)
    assert sum(map(check_printed, apart)) > 40


PACKED = (
    ("ghost_operators_torch", r"def: foo\(.*?\) -> \(\)", "def: foo(Tensor[] xs) -> ()"),
    ("half_a_def_torch", r"Tensor _0, Tensor _1\) -> Tensor _0", "Tensor _0) -> Tensor _0"),
)


def test_a_def_that_is_corrected_as_the_fix_says_leaves_nothing_behind() -> None:
    for name, was, now in PACKED:
        scenario = load_scenario(str(next(path for path in SCENARIOS if path.stem == name)))
        reason = run_scenario(scenario, RunOptions()).report.reason
        assert reason is not None
        words, _, field = reason.fix.splitlines()[0].partition(". In the scenario, write ")
        assert words.endswith(("declare one list, Tensor[], in place of several arguments", "the arguments of the def"))
        assert field == "`expect: order-independent`"
        text, count = re.subn(was, now, scenario_text(scenario), flags=re.DOTALL)
        assert count == 1
        text = text.replace("expect: order-dependent", field.strip("`"))
        assert run_scenario(parse_scenario(text), RunOptions()).report.as_expected, text


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
    later = (
        "if the kernel fn_any (CompositeExplicitAutograd) is registered after "
        "the kernel fn_math (CompositeImplicitAutograd)"
    )
    assert reason.cause == (
        f"{later}, a call of test::foo should raise an error (no kernel) at 16 keys (NestedTensorCPU, ...). "
        "But PyTorch does not refresh the slots. Therefore the call runs the kernel fn_math"
    )
    raises = "But then a call of test::foo at 16 keys (NestedTensorCPU, ...) always raises an error"
    assert reason.fix == (
        "drop the kernel fn_any. In the scenario, write `modules: {a: [0], b: [1]}`\n"
        f"or drop the kernel fn_math. {raises}. In the scenario, write `modules: {{b: [0, 1]}}`\n"
        f"or import b before a. {raises}. In the scenario, write `order: [1, 0]`"
    )
    assert reason.details == ("After a drop, the remaining registrations are numbered from 0",)


def test_a_fix_says_what_it_does_in_the_words_of_its_changes() -> None:
    at_cpu = "{impl: foo, dispatch: CPU, debug: fn_%d}"
    three = ", ".join(at_cpu % number for number in range(3))
    report = run_scenario(parse_scenario(f"{{claim: A sentence., registrations: [{three}]}}"), RunOptions()).report
    assert report.reason is not None
    third = "impl test::foo CPU (fn_2)"
    first, second = "the kernel fn_0", "the kernel fn_1"
    both = f"always register {third}, {first} and {second} in the same order. In the scenario, write `order: [2, 0, 1]`"
    assert report.reason.fix == f"drop all but one of {first}, {second} and {third}\nor {both}"
    assert [change.dropped for change in report.reason.changes] == [(0, 1), (0, 2), (1, 2), ()]
    assert sorted(report.reason.changes[-1].order) == [0, 1, 2]
