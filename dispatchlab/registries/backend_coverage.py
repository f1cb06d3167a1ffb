"""Coverage of a backend: the kernel that runs each operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from dispatchlab._short_repr import WordEnum
from dispatchlab.errors import DispatchLabError
from dispatchlab.model.keys import DispatchKey, parse_key
from dispatchlab.model.names import qualified
from dispatchlab.model.schema import is_out_of
from dispatchlab.registries.model import Recorded, RecordedOperator
from dispatchlab.registries.replay import schema_of


class Way(WordEnum):
    """The way in which a call with a key finds its kernel."""

    DIRECT = "direct"  # a kernel at the key itself
    COMPOSITE = "composite"  # a kernel at an alias key that covers it
    FALLBACK = "fallback"  # the fallback of the key
    AMBIGUOUS = "ambiguous"  # two could be meant, and a call raises
    MISSING = "missing"  # a call raises


@dataclass(frozen=True, slots=True)
class Stale:
    """A slot with another kernel than the table shows.

    Args:
        held: the debug text of the kernel in the slot; empty without one.
        says: the debug text of the kernel in the table; empty without one.
    """

    held: str
    says: str


@dataclass(frozen=True, slots=True)
class Filled:
    """The content of a slot of an operator.

    Args:
        way: the way in which the slot gets it.
        source: the key of the kernel's registration; for a fallback, the key itself; None without a kernel.
        fallthrough: whether calls skip the key.
        stale: the difference from the table; None if the slot is not stale.
    """

    way: Way
    source: DispatchKey | None = None
    fallthrough: bool = False
    stale: Stale | None = None


FillOf: TypeAlias = Callable[[RecordedOperator, DispatchKey], Filled]
"""What an engine puts into a slot of an operator."""


@dataclass(frozen=True, slots=True)
class Covered:
    """An operator at one key.

    Args:
        operator: its name.
        filled: the content of the slot.
        debug: the debug text of this kernel.
        needs: the operator without a kernel that this kernel calls; empty if the call does not fail there.
    """

    operator: str
    filled: Filled
    debug: str = ""
    needs: str = ""


@dataclass(frozen=True, slots=True)
class Coverage:
    """All operators at one key, by name."""

    registry: str
    key: DispatchKey
    operators: tuple[Covered, ...]

    def by(self, way: Way) -> tuple[Covered, ...]:
        """Return the operators that are covered in one way."""
        return tuple(operator for operator in self.operators if operator.filled.way is way)

    def sources(self, way: Way) -> tuple[tuple[DispatchKey, int], ...]:
        """Return the keys with the kernels of one way, with counts, most first."""
        counts = Counter(each.filled.source for each in self.by(way) if each.filled.source is not None)
        return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    @property
    def stale(self) -> int:
        """The number of operators that run another kernel than their table shows."""
        return sum(operator.filled.stale is not None for operator in self.operators)

    @property
    def fallthrough(self) -> int:
        """The number of operators that skip the key."""
        return sum(operator.filled.fallthrough for operator in self.operators)


class NoSlotError(DispatchLabError):
    """Coverage was requested for a key that no call ever has."""

    key: DispatchKey

    def __str__(self) -> str:
        kind = "stands for a set of keys" if self.key.is_alias else "exists once for each backend"
        return f"{self.key} {kind} and has no slot of its own: name a runtime key, such as PrivateUse1 or AutogradCPU"


def runtime_key(text: str, *, privateuse1: str = "") -> DispatchKey:
    """Return the runtime key of a name, for coverage.

    Args:
        text: the name of a key.
        privateuse1: the name that a package gave the PrivateUse1 backend, which also names the key.

    Raises:
        UnknownKeyError: the key does not exist.
        NoSlotError: it has no slot.
    """
    key = parse_key(text, privateuse1)
    if not key.is_runtime:
        raise NoSlotError(key)
    return key


def called_out(recorded: Recorded, operator: RecordedOperator, filled: Filled) -> RecordedOperator | None:
    """Return the `out` overload that a kernel calls; None for a kernel that does not need one.

    The functional and in-place kernels that torchgen generates for a structured operator at
    CompositeExplicitAutogradNonFunctional make the result, and call the `out` overload, which each backend writes.
    """
    if filled.source is not DispatchKey.CompositeExplicitAutogradNonFunctional or operator.schema is None:
        return None
    schema = schema_of(operator.schema)
    packet = qualified(str(operator.name)).removesuffix("_")
    for overload in filter(None, recorded.overload_order(packet)):
        other = recorded.operator(f"{packet}.{overload}")
        if other is not None and other.schema is not None and is_out_of(schema_of(other.schema), schema):
            return other
    return None


def _filled(operator: RecordedOperator, key: DispatchKey, fill: FillOf) -> Filled:
    filled = fill(operator, key)
    is_last = key.functionality <= DispatchKey.NestedTensor  # no key is below that of a backend
    return replace(filled, way=Way.MISSING) if filled.fallthrough and is_last else filled


def coverage(
    recorded: Recorded,
    key: DispatchKey,
    fill: FillOf,
    *,
    name: str,
    operators: Iterable[RecordedOperator] | None = None,
) -> Coverage:
    """Return the coverage of a registry's operators at a key.

    Args:
        recorded: the registry.
        key: a runtime key.
        fill: the function of an engine that fills a slot.
        name: the name of the registry in output.
        operators: the operators; default: all.

    Raises:
        RegistryFileError: the registry is in a file that is damaged.
    """
    fallbacks = {fallback.key: fallback.debug for fallback in recorded.fallbacks}
    covered = []
    for operator in recorded if operators is None else operators:
        filled, needs, debug = _filled(operator, key, fill), "", ""
        out = called_out(recorded, operator, filled)
        if out is not None and _filled(out, key, fill).way is Way.MISSING:
            filled, needs = Filled(Way.MISSING), str(out.name)
        if filled.stale is not None:
            debug = filled.stale.held
        elif filled.way is Way.FALLBACK:
            debug = fallbacks.get(key, "")
        elif filled.source is not None and (kernel := operator.active_at(filled.source)) is not None:
            debug = kernel.debug
        covered.append(Covered(str(operator.name), filled, debug, needs))
    return Coverage(name, key, tuple(covered))


@dataclass(frozen=True, slots=True)
class CoverageReport:
    """The content of the views of coverage.

    Args:
        coverage: the operators at the key.
        listed: the ways whose operators are listed one by one.
        no_answer: a sentence, when the registry has no kernels for the backend of the key; else empty.
    """

    coverage: Coverage
    listed: tuple[Way, ...] = ()
    no_answer: str = ""
