"""The backend fallbacks that PyTorch ships, and the state that a dispatcher with them starts from."""

from __future__ import annotations

from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.registration import Fallback, Kernel, KernelForm

_BUILD_ROOT = "/__w/pytorch/pytorch/"  # where the published wheels are built; part of what a table prints

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

_KERNEL: dict[str, str] = {
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


def _fallback(key: str, form: KernelForm, where: str) -> Fallback:
    return Fallback(DispatchKey[key], Kernel(form), f"registered at {_BUILD_ROOT}{where}")


TORCH_2_13_FALLBACKS: tuple[Fallback, ...] = (
    *(_fallback(key, KernelForm.FALLTHROUGH, where) for key, where in _FALLTHROUGH.items()),
    *(_fallback(key, KernelForm.BOXED, where) for key, where in _KERNEL.items()),
)
"""All 38 of them."""
