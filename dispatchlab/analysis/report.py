"""The report on one scenario: what was explored, what was found, and whether that is what the scenario expects."""

from __future__ import annotations

from dataclasses import dataclass

from dispatchlab.explore.protocol import Engine
from dispatchlab.explore.result import Expectation, Exploration, judge
from dispatchlab.model.registration import describe
from dispatchlab.scenario.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Report:
    """One scenario and what was found about it.

    Args:
        scenario: the path of its file, as it was given.
        claim: its sentence.
        engine: the engine that was explored.
        semantics: the semantics of that engine.
        registrations: one line for each registration that says what it is, in the order of the file.
        expected: what the scenario says will be found.
        exploration: what was found.
        as_expected: whether that is what was expected.
        exit_code: what this scenario alone would end with.
    """

    scenario: str
    claim: str
    engine: str
    semantics: str
    registrations: tuple[str, ...]
    expected: Expectation
    exploration: Exploration
    as_expected: bool
    exit_code: int


def report_of(scenario: Scenario, engine: Engine, found: Exploration, *, require_proof: bool = False) -> Report:
    """Compare what was found with what the scenario expects."""
    refusals = len(found.conflicts) + len(found.never_accepted)
    as_expected, code = judge(found.verdict, scenario.expect, conflicts=refusals, require_proof=require_proof)
    return Report(
        scenario=scenario.file,
        claim=scenario.claim,
        engine=engine.name,
        semantics=engine.semantics,
        registrations=tuple(map(describe, scenario.registrations)),
        expected=scenario.expect,
        exploration=found,
        as_expected=as_expected,
        exit_code=code,
    )
