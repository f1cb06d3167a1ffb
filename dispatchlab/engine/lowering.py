"""Lowering: convert a registration to the primitive registrations that a dispatcher makes.

This module decides the content of a library block, by the rules of aten/src/ATen/core/library.cpp; no rule depends on
the state of a dispatcher. `register` and `release` run a lowered registration on a transaction; `initial_state` is what
a dispatcher starts from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from typing import TypeVar

from dispatchlab.engine import refusals
from dispatchlab.engine.kernel import RegisteredKernel
from dispatchlab.engine.operator_entry import Definition
from dispatchlab.engine.primitives import (
    Compound,
    Primitive,
    Refused,
    RegisterClaim,
    RegisterDef,
    RegisterFallback,
    RegisterImpl,
    RegisterName,
)
from dispatchlab.engine.semantics import SEMANTICS, Semantics
from dispatchlab.engine.state import FALLBACKS, NamespaceVariable, PythonVariable, State, StateVariable, Transaction
from dispatchlab.errors import ErrorKind, RegistrationError
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Block, BlockKind, Claim, Def, Fallback, Impl, NameOnly, Registration
from dispatchlab.model.schema import FunctionSchema, clone_with_name


class LoweredRegistration:
    """The actions of a dispatcher for one registration.

    Args:
        primitives: all that it makes, in the order in which they are made and released; a def with a kernel, and a
            fallback at an alias key, are several.
        is_block: whether they belong to a library that is destroyed if one of them is refused.
    """

    __slots__ = ("is_block", "primitives")

    def __init__(self, primitives: Iterable[Primitive], *, is_block: bool = False) -> None:
        self.primitives = tuple(primitives)
        self.is_block = is_block

    def __repr__(self) -> str:
        return f"<LoweredRegistration {', '.join(type(primitive).__name__ for primitive in self.primitives)}>"

    def plain(self) -> Iterator[Primitive]:
        """Return its primitives; for a primitive of `torch.library`, those that it may make in the dispatcher."""
        for primitive in self.primitives:
            if isinstance(primitive, Compound):
                yield from primitive.plain
            else:
                yield primitive

    def written_variables(self) -> frozenset[StateVariable]:
        """Return the state variables that it writes by name; a fallback also reaches every operator."""
        variables: set[StateVariable] = set()
        for primitive in self.primitives:
            match primitive:
                case RegisterFallback():
                    variables.add(FALLBACKS)
                case RegisterClaim() | RegisterDef() | RegisterImpl() | RegisterName() | Compound():
                    variables.add(primitive.variable)
                case _:
                    pass
        # A look at an operator sees what Python keeps for it, too.
        return frozenset({*variables, *(each.operator for each in variables if isinstance(each, PythonVariable))})


def register(semantics: Semantics, state: Transaction, lowered: LoweredRegistration) -> None:
    """Make all its registrations, or if one is refused, those that Note [Traces of a refusal] names.

    Raises:
        RegistrationError: a registration is refused.
    """
    done = 0
    try:
        for primitive in lowered.primitives:
            primitive.register(semantics, state)
            done += 1
    except RegistrationError:
        if lowered.is_block and semantics.refusal_leaves_traces:
            for primitive in lowered.primitives[: done + 1]:  # one of torch.library may have made a part
                primitive.release(semantics, state)
        raise


def release(semantics: Semantics, state: Transaction, lowered: LoweredRegistration) -> None:
    """Undo a lowered registration in the order of registration, as a library does."""
    for primitive in lowered.primitives:
        primitive.release(semantics, state)


def lower(registration: Registration, semantics: Semantics) -> LoweredRegistration:
    """Return the primitives of a registration, with a refusal in place of one that breaks a rule of blocks."""
    match registration:
        case Block(made_by=made):
            kept = semantics.torch_library and made is not None and str(made.function) == "custom_op"  # by name
            return LoweredRegistration(chain.from_iterable(_block_calls(registration, semantics)), is_block=not kept)
        case Claim():
            return LoweredRegistration([RegisterClaim(NamespaceVariable(registration.namespace), registration.debug)])
        case NameOnly():
            return LoweredRegistration([RegisterName(registration.operator)])
        case Def():
            return LoweredRegistration(_guarded(_def_call, registration, semantics))
        case Impl():
            return LoweredRegistration(_guarded(_impl_call, registration, semantics))
        case Fallback():
            return LoweredRegistration(_guarded(_fallback_call, registration, semantics))


def lower_inside(block: Block, registration: Def | Impl | Fallback, semantics: Semantics) -> LoweredRegistration:
    """Return the primitives of a registration in a block that is open already."""
    return LoweredRegistration(_guarded(_Inside(block), registration, semantics))


R = TypeVar("R")


def _guarded(
    make: Callable[[R, Semantics], tuple[Primitive, ...]], registration: R, semantics: Semantics
) -> tuple[Primitive, ...]:
    """Return a call, or its refusal as a primitive at the same position."""
    try:
        return make(registration, semantics)
    except RegistrationError as error:
        return (Refused(error),)


def _known(key: DispatchKey | None, semantics: Semantics) -> DispatchKey | None:
    """Return the key as a registration reads it: `Undefined` means "no key"."""
    if key is None or key == DispatchKey.Undefined:
        return None
    if key not in semantics.keys:
        raise refusals.unknown_key(key, semantics.name)
    return key


def _def_call(registration: Def, semantics: Semantics) -> tuple[Primitive, ...]:
    schema, kernel, name = registration.schema, registration.kernel, registration.operator
    if isinstance(schema, OperatorName):
        inferred = kernel.inferred if kernel is not None else None
        if inferred is None:
            raise refusals.refuse(
                ErrorKind.CANNOT_INFER_SCHEMA,
                f"the def of {name} gives a name alone and {'its kernel has no schema' if kernel else 'no kernel'} to "
                "infer one from: write the schema, or register a kernel whose arguments are typed",
                operator=str(name),
            )
        schema = clone_with_name(inferred, name)
    definition = Definition(schema, registration.alias, registration.tags, registration.debug, registration.location)
    call: tuple[Primitive, ...] = (RegisterDef(definition),)
    own = registration.own_impl
    if own is not None:
        call += _impl_call(own, semantics)
    return call


def _impl_call(registration: Impl, semantics: Semantics) -> tuple[Primitive, ...]:
    key = _known(registration.key, semantics)
    stored_key = key if key is not None or semantics.catch_all else DispatchKey.CompositeImplicitAutograd
    entry = RegisteredKernel(registration.kernel, registration.debug, stored_key, registration.location)
    return (RegisterImpl(registration.operator, entry, semantics, with_key=key is not None),)


def _fallback_call(registration: Fallback, semantics: Semantics) -> tuple[Primitive, ...]:
    key = _known(registration.key, semantics)
    if key is None:
        raise refusals.refuse(
            ErrorKind.FALLBACK_WITHOUT_KEY,
            "a fallback serves one dispatch key and this one names none: name it with `dispatch`",
            debug=registration.debug,
        )
    keys = semantics.keys_in(semantics.slots_of_key(key))
    if not keys and not semantics.fallback_without_slot:
        raise refusals.refuse(
            ErrorKind.UNKNOWN_KEY,
            f"{key} has no slot of its own, so no operator can fall back to a kernel there: name its instance for one "
            f"backend, such as {key.name.removesuffix('Functionality') if key.name != 'Dense' else ''}CPU",
            key=str(key),
        )
    kernel = registration.kernel
    return tuple(
        RegisterFallback(k, RegisteredKernel(kernel, registration.debug, k, registration.location), semantics)
        for k in keys
    )


def _block_calls(block: Block, semantics: Semantics) -> Iterator[tuple[Primitive, ...]]:
    shown = block.namespace or "_"
    facts = {"block": f"{block.kind} {shown}"}
    key = None if block.key == DispatchKey.Undefined else block.key
    if key is not None and key not in semantics.keys:
        yield (Refused(refusals.unknown_key(key, semantics.name)),)
        return
    if block.kind in (BlockKind.DEF, BlockKind.FRAGMENT):
        if block.namespace is None:
            needs = f"a {block.kind} library defines operators and so needs a namespace"
            text = f"{needs}; the wildcard _ is for IMPL libraries"
            yield (Refused(refusals.refuse(ErrorKind.WILDCARD_NAMESPACE, text, block=f"{block.kind} _")),)
            return
        if block.kind is BlockKind.DEF:
            yield (RegisterClaim(NamespaceVariable(block.namespace), block.debug),)
        if key is not None:
            message = (
                f"a {block.kind} library has no dispatch key and {shown} names {key}: give each impl its key, or use "
                "an IMPL library"
            )
            yield (Refused(RegistrationError(ErrorKind.KEY_ON_DEF_BLOCK, message, facts | {"key": str(key)})),)
            return
    content = [_guarded(_Inside(block), inner, semantics) for inner in block.registrations]
    if block.made_by is not None and semantics.torch_library:
        from dispatchlab.engine.torch_library import torch_library_primitives  # costs start-up, and few calls are so

        inner = [*chain.from_iterable(content)]
        yield tuple(torch_library_primitives(block, block.made_by, inner, notes=semantics.notes_kernels))
    else:
        yield from content


@dataclass(frozen=True, slots=True)
class _Inside:
    """The call that a registration makes inside a block."""

    block: Block

    def __call__(self, registration: Def | Impl | Fallback, semantics: Semantics) -> tuple[Primitive, ...]:
        key = _known(registration.key, semantics)  # a key is read before the call is made
        match registration:
            case Def():
                return _def_call(self._def(registration, semantics), semantics)
            case Impl():
                return _impl_call(self._impl(registration, key, semantics), semantics)
            case Fallback():
                return _fallback_call(self._fallback(registration, key), semantics)

    @property
    def _shown(self) -> str:
        return f"{self.block.kind} {self.block.namespace or '_'}"

    @property
    def _own_key(self) -> DispatchKey | None:
        return None if self.block.key == DispatchKey.Undefined else self.block.key

    def _named(self, name: OperatorName, semantics: Semantics) -> OperatorName:
        block = self.block
        if not name.namespace:
            if block.namespace is None:
                raise refusals.refuse(
                    ErrorKind.UNQUALIFIED_NAME,
                    f"{name} stands in the library {self._shown}, which has no namespace to give it: write ns::{name}",
                    block=self._shown,
                    operator=str(name),
                )
            return name.within(block.namespace)
        matches_all = block.namespace is None and semantics.kernels_in_wildcard_block
        if block.kind is not BlockKind.IMPORT and not matches_all and name.namespace != block.namespace:
            raise refusals.refuse(
                ErrorKind.NAMESPACE_MISMATCH,
                f"{name} stands in the library {self._shown}: leave its namespace out, or open a library for "
                f"{name.namespace}",
                block=self._shown,
                namespace=name.namespace,
                block_namespace=block.namespace or "_",
            )
        return name

    def _def(self, registration: Def, semantics: Semantics) -> Def:
        if self.block.kind is BlockKind.IMPL:
            raise refusals.refuse(
                ErrorKind.DEF_IN_IMPL_BLOCK,
                f"{registration.operator} is defined in the library {self._shown}, which only holds kernels: define it "
                "in a DEF or FRAGMENT library",
                block=self._shown,
                operator=str(registration.operator),
            )
        name = self._named(registration.operator, semantics)
        schema = registration.schema
        named = clone_with_name(schema, name) if isinstance(schema, FunctionSchema) else name
        return replace(registration, schema=named, debug=registration.debug or self.block.debug)

    def _impl(self, registration: Impl, key: DispatchKey | None, semantics: Semantics) -> Impl:
        name, own = self._named(registration.operator, semantics), self._own_key
        if key is not None and own is not None and key != own:
            raise refusals.refuse(
                ErrorKind.KEY_MISMATCH,
                f"the impl names {key} and stands in a library for {own}: leave the key out, or open another library",
                block=self._shown,
                key=str(key),
                block_key=str(own),
            )
        return replace(registration, operator=name, key=key or own, debug=registration.debug or self.block.debug)

    def _fallback(self, registration: Fallback, key: DispatchKey | None) -> Fallback:
        block = self.block
        if block.kind not in (BlockKind.IMPL, BlockKind.IMPORT):
            raise refusals.refuse(
                ErrorKind.FALLBACK_OUTSIDE_IMPL,
                f"a fallback is for all operators and stands in the library {self._shown}: put it into an IMPL library "
                "of the wildcard namespace _",
                block=self._shown,
            )
        key = key or self._own_key
        if key is not None and block.namespace is not None:
            raise refusals.refuse(
                ErrorKind.FALLBACK_WITH_NAMESPACE,
                f"a fallback is for the operators of all namespaces and stands in the library {self._shown}: use the "
                "wildcard namespace _",
                block=self._shown,
            )
        return replace(registration, key=key, debug=registration.debug or block.debug)


def initial_state(semantics: Semantics, fallbacks: Sequence[Fallback]) -> State:
    """Return the state of a fresh dispatcher with these fallbacks; do not change it."""
    if fallbacks and fallbacks is semantics.builtin_fallbacks and SEMANTICS.get(semantics.name) is semantics:
        return _with_builtin_fallbacks(semantics.name)
    if not fallbacks:
        return {}
    global _loaded  # one assignment of one value, so that threads may do this at once
    for of, by, state in _loaded:
        if of is semantics and by is fallbacks:
            return state
    state = _load(semantics, fallbacks)
    _loaded = ((semantics, fallbacks, state), *_loaded[:1])
    return state


_loaded: tuple[tuple[Semantics, Sequence[Fallback], State], ...] = ()
"""The last ones: very many spaces of one semantics are made in a row."""


@cache
def _with_builtin_fallbacks(name: str) -> State:
    return _load(SEMANTICS[name], SEMANTICS[name].builtin_fallbacks)


def _load(semantics: Semantics, fallbacks: Sequence[Fallback]) -> State:
    transaction = Transaction({}, set())
    from_within = replace(semantics, keys=frozenset(DispatchKey))  # a dispatcher's own code can name every key
    for fallback in fallbacks:
        register(from_within, transaction, lower(fallback, from_within))
    return {FALLBACKS: transaction.fallbacks().shipped()} if transaction.changes else {}
