"""The backend fallbacks that PyTorch ships, and the state that a dispatcher with them starts from."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module

from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.profile import BuiltinFallback, Profile, bundled_profile, bundled_profiles
from dispatchlab.model.registration import Fallback, Kernel, KernelForm

# Where the kernels are that are no fallthroughs, see Note [Kernels above the engine].
_KERNELS = "dispatchlab.lab.builtin_kernels"
_PYTHON = "dispatchlab.lab.overrides.torch_dispatch"

# Note [Kernels above the engine]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# What runs at a key calls operators, records gradients and asks handlers: it stands above the engine, which must not
# import it. In PyTorch the libraries that are loaded later register such kernels with the dispatcher of c10. Here they
# are named, and the name is imported when a call first gets to the key; a program that only registers never does.

_FUNCTIONS: dict[str, str] = {
    "Meta": f"{_KERNELS}:meta",
    "Python": f"{_PYTHON}:python_fallback",
    "FuncTorchDynamicLayerBackMode": f"{_KERNELS}:dynamic_layer_back",
    "Functionalize": f"{_KERNELS}:functionalize",
    "Conjugate": f"{_KERNELS}:conjugate",
    "Negative": f"{_KERNELS}:negative",
    "ZeroTensor": f"{_KERNELS}:zero_tensor",
    "Tracer": f"{_KERNELS}:tracer",
    "FuncTorchBatched": f"{_KERNELS}:functorch_batched",
    "BatchedNestedTensor": f"{_KERNELS}:batched_nested_tensor",
    "Batched": f"{_KERNELS}:batched",
    "FuncTorchGradWrapper": f"{_KERNELS}:functorch_grad_wrapper",
    "PythonTLSSnapshot": f"{_PYTHON}:snapshot_fallback",
    "FuncTorchDynamicLayerFrontMode": f"{_KERNELS}:dynamic_layer_front",
    "PreDispatch": f"{_KERNELS}:pre_dispatch",
    "PythonDispatcher": f"{_KERNELS}:python_dispatcher",
}
"""What runs at a key; the autograd keys share one function, and a key that is not here runs nothing."""

_AUTOGRAD = "dispatchlab.lab.autograd_fallback:autograd_fallback"


@dataclass(frozen=True, slots=True)
class NamedFunction:
    """A function that is imported when it is first called: what runs at a key stands above the engine.

    Args:
        reference: `package.module:function`.
    """

    reference: str

    def __call__(self, *arguments: object) -> object:
        return _loaded(self.reference)(*arguments)


@cache
def _loaded(reference: str) -> Callable[..., object]:
    module, _, name = reference.partition(":")
    function: Callable[..., object] = getattr(import_module(module), name)
    return function


def fallbacks_of(profile: Profile) -> tuple[Fallback, ...]:
    """The backend fallbacks that a PyTorch ships, those of keys that this package does not know left out."""
    return tuple(
        Fallback(DispatchKey[key], _kernel(key, found), found.debug)
        for key, found in profile.fallbacks.items()
        if key in DispatchKey.__members__
    )


def _kernel(key: str, found: BuiltinFallback) -> Kernel:
    if found.kind == "fallthrough":
        return Kernel(KernelForm.FALLTHROUGH)
    reference = _AUTOGRAD if key.startswith("Autograd") else _FUNCTIONS.get(key)
    if reference is None:
        return Kernel(KernelForm.BOXED)
    return Kernel(KernelForm.BOXED, function=NamedFunction(reference), takes_stack=True, with_keyset=True)


def is_builtin(debug: str) -> bool:
    """Whether a fallback with this debug text is one of PyTorch's, of whatever version, at whatever key."""
    return any(source in debug for source in _sources())


@cache
def _sources() -> frozenset[str]:
    """The files of PyTorch, such as `aten/src/ATen/core/VariableFallbackKernel.cpp`, that have a fallback."""
    texts = [one.debug for name in bundled_profiles() for one in bundled_profile(name).fallbacks.values()]
    return frozenset(found[0] for text in texts if (found := _SOURCE.search(text)) is not None)


_SOURCE = re.compile(r"(?:aten/src|torch/csrc)/[^ ]*\.cpp")
