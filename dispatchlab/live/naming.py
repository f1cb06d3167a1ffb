"""From the texts that PyTorch shows in a sandbox to those that the user would see: names and debug texts put back.

One `Naming` serves one sandbox. It also knows, line by line of a computed table, which slot a line is about and which
kernel it names.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from dispatchlab.live.opening import Origin
from dispatchlab.live.world import World
from dispatchlab.model.keys import SLOT_OF_KEY, DispatchKey
from dispatchlab.model.registration import Fallback

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


class Naming:
    """Renames texts of one sandbox.

    Args:
        prefix: what stands before every namespace of the sandbox.
        mark: the file that its libraries name.
        world: the fallbacks that PyTorch brings.
    """

    def __init__(self, prefix: str, mark: str, world: World) -> None:
        self.origins: dict[int, Origin] = {}
        self._world = world
        self._ours = re.compile(rf"registered at {re.escape(mark)}:(\d+)|{re.escape(prefix)}")
        self._kernel = re.compile(rf"registered at {re.escape(mark)}:(\d+) \[")
        self._rows: dict[str, Row] = {}

    def shown(self, text: str) -> str:
        """The text with the user's names and debug texts."""
        return self._ours.sub(self._put_back, text)

    def _put_back(self, match: re.Match[str]) -> str:
        return self.origins[int(match[1])].debug if match[1] else ""

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
        return Row(slot, kernel, self.shown(line))

    def held(self, slot: int, kernel: int) -> str | None:
        """What a line would say behind the key if this kernel sat in this slot; None for no kernel."""
        if kernel == NOTHING:
            return None
        if kernel == AMBIGUOUS:
            return "ambiguous_autogradother [ambiguous autogradother]"
        if kernel < OWN:
            return self._world.lines[kernel - BUILTIN].partition(": ")[2]
        origin = self.origins[kernel - OWN]
        is_fallback = isinstance(origin.registration, Fallback)
        reason = "backend fallback" if is_fallback else _PROVENANCE.get(origin.key or DispatchKey.Undefined, "kernel")
        skips = "fallthrough " if origin.kernel is not None and origin.kernel.is_fallthrough else ""
        return f"{skips}{origin.debug} [{reason}]"
