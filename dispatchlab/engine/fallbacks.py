"""The backend fallbacks of a dispatcher: at most one kernel for each slot, for all operators."""

# Note [Fallbacks that replace]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A key has one fallback, and a second one is refused. But backends outside of PyTorch have always brought a fallback
# for AutogradPrivateUse1, and since 2.10 PyTorch ships one there; so that key accepts another (`registerFallback` in
# Dispatcher.cpp). It keeps no list: the newest is the row, those before it are forgotten, and releasing any of them
# empties the row, whichever fallback is there; PyTorch's own does not return. So the row depends on the whole
# history of the key. A release does this once for each registration, and a question whether one is in force must find
# it though the row has another: `replacing` has them all. They are a set: how they came about shows in the row alone.
#
# `strict` knows which are builtin: one other fallback may stand over a builtin one, which comes back with its release.
# A second one is refused as everywhere, for which of two is in force would depend on their order.

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from dispatchlab.engine.kernel import RegisteredKernel, TableEntry
from dispatchlab.model.dump_format import Provenance

_MOST_KNOWN: Final = 256


class Fallbacks:
    """An immutable set of fallbacks.

    Args:
        by_slot: the bit of a slot -> the kernel that is there.
        builtin: the kernels of PyTorch's own fallbacks, even if another fallback replaced them.
        replacing: the unreleased fallbacks that replace others, active or not; see Note [Fallbacks that replace].
    """

    __slots__ = ("_by_slot", "_entries", "_expected", "_known", "builtin", "fallthrough_slots", "replacing", "slots")

    def __init__(
        self,
        by_slot: Mapping[int, RegisteredKernel],
        *,
        builtin: Mapping[int, RegisteredKernel] = MappingProxyType({}),
        replacing: frozenset[RegisteredKernel] = frozenset(),
    ) -> None:
        self._by_slot = dict(by_slot)
        self.builtin, self.replacing = builtin, replacing
        self._entries = {bit: entry.because(Provenance.FALLBACK) for bit, entry in self._by_slot.items()}
        self._known: dict[int, dict[TableEntry, int]] = {}
        self._expected: dict[int, dict[TableEntry, int]] = {}
        self.slots = sum(self._by_slot)
        self.fallthrough_slots = sum(bit for bit, entry in self._by_slot.items() if entry.kernel.is_fallthrough)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fallbacks) and self._by_slot == other._by_slot and self.replacing == other.replacing

    def __hash__(self) -> int:
        return hash(frozenset(self._by_slot.items()))

    def __repr__(self) -> str:
        return f"<Fallbacks at {self.slots.bit_count()} slots>"

    @property
    def by_slot(self) -> Mapping[int, RegisteredKernel]:
        """The kernel at each slot, by the bit of the slot."""
        return MappingProxyType(self._by_slot)

    def expected_in(self, slots: int) -> dict[TableEntry, int]:
        """Return the expected entries of some slots: for the invariants, by another way than `entries_in`."""
        expected = self._expected.get(slots)
        if expected is None:
            by_slot = self._by_slot.items()
            expected = {entry.because(Provenance.FALLBACK): bit for bit, entry in by_slot if slots & bit}
            if len(self._expected) < _MOST_KNOWN:
                self._expected[slots] = expected
        return expected.copy()

    def entries_in(self, slots: int) -> Mapping[TableEntry, int]:
        """Return the entries that the fallbacks put into `slots`."""
        slots &= self.slots
        known = self._known.get(slots)
        if known is not None:
            return known
        found: dict[TableEntry, int] = {}
        left = slots
        while left:
            bit = left & -left
            left ^= bit
            held = self._entries[bit]
            found[held] = found.get(held, 0) | bit
        if len(self._known) < _MOST_KNOWN:
            self._known[slots] = found
        return found

    def put(self, bit: int, entry: RegisteredKernel, *, replaces: bool = False) -> Fallbacks:
        """Return them with `entry` at the slot of `bit`; `replaces` when that slot need not be free."""
        made = Fallbacks.__new__(Fallbacks)  # made from what is there: a dispatcher starts with one after another
        made._by_slot = {**self._by_slot, bit: entry}
        made._entries = {**self._entries, bit: entry.because(Provenance.FALLBACK)}
        made._known, made._expected = {}, {}
        made.slots = self.slots | bit
        made.fallthrough_slots = self.fallthrough_slots & ~bit | (bit if entry.kernel.is_fallthrough else 0)
        made.builtin = self.builtin
        made.replacing = self.replacing | {entry} if replaces else self.replacing
        return made

    def without(self, bit: int, entry: RegisteredKernel) -> Fallbacks:
        """Return the fallbacks without `entry`, and without a fallback at the slot of `bit`."""
        left = {other: kept for other, kept in self._by_slot.items() if other != bit}
        replacing = self.replacing - {entry} if self.replacing else self.replacing
        return Fallbacks(left, builtin=self.builtin, replacing=replacing)

    def shipped(self) -> Fallbacks:
        """Return them as builtin fallbacks, which are never released."""
        return Fallbacks(self._by_slot, builtin=MappingProxyType(self._by_slot))


NO_FALLBACKS = Fallbacks({})
