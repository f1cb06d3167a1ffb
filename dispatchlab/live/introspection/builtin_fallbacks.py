"""Read the builtin fallbacks of the running PyTorch from an operator that only dispatchlab uses.

Backend fallbacks of the user's packages also count as builtin.
"""

# Note [Builtin fallbacks that are gone]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# Where a fallback replaces the builtin one (see Note [Fallbacks that replace]), its release leaves the key empty for
# the rest of the process, and the next sandbox would find another PyTorch than the first. Nothing brings the kernel
# back: the bindings register no C++ function. So a stand-in takes its place when the sandbox is closed, with the file
# and the line of the one that is gone, which is all that dumps and tables show of it. It does nothing: calls of
# operators at that key want another process.

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from dispatchlab.live.bridge.expressible import stand_in
from dispatchlab.live.bridge.reserved_namespaces import BUILTIN_FALLBACKS
from dispatchlab.live.bridge.running_keys import running_keys
from dispatchlab.live.bridge.torch import bindings, torch
from dispatchlab.live.introspection.slot_memory import MISSING, SlotView, entry_address, memory_layout

_UNTOUCHED, _AMBIGUOUS = f"{BUILTIN_FALLBACKS}::untouched", f"{BUILTIN_FALLBACKS}::ambiguous"
_FALLTHROUGH = "FPGA"


@dataclass(frozen=True, slots=True)
class BuiltinFallbacks:
    """The slots of an operator without kernels, and the kernels that are the same in every operator.

    Args:
        table: its computed table.
        lines: the line of each slot that a fallback fills.
        fingerprints: the fingerprint of each slot's fallback, 0 for none; empty when slots cannot be read.
        fallthrough: the fingerprint of every fallthrough kernel.
        ambiguous: the fingerprint of the kernel at an ambiguous AutogradOther.
    """

    table: str
    lines: Mapping[int, str]
    fingerprints: tuple[int, ...] = ()
    fallthrough: int = MISSING
    ambiguous: int = MISSING


_last: list[BuiltinFallbacks] = []
_put_back: list[object] = []  # the libraries of stand-ins, whose release would take them away again
_LINE = re.compile(
    r"(?P<key>\w+): (?P<skips>fallthrough )?registered at (?P<file>.+):(?P<line>\d+) \[backend fallback\]"
)


def builtin_fallbacks() -> BuiltinFallbacks:
    """Return the present builtin fallbacks; read them again only if the table of that operator changed."""
    _probes()
    table = bindings()._dispatch_dump_table(_UNTOUCHED)
    if not _last or _last[0].table != table:
        _last[:] = [_read(table)]
    return _last[0]


def put_back(before: BuiltinFallbacks) -> None:
    """Register stand-ins for fallbacks that are gone. See Note [Builtin fallbacks that are gone]."""
    if builtin_fallbacks().table == before.table:
        return
    for slot, line in before.lines.items():
        gone = _LINE.fullmatch(line)
        if slot not in _last[0].lines and gone is not None:
            c = bindings()
            library = c._dispatch_library("IMPL", "_", "", gone["file"], int(gone["line"]))
            function = torch().library.fallthrough_kernel if gone["skips"] else stand_in
            library.fallback(c.DispatchKey(running_keys().numbers[gone["key"]]), function)
            _put_back.append(library)
    _last.clear()


def fallbacks_now() -> BuiltinFallbacks:
    """Return the present builtin fallbacks, without leaving a new operator behind.

    A program that reads every operator does not find this operator.
    """
    was_there = _probes.cache_info().currsize
    found = builtin_fallbacks()
    if not was_there:
        for library in _probes():
            library.reset()
        _probes.cache_clear()
        _last.clear()
    return found


def rows_of(table: str) -> dict[str, str]:
    """Return the rows of a table by key; a debug text may have several lines."""
    rows: dict[str, str] = {}
    for line in table.splitlines():
        key, _, text = line.partition(": ")
        if text and key in running_keys().slot_of:
            rows[key] = text
        elif rows:
            last = next(reversed(rows))
            rows[last] += f"\n{line}"
    return rows


@cache
def _probes() -> tuple[Any, ...]:
    c = bindings()
    untouched = c._dispatch_library("FRAGMENT", BUILTIN_FALLBACKS, "")
    untouched.define("untouched(Tensor x) -> Tensor", "")
    both = c._dispatch_library("FRAGMENT", BUILTIN_FALLBACKS, "")
    # Inductor and torch.export look up every composite operator when they are imported, and fail at one without a def.
    both.define("ambiguous(Tensor x) -> Tensor", "")
    both.impl("ambiguous", "FPGA", torch().library.fallthrough_kernel)
    both.impl("ambiguous", "CompositeImplicitAutograd", lambda x: x)
    # PyTorch warns of the first override of the process, and of no other: here is the first.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        both.impl("ambiguous", "CompositeImplicitAutograd", lambda x: x)
    return untouched, both


def _read(table: str) -> BuiltinFallbacks:
    slot_of = running_keys().slot_of
    lines = {slot_of[key]: f"{key}: {row}" for key, row in rows_of(table).items()}
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
