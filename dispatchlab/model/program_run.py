"""What a run of a program on a device shows: which calls reach the device, and what serves each."""

from __future__ import annotations

from typing import NamedTuple

OWN, FALLBACK, MISSING = "own", "fallback", "missing"
"""What serves a call on the device."""


class ProgramRun(NamedTuple):
    """The operations of a program on the device.

    Args:
        error: what it raised; empty when it came to its end.
        unserved: the operator that could not be done, as the CPU has no kernel for it; empty for none.
        calls: how often a call of an operator reached the device, by the operator and what served it, in the order of
            the first such calls.
    """

    error: str
    unserved: str
    calls: dict[tuple[str, str], int]
