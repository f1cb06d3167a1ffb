"""Primitive registrations, which a dispatcher makes: def, impl, fallback, name, claim. Each can be undone.

A primitive is made once for each registration and identifies it: its entries in the state can be found and
removed again by `is`. The order of the checks is upstream's (aten/src/ATen/core/dispatch/Dispatcher.cpp and
OperatorEntry.cpp).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

from dispatchlab.engine import refusals
from dispatchlab.engine.fallbacks import Fallbacks
from dispatchlab.engine.kernel import RegisteredKernel
from dispatchlab.engine.operator_entry import Definition, HeldSignature, OperatorEntry, Stored
from dispatchlab.engine.semantics import Semantics, SignatureLife
from dispatchlab.engine.state import FALLBACKS, NamespaceVariable, Transaction
from dispatchlab.errors import RegistrationError
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.schema_difference import schema_difference
from dispatchlab.model.slot_set import CATCH_ALL_BIT, KEY_BIT

# Note [Traces of a refusal]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~
# PyTorch writes before it has checked everything: a def makes the operator's entry and may then be refused, a kernel's
# signature is stored and the kernel then refused for its schema. The primitives below write in upstream's order, into a
# transaction. Their caller drops the transaction when a registration is refused, so that no trace is left, or
# keeps it under semantics with `refusal_leaves_traces`.


class Primitive(Protocol):
    """One registration that a dispatcher makes."""

    def register(self, semantics: Semantics, state: Transaction, /) -> None:
        """Write it into `state`; raise a RegistrationError, with the traces written so far."""

    def release(self, semantics: Semantics, state: Transaction, /) -> None:
        """Remove it from `state`, if it is registered there."""


class Compound:
    """A step of a call of `torch.library`, which may make others.

    Args:
        name: the operator that it is about.
        plain: the registrations that it may make in the dispatcher.
    """

    __slots__ = ("name", "plain", "variable")

    def __init__(self, name: OperatorName, plain: Sequence[Primitive]) -> None:
        self.name = name
        self.variable = str(name)
        self.plain = tuple(plain)

    def release(self, semantics: Semantics, state: Transaction) -> None:
        """Release the caller's registrations."""
        for primitive in self.plain:
            primitive.release(semantics, state)


class Refused:
    """A registration that is refused in every state, in its place among the others."""

    __slots__ = ("error",)

    def __init__(self, error: RegistrationError) -> None:
        self.error = error

    def register(self, semantics: Semantics, state: Transaction) -> None:
        """Raises the error."""
        raise self.error.with_traceback(None)

    def release(self, semantics: Semantics, state: Transaction) -> None:
        """Do nothing, because it was never registered."""


class RegisterClaim:
    """A library's claim of its namespace."""

    __slots__ = ("debug", "variable")

    def __init__(self, variable: NamespaceVariable, debug: str) -> None:
        self.variable = variable
        self.debug = debug

    def __repr__(self) -> str:
        return f"RegisterClaim({self.variable!r}, {self.debug!r})"

    def register(self, semantics: Semantics, state: Transaction) -> None:
        """Claim the namespace; refused while another claim is in force."""
        claimed = state.get(self.variable)
        if isinstance(claimed, RegisterClaim):
            raise refusals.duplicate_library(self.variable.namespace, claimed.debug, self.debug)
        state.put(self.variable, self)

    def release(self, semantics: Semantics, state: Transaction) -> None:
        """Release the claim."""
        if state.get(self.variable) is self:
            state.put(self.variable, None)


def find_or_create(semantics: Semantics, state: Transaction, name: OperatorName, variable: str) -> OperatorEntry:
    """Return the entry of an operator; a new entry has the backend fallbacks in its slots."""
    entry = state.operator(variable)
    if entry is None:
        entry = OperatorEntry(name).refreshed(semantics.precedence.slots, semantics.precedence.fill, state.fallbacks())
        state.put(variable, entry)
    return entry


def _leave(state: Transaction, variable: str, entry: OperatorEntry) -> None:
    state.put(variable, None if entry.is_unused else entry)


class RegisterName:
    """Keeps an operator's entry alive."""

    __slots__ = ("name", "variable")

    def __init__(self, name: OperatorName) -> None:
        self.name = name
        self.variable = str(name)

    def register(self, semantics: Semantics, state: Transaction) -> None:
        """Register; PyTorch never refuses this."""
        entry = find_or_create(semantics, state, self.name, self.variable)
        state.put(self.variable, entry._replace(names=(*entry.names, self)))

    def release(self, semantics: Semantics, state: Transaction) -> None:
        """Release a registration; the last one of an operator removes the operator."""
        entry = state.operator(self.variable)
        if entry is not None and self in entry.names:
            _leave(state, self.variable, entry._replace(names=tuple(name for name in entry.names if name is not self)))


@lru_cache(maxsize=1 << 12)
def mismatch(definition: Definition, kernel: RegisteredKernel) -> str | None:
    """Return why a kernel does not fit a def; both are compared by identity, so a pair is checked once."""
    inferred = kernel.kernel.inferred
    if inferred is None:
        return None
    difference = schema_difference(definition.schema, inferred, symint_kernel=kernel.kernel.symint)
    return None if difference is None else difference.reason


class RegisterDef:
    """A def."""

    __slots__ = ("definition", "name", "stored", "variable")

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.stored = Stored(definition.schema, definition.alias, definition.debug)
        self.name = definition.schema.name
        self.variable = str(self.name)

    def register(self, semantics: Semantics, state: Transaction) -> None:
        """Register, unless another def, an unfit kernel, or too many arguments for a bitset refuse it."""
        entry = find_or_create(semantics, state, self.name, self.variable)
        new = self.definition
        stored = self.stored
        if entry.defs:
            assert entry.stored is not None
            if not semantics.several_defs:
                raise refusals.duplicate_def(self.name, entry.stored, new)
            stored = _merged(self.name, entry.stored, new)
        else:
            if any(mismatch(new, kernel) is not None for kernels in entry.kernels.values() for kernel in kernels):
                raise self._mismatched(entry, semantics)
            count = len(new.schema.arguments)
            if count > refusals.MAX_ARGUMENTS:
                raise refusals.too_many_arguments(self.name, count)
        tags = entry.tags | new.tags if entry.defs else new.tags
        state.put(self.variable, entry._replace(stored=stored, defs=(*entry.defs, new), tags=tags))

    def _mismatched(self, entry: OperatorEntry, semantics: Semantics) -> RegistrationError:
        """Return the refusal for the first kernel, in the order of a dump, that does not fit."""
        new = self.definition
        unfit = [(kernel, mismatch(new, kernel)) for kernel in _in_dump_order(entry, semantics)]
        (kernel, reason), *others = [(kernel, reason) for kernel, reason in unfit if reason is not None]
        inferred = kernel.kernel.inferred
        assert inferred is not None
        return refusals.schema_mismatch(self.name, new.schema, new.debug, inferred, kernel, reason, others=len(others))

    def release(self, semantics: Semantics, state: Transaction) -> None:
        """Release a def; the last def removes the schema."""
        entry = state.operator(self.variable)
        if entry is None or self.definition not in entry.defs:
            return
        defs = tuple(definition for definition in entry.defs if definition is not self.definition)
        tags = entry.tags
        if not semantics.tags_outlive_def:
            tags = frozenset().union(*(definition.tags for definition in defs))
        stored = entry.stored if defs else None
        if not defs:
            kept = state.python(self.variable)
            if kept.entries and (left := kept.without_overload()) != kept:
                state.put_python(self.variable, left)
        _leave(state, self.variable, entry._replace(stored=stored, defs=defs, tags=tags))


def _merged(name: OperatorName, stored: Stored, new: Definition) -> Stored:
    """Return the schema that an operator keeps when it is defined again, as PR #35061 allows it."""
    if stored.schema != new.schema:
        raise refusals.schema_conflict(name, stored, new)
    if new.alias is not None and new.alias != stored.alias:
        raise refusals.alias_kind_conflict(name, stored, new)
    return stored


def _in_dump_order(entry: OperatorEntry, semantics: Semantics) -> Sequence[RegisteredKernel]:
    """Return every kernel, also inactive ones, in an order that does not depend on the history."""
    bits = sorted(entry.kernels, key=semantics.dump_order.__getitem__)
    return [kernel for bit in bits for kernel in entry.kernels[bit]]


class RegisterImpl:
    """A kernel of an operator."""

    __slots__ = (
        *("_alone", "_inferred", "_signature", "bit", "entry", "held", "name"),
        *("refreshed_on_register", "refreshed_on_release", "variable"),
    )

    def __init__(self, name: OperatorName, kernel: RegisteredKernel, semantics: Semantics, *, with_key: bool) -> None:
        """`with_key` is false for a kernel that named no key and went to `kernel.key` for it."""
        key = kernel.key
        self.name = name
        self.variable = str(name)
        self.entry = kernel
        self.bit = CATCH_ALL_BIT if key is None else KEY_BIT[key]
        every = semantics.precedence.slots
        self.refreshed_on_release = every if key is None else semantics.released[key]
        if key is None or (semantics.full_refresh_without_key and not with_key):
            self.refreshed_on_register = every
        else:
            self.refreshed_on_register = semantics.refresh[key]
        self.held: HeldSignature | None = None  # what the operator keeps of the signature
        self._signature: str | None = None  # else what it is compared by, as long as the kernel is there
        if kernel.kernel.signature is not None and semantics.signature_life is SignatureLife.OPERATOR:
            self.held = HeldSignature(kernel.kernel.signature, kernel.debug, refusals.key_text(key))
        elif semantics.signature_life is SignatureLife.KERNEL:
            self._signature = kernel.kernel.signature
        self._alone: tuple[RegisteredKernel, ...] = (kernel,)
        self._inferred = kernel.kernel.inferred

    def register(self, semantics: Semantics, state: Transaction) -> None:
        """Register, unless another signature or the schema refuses it."""
        entry = state.operator(self.variable) or find_or_create(semantics, state, self.name, self.variable)
        if self.held is not None and (noted := self._noted_in(entry, self.held)) is not entry:
            state.put(self.variable, noted)  # before the schema is checked, see Note [Traces of a refusal]
        state.put(self.variable, self.added_to(entry, semantics, state.fallbacks()))

    def release(self, semantics: Semantics, state: Transaction) -> None:
        """Release it; the newest kernel left is active, and the last registration takes the operator along."""
        entry = state.operator(self.variable)
        if entry is not None and self.entry in entry.kernels_at(self.bit):
            state.put(self.variable, self.taken_from(entry, semantics, state.fallbacks()))

    def added_to(self, entry: OperatorEntry, semantics: Semantics, fallbacks: Fallbacks) -> OperatorEntry:
        """Return an entry with this kernel, or raise a RegistrationError."""
        new = self.entry
        if self.held is not None:
            entry = self._noted_in(entry, self.held)
        elif self._signature is not None and not _agrees(entry, self._signature, new.kernel.symint):
            raise refusals.signature_mismatch(self.name, self._other_signature(entry, semantics), new)
        defs = entry.defs
        if defs and self._inferred is not None and (reason := mismatch(defs[0], new)) is not None:
            stored = entry.stored
            assert stored is not None
            raise refusals.schema_mismatch(self.name, stored.schema, stored.debug, self._inferred, new, reason)
        others = entry.kernels.get(self.bit)
        kernels = (new, *others) if others else self._alone
        return entry.with_kernels(self.bit, kernels, self.refreshed_on_register, semantics.precedence.fill, fallbacks)

    def taken_from(self, entry: OperatorEntry, semantics: Semantics, fallbacks: Fallbacks) -> OperatorEntry | None:
        """Return an entry without this kernel; None if it has no other registrations."""
        before = entry.kernels.get(self.bit, ())
        left: tuple[RegisteredKernel, ...] = ()
        if before is not self._alone:
            if self.entry not in before:
                return entry
            left = tuple([kernel for kernel in before if kernel is not self.entry])
        if not left and entry.present == self.bit and not (entry.defs or entry.names):
            return None  # nothing else is registered
        return entry.with_kernels(self.bit, left, self.refreshed_on_release, semantics.precedence.fill, fallbacks)

    def _noted_in(self, entry: OperatorEntry, mine: HeldSignature) -> OperatorEntry:
        """Return the entry with this kernel's signature noted, if it agrees with the signature to compare with."""
        symint = self.entry.kernel.symint
        held = entry.signatures[symint]
        if held is None:
            plain, with_symint = entry.signatures
            return entry._replace(signatures=(plain, mine) if symint else (mine, with_symint))
        if held.signature != mine.signature:
            raise refusals.signature_mismatch(self.name, held, self.entry)
        return entry

    def _other_signature(self, entry: OperatorEntry, semantics: Semantics) -> HeldSignature:
        """Return the kernel to name for a mismatch: the first in the order of a dump, not the oldest."""
        for kernel in _in_dump_order(entry, semantics):
            signature = kernel.kernel.signature
            if signature not in (None, self._signature) and kernel.kernel.symint is self.entry.kernel.symint:
                return HeldSignature(str(signature), kernel.debug, refusals.key_text(kernel.key))
        raise AssertionError("a signature disagreed with no kernel")


def _agrees(entry: OperatorEntry, signature: str, symint: bool) -> bool:  # noqa: FBT001 - as in Kernel
    """Return whether the registered kernels have this signature; all have the same, so the first one is compared."""
    for kernels in entry.kernels.values():
        for kernel in kernels:
            other = kernel.kernel
            if other.signature is not None and other.symint is symint:
                return other.signature == signature
    return True


class RegisterFallback:
    """The kernel of one slot for all operators."""

    __slots__ = ("bit", "entry", "key", "refreshed", "replaces")

    def __init__(self, key: DispatchKey, kernel: RegisteredKernel, semantics: Semantics) -> None:
        self.key = key
        self.bit = KEY_BIT[key]
        self.entry = kernel
        self.refreshed = semantics.refresh[key]
        self.replaces = key in semantics.replaceable_fallbacks

    def register(self, semantics: Semantics, state: Transaction) -> None:
        """Register, unless the key has a fallback that it does not replace; every operator refreshes."""
        # See Note [Fallbacks that replace]
        fallbacks = state.fallbacks()
        existing = fallbacks.by_slot.get(self.bit)
        replaces = self.replaces and not semantics.replaced_fallback_returns
        is_over_builtin = self.replaces and existing is fallbacks.builtin.get(self.bit)
        if existing is not None and not replaces and not is_over_builtin:
            raise refusals.duplicate_fallback(self.key, existing, self.entry)
        self._change(semantics, state, fallbacks.put(self.bit, self.entry, replaces=replaces))

    def release(self, semantics: Semantics, state: Transaction) -> None:
        """Release it; every operator refreshes again."""
        fallbacks = state.fallbacks()
        if self.replaces and not semantics.replaced_fallback_returns:
            if self.entry in fallbacks.replacing:
                self._change(semantics, state, fallbacks.without(self.bit, self.entry))
        elif fallbacks.by_slot.get(self.bit) is self.entry:
            builtin = fallbacks.builtin.get(self.bit) if self.replaces else None
            left = fallbacks.without(self.bit, self.entry)
            self._change(semantics, state, left if builtin is None else left.put(self.bit, builtin))

    def _change(self, semantics: Semantics, state: Transaction, fallbacks: Fallbacks) -> None:
        state.put(FALLBACKS, fallbacks if fallbacks.slots or fallbacks.replacing else None)
        fill = semantics.precedence.fill
        for entry in list(state.operators()):
            state.put(str(entry.name), entry.refreshed(self.refreshed, fill, fallbacks))
