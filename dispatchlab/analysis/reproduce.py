"""Counterexamples that stand alone: a scenario cut down to one, and a program that shows it."""

from __future__ import annotations

from dataclasses import replace

from dispatchlab.explore.result import Counterexample, Expectation
from dispatchlab.model.sequence import StepSequence
from dispatchlab.scenario.scenario import SEMANTICS, Scenario, operators_named_by
from dispatchlab.scenario.write import scenario_text

PROGRAM_SUFFIX = ".py"
SCENARIO_SUFFIX = ".scenario.yaml"

_PROGRAM = '''\
"""Two sequences that should lead to the same and do not; found by dispatchlab."""

from difflib import unified_diff

from dispatchlab import Dispatcher, RegistrationError
from dispatchlab.scenario import parse_scenario

SCENARIO = parse_scenario({scenario})


def after(*steps: int) -> list[str]:
    """What is seen after registering i for each i, and releasing i for each ~i."""
    dispatcher, held, seen = Dispatcher("{semantics}"), {{}}, []
    for step in steps:
        if step < 0:
            held.pop(~step).release()
            continue
        try:
            held[step] = dispatcher.register(SCENARIO.registrations[step])
        except RegistrationError as error:
            seen.append(f"{{step}} is refused: {{error}}")
    for operator in SCENARIO.operators:
        seen += dispatcher.dump(operator).splitlines() + dispatcher.dump_slots(operator).splitlines()
        seen += map(str, dispatcher.violations(operator))
    return seen


expected = after({expected})
actual = after({actual})
print(*unified_diff(expected, actual, "expected", "actual", lineterm=""), sep="\\n")
'''


def cut(scenario: Scenario, told: Counterexample, semantics: str) -> tuple[Scenario, StepSequence, StepSequence]:
    """The scenario with the registrations of a counterexample alone, and its two sequences in the new numbers.

    Args:
        scenario: the scenario.
        told: the counterexample.
        semantics: those of the engine; named in the scenario where a file can name them.
    """
    members = sorted({max(step, ~step) for step in (*told.expected_sequence, *told.actual_sequence)})
    number = {member: place for place, member in enumerate(members)}
    registrations = tuple(scenario.registrations[member] for member in members)
    named = operators_named_by(registrations)
    small = replace(
        scenario,
        claim=f"{scenario.claim.rstrip('.')}: the order of these matters.",
        registrations=registrations,
        operators=tuple(name for name in scenario.operators if name in named) or scenario.operators,
        semantics=semantics if semantics in SEMANTICS else scenario.semantics,
        order=tuple(number[index] for index in scenario.order if index in number),
        expect=Expectation.ORDER_MATTERS,
    )

    def renumbered(sequence: StepSequence) -> StepSequence:
        return tuple(number[step] if step >= 0 else ~number[~step] for step in sequence)

    return small, renumbered(told.expected_sequence), renumbered(told.actual_sequence)


def cut_text(scenario: Scenario, told: Counterexample, semantics: str) -> str:
    """The cut scenario as the text of a file.

    Raises:
        UnwritableError: a registration cannot be written.
    """
    return scenario_text(cut(scenario, told, semantics)[0])


def program_text(scenario: Scenario, told: Counterexample, semantics: str) -> str:
    """A Python program that runs both sequences on the lab engine and prints how they differ.

    Raises:
        UnwritableError: a registration cannot be written.
    """
    small, expected, actual = cut(scenario, told, semantics)
    text = scenario_text(small)
    quoted = f'"""\\\n{text}"""' if "\\" not in text and '"""' not in text else repr(text)
    return _PROGRAM.format(
        scenario=quoted, semantics=small.semantics or "strict", expected=_steps(expected), actual=_steps(actual)
    )


def _steps(sequence: StepSequence) -> str:
    return ", ".join(f"~{~step}" if step < 0 else str(step) for step in sequence)
