"""PyTorch 2.13 as it was written by hand before there were profiles; its profile is compared with this."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from dispatchlab.engine.fallbacks import Fallbacks
from dispatchlab.engine.kernel import AMBIGUOUS
from dispatchlab.engine.precedence import Kernels, Slots
from dispatchlab.engine.reference_precedence import Candidate, Source
from dispatchlab.model.dump_format import Provenance
from dispatchlab.model.keys import AUTOGRAD_KEY_OF_BACKEND, BACKENDS, SLOT_OF_KEY, DispatchKey
from dispatchlab.model.keys import DispatchKey as Key
from dispatchlab.model.slot_set import (
    ALIAS_SLOTS,
    BACKEND_SLOTS,
    BACKENDS_OF_AUTOGRAD,
    KEY_BIT,
    NESTED_TENSOR_SLOTS,
    UNDEFINED_SLOT,
    slots_of,
    slots_of_key,
)

FUNCTIONALITY_SLOTS: dict[DispatchKey, int] = {
    DispatchKey[functionality]: slots_of(DispatchKey[prefix + name] for name in BACKENDS)
    for functionality, prefix in {
        "Dense": "",
        "Quantized": "Quantized",
        "Sparse": "Sparse",
        "SparseCsr": "SparseCsr",
        "NestedTensor": "NestedTensor",
        "AutogradFunctionality": "Autograd",
    }.items()
}
"""The runtime instances of each per-backend functionality."""

_ALSO_UNDEFINED = (
    DispatchKey.CompositeImplicitAutograd,
    DispatchKey.CompositeExplicitAutograd,
    DispatchKey.CompositeExplicitAutogradNonFunctional,
)
_REGISTRABLE = tuple(key for key in DispatchKey if key != DispatchKey.Undefined)


def _needed(key: DispatchKey) -> int:
    bits = slots_of_key(key) | (UNDEFINED_SLOT if key in _ALSO_UNDEFINED else 0)
    if key == DispatchKey.CompositeExplicitAutograd:
        return bits | ALIAS_SLOTS[DispatchKey.CompositeImplicitAutograd]
    if not key.is_alias:
        own = slots_of_key(key) or FUNCTIONALITY_SLOTS.get(key, 0)
        bits |= slots_of(k for k, backends in BACKENDS_OF_AUTOGRAD.items() if backends & own)
    return bits


def _upstream(key: DispatchKey) -> int:
    bits = slots_of_key(key) | (UNDEFINED_SLOT if key in _ALSO_UNDEFINED else 0)
    if key.is_alias:
        return bits
    if (bits or FUNCTIONALITY_SLOTS.get(key, 0)) & BACKEND_SLOTS:
        backend = key.backend
        autograd = DispatchKey.AutogradOther if backend is None else AUTOGRAD_KEY_OF_BACKEND[backend]
        bits |= slots_of((autograd,))
    return bits


REFRESH_NEEDED: dict[DispatchKey, int] = {key: _needed(key) for key in _REGISTRABLE}
"""The slots whose kernel can change when the active kernel of a key does."""

REFRESH_UPSTREAM: dict[DispatchKey, int] = {key: _upstream(key) for key in _REGISTRABLE}
"""The slots that PyTorch 2.13 recomputes then: too few for 59 runtime and alias keys."""

BUILD_ROOT = "registered at /__w/pytorch/pytorch/"

FALLTHROUGHS: dict[str, str] = {
    "BackendSelect": "aten/src/ATen/core/BackendSelectFallbackKernel.cpp:3",
    "ADInplaceOrView": "aten/src/ATen/core/VariableFallbackKernel.cpp:103",
    "AutocastCPU": "aten/src/ATen/autocast_mode.cpp:330",
    "AutocastMTIA": "aten/src/ATen/autocast_mode.cpp:472",
    "AutocastMAIA": "aten/src/ATen/autocast_mode.cpp:510",
    "AutocastXPU": "aten/src/ATen/autocast_mode.cpp:548",
    "AutocastMPS": "aten/src/ATen/autocast_mode.cpp:221",
    "AutocastCUDA": "aten/src/ATen/autocast_mode.cpp:177",
    "FuncTorchVmapMode": "aten/src/ATen/functorch/VmapModeRegistrations.cpp:22",
    "VmapMode": "aten/src/ATen/VmapModeRegistrations.cpp:32",
}

KERNELS: dict[str, str] = {
    "Meta": "aten/src/ATen/core/MetaFallbackKernel.cpp:23",
    "Python": "aten/src/ATen/core/PythonFallbackKernel.cpp:192",
    "FuncTorchDynamicLayerBackMode": "aten/src/ATen/functorch/DynamicLayer.cpp:479",
    "Functionalize": "aten/src/ATen/FunctionalizeFallbackKernel.cpp:411",
    "Conjugate": "aten/src/ATen/ConjugateFallback.cpp:17",
    "Negative": "aten/src/ATen/native/NegateFallback.cpp:18",
    "ZeroTensor": "aten/src/ATen/ZeroTensorFallback.cpp:115",
    "AutogradOther": "aten/src/ATen/core/VariableFallbackKernel.cpp:62",
    "AutogradCPU": "aten/src/ATen/core/VariableFallbackKernel.cpp:66",
    "AutogradCUDA": "aten/src/ATen/core/VariableFallbackKernel.cpp:74",
    "AutogradXLA": "aten/src/ATen/core/VariableFallbackKernel.cpp:86",
    "AutogradMPS": "aten/src/ATen/core/VariableFallbackKernel.cpp:94",
    "AutogradXPU": "aten/src/ATen/core/VariableFallbackKernel.cpp:70",
    "AutogradHPU": "aten/src/ATen/core/VariableFallbackKernel.cpp:107",
    "AutogradLazy": "aten/src/ATen/core/VariableFallbackKernel.cpp:90",
    "AutogradMTIA": "aten/src/ATen/core/VariableFallbackKernel.cpp:78",
    "AutogradMAIA": "aten/src/ATen/core/VariableFallbackKernel.cpp:82",
    "AutogradPrivateUse1": "aten/src/ATen/core/VariableFallbackKernel.cpp:111",
    "AutogradMeta": "aten/src/ATen/core/VariableFallbackKernel.cpp:98",
    "Tracer": "torch/csrc/autograd/TraceTypeManual.cpp:296",
    "FuncTorchBatched": "aten/src/ATen/functorch/LegacyBatchingRegistrations.cpp:730",
    "BatchedNestedTensor": "aten/src/ATen/functorch/LegacyBatchingRegistrations.cpp:757",
    "Batched": "aten/src/ATen/LegacyBatchingRegistrations.cpp:1072",
    "FuncTorchGradWrapper": "aten/src/ATen/functorch/TensorWrapper.cpp:210",
    "PythonTLSSnapshot": "aten/src/ATen/core/PythonFallbackKernel.cpp:200",
    "FuncTorchDynamicLayerFrontMode": "aten/src/ATen/functorch/DynamicLayer.cpp:475",
    "PreDispatch": "aten/src/ATen/core/PythonFallbackKernel.cpp:204",
    "PythonDispatcher": "aten/src/ATen/core/PythonFallbackKernel.cpp:196",
}


_AUTOGRAD = KEY_BIT[Key.Autograd]
_MATH = KEY_BIT[Key.CompositeImplicitAutograd]
_NESTED = KEY_BIT[Key.CompositeImplicitAutogradNestedTensor]
_EXPLICIT = KEY_BIT[Key.CompositeExplicitAutograd]
_NON_FUNCTIONAL = KEY_BIT[Key.CompositeExplicitAutogradNonFunctional]
_BATCHED = KEY_BIT[Key.FuncTorchBatchedDecomposition]
_ANY_ALIAS = _AUTOGRAD | _MATH | _NESTED | _EXPLICIT | _NON_FUNCTIONAL | _BATCHED

_MATH_SLOTS = ALIAS_SLOTS[Key.CompositeImplicitAutograd] | UNDEFINED_SLOT
_EXPLICIT_SLOTS = ALIAS_SLOTS[Key.CompositeExplicitAutograd] | UNDEFINED_SLOT
_NON_FUNCTIONAL_SLOTS = ALIAS_SLOTS[Key.CompositeExplicitAutogradNonFunctional] | UNDEFINED_SLOT
_NESTED_SLOTS = ALIAS_SLOTS[Key.CompositeImplicitAutogradNestedTensor]
_AUTOGRAD_SLOTS = ALIAS_SLOTS[Key.Autograd]
_BATCHED_SLOTS = ALIAS_SLOTS[Key.FuncTorchBatchedDecomposition]

# Note [Backends that take the composite kernel away]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# The slots of the dense backends and those of their autograd keys stand in the same order, so "the autograd slots of
# the backends that have kernels" is a shift. A kernel at the functionality key `Dense` itself has no slot, yet
# upstream's set containment takes it for a kernel of every dense backend; likewise `Quantized` and its kind for
# AutogradOther.
_OTHER = slots_of((Key.AutogradOther,))
_OTHER_BACKENDS = BACKENDS_OF_AUTOGRAD[Key.AutogradOther] | sum(
    KEY_BIT[key] for key in (Key.Quantized, Key.Sparse, Key.SparseCsr)
)
_NESTED_AUTOGRAD = slots_of((Key.AutogradNestedTensor,))
_NESTED_BACKENDS = NESTED_TENSOR_SLOTS | KEY_BIT[Key.NestedTensor]
_DENSE = KEY_BIT[Key.Dense]
_DENSE_AUTOGRAD = slots_of(
    key for key in BACKENDS_OF_AUTOGRAD if key not in (Key.AutogradOther, Key.AutogradNestedTensor)
)
_TO_AUTOGRAD = Key.AutogradCPU.slot - Key.CPU.slot
_DENSE_BACKENDS = _DENSE_AUTOGRAD >> _TO_AUTOGRAD


def fill_torch_2_13(wanted: int, present: int, kernels: Kernels, fallbacks: Fallbacks) -> Slots:
    slots: Slots = {}
    rest = wanted & ~present
    if present & _ANY_ALIAS:
        if present & _NON_FUNCTIONAL and (taken := rest & _NON_FUNCTIONAL_SLOTS):
            slots[kernels[_NON_FUNCTIONAL][0].because(Provenance.DEFAULT_BACKEND)] = taken
            rest ^= taken
        if present & _EXPLICIT and (taken := rest & _EXPLICIT_SLOTS):
            slots[kernels[_EXPLICIT][0].because(Provenance.DEFAULT_BACKEND)] = taken
            rest ^= taken
        if present & _NESTED and (taken := rest & _NESTED_SLOTS):
            slots[kernels[_NESTED][0].because(Provenance.NESTED)] = taken
            rest ^= taken
        if present & _MATH:
            if rest & _OTHER and present & _OTHER_BACKENDS:
                slots[AMBIGUOUS] = _OTHER
                rest ^= _OTHER
            if not present & _EXPLICIT and (taken := rest & _MATH_SLOTS & ~_suppressed(present)):
                slots[kernels[_MATH][0].because(Provenance.MATH)] = taken
                rest ^= taken
        if present & _AUTOGRAD and (taken := rest & _AUTOGRAD_SLOTS):
            slots[kernels[_AUTOGRAD][0].because(Provenance.AUTOGRAD)] = taken
            rest ^= taken
        if present & _BATCHED and (taken := rest & _BATCHED_SLOTS):
            slots[kernels[_BATCHED][0].because(Provenance.BATCHED)] = taken
            rest ^= taken
    if rest & fallbacks.slots:
        slots.update(fallbacks.entries_in(rest))
    return slots


def _suppressed(present: int) -> int:
    """The autograd slots where a backend's kernel takes the composite one away, AutogradOther aside."""
    # See Note [Backends that take the composite kernel away]
    slots = _DENSE_AUTOGRAD if present & _DENSE else (present & _DENSE_BACKENDS) << _TO_AUTOGRAD
    return slots | _NESTED_AUTOGRAD if present & _NESTED_BACKENDS else slots


def _in_alias(key: DispatchKey, alias: DispatchKey) -> bool:
    return bool(ALIAS_SLOTS[alias] >> SLOT_OF_KEY[key] & 1)


def _backend_kernels(key: DispatchKey, direct: AbstractSet[Source]) -> list[DispatchKey]:
    """The keys with kernels that count as backends of an autograd key, functionality keys by containment."""
    backends = BACKENDS_OF_AUTOGRAD.get(key, 0)
    return sorted(
        k
        for k in direct
        if k is not None and not k.is_alias and backends & (slots_of_key(k) or FUNCTIONALITY_SLOTS.get(k, 0))
    )


def plain_torch_2_13(
    key: DispatchKey,
    direct: AbstractSet[Source],
    fallbacks: AbstractSet[DispatchKey],
    fallthrough: AbstractSet[DispatchKey],
) -> Iterator[Candidate]:
    """The candidates for a slot in PyTorch 2.13, best first."""
    undefined = key == DispatchKey.Undefined
    if key in direct:
        yield Candidate(key, Provenance.KERNEL)
    for alias in (DispatchKey.CompositeExplicitAutogradNonFunctional, DispatchKey.CompositeExplicitAutograd):
        if alias in direct and (undefined or _in_alias(key, alias)):
            yield Candidate(alias, Provenance.DEFAULT_BACKEND)
    nested = DispatchKey.CompositeImplicitAutogradNestedTensor
    if nested in direct and not undefined and _in_alias(key, nested):
        yield Candidate(nested, Provenance.NESTED)
    math = DispatchKey.CompositeImplicitAutograd
    if math in direct and (undefined or _in_alias(key, math)):
        backends = _backend_kernels(key, direct)
        if key == DispatchKey.AutogradOther and backends:
            yield Candidate(key, Provenance.AMBIGUOUS)
        elif backends:
            yield Candidate(math, Provenance.MATH, f"{backends[0]} has a kernel of its own")
        elif DispatchKey.CompositeExplicitAutograd in direct and not undefined:
            yield Candidate(math, Provenance.MATH, "CompositeExplicitAutograd has a kernel")
        else:
            yield Candidate(math, Provenance.MATH)
    if DispatchKey.Autograd in direct and not undefined and _in_alias(key, DispatchKey.Autograd):
        yield Candidate(DispatchKey.Autograd, Provenance.AUTOGRAD)
    batched = DispatchKey.FuncTorchBatchedDecomposition
    if batched in direct and not undefined and _in_alias(key, batched):
        yield Candidate(batched, Provenance.BATCHED)
    if key in fallbacks:
        yield Candidate(key, Provenance.FALLBACK)
