"""What a run of an operator on inputs shows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dispatchlab._short_repr import member_repr
from dispatchlab.errors import DispatchLabError

GENERATED = "generated from the schema"
"""Where inputs are from that were made without any given."""


class InputsError(DispatchLabError):
    """What is to give the inputs of operators gives none."""

    reference: str
    why: str

    template = (
        "--inputs {reference}: {why}; expected a file of captured inputs, or module:name of a dictionary, or of a "
        "function that returns one: operator -> a function that makes the arguments of a call"
    )


class Outcome(StrEnum):
    """What a run shows of the thing that was tried."""

    WORKS = "works"
    FAILS = "fails"
    NOT_NEEDED = "not needed"
    NOT_DECIDED = "not decided"

    __repr__ = member_repr


@dataclass(frozen=True, slots=True)
class Run:
    """What one run of one operator shows.

    Args:
        outcome: what.
        how: what was run, or what it raised.
    """

    outcome: Outcome
    how: str
