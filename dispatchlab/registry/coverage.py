"""Coverage of a backend: for each operator its own kernel, a composite one, a fallback, or none."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from dispatchlab.errors import DispatchLabError
from dispatchlab.model.keys import DispatchKey, parse_key
from dispatchlab.registry.model import Recorded, RecordedOperator


class Way(StrEnum):
    """How a call with a key finds its kernel."""

    DIRECT = "direct"  # a kernel at the key itself
    COMPOSITE = "composite"  # a kernel at an alias key that covers it
    FALLBACK = "fallback"  # the fallback of the key
    AMBIGUOUS = "ambiguous"  # two could be meant, and a call raises
    MISSING = "missing"  # a call raises


@dataclass(frozen=True, slots=True)
class Filled:
    """What a slot of an operator holds.

    Args:
        way: how it comes there.
        source: where the kernel is registered; the key itself for a fallback, None when there is none.
        fallthrough: calls skip the key and go to the next one.
    """

    way: Way
    source: DispatchKey | None = None
    fallthrough: bool = False


FillOf: TypeAlias = Callable[[RecordedOperator, DispatchKey], Filled]
"""What an engine puts into a slot of an operator."""


@dataclass(frozen=True, slots=True)
class Covered:
    """One operator at one key.

    Args:
        operator: its name.
        filled: what the slot holds.
        debug: where that kernel comes from.
    """

    operator: str
    filled: Filled
    debug: str = ""


@dataclass(frozen=True, slots=True)
class Coverage:
    """All operators at one key, by name."""

    registry: str
    key: DispatchKey
    operators: tuple[Covered, ...]

    def by(self, way: Way) -> tuple[Covered, ...]:
        """The operators that are covered in one way."""
        return tuple(each for each in self.operators if each.filled.way is way)

    def sources(self, way: Way) -> tuple[tuple[DispatchKey, int], ...]:
        """The keys at which the kernels of one way are registered, with how many there are, most first."""
        counts: dict[DispatchKey, int] = {}
        for each in self.by(way):
            if each.filled.source is not None:
                counts[each.filled.source] = counts.get(each.filled.source, 0) + 1
        return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    @property
    def fallthrough(self) -> int:
        """How many operators skip the key."""
        return sum(each.filled.fallthrough for each in self.operators)


class NoSlotError(DispatchLabError):
    """Coverage was asked of a key that no call ever has."""

    def __init__(self, key: DispatchKey) -> None:
        super().__init__(key)
        self.key = key

    def __str__(self) -> str:
        kind = "stands for a set of keys" if self.key.is_alias else "exists once for each backend"
        return f"{self.key} {kind} and has no slot of its own: name a runtime key, such as PrivateUse1 or AutogradCPU"


def runtime_key(text: str) -> DispatchKey:
    """The key that coverage is asked of.

    Raises:
        UnknownKeyError: there is no such key.
        NoSlotError: it has no slot.
    """
    key = parse_key(text)
    if not key.is_runtime:
        raise NoSlotError(key)
    return key


def coverage(
    recorded: Recorded,
    key: DispatchKey,
    fill: FillOf,
    *,
    name: str,
    operators: Iterable[RecordedOperator] | None = None,
) -> Coverage:
    """How the operators of a registry are covered at a key.

    Args:
        recorded: the registry.
        key: a runtime key.
        fill: what an engine puts into a slot.
        name: what to call the registry.
        operators: which operators; all when left out.

    Raises:
        RegistryFileError: the registry is in a file that is damaged.
    """
    fallbacks = {fallback.key: fallback.debug for fallback in recorded.fallbacks}
    covered = []
    for operator in recorded if operators is None else operators:
        filled = fill(operator, key)
        debug = ""
        if filled.way is Way.FALLBACK:
            debug = fallbacks.get(key, "")
        elif filled.source is not None and (kernel := operator.active_at(filled.source)) is not None:
            debug = kernel.debug
        covered.append(Covered(str(operator.name), filled, debug))
    return Coverage(name, key, tuple(covered))
