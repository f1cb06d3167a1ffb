"""`OperatorEntry`: all that a dispatcher knows of one operator, as one immutable value."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from dispatchlab.engine.fallbacks import Fallbacks
from dispatchlab.engine.kernel import RegisteredKernel
from dispatchlab.engine.precedence import Fill, Kernels, Slots
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import AliasKind
from dispatchlab.model.schema import FunctionSchema
from dispatchlab.model.source_location import SourceLocation


class Definition:
    """One def of an operator, equal to itself alone.

    Args:
        schema: the schema.
        alias: the alias kind; None when it was left at upstream's default.
        tags: names of tags.
        debug: where it comes from.
        location: the call site, when it is known.
    """

    __slots__ = ("alias", "debug", "location", "schema", "tags")

    def __init__(
        self,
        schema: FunctionSchema,
        alias: AliasKind | None,
        tags: frozenset[str],
        debug: str,
        location: SourceLocation | None = None,
    ) -> None:
        self.schema = schema
        self.alias = alias
        self.tags = tags
        self.debug = debug
        self.location = location

    def __repr__(self) -> str:
        return f"Definition({str(self.schema)!r}, {self.debug!r})"


class Stored(NamedTuple):
    """The schema that an operator has, and what came with it."""

    schema: FunctionSchema
    alias: AliasKind | None
    debug: str


class HeldSignature(NamedTuple):
    """A C++ signature that incoming kernels are compared with, and who set it."""

    signature: str
    debug: str
    key: str


class OperatorEntry(NamedTuple):
    """An operator. Equal entries have the same future, so this is the complete key of its state.

    Args:
        name: the operator.
        stored: its schema; None while there is no def.
        defs: the live defs; more than one only under `pr35061`.
        kernels: what is registered: the bit of a key -> its kernels, newest first.
        present: the keys that have kernels, as bits (the keys of `kernels`).
        slots: what calls use. It can differ from what `kernels` would give: that is what a stale slot is.
        signatures: the signatures (plain, symbolic-integer) that outlive their kernels, under semantics where they do.
        tags: the tags in force.
        names: live registrations of the name alone.
    """

    name: OperatorName
    stored: Stored | None = None
    defs: tuple[Definition, ...] = ()
    kernels: Kernels = {}  # noqa: RUF012 - never mutated: every change makes a new dict
    present: int = 0
    slots: Slots = {}  # noqa: RUF012 - likewise
    signatures: tuple[HeldSignature | None, HeldSignature | None] = (None, None)
    tags: frozenset[str] = frozenset()
    names: tuple[object, ...] = ()

    def __repr__(self) -> str:
        kernels = sum(map(len, self.kernels.values()))
        return f"<OperatorEntry {self.stored.schema if self.stored else self.name} with {kernels} kernels>"

    @property
    def def_count(self) -> int:
        """Live defs."""
        return len(self.defs)

    @property
    def def_and_impl_count(self) -> int:
        """Live defs, kernels and names; at 0 the operator goes."""
        return len(self.defs) + len(self.names) + sum(len(entries) for entries in self.kernels.values())

    @property
    def is_unused(self) -> bool:
        """Nothing is registered any more."""
        return not (self.defs or self.present or self.names)

    def kernels_at(self, bit: int) -> tuple[RegisteredKernel, ...]:
        """The kernels at a key, by its bit, newest first."""
        return self.kernels.get(bit, ())

    def is_only_at(self, bit: int) -> bool:
        """Whether nothing is registered but the kernels at a key, by its bit."""
        return self.present == bit and not (self.defs or self.names)

    def every_kernel(self) -> Iterator[RegisteredKernel]:
        """The kernels at all keys."""
        return chain.from_iterable(self.kernels.values())

    def with_kernels(
        self, bit: int, at_key: tuple[RegisteredKernel, ...], wanted: int, fill: Fill, fallbacks: Fallbacks
    ) -> OperatorEntry:
        """With other kernels at a key, by its bit, and the `wanted` slots computed anew."""
        name, stored, defs, before, present, slots, signatures, tags, names = self
        kernels = dict(before)
        if at_key:
            kernels[bit] = at_key
            present |= bit
        else:
            kernels.pop(bit, None)
            present &= ~bit
        slots = _refilled(slots, wanted, fill(wanted, present, kernels, fallbacks))
        return OperatorEntry(name, stored, defs, kernels, present, slots, signatures, tags, names)

    def refreshed(self, wanted: int, fill: Fill, fallbacks: Fallbacks) -> OperatorEntry:
        """With the `wanted` slots computed anew."""
        filled = fill(wanted, self.present, self.kernels, fallbacks)
        return self._replace(slots=_refilled(self.slots, wanted, filled))

    def active(self, bit: int) -> RegisteredKernel | None:
        """The newest kernel at a key, by its bit."""
        entries = self.kernels.get(bit)
        return entries[0] if entries else None


def _refilled(slots: Slots, wanted: int, filled: Slots) -> Slots:
    """`slots` with those in `wanted` replaced by `filled`."""
    result = {entry: left for entry, held in slots.items() if (left := held ^ (held & wanted))}
    for entry, bits in filled.items():
        result[entry] = result.get(entry, 0) | bits
    return result
