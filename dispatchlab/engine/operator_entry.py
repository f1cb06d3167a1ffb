"""`OperatorEntry`: the registrations and slots of one operator, as one immutable value."""

from __future__ import annotations

from typing import NamedTuple

from dispatchlab.engine.fallbacks import Fallbacks
from dispatchlab.engine.kernel import RegisteredKernel
from dispatchlab.engine.precedence import Fill, Slots, with_own
from dispatchlab.model.dump_format import Provenance
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import AliasKind, SourceLocation
from dispatchlab.model.schema import FunctionSchema
from dispatchlab.model.slot_set import ALL_SLOTS


class Definition:
    """One def of an operator, equal only to itself.

    Args:
        schema: the schema.
        alias: the alias kind; None when it was left at upstream's default.
        tags: names of tags.
        debug: its debug text.
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
    """The schema of an operator, and the other content of its defs."""

    schema: FunctionSchema
    alias: AliasKind | None
    debug: str


class HeldSignature(NamedTuple):
    """A C++ signature to compare new kernels with, and the registration that set it."""

    signature: str
    debug: str
    key: str


class OperatorEntry(NamedTuple):
    """An operator. Equal entries have the same future, so this is the complete key of its state.

    Args:
        name: the operator.
        stored: its schema; None without a def.
        defs: the live defs; more than one only under `pr35061`.
        kernels: the registered kernels: for the bit of a key, its kernels, newest first.
        present: the keys that have kernels, as bits (the keys of `kernels`).
        own: the slots where calls use the newest kernel of the slot's own key.
        held: the entries in the other slots. Both can differ from a table of `kernels`: then a slot is stale.
        signatures: the signatures (plain, symbolic-integer) that outlive their kernels, under semantics that keep them.
        tags: the tags in force.
        names: the active registrations of the name without a schema.
    """

    name: OperatorName
    stored: Stored | None = None
    defs: tuple[Definition, ...] = ()
    kernels: dict[int, tuple[RegisteredKernel, ...]] = {}  # noqa: RUF012 - never mutated: every change makes a new dict
    present: int = 0
    own: int = 0
    held: Slots = {}  # noqa: RUF012 - likewise
    signatures: tuple[HeldSignature | None, HeldSignature | None] = (None, None)
    tags: frozenset[str] = frozenset()
    names: tuple[object, ...] = ()

    def __repr__(self) -> str:
        kernels = sum(map(len, self.kernels.values()))
        return f"<OperatorEntry {self.stored.schema if self.stored else self.name} with {kernels} kernels>"

    @property
    def slots(self) -> Slots:
        """The slots that calls use."""
        return with_own(self.held, self.own, self.kernels)

    @property
    def def_count(self) -> int:
        """Live defs."""
        return len(self.defs)

    @property
    def def_and_impl_count(self) -> int:
        """The number of active defs, kernels and names; at 0 the operator is removed."""
        return len(self.defs) + len(self.names) + sum(len(entries) for entries in self.kernels.values())

    @property
    def is_unused(self) -> bool:
        """True if there are no registrations any more."""
        return not (self.defs or self.present or self.names)

    def kernels_at(self, bit: int) -> tuple[RegisteredKernel, ...]:
        """Return the kernels at a key, by its bit, newest first."""
        return self.kernels.get(bit, ())

    def with_kernels(
        self, bit: int, at_key: tuple[RegisteredKernel, ...], wanted: int, fill: Fill, fallbacks: Fallbacks
    ) -> OperatorEntry:
        """Return the entry with other kernels at a key, by its bit, and the `wanted` slots computed anew."""
        name, stored, defs, kernels, present, own, held, signatures, tags, names = self
        if not bit & wanted and bit & ALL_SLOTS:
            own, held = _kept(own, held, bit, kernels.get(bit, ()), at_key)
        kernels = kernels.copy()
        if at_key:
            kernels[bit] = at_key
            present |= bit
        elif bit:
            del kernels[bit]
            present ^= bit
        others = ~wanted
        own = own & others | present & wanted
        left = {entry: kept for entry, bits in held.items() if (kept := bits & others)}
        fill(left, wanted, present, kernels, fallbacks)
        return _new(OperatorEntry, (name, stored, defs, kernels, present, own, left, signatures, tags, names))

    def refreshed(self, wanted: int, fill: Fill, fallbacks: Fallbacks) -> OperatorEntry:
        """Return the entry with the `wanted` slots computed anew."""
        return self.with_kernels(0, (), wanted, fill, fallbacks)

    def active(self, bit: int) -> RegisteredKernel | None:
        """Return the newest kernel at a key, by its bit."""
        entries = self.kernels.get(bit)
        return entries[0] if entries else None


_new = tuple.__new__  # faster than to call the class, and every step of a walk makes an entry


def _kept(
    own: int, held: Slots, bit: int, before: tuple[RegisteredKernel, ...], after: tuple[RegisteredKernel, ...]
) -> tuple[int, Slots]:
    """Return `own` and `held` of a slot that is not refreshed although its kernels change."""
    old, new = (kernels[0].because(Provenance.KERNEL) if kernels else None for kernels in (before, after))
    if old is not new and old is not None and own & bit:
        return own ^ bit, {**held, old: bit}
    if new in held:
        return own | bit, {entry: bits for entry, bits in held.items() if entry is not new}
    return own, held
