"""The backend fallbacks that PyTorch ships, and the state that a dispatcher with them starts from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module

from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.registration import Fallback, Kernel, KernelForm

_BUILD_ROOT = "/__w/pytorch/pytorch/"  # where the published wheels are built; part of what a table prints

# Where the kernels are that are no fallthroughs, see Note [Kernels above the engine].
_KERNELS = "dispatchlab.layers.builtin_kernels"
_TRACING = "dispatchlab.layers.tracing"
_PYTHON = "dispatchlab.overrides.torch_dispatch"

# Note [Kernels above the engine]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# What runs at a key calls operators, records gradients and asks handlers: it stands above the engine, which must not
# import it. In PyTorch the libraries that are loaded later register such kernels with the dispatcher of c10. Here they
# are named, and the name is imported when a call first gets to the key; a program that only registers never does.

_FALLTHROUGH: dict[str, str] = {
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

_KERNEL: dict[str, tuple[str, str]] = {
    "Meta": ("aten/src/ATen/core/MetaFallbackKernel.cpp:23", "meta"),
    "Python": (
        "aten/src/ATen/core/PythonFallbackKernel.cpp:192",
        f"{_PYTHON}:python_fallback",
    ),
    "FuncTorchDynamicLayerBackMode": ("aten/src/ATen/functorch/DynamicLayer.cpp:479", "dynamic_layer_back"),
    "Functionalize": ("aten/src/ATen/FunctionalizeFallbackKernel.cpp:411", "functionalize"),
    "Conjugate": ("aten/src/ATen/ConjugateFallback.cpp:17", "conjugate"),
    "Negative": ("aten/src/ATen/native/NegateFallback.cpp:18", "negative"),
    "ZeroTensor": ("aten/src/ATen/ZeroTensorFallback.cpp:115", "zero_tensor"),
    "AutogradOther": ("aten/src/ATen/core/VariableFallbackKernel.cpp:62", "autograd"),
    "AutogradCPU": ("aten/src/ATen/core/VariableFallbackKernel.cpp:66", "autograd"),
    "AutogradCUDA": ("aten/src/ATen/core/VariableFallbackKernel.cpp:74", "autograd"),
    "AutogradXLA": ("aten/src/ATen/core/VariableFallbackKernel.cpp:86", "autograd"),
    "AutogradMPS": ("aten/src/ATen/core/VariableFallbackKernel.cpp:94", "autograd"),
    "AutogradXPU": ("aten/src/ATen/core/VariableFallbackKernel.cpp:70", "autograd"),
    "AutogradHPU": ("aten/src/ATen/core/VariableFallbackKernel.cpp:107", "autograd"),
    "AutogradLazy": ("aten/src/ATen/core/VariableFallbackKernel.cpp:90", "autograd"),
    "AutogradMTIA": ("aten/src/ATen/core/VariableFallbackKernel.cpp:78", "autograd"),
    "AutogradMAIA": ("aten/src/ATen/core/VariableFallbackKernel.cpp:82", "autograd"),
    "AutogradPrivateUse1": ("aten/src/ATen/core/VariableFallbackKernel.cpp:111", "autograd"),
    "AutogradMeta": ("aten/src/ATen/core/VariableFallbackKernel.cpp:98", "autograd"),
    "Tracer": ("torch/csrc/autograd/TraceTypeManual.cpp:296", f"{_TRACING}:tracer_fallback"),
    "FuncTorchBatched": ("aten/src/ATen/functorch/LegacyBatchingRegistrations.cpp:730", "functorch_batched"),
    "BatchedNestedTensor": ("aten/src/ATen/functorch/LegacyBatchingRegistrations.cpp:757", "batched_nested_tensor"),
    "Batched": ("aten/src/ATen/LegacyBatchingRegistrations.cpp:1072", "batched"),
    "FuncTorchGradWrapper": ("aten/src/ATen/functorch/TensorWrapper.cpp:210", "functorch_grad_wrapper"),
    "PythonTLSSnapshot": (
        "aten/src/ATen/core/PythonFallbackKernel.cpp:200",
        f"{_PYTHON}:snapshot_fallback",
    ),
    "FuncTorchDynamicLayerFrontMode": ("aten/src/ATen/functorch/DynamicLayer.cpp:475", "dynamic_layer_front"),
    "PreDispatch": ("aten/src/ATen/core/PythonFallbackKernel.cpp:204", "pre_dispatch"),
    "PythonDispatcher": ("aten/src/ATen/core/PythonFallbackKernel.cpp:196", "python_dispatcher"),
}


@dataclass(frozen=True, slots=True)
class NamedFunction:
    """A function that is imported when it is first called: what runs at a key stands above the engine.

    Args:
        reference: `package.module:function`.
    """

    reference: str

    @property
    def loaded(self) -> Callable[..., object]:
        """The function."""
        return _loaded(self.reference)

    def __call__(self, *arguments: object) -> object:
        return _loaded(self.reference)(*arguments)


@cache
def _loaded(reference: str) -> Callable[..., object]:
    module, _, name = reference.partition(":")
    function: Callable[..., object] = getattr(import_module(module), name)
    return function


def _fallback(key: str, kernel: Kernel, where: str) -> Fallback:
    return Fallback(DispatchKey[key], kernel, f"registered at {_BUILD_ROOT}{where}")


def _kernel(function: str) -> Kernel:
    named = NamedFunction(function if ":" in function else f"{_KERNELS}:{function}")
    return Kernel(KernelForm.BOXED, function=named, takes_stack=True, with_keyset=True)


BUILTIN_FALLBACKS: tuple[Fallback, ...] = (
    *(_fallback(key, Kernel(KernelForm.FALLTHROUGH), where) for key, where in _FALLTHROUGH.items()),
    *(_fallback(key, _kernel(function), where) for key, (where, function) in _KERNEL.items()),
)
"""All 38 of them."""

_SOURCES = {
    **{key: where.rpartition(":")[0] for key, where in _FALLTHROUGH.items()},
    **{key: where.rpartition(":")[0] for key, (where, _) in _KERNEL.items()},
}


def is_builtin(key: DispatchKey, debug: str) -> bool:
    """Whether a fallback at `key` with this debug text is one of PyTorch's, of whatever version."""
    source = _SOURCES.get(key.name)
    return source is not None and source in debug
