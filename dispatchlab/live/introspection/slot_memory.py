"""Read the kernel object in each slot of an operator's table, from the memory that calls use.

No binding of PyTorch shows the content of a slot: `dump_table` computes the table again, and so does the function
`_dispatch_get_computed_kernel_for_dispatch_key`. See Note [Reading the slots].
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dispatchlab.live.bridge.reserved_namespaces import SLOT_MEMORY
from dispatchlab.live.bridge.running_keys import running_keys
from dispatchlab.live.bridge.torch import bindings, torch

# Note [Reading the slots]
# ~~~~~~~~~~~~~~~~~~~~~~~~
# A slot that went stale is visible in two ways: by calling through it, or by looking at it. A call per slot costs 3 us,
# 137 of them twenty times what the dump and the table of an edge cost together, and it cannot distinguish two C++
# kernels of one type. So we look: an OperatorEntry (aten/src/ATen/core/dispatch/OperatorEntry.h) has its table inside,
# a KernelFunction of four or five words for each runtime key, functor and boxed function first. Every registered kernel
# has a functor of its own, so these two words are the identity of a kernel. Their sum is not: two boxed functions can
# lie as far apart as two functors do, 256 bytes in PyTorch 2.9. So a fingerprint spreads one of the words over all
# bits first.
#
# Nothing of this layout is taken on faith. `memory_layout` registers known kernels on an operator of its own, finds
# the table by what must be in it, and checks it against what the bindings show of an operator that nobody disturbed:
# which slots are filled and which fall through, before and after a release. If one answer differs, or the platform is
# not one whose std::string and std::list we know, there is no layout, and engines then show of the slots only what the
# bindings give: whether they are filled.
#
# The entry starts with the name of its operator, two strings. Wheels of PyTorch before 2.7 have the old ABI of
# libstdc++, where a string is a pointer to its characters, whose count stands three words before them; in the new one
# it is a pointer, the count, and two words that a short text lives in.

Fingerprints: TypeAlias = npt.NDArray[np.uint64]

MISSING = 0
"""The fingerprint of a slot without a kernel."""

_WORD = 8
_SPREAD = 0x9E3779B97F4A7C15
_SEARCHED_WORDS = 64
_COUNT_BEFORE_TEXT = 3 * _WORD


@dataclass(frozen=True, slots=True)
class MemoryLayout:
    """The memory layout of this process.

    Args:
        table: bytes from the start of an operator's entry to its table.
        stride: bytes from one slot to the next.
        sentinel: the end node of the dispatcher's list of operators.
        count: the number of slots.
        old_strings: whether strings have the old ABI of libstdc++.
    """

    table: int
    stride: int
    sentinel: int
    count: int
    old_strings: bool


def _words(address: int, count: int) -> ctypes.Array[ctypes.c_uint64]:
    return (ctypes.c_uint64 * count).from_address(address)


def fingerprint(functor: int, boxed: int) -> int:
    """Return the identity of the kernel with this functor and this boxed function."""
    return (functor + boxed * _SPREAD) % (1 << 64)


class SlotView:
    """The slots of one operator entry. After the entry is destroyed, reading is undefined.

    Args:
        layout: where the table is.
        entry: the address of the operator's entry.
    """

    __slots__ = ("boxed", "found", "functor")

    def __init__(self, layout: MemoryLayout, entry: int) -> None:
        count, words = layout.count, layout.count * layout.stride // _WORD
        table = np.frombuffer(memoryview(_words(entry + layout.table, words)), dtype=np.uint64).reshape(count, -1)
        self.functor: Fingerprints = table[:, 0]
        self.boxed: Fingerprints = table[:, 1]
        self.found: Fingerprints = np.empty(count, dtype=np.uint64)

    def fingerprints(self) -> Fingerprints:
        """Return the identity of the kernel in each slot; the next call overwrites this array."""
        np.multiply(self.boxed, np.uint64(_SPREAD), self.found)
        np.add(self.found, self.functor, self.found)
        return self.found


_MARK = np.uint64(0x5A5A5A5A5A5A5A58)


def recomputed_by(view: SlotView, action: Callable[[], object]) -> tuple[int, ...]:
    """Return the slots that an action writes, changed or not; the action may be refused.

    During the action, the boxed function of every slot is overwritten; unwritten slots are restored afterwards. So
    the action must not call the operator or remove its entry.

    Args:
        view: the slots of an operator.
        action: the action; its RuntimeError is ignored.
    """
    before = view.boxed.copy()
    view.boxed[:] = _MARK
    try:
        action()
    except RuntimeError:
        pass
    finally:
        left = view.boxed == _MARK
        view.boxed[left] = before[left]
    return tuple(np.flatnonzero(~left).tolist())


def entry_address(layout: MemoryLayout, name: str, overload: str = "") -> int | None:
    """Return the address of an operator's entry, with or without a schema; None if there is no such operator.

    The search begins at the newest operators, so it quickly finds a new operator.
    """
    wanted, wanted_overload = name.encode(), overload.encode()
    for address, (text, size), (text2, size2) in _entries(layout):
        if (
            size == len(wanted)
            and size2 == len(wanted_overload)
            and ctypes.string_at(text, size) == wanted
            and ctypes.string_at(text2, size2) == wanted_overload
        ):
            return address
    return None


def entry_addresses(layout: MemoryLayout) -> Iterator[tuple[str, int]]:
    """Return each operator with the address of its entry, with or without a schema; the newest first."""
    for address, (text, size), (text2, size2) in _entries(layout):
        name, overload = ctypes.string_at(text, size).decode(), ctypes.string_at(text2, size2).decode()
        yield f"{name}.{overload}" if overload else name, address


def _entries(layout: MemoryLayout) -> Iterator[tuple[int, tuple[int, int], tuple[int, int]]]:
    """Return the address of each entry, and the address and length of its name and of its overload's."""
    node = _words(layout.sentinel, 2)[1]
    while node != layout.sentinel:
        if layout.old_strings:
            _, previous, text, text2 = _words(node, 4)
            size, size2 = (_words(at - _COUNT_BEFORE_TEXT, 1)[0] for at in (text, text2))
        else:
            _, previous, text, size, _, _, text2, size2 = _words(node, 8)
        yield int(node) + 2 * _WORD, (text, size), (text2, size2)
        node = previous


@cache
def memory_layout() -> MemoryLayout | None:
    """Find the table in this process; None if it disagrees with the bindings."""
    if sys.platform != "linux" or sys.maxsize < 2**32 or sys.byteorder != "little":
        return None
    c = bindings()
    namespace = SLOT_MEMORY
    libraries = [c._dispatch_library("FRAGMENT", namespace, "")]
    libraries[0].define("a(Tensor x) -> Tensor", "")
    for key in ("CPU", "CUDA"):
        libraries.append(c._dispatch_library("IMPL", namespace, ""))
        libraries[-1].impl_t_t("a", key, key)
    libraries.append(c._dispatch_library("IMPL", namespace, ""))
    libraries[-1].impl("a", c.DispatchKey.MPS, lambda x: x)
    libraries[-1].impl("a", c.DispatchKey.XLA, torch().library.fallthrough_kernel)
    try:
        layout = _found(c._dispatch_find_schema_or_throw(f"{namespace}::a", ""), f"{namespace}::a")
        if layout is None or not _agrees(layout, f"{namespace}::a"):
            return None
        libraries[1].reset()
        return layout if _agrees(layout, f"{namespace}::a") else None
    finally:
        for library in libraries:
            library.reset()


def is_readable() -> bool:
    """Return whether the slots of this process can be read."""
    return memory_layout() is not None


def _found(handle: object, name: str) -> MemoryLayout | None:
    # An object of pybind11 keeps the pointer to its value behind the object head, and an OperatorHandle starts with
    # the pointer to the entry, followed by the list node, which is two words before it in libstdc++.
    value = _words(id(handle) + object.__basicsize__, 1)[0]
    entry, node = _words(value, 2)
    if entry - node != 2 * _WORD:
        return None
    old_strings = not bindings()._GLIBCXX_USE_CXX11_ABI
    text, size = _words(entry, 2)
    if old_strings:
        size = _words(text - _COUNT_BEFORE_TEXT, 1)[0]
    if size != len(name) or (not old_strings and text != entry + 2 * _WORD):
        return None
    sentinel = _words(node, 1)[0]
    if _words(sentinel, 2)[1] != node:
        return None
    for start in range(2 if old_strings else 8, _SEARCHED_WORDS):
        for stride in (4, 5, 6):
            count = len(running_keys().runtime)
            layout = MemoryLayout(start * _WORD, stride * _WORD, int(sentinel), count, old_strings)
            if _looks_like_the_table(layout, int(entry)):
                return layout
    return None


def _looks_like_the_table(layout: MemoryLayout, entry: int) -> bool:
    slot_of = running_keys().slot_of

    def row(key: str) -> tuple[int, int, int]:
        functor, boxed, unboxed = _words(entry + layout.table + slot_of[key] * layout.stride, 3)
        return functor, boxed, unboxed

    cpu, cuda, mps, xla = (row(key) for key in ("CPU", "CUDA", "MPS", "XLA"))
    return (
        row("Undefined") == row("HIP") == (0, 0, 0)
        and 0 not in (*cpu, *cuda, *mps[:2], xla[1])
        and cpu[0] != cuda[0]
        and cpu[1:] == cuda[1:]
        and mps[2] == xla[2] == xla[0] == 0
        and row("BackendSelect") == xla
    )


def _agrees(layout: MemoryLayout, name: str) -> bool:
    c = bindings()
    entry = entry_address(layout, name)
    if entry is None:
        return False
    prints = SlotView(layout, entry).fingerprints().tolist()
    keys = running_keys()
    fallthrough = prints[keys.slot_of["XLA"]]
    rows = dict(line.split(": ", 1) for line in c._dispatch_dump_table(name).splitlines())
    for slot, key in enumerate(keys.runtime):
        filled = prints[slot] != MISSING
        if filled != (key in rows):
            return False
        if filled and (prints[slot] == fallthrough) != rows[key].startswith("fallthrough "):
            return False
        if key in keys.parsed and c._dispatch_has_computed_kernel_for_dispatch_key(name, key) != filled:
            return False
    return True
