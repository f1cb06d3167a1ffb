"""What the views show of one run of `permute`: the exploration together with what was asked."""

from __future__ import annotations

from dataclasses import dataclass

from dispatchlab.explore.result import Expectation, Exploration


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


def summary(reports: int, *, as_expected: int, unreadable: int = 0, not_explored: int = 0) -> str:
    """The line that ends the reports of several scenarios."""
    total = reports + unreadable + not_explored
    parts = [f"{as_expected:,} as expected"]
    if reports > as_expected:
        parts.append(f"{reports - as_expected:,} not")
    if unreadable:
        parts.append(f"{unreadable:,} could not be used")
    if not_explored:
        parts.append(f"{not_explored:,} not explored")
    return f"{total:,} scenario{'' if total == 1 else 's'}: {', '.join(parts)}"
