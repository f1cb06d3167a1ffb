"""The dispatch table as calls read it: the kernel for each key set, the mask of fallthrough keys, and why none runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, NoReturn

from dispatchlab.call.call_signature import CallSignature, NotReturnableError
from dispatchlab.call.calling_conventions import Target, target_of
from dispatchlab.engine.dispatcher import Dispatcher, InvariantError
from dispatchlab.engine.introspection import fallbacks_in, fallthroughs_without_row
from dispatchlab.engine.kernel import AMBIGUOUS, TableEntry
from dispatchlab.engine.operator_entry import OperatorEntry
from dispatchlab.errors import ErrorKind, first_of
from dispatchlab.model.dump_format import Provenance, key_text
from dispatchlab.model.key_set import BACKEND_BITS, FULL_BITS, DispatchKeySet, functionality_bit
from dispatchlab.model.keys import BACKENDS, SLOT_KEYS, DispatchKey
from dispatchlab.model.slot_set import DUMP_ORDER, KEY_OF_BIT, UNDEFINED_SLOT, keys_of, set_bits


def available_keys(entry: OperatorEntry) -> tuple[DispatchKey, ...]:
    """Return the runtime keys whose slot has a kernel, ascending, without Undefined."""
    held = 0
    for bits in entry.slots.values():
        held |= bits
    return keys_of(held & ~UNDEFINED_SLOT)


def refuse(signature: CallSignature, entry: OperatorEntry, keys: DispatchKeySet, held: TableEntry | None) -> NoReturn:
    """Raise the error of a call with the key set `keys` at a slot without a kernel.

    Raises:
        CallError: of kinds `no_tensor_arguments`, `missing_kernel`, `ambiguous_autogradother` or
            `fallthrough_executed`.
    """
    name = signature.name
    key = keys.highest()
    available = available_keys(entry)
    facts = {
        "operator": name,
        "schema": str(signature.schema),
        "key": str(key),
        "available_keys": ", ".join(map(str, available)),
    }
    own = [bit for bit, kernels in entry.kernels.items() if not kernels[0].kernel.is_fallthrough]
    there = _listed(tuple(key_text(KEY_OF_BIT[bit]) for bit in sorted(own, key=DUMP_ORDER.__getitem__)))
    local = f'lib.impl("{entry.name.name}{"." if entry.name.overload else ""}{entry.name.overload}", kernel'
    if held is AMBIGUOUS:
        kind = ErrorKind.AMBIGUOUS_AUTOGRADOTHER
        message = (
            f"{name} is ambiguous: it has a CompositeImplicitAutograd kernel and a kernel for a backend that maps to "
            f"AutogradOther: register one for AutogradOther, or make the composite kernel explicit: "
            f'{local}, "CompositeExplicitAutograd")'
        )
    elif held is not None and held.registered.kernel.is_fallthrough:
        kind = ErrorKind.FALLTHROUGH_EXECUTED
        message = (
            f"a redispatch of {name} went to {key}, which holds a fallthrough ({held.registered.debug}): redispatch "
            f"with a set that leaves it out, such as keyset & DispatchKeySet.full_after(DispatchKey.{key})"
        )
    elif key == DispatchKey.Undefined:
        kind = ErrorKind.NO_TENSOR_ARGUMENTS
        message = (
            f"{name} got no tensor that decides the dispatch key: pass a tensor (a fallthrough at the only key of "
            f"one counts as none), or register a kernel that needs none: "
            f'{local}, "CompositeExplicitAutograd") or "BackendSelect"; it has kernels for {there}'
        )
    elif key in (DispatchKey.Python, DispatchKey.PythonTLSSnapshot):
        kind = ErrorKind.MISSING_KERNEL
        message = (
            f"{name} has no kernel for {key}, the highest key of {keys}: a class or a mode with a __torch_dispatch__ "
            "takes part, and nothing calls it: keep a dispatchlab.lab.overrides.PythonDispatch(dispatcher) while it "
            "takes part, or call inside of no_dispatch()"
        )
    elif key.functionality <= DispatchKey.NestedTensor:
        kind = ErrorKind.MISSING_KERNEL
        message = (
            f"{name} has no kernel for {key}, the backend of this call: it has kernels for {there}; "
            f'register one: {local}, "{key}"), or call with other tensors'
        )
    else:
        kind = ErrorKind.MISSING_KERNEL
        message = _nothing_above_the_backend(entry, name, keys, local, there)
    refusal = signature.refused(kind, message, "")
    raise type(refusal)(kind, refusal.message, {**facts})


def _nothing_above_the_backend(entry: OperatorEntry, name: str, keys: DispatchKeySet, local: str, there: str) -> str:
    """Return the message for a key before the backend; may be empty."""
    key = keys.highest()
    backends = tuple(one for one in keys if one.functionality <= DispatchKey.NestedTensor)
    # See Note [What to register below]
    missing = [one for one in backends[-1:] if not any(slots & 1 << one.slot for slots in entry.slots.values())]
    found = (
        f"{name} has no kernel and no fallthrough for {key}, where a call for {_listed(backends)} comes before the "
        f"backend: it has kernels for {there}"
    )
    advice = [f'{local}, "{one}")' for one in missing]
    advice.append(f'{local.removesuffix("kernel")}fallthrough, "{key}")')
    if not any(held.reason is Provenance.FALLBACK for held in entry.slots):
        found += "; this dispatcher is bare, and Dispatcher() starts with the backend fallbacks that PyTorch has"
    return f"{found}; register {' and '.join(advice)}"


# Note [What to register below]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A call stops at a functionality key, such as AutogradNestedTensor, at which nothing is registered and no backend
# fallback serves. A kernel there would have to do what the backend should do; so the advice is a kernel for the backend
# of the arguments, unless there is one, and a fallthrough that lets calls go on to it. The highest backend decides.


def _listed(keys: Sequence[DispatchKey | str]) -> str:
    return first_of(keys, 12, " keys") if keys else "no key"


# Note [Masks without a history]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# Upstream keeps a global mask and one for each backend, and edits them whenever a slot is recomputed. The global one
# then depends on the order of those edits for keys that exist once for each backend, but it is consulted only while
# the 16 others agree with each other, and then it agrees with them. So the masks are a function of the slots: the bit
# of a functionality is missing from the mask of a backend exactly when the slot of the two holds a fallthrough.


class Masks(NamedTuple):
    """The keys that calls of an operator do not skip.

    Args:
        by_backend: for each backend component, the bits that stay; backend bits always do.
        per_backend: whether they differ, so that the highest backend of a call decides.
    """

    by_backend: tuple[int, ...]
    per_backend: bool

    def applied(self, bits: int) -> int:
        """Return the keys of a set that are left; a set without a backend counts as CPU."""
        length = (bits & BACKEND_BITS).bit_length()
        return bits & self.by_backend[length - 1 if length else 0]


def fallthrough_slots(slots: Mapping[TableEntry, int]) -> int:
    """Return the slots with a fallthrough."""
    found = 0
    for held, bits in slots.items():
        if held.registered.kernel.is_fallthrough:
            found |= bits
    return found


@lru_cache(maxsize=4096)
def masks(skipped: int) -> Masks:
    """Return the masks of an operator whose fallthroughs are in the slots of `skipped`."""
    # See Note [Masks without a history]
    by_backend = [FULL_BITS] * len(BACKENDS)
    for slot in set_bits(skipped):
        key = SLOT_KEYS[slot]
        bit = functionality_bit(key.functionality)
        backends = range(len(BACKENDS)) if key.backend is None else (key.backend,)
        for backend in backends:
            by_backend[backend] &= ~bit
    return Masks(tuple(by_backend), len(set(by_backend)) > 1)


_MOST_REMEMBERED = 4096


class Found(NamedTuple):
    """The kernel of a call, and the kernel as a function of every argument."""

    entry: TableEntry
    target: Target


class CallTable:
    """An operator as calls see it, for as long as its entry does not change.

    Args:
        dispatcher: for the error path, which checks the invariants first.
        operator: the handle that kernels get.
        entry: the operator.
        signature: its schema, made ready.
    """

    def __init__(
        self, dispatcher: Dispatcher, operator: object, entry: OperatorEntry, signature: CallSignature
    ) -> None:
        self.dispatcher = dispatcher
        self.operator = operator
        self.entry = entry
        self.signature = signature
        hidden = fallthroughs_without_row(entry, fallbacks_in(dispatcher.state), dispatcher.semantics)
        self._slots = entry.slots
        self.masks = masks(fallthrough_slots(self._slots) | hidden)
        self._found: dict[int, Found] = {}

    def __repr__(self) -> str:
        return f"<CallTable of {self.signature.name}>"

    def entry_at(self, keys: DispatchKeySet) -> TableEntry | None:
        """Return the entry in the slot of a final set."""
        bit = 1 << keys.slot()
        for held, slots in self._slots.items():
            if slots & bit:
                return held
        return None

    def masked(self, base: int) -> DispatchKeySet:
        """Return the final set of a call: without the keys at which this operator falls through."""
        return DispatchKeySet(self.masks.applied(base))

    def found(self, keys: DispatchKeySet) -> Found:
        """Return the kernel for a final set, remembered.

        Raises:
            CallError: there is none that could run.
            InvariantError: there is none, and the operator's table does not fit its registrations.
        """
        known = self._found.get(keys.bits)
        if known is not None:
            return known
        held = self.entry_at(keys)
        if held is None or held is AMBIGUOUS or held.registered.kernel.is_fallthrough:
            violations = self.dispatcher.violations(self.entry.name) if held is None else ()
            if violations:
                raise InvariantError(violations)
            refuse(self.signature, self.entry, keys, held)
        if len(self._found) >= _MOST_REMEMBERED:
            self._found.clear()
        made = self._found[keys.bits] = Found(held, target_of(self.operator, self.signature, held, keys))
        return made

    def returns(self, values: Sequence[object], result: object, held: TableEntry) -> tuple[object, ...]:
        """Return all results of a call, from the results of the kernel in `held`.

        Raises:
            CallError: of kind `wrong_return`.
        """
        try:
            return self.signature.returns(values, result)
        except NotReturnableError as error:
            raise self.signature.wrong_return(held.registered.debug, error) from None
