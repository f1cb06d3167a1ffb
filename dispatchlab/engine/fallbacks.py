"""The backend fallbacks of a dispatcher: at most one kernel for each slot, for all operators."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dispatchlab.engine.kernel import RegisteredKernel, TableEntry
from dispatchlab.model.dump_format import Provenance


class Fallbacks:
    """An immutable set of fallbacks.

    Args:
        by_slot: the bit of a slot -> the kernel that is there.
    """

    __slots__ = ("_by_slot", "_entries", "fallthrough_slots", "slots")

    def __init__(self, by_slot: Mapping[int, RegisteredKernel]) -> None:
        self._by_slot = dict(by_slot)
        self._entries = {bit: entry.because(Provenance.FALLBACK) for bit, entry in self._by_slot.items()}
        self.slots = sum(self._by_slot)
        self.fallthrough_slots = sum(bit for bit, entry in self._by_slot.items() if entry.kernel.is_fallthrough)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fallbacks) and self._by_slot == other._by_slot

    def __hash__(self) -> int:
        return hash(frozenset(self._by_slot.items()))

    def __repr__(self) -> str:
        return f"<Fallbacks at {self.slots.bit_count()} slots>"

    @property
    def by_slot(self) -> Mapping[int, RegisteredKernel]:
        """The bit of a slot -> the kernel that is there."""
        return MappingProxyType(self._by_slot)

    def entries_in(self, slots: int) -> dict[TableEntry, int]:
        """What the fallbacks put into `slots`."""
        slots &= self.slots
        found: dict[TableEntry, int] = {}
        while slots:
            bit = slots & -slots
            slots ^= bit
            held = self._entries[bit]
            found[held] = found.get(held, 0) | bit
        return found

    def put(self, bit: int, entry: RegisteredKernel) -> Fallbacks:
        """With `entry` at the slot of `bit`, which must be free."""
        return Fallbacks({**self._by_slot, bit: entry})

    def without(self, bit: int) -> Fallbacks:
        """Without the fallback at the slot of `bit`."""
        return Fallbacks({other: entry for other, entry in self._by_slot.items() if other != bit})


NO_FALLBACKS = Fallbacks({})
