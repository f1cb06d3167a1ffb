"""From the texts that PyTorch shows in a sandbox to those that the user would see: names and debug texts put back.

A `Naming` gives the calls their numbers and serves all sandboxes that register the same registrations, so that what one
of them has read need not be read again in the next. It also knows, line by line of a computed table, which slot a line
is about and which kernel it names.
"""

from __future__ import annotations

import re
from itertools import count
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from dispatchlab.live.opening import Opener
from dispatchlab.live.step import Origin, Step
from dispatchlab.live.world import World
from dispatchlab.model.keys import SLOT_OF_KEY, DispatchKey
from dispatchlab.model.registration import Fallback, Registration

Template: TypeAlias = npt.NDArray[np.intp]

_marks = count(1)

NOTHING, AMBIGUOUS, BUILTIN, OWN = 0, 1, 2, 2 + len(SLOT_OF_KEY)
"""Numbers of kernels: none, the ambiguous one, the fallback of slot *i* at BUILTIN + i, call *n* at OWN + n."""

_PROVENANCE = {
    DispatchKey.CompositeExplicitAutogradNonFunctional: "default backend kernel",
    DispatchKey.CompositeExplicitAutograd: "default backend kernel",
    DispatchKey.CompositeImplicitAutogradNestedTensor: "nested kernel",
    DispatchKey.CompositeImplicitAutograd: "math kernel",
    DispatchKey.Autograd: "autograd kernel",
    DispatchKey.FuncTorchBatchedDecomposition: "batched kernel",
}


class Row(NamedTuple):
    """A line of a computed table: its slot, the number of its kernel, and the line as the user sees it."""

    slot: int
    kernel: int
    shown: str


class Table:
    """A computed table, read.

    Args:
        rows: its lines, in the order of the slots.
    """

    __slots__ = ("_slots_of", "rows", "shown", "template")

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        self.shown = "".join([f"{shown}\n" for _, _, shown in rows])
        kernels = [NOTHING] * len(SLOT_OF_KEY)
        for slot, kernel, _ in rows:
            kernels[slot] = kernel
        self.template: Template = np.array(kernels, dtype=np.intp)
        self._slots_of: dict[int, list[int]] = {}

    def slots_of(self, kernel: int) -> list[int]:
        """The slots in which this kernel ought to be, ascending."""
        found = self._slots_of.get(kernel)
        if found is None:
            found = self._slots_of[kernel] = [slot for slot, number, _ in self.rows if number == kernel]
        return found


class Naming:
    """Numbers calls and renames texts.

    Args:
        world: the fallbacks that PyTorch brings.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.mark = f"dlab{next(_marks)}!"
        self.origins: dict[int, Origin] = {}
        self.tables: dict[str, Table] = {}
        self._numbers: dict[tuple[int, int], tuple[int, Registration]] = {}
        self._next = 0
        mark = re.escape(f"registered at {self.mark}:")
        self._debug = re.compile(mark + r"(\d+)")
        self._kernel = re.compile(mark + r"(\d+) \[")
        self._rows: dict[str, Row] = {}

    def planned(self, registration: Registration, copy: int, opener: Opener) -> tuple[Step, ...]:
        """The calls of a registration; when it is in force `copy` times already, those of one more.

        Raises:
            NotExpressibleError: the bindings have no call for it.
        """
        known = self._numbers.get((id(registration), copy))
        steps = opener.steps_of(registration, self._next if known is None else known[0])
        if known is None:
            self._numbers[id(registration), copy] = self._next, registration
            self._next += len(steps)
            self.origins.update((step.number, step.origin) for step in steps)
        return steps

    @property
    def size(self) -> int:
        """More than any number of a kernel so far."""
        return OWN + self._next

    def shown(self, text: str, prefix: str) -> str:
        """The text of a sandbox with the user's names and debug texts."""
        return self._debug.sub(self._put_back, text).replace(prefix, "")

    def _put_back(self, match: re.Match[str]) -> str:
        return self.origins[int(match[1])].debug

    def table(self, raw: str) -> Table:
        """A table of any of the sandboxes, read."""
        found = self.tables.get(raw)
        if found is None:
            read = self._rows.get
            found = self.tables[raw] = Table([read(line) or self.row(line) for line in raw.splitlines()])
        return found

    def row(self, line: str) -> Row:
        """What a line of the raw table says."""
        found = self._rows.get(line)
        if found is None:
            found = self._rows[line] = self._read(line)
        return found

    def _read(self, line: str) -> Row:
        slot = SLOT_OF_KEY[DispatchKey[line.partition(":")[0]]]
        own = self._kernel.search(line)
        if own is not None:
            kernel = OWN + int(own[1])
        elif line.endswith("[ambiguous autogradother]"):
            kernel = AMBIGUOUS
        else:
            kernel = BUILTIN + slot
        return Row(slot, kernel, self._debug.sub(self._put_back, line))

    def held(self, slot: int, kernel: int) -> str | None:
        """What a line would say behind the key if this kernel sat in this slot; None for no kernel."""
        if kernel == NOTHING:
            return None
        if kernel == AMBIGUOUS:
            return "ambiguous_autogradother [ambiguous autogradother]"
        if kernel < OWN:
            return self.world.lines[kernel - BUILTIN].partition(": ")[2]
        origin = self.origins[kernel - OWN]
        is_fallback = isinstance(origin.registration, Fallback)
        reason = "backend fallback" if is_fallback else _PROVENANCE.get(origin.key or DispatchKey.Undefined, "kernel")
        skips = "fallthrough " if origin.kernel is not None and origin.kernel.is_fallthrough else ""
        return f"{skips}{origin.debug} [{reason}]"
