"""Read the slots of an operator as rows of its table: which registered kernel a call really runs.

`slot_memory` identifies the kernel in a slot; this module finds the registered kernel with this identity. See
Note [Reading the registered kernels].
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from dispatchlab.live.bridge.reserved_namespaces import SLOT_MEMORY
from dispatchlab.live.bridge.running_keys import running_keys
from dispatchlab.live.bridge.torch import bindings
from dispatchlab.live.introspection.builtin_fallbacks import fallbacks_now, rows_of
from dispatchlab.live.introspection.slot_memory import (
    MISSING,
    MemoryLayout,
    SlotView,
    entry_address,
    entry_addresses,
    fingerprint,
    memory_layout,
)
from dispatchlab.model.dump_format import AMBIGUOUS_DEBUG, PROVENANCE_OF_ALIAS, Provenance, aliases_of, entry_text
from dispatchlab.registries.model import RecordedKernel

# Note [Reading the registered kernels]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# Behind its table an OperatorEntry keeps a map from a dispatch key to the list of kernels that are registered there,
# the newest first, as the dump prints them. The map is a flat_hash_map (c10/util/flat_hash_map.h): a pointer to its
# entries, their count less one, a word of its hash policy, and how many keys there are. An entry is a distance, which
# is negative for an empty one, a key, and a std::list: two pointers and a size. A node of the list has two pointers,
# and then the KernelFunction, whose first two words identify a kernel in a slot, too.
#
# So the kernel of a slot is named by comparing two words. What a slot should hold, the table says; the words of that
# kernel are those of the list, or those that an operator without kernels has in this slot, for a fallback. The place of
# the map is searched once, on an operator whose kernels are known. Memory is read through /proc/self/mem, which
# refuses an address that is none: a wrong guess gives no answer, and ends no process.

_WORD = 8
_SEARCHED_WORDS = 64
_ENTRY_WORDS = 5
_MOST_KEYS = 1 << 12
_EMPTY = 0x80


class _KernelMap(NamedTuple):
    """The offset of the kernel map in an operator's entry, in bytes."""

    layout: MemoryLayout
    offset: int


class SlotReader:
    """A reader of slots; one reader for many operators remembers the address of each operator."""

    def __init__(self) -> None:
        self._where = where = _kernel_map()
        self._entries = {} if where is None else dict(entry_addresses(where.layout))
        builtin = fallbacks_now()
        keys, rows = running_keys().runtime, rows_of(builtin.table)
        self._fallbacks = [(words, rows.get(key, "")) for key, words in zip(keys, builtin.fingerprints, strict=False)]
        self._ambiguous = builtin.ambiguous

    @property
    def can_read(self) -> bool:
        """True if the reader knows the addresses of slots and kernels in this process."""
        return self._where is not None

    def text(self, name: str, kernels: Sequence[RecordedKernel], table: str) -> str | None:
        """Return the slots of an operator in the form of its table; None if they cannot be read.

        Args:
            name: the operator.
            kernels: its kernels, as its dump shows them.
            table: its computed table.
        """
        where, entry = self._where, self._entries.get(name)
        registered = None if where is None or entry is None else _registered(where, entry)
        if where is None or entry is None or registered is None:
            return None
        texts = {self._ambiguous: _AMBIGUOUS}
        for key, words in registered.items():
            at_key = [kernel for kernel in kernels if kernel.key.name == key]
            if len(at_key) != len(words):
                return None
            for word, one in zip(words, at_key, strict=True):
                provenance = PROVENANCE_OF_ALIAS.get(one.key, Provenance.KERNEL)
                texts[word] = entry_text(one.debug, provenance, fallthrough=one.is_fallthrough)
        rows = rows_of(table)
        held = SlotView(where.layout, entry).fingerprints().tolist()
        of_alias = {end: _first_words(keys, registered) for end, keys in _ALIASES.items()}
        lines = []
        for key, found, (fallback, fallback_row) in zip(running_keys().runtime, held, self._fallbacks, strict=True):
            row = rows.get(key)
            if row is None:
                wanted: int | None = MISSING
            elif row == _AMBIGUOUS:
                wanted = self._ambiguous
            else:
                end = row[row.rfind("[") :]
                wanted = fallback if end == _FALLBACK else of_alias.get(end)
                wanted = _first_words((key,), registered) if end == _KERNEL else wanted
            if found == wanted:
                text = row
            else:
                text = None if found == MISSING else texts.get(found) or (fallback_row if found == fallback else _GONE)
            if text is not None:
                lines.append(f"{key}: {text}\n")
        return "".join(lines)


_AMBIGUOUS = entry_text(AMBIGUOUS_DEBUG, Provenance.AMBIGUOUS, fallthrough=False)
_GONE = entry_text("a kernel that is no longer registered", Provenance.KERNEL, fallthrough=False)
_KERNEL, _FALLBACK = f"[{Provenance.KERNEL}]", f"[{Provenance.FALLBACK}]"
_ALIASES = {f"[{shown}]": tuple(key.name for key in aliases_of(shown)) for shown in Provenance}
"""The keys of the kernels that rows with an end are from; none for kernels of the row's own key."""


def _first_words(keys: Sequence[str], registered: dict[str, list[int]]) -> int | None:
    """Return the identity of the active kernel at the first key that has kernels; None without kernels."""
    return next((registered[key][0] for key in keys if key in registered), None)


def _read(address: int, count: int) -> tuple[int, ...] | None:
    try:
        data = os.pread(_memory(os.getpid()), count * _WORD, address)
    except (OSError, OverflowError):
        return None
    return struct.unpack(f"{count}Q", data) if len(data) == count * _WORD else None


@cache
def _memory(process: int) -> int:  # which a copy of a process opens again, or it would read the first one
    return os.open("/proc/self/mem", os.O_RDONLY)


@cache
def _names_of_keys() -> dict[int, str]:
    return {number: name for name, number in running_keys().numbers.items()}


def _registered(where: _KernelMap, entry: int) -> dict[str, list[int]] | None:
    """Return the words of the kernels at each key, the newest first."""
    head = _read(entry + where.offset, 4)
    if head is None or head[1] >= _MOST_KEYS or head[3] > head[1] + 1:
        return None
    names = _names_of_keys()
    at, left, found = head[0], head[3], dict[str, list[int]]()
    while left:
        words = _read(at, _ENTRY_WORDS)
        if words is None:
            return None
        distance, key, node, _, size = words
        if not distance & _EMPTY:
            kernels = _listed(node, size)
            if kernels is None or key & 0xFFFF not in names:
                return None
            if size:
                found[names[key & 0xFFFF]] = kernels
            left -= 1
        at += _ENTRY_WORDS * _WORD
        if at > head[0] + (head[1] + 1 + _SEARCHED_WORDS) * _ENTRY_WORDS * _WORD:
            return None
    return found


def _listed(node: int, size: int) -> list[int] | None:
    found = []
    for _ in range(size if size < _MOST_KEYS else _MOST_KEYS):
        words = _read(node, 4)
        if words is None:
            return None
        node, _, functor, boxed = words
        found.append(fingerprint(functor, boxed))
    return found


_KNOWN = {"CPU": "CPU", "CUDA": "CUDA", "CompositeImplicitAutograd": "XLA"}
"""The keys of the kernels by which the map is found, with a slot where each of them is."""


@cache
def _kernel_map() -> _KernelMap | None:
    """Find the map in the entry of an operator with known kernels."""
    layout = memory_layout()
    if layout is None:
        return None
    c = bindings()
    libraries = [c._dispatch_library("FRAGMENT", SLOT_MEMORY, "")]
    libraries[0].define("kernels(Tensor x) -> Tensor", "")
    try:
        for key in _KNOWN:
            libraries.append(c._dispatch_library("IMPL", SLOT_MEMORY, ""))
            libraries[-1].impl_t_t("kernels", key, key)
        entry = entry_address(layout, f"{SLOT_MEMORY}::kernels")
        assert entry is not None
        slots = SlotView(layout, entry).fingerprints().tolist()
        wanted = {key: [slots[running_keys().slot_of[slot]]] for key, slot in _KNOWN.items()}
        end = layout.table + layout.stride * layout.count
        for word in range(_SEARCHED_WORDS):
            where = _KernelMap(layout, end + word * _WORD)
            if _registered(where, entry) == wanted:
                return where
        return None
    finally:
        for library in reversed(libraries):
            library.reset()
