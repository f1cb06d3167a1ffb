"""Explain counterexamples by a model, reduce them to a scenario, and save them to a file."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.resources import files

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.errors import RequestError
from dispatchlab.files import FileKind
from dispatchlab.model.sequence import StepSequence, python_steps, renumbered
from dispatchlab.model.snapshot import TABLES
from dispatchlab.prover.protocol import Engine
from dispatchlab.prover.result import Counterexample, Expectation, Exploration, Verdict
from dispatchlab.prover.run_sequence import compare_sequences, on_sandboxes, reasons_of
from dispatchlab.questions.order.fixes import among, model_of
from dispatchlab.questions.order.report import Report
from dispatchlab.scenario.folders import SUFFIXES
from dispatchlab.scenario.scenario import SEMANTICS, Scenario, operators_named_by
from dispatchlab.scenario.write import scenario_text

_PROGRAM = files(__package__).joinpath("counterexample_program.txt").read_text(encoding="utf-8")


def explained(engine: Engine, scenario: Scenario, found: Exploration) -> Exploration:
    """Add the reasons from the model if the engine has none, and if the sequences also disagree in the model."""
    counterexample, model = found.counterexample, model_of(engine)
    if counterexample is None or counterexample.why or not isinstance(model, LabEngine) or model is engine:
        return found
    if found.verdict is not Verdict.ORDER_DEPENDENT:
        return found
    sessions = on_sandboxes(model, scenario.registrations, scenario.operators)
    same = compare_sequences(sessions, counterexample.expected_sequence, counterexample.actual_sequence)
    if same is None or same.flaw is not counterexample.flaw:
        return found
    reasons = reasons_of(model.space(scenario.registrations, scenario.operators), counterexample)
    return replace(found, counterexample=replace(counterexample, why=reasons))


# -- kept in a file


def kept_text(scenario: Scenario, report: Report, path: str) -> str | None:
    """Return the counterexample in the format of its file's name."""
    counterexample = report.exploration.counterexample
    if counterexample is None:
        return None
    if kept_kind(path) is FileKind.PROGRAM:
        return program_of(scenario, report)
    return scenario_text(cut(scenario, counterexample, report.semantics)[0])


def kept_kind(path: str) -> FileKind:
    """Return the kind of file for a counterexample under this name.

    Raises:
        RequestError: the name fits no format.
    """
    if path.endswith(".py"):
        return FileKind.PROGRAM
    if path.endswith(SUFFIXES):
        return FileKind.SCENARIO
    raise RequestError(f"--save {path}: expected FILE.py for a program or FILE.yaml for a small scenario")


def program_of(scenario: Scenario, report: Report) -> str | None:
    """Return a program for the engine: it needs only torch for the live engine, and dispatchlab for the lab."""
    counterexample = report.exploration.counterexample
    if counterexample is None:
        return None
    if report.engine != "torch":
        return program_text(scenario, counterexample, report.semantics)
    from dispatchlab.live.program import program_text as torch_program

    if counterexample.expected_sequence == counterexample.actual_sequence:
        why = "a program needs two sequences to compare, but a single sequence fails here"
        raise RequestError(f"{why}: save it as a scenario")
    slots = counterexample.diff.partition(f", {TABLES[1]}\n")[2]
    return torch_program(
        scenario.registrations,
        counterexample.expected_sequence,
        counterexample.actual_sequence,
        keys=tuple(dict.fromkeys(re.findall(r"^[+](\w+): ", slots, re.MULTILINE)))[:2],
    )


def cut(
    scenario: Scenario, counterexample: Counterexample, semantics: str
) -> tuple[Scenario, StepSequence, StepSequence]:
    """Return the scenario with only the registrations of a counterexample, and the renumbered sequences.

    Args:
        scenario: the scenario.
        counterexample: the counterexample.
        semantics: the semantics of the engine, which the scenario names if possible.
    """
    members = counterexample.registrations
    small = among(scenario, members)
    named = operators_named_by(small.registrations)
    small = replace(
        small,
        claim=f"{scenario.claim.rstrip('.')}: the order of these matters.",
        operators=tuple(name for name in scenario.operators if name in named) or scenario.operators,
        semantics=semantics if semantics in SEMANTICS else scenario.semantics,
        expect=Expectation.ORDER_DEPENDENT,
    )
    number = {member: new for new, member in enumerate(members)}
    expected, actual = counterexample.expected_sequence, counterexample.actual_sequence
    return small, renumbered(expected, number), renumbered(actual, number)


def program_text(scenario: Scenario, counterexample: Counterexample, semantics: str) -> str:
    """Return a Python program that runs both sequences on the lab engine and prints how they differ.

    Raises:
        UnwritableError: a registration cannot be written.
    """
    small, expected, actual = cut(scenario, counterexample, semantics)
    text = scenario_text(small)
    quoted = f'"""\\\n{text}"""' if "\\" not in text and '"""' not in text else repr(text)
    return _PROGRAM.format(
        scenario=quoted,
        semantics=semantics,
        expected=python_steps(expected),
        actual=python_steps(actual),
    )
