"""Sequences of steps: `+0 +2 -0` registers 0, then 2, then releases 0.

A step is one `int`: *i* registers registration *i*, `~i` releases it. A sequence is a tuple of steps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from dispatchlab.errors import ParseError

Step: TypeAlias = int
StepSequence: TypeAlias = tuple[Step, ...]

_STEP = r"([+-])([0-9]{1,9})$"


def format_sequence(sequence: StepSequence) -> str:
    """Return a sequence as `+0 +2 -0`; an empty sequence as `(nothing)`."""
    return " ".join(f"-{~step}" if step < 0 else f"+{step}" for step in sequence) or "(nothing)"


def python_steps(sequence: StepSequence) -> str:
    """Return a sequence as `0, 2, ~0`, for a program."""
    return ", ".join(f"~{~step}" if step < 0 else str(step) for step in sequence)


def renumbered(sequence: StepSequence, numbers: Mapping[int, int] | Sequence[int]) -> StepSequence:
    """Return a sequence with other numbers, by position or by a mapping."""
    return tuple(~numbers[~step] if step < 0 else numbers[step] for step in sequence)


def parse_sequence(text: str, *, count: int) -> StepSequence:
    """Read a sequence.

    Args:
        text: steps separated by blanks, such as `+0 +2 -0`.
        count: the number of registrations; a number must be below it.

    Raises:
        ParseError: a step is malformed or out of range, or releases an inactive registration.
    """
    steps: list[Step] = []
    tried: set[int] = set()  # registered, or refused: only an engine knows
    for match in re.finditer(r"\S+", text):
        token, at = match.group(), match.start()
        found = re.match(_STEP, token)

        def error(wanted: str, token: str = token, at: int = at) -> ParseError:
            return ParseError(text, at, wanted=wanted, found=repr(token), width=len(token))

        if found is None:
            raise error("a step such as +0 or -0")
        index = int(found.group(2))
        if index >= count:
            raise error(f"a registration from 0 to {count - 1}" if count else "no step: there are no registrations")
        if found.group(1) == "+":
            tried.add(index)
            steps.append(index)
        else:
            if index not in tried:
                raise error(f"the release of something registered here ({index} is not)")
            tried.remove(index)
            steps.append(~index)
    return tuple(steps)
