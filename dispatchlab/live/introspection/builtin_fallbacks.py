"""PyTorch's builtin fallbacks, read off an operator that nobody touched.

Read off an operator of our own, so that whatever the user's packages have registered counts as well.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache

from dispatchlab.live.bridge.reserved_namespaces import WORLD
from dispatchlab.live.bridge.torch import bindings, torch
from dispatchlab.live.introspection.slot_memory import MISSING, SlotView, entry_address, memory_layout
from dispatchlab.model.keys import SLOT_OF_KEY, DispatchKey

_QUIET, _AMBIGUOUS, _FALLTHROUGH = f"{WORLD}::quiet", f"{WORLD}::ambiguous", DispatchKey.FPGA


@dataclass(frozen=True, slots=True)
class World:
    """The slots of an untouched operator, and the kernels that are the same in every operator.

    Args:
        table: its computed table.
        lines: the line of each slot that a fallback fills.
        fingerprints: the fingerprint of each slot's fallback, 0 for none; empty when slots cannot be read.
        fallthrough: the fingerprint of every fallthrough kernel.
        ambiguous: that of the kernel at an ambiguous AutogradOther.
    """

    table: str
    lines: dict[int, str]
    fingerprints: tuple[int, ...] = ()
    fallthrough: int = MISSING
    ambiguous: int = MISSING


@cache
def _scratch() -> tuple[object, ...]:
    c = bindings()
    quiet = c._dispatch_library("FRAGMENT", WORLD, "")
    quiet.define("quiet(Tensor x) -> Tensor", "")
    both = c._dispatch_library("FRAGMENT", WORLD, "")
    both.impl("ambiguous", "FPGA", torch().library.fallthrough_kernel)
    both.impl("ambiguous", "CompositeImplicitAutograd", lambda x: x)
    # PyTorch warns of the first override of the process, and of no other: here is the first.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        both.impl("ambiguous", "CompositeImplicitAutograd", lambda x: x)
    return quiet, both


_last: list[World] = []


def world() -> World:
    """The world as it is now; read again only when the table of the untouched operator changed."""
    _scratch()
    table = bindings()._dispatch_dump_table(_QUIET)
    if not _last or _last[0].table != table:
        _last[:] = [_read(table)]
    return _last[0]


def _read(table: str) -> World:
    lines = {SLOT_OF_KEY[DispatchKey[line.partition(":")[0]]]: line for line in table.splitlines()}
    layout = memory_layout()
    if layout is None:
        return World(table, lines)
    quiet, ambiguous = entry_address(layout, _QUIET), entry_address(layout, _AMBIGUOUS)
    assert quiet is not None
    assert ambiguous is not None
    prints = SlotView(layout, ambiguous).fingerprints().tolist()
    return World(
        table,
        lines,
        tuple(SlotView(layout, quiet).fingerprints().tolist()),
        prints[SLOT_OF_KEY[_FALLTHROUGH]],
        prints[SLOT_OF_KEY[DispatchKey.AutogradOther]],
    )
