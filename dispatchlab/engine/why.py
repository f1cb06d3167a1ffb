"""Why two states of the same registrations differ, in a sentence each."""

from __future__ import annotations

from collections.abc import Iterator

from dispatchlab.engine.cells import State
from dispatchlab.engine.fallbacks import Fallbacks
from dispatchlab.engine.invariants import expected_slots, stale_keys
from dispatchlab.engine.operator_entry import OperatorEntry
from dispatchlab.engine.primitives import place_name
from dispatchlab.engine.semantics import Semantics
from dispatchlab.engine.view import fallbacks_in, operator_in
from dispatchlab.model.slots import keys_of

_SHOWN = 4


def why(expected: State, actual: State, semantics: Semantics) -> tuple[str, ...]:
    """The reasons for the difference; empty when there is none that the engine knows."""
    reasons: list[str] = []
    for name in sorted({cell for state in (expected, actual) for cell in state if isinstance(cell, str)}):
        left, right = operator_in(expected, name), operator_in(actual, name)
        if left is None or right is None:
            there = left or right
            assert there is not None
            reasons.append(_left_behind(name, there))
            continue
        reasons += _entries(name, left, right)
        # Only what one state has and the other lacks tells them apart.
        stale = [_stale(entry, fallbacks_in(state), semantics) for entry, state in ((left, expected), (right, actual))]
        if stale[0] != stale[1]:
            reasons += [_stale_text(name, bits) for bits in stale if bits]
    left_fallbacks, right_fallbacks = fallbacks_in(expected), fallbacks_in(actual)
    if left_fallbacks != right_fallbacks:
        keys = ", ".join(str(key) for key in keys_of(left_fallbacks.slots ^ right_fallbacks.slots))
        reasons.append(f"a refused fallback left others behind, at {keys}")
    return tuple(dict.fromkeys(reasons))


def _left_behind(name: str, entry: OperatorEntry) -> str:
    """What to say of an operator that only one of two states has, although the same is registered in both."""
    if entry.is_unused:
        return f"a refused def of {name} left the operator behind, with nothing registered for it"
    return f"a refused registration left {name} behind, with what it had registered before it was refused"


def _stale(entry: OperatorEntry, fallbacks: Fallbacks, semantics: Semantics) -> int:
    return stale_keys(entry.slots, expected_slots(entry, fallbacks, semantics))


def _stale_text(name: str, bits: int) -> str:
    keys = [str(key) for key in keys_of(bits)]
    shown = ", ".join(keys[:_SHOWN])
    more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
    was = "was" if len(keys) == 1 else "were"
    return f"{shown}{more} of {name} {was} not refreshed: calls use what was there before"


def _entries(name: str, left: OperatorEntry, right: OperatorEntry) -> Iterator[str]:
    for bit in sorted(left.kernels.keys() & right.kernels.keys()):
        ours, theirs = left.kernels[bit], right.kernels[bit]
        if ours != theirs and len(ours) == len(theirs):
            writers = "both write" if len(ours) == 2 else f"{len(ours)} registrations write"
            yield f"{writers} the {place_name(bit)} kernel of {name}: the newest wins"
    for mine, other in zip(left.signatures, right.signatures, strict=True):
        held = other or mine
        if held is not None and (mine is None or other is None or mine.signature != other.signature):
            yield f"the signature {held.signature} of kernel {held.debug} at {held.key} is still held against {name}"
    if left.stored != right.stored:
        yield f"the first def of {name} decides its schema and alias kind"
    if left.tags != right.tags:
        tags = ", ".join(sorted(left.tags ^ right.tags))
        yield f"tags of {name} outlive the def that brought them: {tags}"
    if left.is_unused != right.is_unused:
        yield f"a refused registration left {name} behind"
