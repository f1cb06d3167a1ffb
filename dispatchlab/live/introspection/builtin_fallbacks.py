"""The builtin fallbacks of the running PyTorch, read off an operator of our own that nobody touches.

Whatever backend fallbacks the user's packages have registered count as well.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from dispatchlab.live.bridge.reserved_namespaces import BUILTIN_FALLBACKS
from dispatchlab.live.bridge.running_keys import running_keys
from dispatchlab.live.bridge.torch import bindings, torch
from dispatchlab.live.introspection.slot_memory import MISSING, SlotView, entry_address, memory_layout

_UNTOUCHED, _AMBIGUOUS = f"{BUILTIN_FALLBACKS}::untouched", f"{BUILTIN_FALLBACKS}::ambiguous"
_FALLTHROUGH = "FPGA"


@dataclass(frozen=True, slots=True)
class BuiltinFallbacks:
    """The slots of an untouched operator, and the kernels that are the same in every operator.

    Args:
        table: its computed table.
        lines: the line of each slot that a fallback fills.
        fingerprints: the fingerprint of each slot's fallback, 0 for none; empty when slots cannot be read.
        fallthrough: the fingerprint of every fallthrough kernel.
        ambiguous: that of the kernel at an ambiguous AutogradOther.
    """

    table: str
    lines: Mapping[int, str]
    fingerprints: tuple[int, ...] = ()
    fallthrough: int = MISSING
    ambiguous: int = MISSING


_last: list[BuiltinFallbacks] = []


def builtin_fallbacks() -> BuiltinFallbacks:
    """The builtin fallbacks as they are now; read again only when the table of the untouched operator changed."""
    _probes()
    table = bindings()._dispatch_dump_table(_UNTOUCHED)
    if not _last or _last[0].table != table:
        _last[:] = [_read(table)]
    return _last[0]


@cache
def _probes() -> tuple[object, ...]:
    c = bindings()
    untouched = c._dispatch_library("FRAGMENT", BUILTIN_FALLBACKS, "")
    untouched.define("untouched(Tensor x) -> Tensor", "")
    both = c._dispatch_library("FRAGMENT", BUILTIN_FALLBACKS, "")
    both.impl("ambiguous", "FPGA", torch().library.fallthrough_kernel)
    both.impl("ambiguous", "CompositeImplicitAutograd", lambda x: x)
    # PyTorch warns of the first override of the process, and of no other: here is the first.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        both.impl("ambiguous", "CompositeImplicitAutograd", lambda x: x)
    return untouched, both


def _read(table: str) -> BuiltinFallbacks:
    slot_of = running_keys().slot_of
    lines = {slot_of[line.partition(":")[0]]: line for line in table.splitlines()}
    layout = memory_layout()
    if layout is None:
        return BuiltinFallbacks(table, lines)
    untouched, ambiguous = entry_address(layout, _UNTOUCHED), entry_address(layout, _AMBIGUOUS)
    assert untouched is not None
    assert ambiguous is not None
    prints = SlotView(layout, ambiguous).fingerprints().tolist()
    return BuiltinFallbacks(
        table,
        lines,
        tuple(SlotView(layout, untouched).fingerprints().tolist()),
        prints[slot_of[_FALLTHROUGH]],
        prints[slot_of["AutogradOther"]],
    )
