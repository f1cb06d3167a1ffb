"""The state after one order of imports, as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Order: TypeAlias = tuple[str, ...]
"""Modules, in the order in which they are imported."""

SUCCEEDS = "succeeds"
"""What `OrderRun.found` has about an import that raises nothing."""

PROCESS = "process of the imports"
"""What `OrderRun.found` has about the process itself."""


@dataclass(frozen=True, slots=True)
class OrderRun:
    """One executed order.

    Args:
        order: the order.
        found: the state afterwards, by subject: `registrations of my::op`, `variable shop.TABLE`.
        ended: how its process ended, after `it`; empty when it did not.
        module: the module that was imported when it ended.
        registering: the modules that registered something.
        files: the file of each module whose variables were read.
        seconds: the processor time that the imports took.
    """

    order: Order
    found: Mapping[str, str]
    ended: str = ""
    module: str = ""
    registering: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
