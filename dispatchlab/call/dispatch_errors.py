"""Errors of calls that find no kernel: what there is, and what to register."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from dispatchlab.call.call_signature import CallSignature
from dispatchlab.engine.kernel import AMBIGUOUS, TableEntry
from dispatchlab.engine.operator_entry import OperatorEntry
from dispatchlab.errors import ErrorKind
from dispatchlab.model.dump_format import Provenance, key_text
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.slot_set import DUMP_ORDER, KEY_OF_BIT, UNDEFINED_SLOT, keys_of


def available_keys(entry: OperatorEntry) -> tuple[DispatchKey, ...]:
    """The runtime keys whose slot holds a kernel, ascending; Undefined never counts."""
    held = 0
    for bits in entry.slots.values():
        held |= bits
    return keys_of(held & ~UNDEFINED_SLOT)


def refuse(signature: CallSignature, entry: OperatorEntry, keys: DispatchKeySet, held: TableEntry | None) -> NoReturn:
    """Raise what a call with the set `keys` meets at a slot that holds no kernel to run.

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
    there = _listed(_registered(entry))
    local = f'lib.impl("{entry.name.name}{"." if entry.name.overload else ""}{entry.name.overload}", kernel'
    if held is AMBIGUOUS:
        kind = ErrorKind.AMBIGUOUS_AUTOGRADOTHER
        message = (
            f"{name} has a CompositeImplicitAutograd kernel and a kernel for a backend that maps to AutogradOther, "
            f"and either could be meant: register one for AutogradOther or make the composite kernel explicit: "
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
            f"{name} got no tensor whose keys could choose a kernel: pass a tensor (a fallthrough at the only key of "
            f"one counts as none), or register a kernel that needs none: "
            f'{local}, "CompositeExplicitAutograd") or "BackendSelect"; it has kernels for {there}'
        )
    elif key in (DispatchKey.Python, DispatchKey.PythonTLSSnapshot):
        kind = ErrorKind.MISSING_KERNEL
        message = (
            f"{name} has no kernel for {key}, the highest key of {keys}: a class or a mode with a __torch_dispatch__ "
            "takes part, and nothing asks it; hold a PythonDispatch(dispatcher) of dispatchlab.overrides for as long "
            "as it is to be asked, or call inside of no_dispatch()"
        )
    elif key.functionality <= DispatchKey.NestedTensor:
        kind = ErrorKind.MISSING_KERNEL
        message = (
            f"{name} has no kernel for {key}, the backend that the call came to: it has kernels for {there}; "
            f'register one: {local}, "{key}"), or call with other tensors'
        )
    else:
        kind = ErrorKind.MISSING_KERNEL
        message = _nothing_above_the_backend(entry, name, keys, local, there)
    refusal = signature.refused(kind, message, "")
    raise type(refusal)(kind, refusal.message, {**facts})


def _nothing_above_the_backend(entry: OperatorEntry, name: str, keys: DispatchKeySet, local: str, there: str) -> str:
    """The message for a key at which calls have something to do before they get to the backend, or nothing."""
    key = keys.highest()
    backends = tuple(one for one in keys if one.functionality <= DispatchKey.NestedTensor)
    # See Note [What to register below]
    missing = backends[-1:] if backends and _entry_at(entry, backends[-1]) is None else ()
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


def _entry_at(entry: OperatorEntry, key: DispatchKey) -> TableEntry | None:
    bit = 1 << key.slot
    return next((held for held, slots in entry.slots.items() if slots & bit), None)


def _registered(entry: OperatorEntry) -> tuple[str, ...]:
    """Where the operator has kernels of its own to run, alias keys among them."""
    bits = (bit for bit in sorted(entry.kernels, key=DUMP_ORDER.__getitem__))
    return tuple(key_text(KEY_OF_BIT[bit]) for bit in bits if not entry.kernels[bit][0].kernel.is_fallthrough)


def _listed(keys: Sequence[DispatchKey | str]) -> str:
    shown = [str(key) for key in keys[:12]]
    more = f" and {len(keys) - 12} more keys" if len(keys) > 12 else ""
    return ", ".join(shown) + more if shown else "no key"
