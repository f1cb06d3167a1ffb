"""Invariants of an operator, checked against a second computation of everything derived.

`violations` checks what the running PyTorch checks (`checkInvariants` in OperatorEntry.cpp) and what it leaves out: the
slot of Undefined, the identity of kernels, and signatures. `upstream_violations` is what PyTorch's own check finds.
"""

from __future__ import annotations

from collections.abc import Hashable

from dispatchlab.engine.fallbacks import Fallbacks
from dispatchlab.engine.kernel import AMBIGUOUS, TableEntry
from dispatchlab.engine.operator_entry import OperatorEntry
from dispatchlab.engine.precedence import Slots
from dispatchlab.engine.primitives import mismatch
from dispatchlab.engine.reference_precedence import plain_table
from dispatchlab.engine.semantics import Semantics, SignatureLife
from dispatchlab.model.keys import SLOT_KEYS, DispatchKey
from dispatchlab.model.registration import Kernel
from dispatchlab.model.slot_set import CATCH_ALL_BIT, KEY_BIT, KEY_OF_BIT, UNDEFINED_SLOT, set_bits
from dispatchlab.model.snapshot import Violation

_UNDEFINED = KEY_BIT[DispatchKey.Undefined]


def expected_slots(entry: OperatorEntry, fallbacks: Fallbacks, semantics: Semantics) -> Slots:
    """What every slot should hold, by the plain computation."""
    taken, filled, ambiguous = plain_table(
        semantics.precedence.plain, entry.present, fallbacks.slots, fallbacks.fallthrough_slots
    )
    slots = fallbacks.expected_in(filled)
    kernels = entry.kernels
    for source, reason, bits in taken:
        slots[kernels[source][0].because(reason)] = bits
    if ambiguous:
        slots[AMBIGUOUS] = ambiguous
    return slots


def violations(entry: OperatorEntry, fallbacks: Fallbacks, semantics: Semantics) -> tuple[Violation, ...]:
    """The invariants that do not hold for an operator; empty when all do.

    Args:
        entry: the operator.
        fallbacks: the backend fallbacks of its dispatcher.
        semantics: whose precedence and rules count.
    """
    found: list[Violation] = []
    try:
        expected = expected_slots(entry, fallbacks, semantics)
        if expected != entry.slots:
            found.append(_stale(entry, expected, semantics))
    except (KeyError, IndexError):  # there are places without kernels, which are found below
        pass
    found += _bookkeeping(entry)
    found += _definitions(entry, semantics)
    found += _tags(entry, semantics)
    if semantics.signature_life is not SignatureLife.OPERATOR and entry.signatures != (None, None):
        found.append(Violation(entry.name, "signature that is held", "these semantics hold none"))
    if semantics.signature_life is SignatureLife.KERNEL:
        found += _signatures(entry)
    if semantics.signature_life is SignatureLife.OPERATOR:
        found += _held_signatures(entry)
    return tuple(found)


def stale_keys(slots: Slots, expected: Slots) -> int:
    """The slots that hold something else than they should, as bits."""
    bits = 0
    for held in {**slots, **expected}:
        bits |= slots.get(held, 0) ^ expected.get(held, 0)
    return bits


def _holding(slots: Slots, slot: int) -> TableEntry | None:
    return next((held for held, bits in slots.items() if bits >> slot & 1), None)


def _stale(entry: OperatorEntry, expected: Slots, semantics: Semantics) -> Violation:
    stale = stale_keys(entry.slots, expected)
    if outside := stale & ~semantics.precedence.slots:
        return Violation(entry.name, "slot that is none", f"a kernel is in the slots {outside:x}")
    first = semantics.in_order(set_bits(stale))[0]
    held, wanted = _holding(entry.slots, first), _holding(expected, first)
    keys = tuple(map(str, semantics.keys_in(stale)))
    detail = f"the slot of {keys[0]} holds {held.text if held else 'nothing'}"
    detail += f" and should hold {wanted.text if wanted else 'nothing'}"
    others = f" (with {', '.join(keys[1:4])}{', ...' if len(keys) > 4 else ''}: {len(keys)} slots)" if keys[1:] else ""
    return Violation(entry.name, "stale slot", detail + others, keys)


def _bookkeeping(entry: OperatorEntry) -> list[Violation]:
    found: list[Violation] = []
    stored = entry.stored
    if (stored is not None) != bool(entry.defs):
        found.append(
            Violation(
                entry.name,
                "schema without def",
                f"def_count is {entry.def_count}, the schema {stored and stored.schema}",
            )
        )
    if stored is not None and stored.schema.name != entry.name:
        found.append(Violation(entry.name, "name of the schema", f"the schema is of {stored.schema.name}"))
    if _UNDEFINED in entry.kernels:
        found.append(Violation(entry.name, "kernels at Undefined", "a kernel without a key belongs to a composite key"))
    present = 0
    for bit, kernels in entry.kernels.items():
        present |= bit
        if not kernels:
            found.append(Violation(entry.name, "empty kernel list", f"at {KEY_OF_BIT.get(bit)}"))
        if len(kernels) > 1 and len({*kernels}) < len(kernels):
            found.append(Violation(entry.name, "kernel that is there twice", f"at {KEY_OF_BIT.get(bit)}"))
        for kernel in kernels:
            at = CATCH_ALL_BIT if kernel.key is None else KEY_BIT[kernel.key]
            if at != bit:
                found.append(Violation(entry.name, "kernel at another key", f"{kernel.debug} of {kernel.key}"))
    if present != entry.present:
        found.append(Violation(entry.name, "places with kernels", f"{present:x} and not {entry.present:x}"))
    return found


def _definitions(entry: OperatorEntry, semantics: Semantics) -> list[Violation]:
    stored, defs = entry.stored, entry.defs
    if stored is None or not defs:
        return []
    found: list[Violation] = []
    if len(defs) > 1 and not semantics.several_defs:
        found.append(Violation(entry.name, "several defs", " and ".join(one.debug for one in defs)))
    for one in defs:
        if one.schema is not stored.schema and one.schema != stored.schema:
            found.append(Violation(entry.name, "schema of no def", f"{stored.schema} and not {one.schema}"))
        # What the first def said stays when others outlive it, so only a single one has to agree in all.
        if one.alias != stored.alias and not (semantics.several_defs and one.alias is None):
            found.append(Violation(entry.name, "alias kind of no def", f"{stored.alias} and not {one.alias}"))
        if one.debug != stored.debug and not semantics.several_defs:
            found.append(Violation(entry.name, "debug text of no def", f"{stored.debug} and not {one.debug}"))
    for kernels in entry.kernels.values():
        for kernel in kernels:
            reason = mismatch(defs[0], kernel)
            if reason is not None:
                found.append(Violation(entry.name, "kernel against the schema", f"{kernel.debug}: {reason}"))
    return found


def _signatures(entry: OperatorEntry) -> list[Violation]:
    texts: dict[bool, set[str]] = {False: set(), True: set()}
    for kernels in entry.kernels.values():
        for kernel in kernels:
            signature = kernel.kernel.signature
            if signature is not None:
                texts[kernel.kernel.symint].add(signature)
    return [
        Violation(entry.name, "signatures differ", " and ".join(sorted(different)))
        for different in texts.values()
        if len(different) > 1
    ]


def _held_signatures(entry: OperatorEntry) -> list[Violation]:
    found: list[Violation] = []
    for kernels in entry.kernels.values():
        for kernel in kernels:
            signature, held = kernel.kernel.signature, entry.signatures[kernel.kernel.symint]
            if signature is not None and (held is None or held.signature != signature):
                detail = f"{signature} of {kernel.debug}, and {held.signature if held else 'nothing'} is held"
                found.append(Violation(entry.name, "signature that is not held", detail))
    return found


def _tags(entry: OperatorEntry, semantics: Semantics) -> list[Violation]:
    given = frozenset().union(*(definition.tags for definition in entry.defs))
    if entry.tags == given or (semantics.tags_outlive_def and not entry.defs):
        return []
    wrong = ", ".join(sorted(entry.tags ^ given))
    return [Violation(entry.name, "tags", f"{wrong}: the live defs say otherwise")]


def _function_identity(kernel: Kernel) -> Hashable:
    """What PyTorch compares kernels by: the function pointers, which all Python kernels have in common."""
    return kernel.form, kernel.signature, kernel.symint, kernel.reference


def upstream_violations(entry: OperatorEntry, fallbacks: Fallbacks, semantics: Semantics) -> tuple[str, ...]:
    """The runtime keys for which PyTorch's own check fails; empty when it passes.

    It compares function pointers only and skips Undefined.
    """
    expected = expected_slots(entry, fallbacks, semantics)
    differing: list[str] = []
    for slot in semantics.in_order(set_bits(stale_keys(entry.slots, expected) & ~UNDEFINED_SLOT)):
        held, wanted = _holding(entry.slots, slot), _holding(expected, slot)
        pair = [
            None if one is None else "ambiguous" if one is AMBIGUOUS else _function_identity(one.registered.kernel)
            for one in (held, wanted)
        ]
        if pair[0] != pair[1]:
            differing.append(str(SLOT_KEYS[slot]))
    return tuple(differing)
