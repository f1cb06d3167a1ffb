"""The dispatch keys of the running PyTorch: their numbers, the keys that it parses, and the keys of its slots.

Keys differ between versions, so code that reads PyTorch uses this module, and not the list of the model.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

from dispatchlab.live.bridge.torch import bindings

# Note [Keys of the running PyTorch]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# No binding lists the keys. Each number has a name, though, markers and numbers beyond the last one have names of
# a known form, and the full key set prints the runtime keys in the order in which `dump_table` prints its rows and in
# which an OperatorEntry has its slots, `Undefined` left out. `memory_layout` holds the slots against the table.

_MARKERS = "Undefined", "Unknown"  # how the names of markers such as StartOfSparseBackends end, and of what is no key
_LAST = 511

MOST_SLOTS = 512
"""No PyTorch has more slots."""
_UNDEFINED = "Undefined"


@dataclass(frozen=True, slots=True)
class RunningKeys:
    """The keys of the running PyTorch, by name.

    Args:
        numbers: every key with its number, ascending; markers are not keys.
        runtime: the keys that have a slot, in the order of the slots; `Undefined` is the first.
        slot_of: the slot of each runtime key.
        parsed: the keys that PyTorch parses from text.
        aliases: the alias keys.
    """

    numbers: Mapping[str, int]
    runtime: tuple[str, ...]
    slot_of: Mapping[str, int]
    parsed: frozenset[str]
    aliases: tuple[str, ...]


@cache
def running_keys() -> RunningKeys:
    """Return the keys of the PyTorch that runs here. See Note [Keys of the running PyTorch]."""
    c = bindings()
    numbers: dict[str, int] = {}
    for number in range(_LAST + 1):
        name = str(c._dispatch_key_name(c.DispatchKey(number)))
        if not number or not name.endswith(_MARKERS):
            numbers.setdefault(name, number)
    shown = str(c._dispatch_keyset_to_string(c._dispatch_keyset_full()))
    runtime = (_UNDEFINED, *shown.removeprefix("DispatchKeySet(").removesuffix(")").split(", "))
    return RunningKeys(
        MappingProxyType(numbers),
        runtime,
        MappingProxyType({name: slot for slot, name in enumerate(runtime)}),
        frozenset(name for name in numbers if c._parse_dispatch_key(name) is not None),
        tuple(name for name, number in numbers.items() if c._dispatch_is_alias_key(c.DispatchKey(number))),
    )


def raw_bits(keys: Any) -> int:
    """Return the bits of a key set of PyTorch, as `raw_repr()` does; for 2.4, which lacks it, read memory."""
    if hasattr(keys, "raw_repr"):
        return int(keys.raw_repr())
    at = ctypes.c_uint64.from_address(id(keys) + object.__basicsize__).value
    return ctypes.c_uint64.from_address(at).value
