"""A run of a program on a device: the calls that reach the device, and the kernels that serve them."""

from __future__ import annotations

from typing import NamedTuple

OWN, FALLBACK, MISSING = "own", "fallback", "missing"
"""What serves a call on the device."""


class ProgramRun(NamedTuple):
    """The operations of a program on the device.

    Args:
        error: its exception; empty if it succeeded.
        unserved: the operator that could not be done, as the CPU has no kernel for it; empty for none.
        calls: how often a call of an operator reached the device, by the operator and what served it, in the order of
            the first such calls.
    """

    error: str
    unserved: str
    calls: dict[tuple[str, str], int]
