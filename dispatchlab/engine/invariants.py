"""Invariants of an operator, checked against a second computation of everything derived.

`violations` checks what the running PyTorch checks (`checkInvariants` in OperatorEntry.cpp) and what it leaves out: the
slot of Undefined, the identity of kernels, and signatures.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Final, TypeAlias

from dispatchlab.engine.fallbacks import Fallbacks
from dispatchlab.engine.kernel import AMBIGUOUS, RegisteredKernel, TableEntry
from dispatchlab.engine.operator_entry import Definition, OperatorEntry
from dispatchlab.engine.precedence import Slots, with_own
from dispatchlab.engine.primitives import mismatch
from dispatchlab.engine.reference_precedence import REASON_OF, plain_table
from dispatchlab.engine.semantics import Semantics, SignatureLife
from dispatchlab.model.keys import SLOT_KEYS, DispatchKey
from dispatchlab.model.slot_set import CATCH_ALL_BIT, KEY_BIT, KEY_OF_BIT, set_bits
from dispatchlab.model.snapshot import Violation, stale_slots_text

_UNDEFINED = KEY_BIT[DispatchKey.Undefined]
_KERNEL, _OPERATOR = SignatureLife.KERNEL, SignatureLife.OPERATOR  # to look up a member takes longer than to compare it


def expected_slots(entry: OperatorEntry, fallbacks: Fallbacks, semantics: Semantics) -> Slots:
    """Return the expected content of every slot, by the reference computation."""
    own, held = _expected(entry, fallbacks, semantics)
    return with_own(held, own, entry.kernels)


def _expected(entry: OperatorEntry, fallbacks: Fallbacks, semantics: Semantics) -> tuple[int, Slots]:
    """Return the expected `own` and `held` of an entry."""
    own, taken, filled, ambiguous = plain_table(
        semantics.precedence.plain, entry.present, fallbacks.slots, fallbacks.fallthrough_slots
    )
    slots = fallbacks.expected_in(filled)
    kernels = entry.kernels
    for source, bits in taken.items():
        slots[kernels[source][0].because(REASON_OF[source])] = bits
    if ambiguous:
        slots[AMBIGUOUS] = ambiguous
    return own, slots


def violations(entry: OperatorEntry, fallbacks: Fallbacks, semantics: Semantics) -> tuple[Violation, ...]:
    """Return the invariants that do not hold for an operator; empty if all hold.

    Args:
        entry: the operator.
        fallbacks: the backend fallbacks of its dispatcher.
        semantics: whose precedence and rules count.
    """
    found: list[Violation] = []
    try:
        own, held = _expected(entry, fallbacks, semantics)
        if own != entry.own or held != entry.held:
            expected = with_own(held, own, entry.kernels)
            if expected != entry.slots:
                found.append(_stale(entry, expected, semantics))
    except (KeyError, IndexError):  # there are places without kernels, which are found below
        pass
    found += _bookkeeping(entry)
    found += _kernels(entry, semantics)
    found += _definitions(entry, semantics)
    found += _tags(entry, semantics)
    return tuple(found)


def stale_keys(slots: Slots, expected: Slots) -> int:
    """Return the slots without their expected entry, as bits."""
    bits = 0
    for held in {**slots, **expected}:
        bits |= slots.get(held, 0) ^ expected.get(held, 0)
    return bits


def holding(slots: Slots, slot: int) -> TableEntry | None:
    """Return the entry in a slot."""
    return next((held for held, bits in slots.items() if bits >> slot & 1), None)


def _stale(entry: OperatorEntry, expected: Slots, semantics: Semantics) -> Violation:
    stale = stale_keys(entry.slots, expected)
    if outside := stale & ~semantics.precedence.slots:
        return Violation(entry.name, "slot that is none", f"a kernel is in the slots {outside:x}")
    slots = {str(SLOT_KEYS[slot]): slot for slot in semantics.in_order(set_bits(stale))}

    def text(table: Slots, key: str) -> str:
        found = holding(table, slots[key])
        return found.text if found else ""

    keys = tuple(slots)
    detail = stale_slots_text(keys, partial(text, entry.slots), partial(text, expected))
    return Violation(entry.name, "stale slot", detail, keys)


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
    return found


def _kernels(entry: OperatorEntry, semantics: Semantics) -> list[Violation]:
    found: list[Violation] = []
    definition = entry.defs[0] if entry.defs and entry.stored is not None else None
    known = _sound_under(definition)
    signed = last = _NO_SIGNATURES
    for bit, kernels in entry.kernels.items():
        sound_at, signatures = known[kernels]
        if sound_at != bit:
            found += _wrong_at(entry, bit, definition)
        if signatures is not last:
            signed, last = signed | signatures, signatures
    present = sum(entry.kernels)
    if present != entry.present:
        found.append(Violation(entry.name, "places with kernels", f"{present:x} and not {entry.present:x}"))
    return found + _signatures(entry, signed, semantics.signature_life)


def _wrong_at(entry: OperatorEntry, bit: int, definition: Definition | None) -> list[Violation]:
    """Return the violations of the kernels at a key, by its bit."""
    kernels, wrong = entry.kernels[bit], []
    if not kernels:
        wrong.append(Violation(entry.name, "empty kernel list", f"at {KEY_OF_BIT.get(bit)}"))
    if len({*kernels}) < len(kernels):
        wrong.append(Violation(entry.name, "kernel that is there twice", f"at {KEY_OF_BIT.get(bit)}"))
    for registered in kernels:
        if _bit_of(registered) != bit:
            wrong.append(Violation(entry.name, "kernel at another key", f"{registered.debug} of {registered.key}"))
        if definition is not None and (reason := mismatch(definition, registered)) is not None:
            wrong.append(Violation(entry.name, "kernel against the schema", f"{registered.debug}: {reason}"))
    return wrong


def _bit_of(registered: RegisteredKernel) -> int:
    return CATCH_ALL_BIT if registered.key is None else KEY_BIT[registered.key]


_Signed: TypeAlias = frozenset[tuple[bool, str]]
"""Signatures, each with whether it takes symbolic integers."""

_NO_SIGNATURES: _Signed = frozenset()


class _Sound(dict[tuple[RegisteredKernel, ...], tuple[int, _Signed]]):
    """The sound kernels at a key, by the bit of the key, with their signatures; 0 for none.

    States have most of them in common, so that each is looked at once.
    """

    def __init__(self, definition: Definition | None) -> None:
        super().__init__()
        self._definition = definition

    def __missing__(self, kernels: tuple[RegisteredKernel, ...]) -> tuple[int, _Signed]:
        bits = {_bit_of(registered) for registered in kernels}
        is_sound = len(bits) == 1 and len({*kernels}) == len(kernels)
        if self._definition is not None:
            is_sound = is_sound and all(mismatch(self._definition, registered) is None for registered in kernels)
        every = (registered.kernel for registered in kernels)
        signed = frozenset((one.symint, one.signature) for one in every if one.signature is not None)
        if len(self) >= _MOST_KNOWN:
            self.clear()
        self[kernels] = bits.pop() if is_sound else 0, _one_object(signed)
        return self[kernels]


_MOST_KNOWN: Final = 1 << 12


@lru_cache(1 << 8)
def _sound_under(definition: Definition | None) -> _Sound:
    return _Sound(definition)


@lru_cache(1 << 8)
def _one_object(signed: _Signed) -> _Signed:
    """Return the same object for equal sets, which makes comparisons quick."""
    return signed


def _signatures(entry: OperatorEntry, signed: _Signed, life: SignatureLife) -> list[Violation]:
    """Return the violations of the signatures of all kernels."""
    found: list[Violation] = []
    if life is not _OPERATOR and entry.signatures != (None, None):
        found.append(Violation(entry.name, "signature that is held", "these semantics hold none"))
    if life is _KERNEL and len(signed) > len({symint for symint, _ in signed}):
        for symint in (False, True):
            texts = sorted(text for other, text in signed if other is symint)
            if len(texts) > 1:
                found.append(Violation(entry.name, "signatures differ", " and ".join(texts)))
    if life is _OPERATOR:
        for symint, text in sorted(signed):
            held = entry.signatures[symint]
            if held is None or held.signature != text:
                detail = f"a kernel has {text}, and {held.signature if held else 'nothing'} is held"
                found.append(Violation(entry.name, "signature that is not held", detail))
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
    return found


def _tags(entry: OperatorEntry, semantics: Semantics) -> list[Violation]:
    given = entry.defs[0].tags if len(entry.defs) == 1 else frozenset().union(*(one.tags for one in entry.defs))
    if entry.tags == given or (semantics.tags_outlive_def and not entry.defs):
        return []
    wrong = ", ".join(sorted(entry.tags ^ given))
    return [Violation(entry.name, "tags", f"{wrong}: the live defs say otherwise")]
