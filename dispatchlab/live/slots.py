"""Which registered kernel sits in which slot: the objects that memory shows, told apart and named.

See Note [Naming a kernel object].
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dispatchlab.live.memory import MISSING, Fingerprints, SlotView
from dispatchlab.live.naming import AMBIGUOUS, BUILTIN, NOTHING, OWN, Table
from dispatchlab.live.world import World

# Note [Naming a kernel object]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A slot shows the address of a kernel's functor, and nobody tells which registration made it. But a functor that was
# not there before can only be that of a kernel registered since, and the computed table says in which slots each of
# these ought to be: the first of them that shows an object which we do not know yet gives the address its name. Should
# every one of them be stale, the kernel stays without an address, and the slots count as stale. So that there is one
# new object at a time, an operator that nobody looked at since its last kernel came is looked at before the next one.
#
# The allocator uses addresses again. The address of a released kernel is forgotten as soon as no slot shows it, which
# is looked up before the next kernel is registered; while a slot does show it, it cannot be used again, because the
# slot keeps the functor alive. All fallthrough kernels are one object, so a slot that shows it holds "a fallthrough",
# and its name is the one that the table gives, or gave last.

_UNKNOWN = 1


class KernelObjects:
    """The kernel objects of one sandbox, by number and by address.

    Args:
        world: the objects that every operator has.
    """

    __slots__ = ("_address_of", "_number_of", "_shared", "_world", "by_number", "fallthroughs", "pending", "released")

    def __init__(self, world: World) -> None:
        self._world = world
        self.by_number = np.zeros(OWN + 64, dtype=np.uint64)
        self.by_number[AMBIGUOUS] = world.ambiguous
        self.by_number[BUILTIN:OWN] = world.fingerprints
        self._shared = {MISSING, world.ambiguous, world.fallthrough, *world.fingerprints}
        self._number_of: dict[int, int] = {}
        self._address_of: dict[int, int] = {}
        self.pending: list[int] = []
        self.fallthroughs: list[int] = []
        self.released: dict[int, int] = {}

    def planned(self, number: int, size: int, *, falls_through: bool) -> None:
        """A kernel of this number, which is below `size`, may be registered from now on."""
        if size > len(self.by_number):
            more = np.zeros(2 * size, dtype=np.uint64)
            more[: len(self.by_number)] = self.by_number
            self.by_number = more
        self.by_number[number] = self._world.fallthrough if falls_through else _UNKNOWN

    def gone(self, number: int) -> None:
        """This kernel, no fallthrough, is not registered any more; slots may show it all the same."""
        address = self._address_of.pop(number, None)
        if address is None:
            self.pending.remove(number)
        else:
            del self._number_of[address]
            self.released[address] = number

    def forget(self, views: Iterable[SlotView]) -> None:
        """Forget the released objects that none of these slots shows."""
        shown = {value for view in views for value in view.fingerprints().tolist()}
        self.released = {address: number for address, number in self.released.items() if address in shown}

    def name_pending(self, table: Table, found: Fingerprints) -> None:
        """Give the new objects their names, where the table says in which slots they should be."""
        known, shared, released = self._number_of, self._shared, self.released
        left: list[int] = []
        for number in self.pending:
            for slot in table.slots_of(number):
                address = found.item(slot)
                if address not in known and address not in shared and address not in released:
                    self.by_number[number] = address
                    known[address] = number
                    self._address_of[number] = address
                    break
            else:
                left.append(number)
        self.pending = left

    def number_at(self, slot: int, address: int, wanted: int, before: int) -> int | None:
        """The kernel whose object this is; None when nobody knows.

        Args:
            slot: the slot that shows it.
            address: its fingerprint.
            wanted: the kernel that should be there.
            before: the kernel that was there last.
        """
        if address == MISSING:
            return NOTHING
        if address in self._shared:
            for number in (wanted, before, BUILTIN + slot, AMBIGUOUS):
                if int(self.by_number[number]) == address:
                    return number
            only = address == self._world.fallthrough and len(self.fallthroughs) == 1
            return self.fallthroughs[0] if only else None
        found = self._number_of.get(address, self.released.get(address))
        return self.pending[0] if found is None and len(self.pending) == 1 else found
