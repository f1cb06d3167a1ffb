"""A kernel that is registered, and a kernel that sits in a slot for a reason."""

from __future__ import annotations

from enum import Enum

from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.registration import Kernel, Place


class Reason(Enum):
    """Why a kernel is in a slot; the values are the provenance texts of upstream's `dumpComputedTable`."""

    KERNEL = "kernel"
    DEFAULT_BACKEND = "default backend kernel"
    NESTED = "nested kernel"
    MATH = "math kernel"
    AMBIGUOUS = "ambiguous autogradother"
    AUTOGRAD = "autograd kernel"
    BATCHED = "batched kernel"
    FALLBACK = "backend fallback"
    CATCH_ALL = "catchall kernel"

    # Members are compared by identity; the inherited hash goes through their names and is slow.
    __hash__ = object.__hash__


class KernelEntry:
    """One registration of a kernel, equal to itself alone: two registrations of the same kernel are two entries.

    Args:
        kernel: the kernel.
        debug: where it comes from, as dumps print it.
        key: the key that it is registered at; None in the catch-all bucket of `pr35061`.
        place: the call site, when it is known.
    """

    __slots__ = ("_cells", "debug", "kernel", "key", "place")

    def __init__(self, kernel: Kernel, debug: str, key: DispatchKey | None, place: Place | None = None) -> None:
        self.kernel = kernel
        self.debug = debug
        self.key = key
        self.place = place
        self._cells: dict[Reason, Cell] = {}

    def __repr__(self) -> str:
        return f"KernelEntry({self.key}, {self.debug!r})"

    def because(self, reason: Reason) -> Cell:
        """This kernel in a slot, for `reason`; always the same value for the same reason."""
        cell = self._cells.get(reason)
        if cell is None:
            cell = self._cells[reason] = Cell(self, reason)
        return cell


class Cell:
    """What a slot holds: a kernel and why it is there. Equal to itself alone, see `KernelEntry.because`."""

    __slots__ = ("entry", "reason")

    def __init__(self, entry: KernelEntry, reason: Reason) -> None:
        self.entry = entry
        self.reason = reason

    def __repr__(self) -> str:
        return f"Cell({self.text!r})"

    @property
    def text(self) -> str:
        """The row of a table without its key: `fallthrough fn_cpu [kernel]`."""
        fallthrough = "fallthrough " if self.entry.kernel.is_fallthrough else ""
        return f"{fallthrough}{self.entry.debug} [{self.reason.value}]"


AMBIGUOUS = KernelEntry(Kernel(), "ambiguous_autogradother", DispatchKey.AutogradOther).because(Reason.AMBIGUOUS)
"""What AutogradOther holds when both a composite kernel and a kernel of one of its backends could be meant."""
