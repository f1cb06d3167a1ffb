"""Dependences: what each part of an operator's state depends on, read from the tables of a semantics.

The explorer builds neighbourhoods from this, and checks it wherever it goes: see docs/proof.md.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from dispatchlab.engine.fallbacks import NO_FALLBACKS, Fallbacks
from dispatchlab.engine.kernel import AMBIGUOUS, TableEntry
from dispatchlab.engine.lowering import LoweredRegistration
from dispatchlab.engine.operator_entry import OperatorEntry
from dispatchlab.engine.primitives import (
    ClaimNamespace,
    RegisterDef,
    RegisterFallback,
    RegisterImpl,
    RegisterName,
)
from dispatchlab.engine.refusals import MAX_ARGUMENTS
from dispatchlab.engine.semantics import Semantics, SignatureLife
from dispatchlab.engine.state import FALLBACKS, NamespaceVariable, State
from dispatchlab.model.dependence import Dependence
from dispatchlab.model.dump_format import Provenance, key_text
from dispatchlab.model.schema_difference import schema_difference
from dispatchlab.model.slot_set import CATCH_ALL_BIT, KEY_BIT, KEY_OF_BIT

# Note [What a slot shows]
# ~~~~~~~~~~~~~~~~~~~~~~~~
# The value of a slot is not the kernel that it holds but where that kernel stands now: at which key, as the newest
# there, the second newest, or no more at all. So a slot that was refreshed has a value that depends on which keys have
# kernels alone; whose kernel it is follows from the list of that key, which is a variable of its own. A slot that
# was not refreshed when a newer kernel came shows another value.


class Variable(NamedTuple):
    """A part of the state; `values` has plain tuples, which are equal.

    Args:
        kind: what it is.
        of: the operator, or the namespace that is claimed.
        bit: the key or the slot.
    """

    kind: str
    of: str | NamespaceVariable | None = None
    bit: int = 0

    def __str__(self) -> str:
        kind = "slot" if self.kind == "fallback" else self.kind
        at = "" if not self.bit else f"{kind} {key_text(KEY_OF_BIT[self.bit])}"
        match self:
            case Variable("fallback"):
                return f"the fallback of the {at}"
            case Variable("kernels"):
                return f"the kernels of {self.of} at {key_text(KEY_OF_BIT[self.bit])}"
            case Variable("slot"):
                return f"the {at} of {self.of}"
            case _:
                return f"the {self.kind} of {self.of}"


def dependences(lowered: Sequence[LoweredRegistration], semantics: Semantics) -> Mapping[Hashable, Dependence] | str:
    """What each variable depends on that these registrations can change; or why that is not known."""
    groups, names = semantics.precedence.plain.groups, semantics.precedence.plain.group_names
    if groups is None:
        return f"the semantics {semantics.name} do not say which keys decide about which slots"
    found: dict[Hashable, Dependence] = {}
    writers: dict[Variable, int] = {}
    operators: dict[str, list[tuple[int, _OperatorPrimitive]]] = {}
    fallbacks: list[tuple[int, RegisterFallback]] = []
    for index, one in enumerate(lowered):
        for primitive in one.primitives:
            match primitive:
                case RegisterFallback():
                    fallbacks.append((index, primitive))
                    _add(writers, Variable("fallback", None, primitive.bit), index)
                case ClaimNamespace():
                    _add(writers, Variable("claim", primitive.variable), index)
                case RegisterDef():
                    _add(writers, Variable("def", primitive.variable), index)
                    operators.setdefault(primitive.variable, []).append((index, primitive))
                case RegisterName():
                    _add(writers, Variable("names", primitive.variable), index)
                    operators.setdefault(primitive.variable, []).append((index, primitive))
                case RegisterImpl():
                    _add(writers, Variable("kernels", primitive.variable, primitive.bit), index)
                    operators.setdefault(primitive.variable, []).append((index, primitive))
                case _:
                    pass  # always refused, see `deciders`
    initial: dict[int, bool] = {}  # the slots with a fallback from the beginning, and whether it is a fallthrough
    replaceable = 0
    for key in semantics.replaceable_fallbacks:
        replaceable |= KEY_BIT[key]
    for fallback in semantics.fallbacks:
        bits = 0 if fallback.key is None else semantics.slots_of_key(fallback.key)
        while bits:
            bit = bits & -bits
            bits ^= bit
            writers.setdefault(Variable("fallback", None, bit), 0)
            initial[bit] = fallback.kernel.is_fallthrough
    for variable, mask in writers.items():
        members = list(_members(mask))
        name = operators[variable.of][0][1].name if isinstance(variable.of, str) else None
        found[variable] = Dependence(
            tuple(1 << one for one in members),
            {one: one for one in members},
            operator=name,
            kind=(variable.kind, variable.bit & replaceable != 0, initial.get(variable.bit)),
        )
    for text, primitives in operators.items():
        holders = 0
        for index, _ in primitives:
            holders |= 1 << index
        name = primitives[0][1].name
        found[Variable("operator", text)] = Dependence(
            (holders,), dict.fromkeys(_members(holders), True), operator=name, kind="operator"
        )
        for slot, keys in groups.items():
            kind = "slot", names[slot], initial.get(slot)
            found[Variable("slot", text, slot)] = _slot(slot, keys, primitives, fallbacks, holders)._replace(kind=kind)
    return found


_OperatorPrimitive: TypeAlias = RegisterDef | RegisterImpl | RegisterName


def _add(writers: dict[Variable, int], variable: Variable, index: int) -> None:
    writers[variable] = writers.get(variable, 0) | 1 << index


def _members(mask: int) -> Iterator[int]:
    while mask:
        bit = mask & -mask
        mask ^= bit
        yield bit.bit_length() - 1


def _slot(
    slot: int,
    keys: Sequence[int],
    primitives: Iterable[tuple[int, _OperatorPrimitive]],
    fallbacks: Iterable[tuple[int, RegisterFallback]],
    holders: int,
) -> Dependence:
    """A slot: who is in its groups, and what each registration does to it, step by step."""
    groups = [0] * (len(keys) + 2)  # the last two are the fallbacks there
    roles: dict[int, tuple[Hashable, ...]] = {}
    touching, changed, lazy = 0, 0, 0
    unwritten: dict[int, tuple[bool, bool]] = {}

    def happens(index: int, mine: tuple[int, ...], *, written: bool, written_on_release: bool) -> None:
        nonlocal touching, lazy
        event = (mine, written, written_on_release)
        role = roles.get(index, ())
        if not role or role[-1] != event:
            roles[index] = (*role, event)
        if mine or written or written_on_release:
            touching |= 1 << index
        for group in mine:
            groups[group] |= 1 << index
        before, before_on_release = unwritten.get(index, (False, False))
        unwritten[index] = (
            (before or bool(mine)) and not written,
            (before_on_release or bool(mine)) and not (written_on_release),
        )

    for index, primitive in primitives:
        if isinstance(primitive, RegisterImpl):
            mine = tuple(at for at, bits in enumerate(keys) if bits & primitive.bit)
            happens(
                index,
                mine,
                written=bool(primitive.refreshed_on_register & slot),
                written_on_release=bool(primitive.refreshed_on_release & slot),
            )
        else:
            happens(index, (), written=False, written_on_release=False)
    for index, fallback in fallbacks:
        here = fallback.bit == slot
        kind = len(keys) + fallback.entry.kernel.is_fallthrough
        written = bool(fallback.refreshed & slot)
        if here or written:
            happens(index, (kind,) if here else (), written=written, written_on_release=written)
    for index, (register, release) in unwritten.items():
        changed |= 1 << index
        if register or release:
            lazy |= 1 << index
    name = next(primitive.name for _, primitive in primitives)
    mine_only = {index: role for index, role in roles.items() if touching >> index & 1}
    return Dependence(tuple(mask for mask in groups if mask), mine_only, lazy, holders, name)


def values(state: State) -> dict[Hashable, Hashable]:
    """The value of each variable that is there. See Note [What a slot shows]."""
    fallbacks = state.get(FALLBACKS) or NO_FALLBACKS
    assert isinstance(fallbacks, Fallbacks)
    found: dict[Hashable, Hashable] = {("fallback", None, bit): entry for bit, entry in fallbacks.by_slot.items()}
    for replacing in fallbacks.replacing:
        assert replacing.key is not None
        bit = KEY_BIT[replacing.key]
        found["fallback", None, bit] = fallbacks.by_slot.get(bit), fallbacks.replacing
    for variable, value in state.items():
        if not isinstance(value, OperatorEntry):
            if variable is not FALLBACKS:
                found["claim", variable, 0] = value
            continue
        if value.defs:
            found["def", variable, 0] = value.stored, value.defs, value.tags
        if value.names:
            found["names", variable, 0] = frozenset(value.names)
        for bit, kernels in value.kernels.items():
            found["kernels", variable, bit] = kernels
        for held, bits in value.slots.items():
            shown = _standing(held, value, fallbacks)
            while bits:
                bit = bits & -bits
                bits ^= bit
                found["slot", variable, bit] = shown
        found["operator", variable, 0] = True
    return found


def _standing(held: TableEntry, entry: OperatorEntry, fallbacks: Fallbacks) -> Hashable:
    """Where the kernel of a slot stands now."""
    if held is AMBIGUOUS:
        return held.reason
    registered = held.registered
    bit = CATCH_ALL_BIT if registered.key is None else KEY_BIT[registered.key]
    if held.reason is Provenance.FALLBACK:
        return held.reason, fallbacks.by_slot.get(bit) is registered
    kernels = entry.kernels.get(bit, ())
    return held.reason, bit, kernels.index(registered) if registered in kernels else None


def deciders(lowered: Sequence[LoweredRegistration], semantics: Semantics) -> tuple[int, ...]:
    """For each registration those that can make it be refused, itself if it is at fault."""
    masks = [0] * len(lowered)

    def exclude(some: Iterable[int]) -> None:
        mask = 0
        for one in some:
            mask |= 1 << one
        for one in _members(mask):
            masks[one] |= mask

    alone: dict[Hashable, list[int]] = {}
    defs: dict[str, list[tuple[int, RegisterDef]]] = {}
    impls: dict[str, list[tuple[int, RegisterImpl]]] = {}
    for index, one in enumerate(lowered):
        for primitive in one.primitives:
            match primitive:
                case RegisterFallback():
                    if not primitive.replaces or semantics.replaced_fallback_returns:
                        alone.setdefault(primitive.bit, []).append(index)
                case ClaimNamespace():
                    alone.setdefault(primitive.variable, []).append(index)
                case RegisterDef():
                    alone.setdefault(primitive.variable, []).append(index)
                    defs.setdefault(primitive.variable, []).append((index, primitive))
                    if len(primitive.definition.schema.arguments) > MAX_ARGUMENTS:
                        exclude([index])
                case RegisterImpl():
                    impls.setdefault(primitive.variable, []).append((index, primitive))
                case RegisterName():
                    pass
                case _:
                    exclude([index])
    initial = 0
    for fallback in semantics.fallbacks:
        if fallback.key is not None:
            initial |= semantics.slots_of_key(fallback.key)
    for key in semantics.replaceable_fallbacks:
        initial &= ~KEY_BIT[key]
    for place, indices in alone.items():
        if len(indices) > 1 or (isinstance(place, int) and place & initial):
            exclude(indices)
    for name, kernels in impls.items():
        for at, one_def in defs.get(name, ()):
            for index, impl in kernels:
                if _differ(one_def, impl):
                    exclude([at, index])
        if semantics.signature_life is not SignatureLife.NEVER:
            for symint in (False, True):
                signed: dict[str, list[int]] = {}
                for index, impl in kernels:
                    kernel = impl.entry.kernel
                    if kernel.signature is not None and kernel.symint is symint:
                        signed.setdefault(kernel.signature, []).append(index)
                if len(signed) > 1:
                    exclude(index for indices in signed.values() for index in indices)
    return tuple(masks)


def _differ(one: RegisterDef, impl: RegisterImpl) -> bool:
    kernel = impl.entry.kernel
    if kernel.inferred is None:
        return False
    return schema_difference(one.definition.schema, kernel.inferred, symint_kernel=kernel.symint) is not None
