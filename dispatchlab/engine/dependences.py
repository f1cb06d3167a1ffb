"""Dependences of each part of an operator's state, read from the tables of a semantics.

The explorer builds neighbourhoods from them, and checks them at every visited state: see docs/proof.md.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from dispatchlab.engine.fallbacks import NO_FALLBACKS, Fallbacks
from dispatchlab.engine.kernel import AMBIGUOUS, TableEntry
from dispatchlab.engine.lowering import LoweredRegistration
from dispatchlab.engine.operator_entry import OperatorEntry
from dispatchlab.engine.primitives import (
    Primitive,
    RegisterClaim,
    RegisterDef,
    RegisterFallback,
    RegisterImpl,
    RegisterName,
    mismatch,
)
from dispatchlab.engine.refusals import MAX_ARGUMENTS
from dispatchlab.engine.semantics import Semantics, SignatureLife
from dispatchlab.engine.state import FALLBACKS, NamespaceVariable, PythonState, PythonVariable, State
from dispatchlab.engine.torch_library import Note, TorchLibraryPrimitive
from dispatchlab.model.dependence import Dependence
from dispatchlab.model.dump_format import Provenance, key_text
from dispatchlab.model.names import OperatorName
from dispatchlab.model.slot_set import CATCH_ALL_BIT, KEY_BIT, KEY_OF_BIT, set_bits

# Note [What a slot shows]
# ~~~~~~~~~~~~~~~~~~~~~~~~
# The value of a slot is not the kernel that it holds but where that kernel stands now: at which key, as the newest
# there, the second newest, or no more at all. So a slot that was refreshed has a value that depends on which keys have
# kernels alone; whose kernel it is follows from the list of that key, which is a variable of its own. A slot that
# was not refreshed when a newer kernel came shows another value.
#
# Note [What a refusal writes]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# Under semantics with `refusal_leaves_traces`, a registration that is refused has made some of its primitives already.
# Everything that it writes when it is accepted counts as written then, if one of its later primitives can be refused.
# Of a primitive that is refused itself, two leave something: a def with too many arguments makes the operator, and a
# kernel that does not fit a def has its signature stored.


class Variable(NamedTuple):
    """A part of the state; `values` has plain tuples, which are equal.

    Args:
        kind: the kind of variable.
        of: the operator, or the claimed namespace.
        bit: the key or the slot.
    """

    kind: str
    of: str | NamespaceVariable | RegisterName | None = None
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
            case Variable("name", RegisterName() as of):
                return f"the name {of.variable}"
            case _:
                return f"the {self.kind} of {self.of}"


def dependences(lowered: Sequence[LoweredRegistration], semantics: Semantics) -> Mapping[Hashable, Dependence] | str:
    """Return the dependences of each variable that these registrations can change; or why they are not known."""
    groups = semantics.precedence.plain.groups
    if groups is None:
        return f"the semantics {semantics.name} do not say which keys decide about which slots"
    for one in lowered:
        for primitive in one.primitives:
            if isinstance(primitive, Note):
                return f"allow_override goes by what torch.library notes of {primitive.place}, which is not taken apart"
            if isinstance(primitive, TorchLibraryPrimitive):
                return f"{primitive.call.function} {primitive.name} goes by what Python keeps, which is not taken apart"
    found: dict[Hashable, Dependence] = {}
    writers: dict[Variable, int] = {}
    operators: dict[str, list[tuple[int, _OperatorPrimitive]]] = {}
    fallbacks: list[tuple[int, RegisterFallback]] = []
    last = _refusals(lowered, semantics).last

    def traces(mask: int) -> int:
        """Return the registrations that made something although they were refused."""
        if not semantics.refusal_leaves_traces:
            return 0
        return sum(1 << index for index in set_bits(mask) if last[index] > 0)

    for index, one in enumerate(lowered):
        for primitive in one.primitives:
            match primitive:
                case RegisterFallback():
                    fallbacks.append((index, primitive))
                    _add(writers, Variable("fallback", None, primitive.bit), index)
                case RegisterClaim():
                    _add(writers, Variable("claim", primitive.variable), index)
                case RegisterDef():
                    _add(writers, Variable("def", primitive.variable), index)
                    operators.setdefault(primitive.variable, []).append((index, primitive))
                case RegisterName():
                    found[Variable("name", primitive)] = Dependence(
                        (1 << index,), {index: True}, operator=primitive.name, traces=traces(1 << index)
                    )
                    operators.setdefault(primitive.variable, []).append((index, primitive))
                case RegisterImpl():
                    _add(writers, Variable("kernels", primitive.variable, primitive.bit), index)
                    operators.setdefault(primitive.variable, []).append((index, primitive))
                case _:
                    pass  # always refused, see `deciders`
    for fallback in semantics.fallbacks:
        for bit in set_bits(0 if fallback.key is None else semantics.slots_of_key(fallback.key)):
            writers.setdefault(Variable("fallback", None, 1 << bit), 0)
    for variable, mask in writers.items():
        members = list(set_bits(mask))
        name = operators[variable.of][0][1].name if isinstance(variable.of, str) else None
        found[variable] = Dependence(
            tuple(1 << member for member in members),
            {member: member for member in members},
            operator=name,
            traces=traces(mask),
            is_list=variable.kind == "kernels",
        )
    for text, primitives in operators.items():
        holders = created = 0
        for index, primitive in primitives:
            holders |= 1 << index
            if semantics.refusal_leaves_traces and _has_too_many_arguments(primitive):
                created |= 1 << index
        created |= traces(holders)
        name = primitives[0][1].name
        found[Variable("operator", text)] = Dependence(
            (holders,), dict.fromkeys(set_bits(holders), True), operator=name, traces=created
        )
        for slot, keys in groups.items():
            one_slot = _slot(slot, keys, primitives, fallbacks, holders)
            role_mask = sum(1 << index for index in one_slot.roles)
            found[Variable("slot", text, slot)] = one_slot._replace(traces=created | traces(role_mask))
        found |= _hidden(text, primitives, holders, semantics, traces)
    return found


def _hidden(
    text: str,
    primitives: Sequence[tuple[int, _OperatorPrimitive]],
    holders: int,
    semantics: Semantics,
    traces: Callable[[int], int],
) -> Mapping[Hashable, Dependence]:
    """Return the dependences of variables that outlive their registrations. See Note [What a refusal writes]."""
    name = primitives[0][1].name
    found: dict[Hashable, Dependence] = {}
    if semantics.signature_life is SignatureLife.OPERATOR:
        for symint, kind in enumerate(_SIGNATURES):
            signed = {
                index: True
                for index, primitive in primitives
                if isinstance(primitive, RegisterImpl)
                and primitive.held is not None
                and primitive.entry.kernel.symint == symint
            }
            if signed:
                members = sum(1 << index for index in signed)
                found[Variable(kind, text)] = _outliving(signed, holders, name, members)
    if semantics.tags_outlive_def:
        tagged = {index: True for index, primitive in primitives if isinstance(primitive, RegisterDef)}
        if tagged:
            members = traces(sum(1 << index for index in tagged))
            found[Variable("tags", text)] = _outliving(tagged, holders, name, members)
    return found


def _outliving(roles: Mapping[int, Hashable], holders: int, name: OperatorName, traces: int) -> Dependence:
    return Dependence((), roles, holders=holders, operator=name, traces=traces, is_hidden=True)


_SIGNATURES = ("signature", "symbolic signature")
_OperatorPrimitive: TypeAlias = RegisterDef | RegisterImpl | RegisterName


def _add(writers: dict[Variable, int], variable: Variable, index: int) -> None:
    writers[variable] = writers.get(variable, 0) | 1 << index


def _slot(
    slot: int,
    keys: Sequence[int],
    primitives: Iterable[tuple[int, _OperatorPrimitive]],
    fallbacks: Iterable[tuple[int, RegisterFallback]],
    holders: int,
) -> Dependence:
    """Return a slot: its groups, and the effect of each registration on it, step by step."""
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
    """Return the value of each variable that exists. See Note [What a slot shows]."""
    fallbacks = state.get(FALLBACKS) or NO_FALLBACKS
    assert isinstance(fallbacks, Fallbacks)
    found: dict[Hashable, Hashable] = {("fallback", None, bit): entry for bit, entry in fallbacks.by_slot.items()}
    for replacing in fallbacks.replacing:
        assert replacing.key is not None
        bit = KEY_BIT[replacing.key]
        found["fallback", None, bit] = fallbacks.by_slot.get(bit), fallbacks.replacing
    for variable, value in state.items():
        if not isinstance(value, OperatorEntry):
            if isinstance(variable, PythonVariable):
                assert isinstance(value, PythonState)
                found |= {("python", variable.operator, key): entries for key, entries in value.entries}
            elif variable is not FALLBACKS:
                found["claim", variable, 0] = value
            continue
        if value.defs:
            found["def", variable, 0] = value.stored, value.defs, value.tags
        elif value.tags:
            found["tags", variable, 0] = value.tags
        for kind, held_signature in zip(_SIGNATURES, value.signatures, strict=True):
            if held_signature is not None:
                found[kind, variable, 0] = held_signature
        for name in value.names:
            found["name", name, 0] = True
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
    """Return the present position of a slot's kernel."""
    if held is AMBIGUOUS:
        return held.reason
    registered = held.registered
    bit = CATCH_ALL_BIT if registered.key is None else KEY_BIT[registered.key]
    if held.reason is Provenance.FALLBACK:
        return held.reason, fallbacks.by_slot.get(bit) is registered
    kernels = entry.kernels.get(bit, ())
    return held.reason, bit, kernels.index(registered) if registered in kernels else None


def deciders(lowered: Sequence[LoweredRegistration], semantics: Semantics) -> tuple[int, ...]:
    """Return, for each registration, those that can cause its refusal; itself if it is wrong alone."""
    return _refusals(lowered, semantics).deciders


class _Refusals(NamedTuple):
    """The registrations that may be refused.

    Args:
        deciders: for each registration, those that can cause its refusal.
        last: for each registration the last of its primitives that can be refused; -1 when none can.
    """

    deciders: tuple[int, ...]
    last: tuple[int, ...]


def _refusals(lowered: Sequence[LoweredRegistration], semantics: Semantics) -> _Refusals:
    masks, last = [0] * len(lowered), [-1] * len(lowered)

    def exclude(some: Iterable[tuple[int, int]]) -> None:
        mask = 0
        for one, at in some:
            mask |= 1 << one
            last[one] = max(last[one], at)
        for one in set_bits(mask):
            masks[one] |= mask

    alone: dict[Hashable, list[tuple[int, int]]] = {}
    defs: dict[str, list[tuple[tuple[int, int], RegisterDef]]] = {}
    impls: dict[str, list[tuple[tuple[int, int], RegisterImpl]]] = {}
    for index, one in enumerate(lowered):
        for at, primitive in enumerate(one.primitives):
            here = index, at
            match primitive:
                case RegisterFallback():
                    if not primitive.replaces or semantics.replaced_fallback_returns:
                        alone.setdefault(primitive.bit, []).append(here)
                case RegisterClaim():
                    alone.setdefault(primitive.variable, []).append(here)
                case RegisterDef():
                    alone.setdefault(primitive.variable, []).append(here)
                    defs.setdefault(primitive.variable, []).append((here, primitive))
                    if _has_too_many_arguments(primitive):
                        exclude([here])
                case RegisterImpl():
                    impls.setdefault(primitive.variable, []).append((here, primitive))
                case RegisterName():
                    pass
                case _:
                    exclude([here])
    initial = 0
    for fallback in semantics.fallbacks:
        if fallback.key is not None:
            initial |= semantics.slots_of_key(fallback.key)
    for key in semantics.replaceable_fallbacks:
        initial &= ~KEY_BIT[key]
    for place, some in alone.items():
        if len(some) > 1 or (isinstance(place, int) and place & initial):
            exclude(some)
    for name, kernels in impls.items():
        for defined, one_def in defs.get(name, ()):
            for here, impl in kernels:
                if mismatch(one_def.definition, impl.entry) is not None:
                    exclude([defined, here])
        if semantics.signature_life is not SignatureLife.NEVER:
            for symint in (False, True):
                signed: dict[str, list[tuple[int, int]]] = {}
                for here, impl in kernels:
                    kernel = impl.entry.kernel
                    if kernel.signature is not None and kernel.symint is symint:
                        signed.setdefault(kernel.signature, []).append(here)
                if len(signed) > 1:
                    exclude(here for some in signed.values() for here in some)
    return _Refusals(tuple(masks), tuple(last))


def _has_too_many_arguments(primitive: Primitive) -> bool:
    return isinstance(primitive, RegisterDef) and len(primitive.definition.schema.arguments) > MAX_ARGUMENTS
