"""Kernel identity: which registered kernel sits in which slot, and its name as the user wrote it.

`KernelNames` numbers the calls, and restores the user's names in PyTorch's output; it serves all sandboxes
with the same registrations, so a later sandbox need not read a table again. `ParsedTable` is a
computed table by kernel numbers. `KernelObjects` finds the number of the object that a slot holds.

See Note [Naming a kernel object].
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from dispatchlab.live.bridge.call_mark import CallMark
from dispatchlab.live.bridge.registration_calls import BindingCall, CallBuilder, CallOrigin
from dispatchlab.live.bridge.running_keys import MOST_SLOTS, running_keys
from dispatchlab.live.introspection.builtin_fallbacks import BuiltinFallbacks
from dispatchlab.live.introspection.slot_memory import MISSING, Fingerprints, SlotView
from dispatchlab.model.dump_format import AMBIGUOUS_DEBUG, PROVENANCE_OF_ALIAS, Provenance, entry_text
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.registration import Def, Fallback, Registration

KernelNumbers: TypeAlias = npt.NDArray[np.intp]

NO_KERNEL, AMBIGUOUS, FIRST_BUILTIN, FIRST_CALL = 0, 1, 2, 2 + MOST_SLOTS
"""Numbers of kernels: none, the ambiguous one, fallback of slot i at FIRST_BUILTIN + i, call n at FIRST_CALL + n."""

_AMBIGUOUS = entry_text(AMBIGUOUS_DEBUG, Provenance.AMBIGUOUS)


class TableRow(NamedTuple):
    """A line of a computed table: its slot, the number of its kernel, and the line as the user sees it."""

    slot: int
    kernel: int
    shown: str


class ParsedTable:
    """A computed table, read.

    Args:
        rows: its lines, in the order of the slots.
    """

    __slots__ = ("_slots_of", "kernels", "rows", "shown")

    def __init__(self, rows: list[TableRow]) -> None:
        self.rows = rows
        self.shown = "".join([f"{shown}\n" for _, _, shown in rows])
        kernels = [NO_KERNEL] * len(running_keys().runtime)
        for slot, kernel, _ in rows:
            kernels[slot] = kernel
        self.kernels: KernelNumbers = np.array(kernels, dtype=np.intp)
        self._slots_of: dict[int, list[int]] = {}

    def slots_of(self, kernel: int) -> list[int]:
        """Return the slots that should hold this kernel, ascending."""
        found = self._slots_of.get(kernel)
        if found is None:
            found = self._slots_of[kernel] = [slot for slot, number, _ in self.rows if number == kernel]
        return found


class KernelNames:
    """The numbers of calls, and the user's names behind them.

    Args:
        builtin: the builtin fallbacks.
    """

    def __init__(self, builtin: BuiltinFallbacks) -> None:
        self.builtin = builtin
        self.mark = CallMark.create()
        self.origins: dict[int, CallOrigin] = {}
        self.tables: dict[str, ParsedTable] = {}
        self._numbers: dict[tuple[int, int], tuple[int, Registration]] = {}
        self._next = 0
        self._debug = re.compile(self.mark.pattern)
        self._kernel = re.compile(self.mark.pattern + r" \[")
        self._slot_of = running_keys().slot_of
        self._rows: dict[str, TableRow] = {}

    def calls_of(self, registration: Registration, copy: int, builder: CallBuilder) -> tuple[BindingCall, ...]:
        """Return the calls of a registration; if `copy` copies of it are in force, the calls of one more copy.

        Raises:
            NotExpressibleError: the bindings have no call for it.
        """
        known = self._numbers.get((id(registration), copy))
        calls = builder.calls_of(registration, self._next if known is None else known[0])
        if known is None:
            self._numbers[id(registration), copy] = self._next, registration
            self.origins.update((call.number, call.origin) for call in calls)
            for call in calls:
                self._next += 1
                if call.def_number is not None:
                    self._next += 1
                    registration = call.origin.registration
                    assert isinstance(registration, Def)
                    self.origins[call.def_number] = CallOrigin(registration, registration.debug)
        return calls

    @property
    def size(self) -> int:
        """A number above every kernel number so far."""
        return FIRST_CALL + self._next

    def shown(self, text: str, prefix: str) -> str:
        """Return a text of a sandbox with the user's names and debug texts."""
        return self._debug.sub(self._put_back, text).replace(prefix, "")

    def _put_back(self, match: re.Match[str]) -> str:
        return self.origins[int(match[1])].debug

    def table(self, raw: str) -> ParsedTable:
        """Return a parsed table of any of the sandboxes."""
        found = self.tables.get(raw)
        if found is None:
            read = self._rows.get
            found = self.tables[raw] = ParsedTable([read(line) or self.row(line) for line in raw.splitlines()])
        return found

    def row(self, line: str) -> TableRow:
        """Return a line of the raw table, read."""
        found = self._rows.get(line)
        if found is None:
            found = self._rows[line] = self._read(line)
        return found

    def _read(self, line: str) -> TableRow:
        slot = self._slot_of[line.partition(":")[0]]
        own = self._kernel.search(line)
        if own is not None:
            kernel = FIRST_CALL + int(own[1])
        elif line.endswith(_AMBIGUOUS):
            kernel = AMBIGUOUS
        else:
            kernel = FIRST_BUILTIN + slot
        return TableRow(slot, kernel, self._debug.sub(self._put_back, line))

    def slot_text(self, slot: int, kernel: int) -> str | None:
        """Return the text behind the key if this slot held this kernel; None without a kernel."""
        if kernel == NO_KERNEL:
            return None
        if kernel == AMBIGUOUS:
            return _AMBIGUOUS
        if kernel < FIRST_CALL:
            return self.builtin.lines[kernel - FIRST_BUILTIN].partition(": ")[2]
        origin = self.origins[kernel - FIRST_CALL]
        is_fallback = isinstance(origin.registration, Fallback)
        registered = PROVENANCE_OF_ALIAS.get(origin.key or DispatchKey.Undefined, Provenance.KERNEL)
        skips = origin.kernel is not None and origin.kernel.is_fallthrough
        return entry_text(origin.debug, Provenance.FALLBACK if is_fallback else registered, fallthrough=skips)


# Note [Naming a kernel object]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A slot shows the address of a kernel's functor, and nothing shows which registration made it. But a functor that was
# not there before can only be that of a kernel registered since, and the computed table says in which slots each of
# these ought to be: the first of them that shows an object which we do not know yet gives the address its name. Should
# every one of them be stale, the kernel stays without an address, and the slots count as stale. So that there is one
# new object at a time, an operator that nobody looked at since its last kernel came is looked at before the next one.
#
# The allocator uses addresses again. The address of a released kernel is forgotten as soon as no slot shows it, which
# is looked up before the next kernel is registered; while a slot does show it, it cannot be used again, because the
# slot keeps the functor alive. A fallback that another one replaced is gone as if it were released, though its
# registration is in force: see Note [Fallbacks that replace]. All fallthrough kernels are one object, so a slot that
# shows it holds "a fallthrough", and its name is the one that the table gives, or gave last.

_UNKNOWN = 1


class KernelObjects:
    """The kernel objects of one sandbox, by number and by address.

    Args:
        builtin: the objects that every operator has.
    """

    __slots__ = (
        *("_address_of", "_builtin", "_gone", "_number_of", "_shared"),
        *("by_number", "fallthroughs", "pending", "released"),
    )

    def __init__(self, builtin: BuiltinFallbacks) -> None:
        self._builtin = builtin
        self.by_number = np.zeros(FIRST_CALL + 64, dtype=np.uint64)
        self.by_number[AMBIGUOUS] = builtin.ambiguous
        self.by_number[FIRST_BUILTIN : FIRST_BUILTIN + len(builtin.fingerprints)] = builtin.fingerprints
        self._shared = {MISSING, builtin.ambiguous, builtin.fallthrough, *builtin.fingerprints}
        self._number_of: dict[int, int] = {}
        self._address_of: dict[int, int] = {}
        self._gone: set[int] = set()
        self.pending: list[int] = []
        self.fallthroughs: list[int] = []
        self.released: dict[int, int] = {}

    def expect(self, number: int, size: int, *, falls_through: bool) -> None:
        """Expect a kernel of this number, which is below `size`, to be registered from now on."""
        if size > len(self.by_number):
            more = np.zeros(2 * size, dtype=np.uint64)
            more[: len(self.by_number)] = self.by_number
            self.by_number = more
        self.by_number[number] = self._builtin.fallthrough if falls_through else _UNKNOWN

    def release(self, number: int) -> None:
        """Note that this kernel, not a fallthrough, is not registered any more; slots may still show it."""
        if number in self._gone:
            self._gone.remove(number)
            return
        address = self._address_of.pop(number, None)
        if address is None:
            self.pending.remove(number)
        else:
            del self._number_of[address]
            self.released[address] = number

    def lose(self, number: int) -> None:
        """Note that PyTorch dropped this fallback, not a fallthrough, although its registration is in force.

        No slot shows it: each was refreshed.
        """
        self.release(number)
        self.released = {address: other for address, other in self.released.items() if other != number}
        self._gone.add(number)

    def lose_builtin(self, slot: int) -> None:
        """Note that PyTorch dropped the builtin fallback of a slot."""
        prints = self._builtin.fingerprints
        if prints and prints[slot] != self._builtin.fallthrough and prints.count(prints[slot]) == 1:
            self._shared.discard(prints[slot])  # else the function serves other keys, or other operators
            self.by_number[FIRST_BUILTIN + slot] = _UNKNOWN

    def forget_released(self, views: Iterable[SlotView]) -> None:
        """Forget the released objects that are in none of these slots."""
        shown = {value for view in views for value in view.fingerprints().tolist()}
        self.released = {address: number for address, number in self.released.items() if address in shown}

    def name_pending(self, table: ParsedTable, found: Fingerprints) -> None:
        """Give the new objects their names, by the slots where the table expects them."""
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
        """Return the kernel of this object; None when it is not known.

        Args:
            slot: the slot that shows it.
            address: its fingerprint.
            wanted: the kernel that should be there.
            before: the kernel that was there last.
        """
        if address == MISSING:
            return NO_KERNEL
        if address in self._shared:
            for number in (wanted, before, FIRST_BUILTIN + slot, AMBIGUOUS):
                if int(self.by_number[number]) == address:
                    return number
            only = address == self._builtin.fallthrough and len(self.fallthroughs) == 1
            return self.fallthroughs[0] if only else None
        found = self._number_of.get(address, self.released.get(address))
        return self.pending[0] if found is None and len(self.pending) == 1 else found
