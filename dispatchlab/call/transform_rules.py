"""The dispatch keys of transforms, those that their tensors carry, and what the slow fallback of vmap refuses.

`dispatchlab.layers` runs the transforms by these rules, and `explain` follows a call through them.
Source: aten/src/ATen/functorch/Interpreter.cpp (`keysForEnteringDynamicLayer`), BatchedTensorImpl.h
(`kKeysToPropagateToWrapper`), BatchedFallback.cpp, DynamicLayer.cpp (`isInplaceOp`);
aten/src/ATen/FunctionalTensorWrapper.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from dispatchlab.call.tensor_keys import AUTOGRAD_KEYS, PYTHON_KEYS, tensor_key_set
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.keys import AUTOCAST_KEYS, DispatchKey
from dispatchlab.model.schema import FunctionSchema

FRONT_AND_BACK = DispatchKeySet.of(
    DispatchKey.FuncTorchDynamicLayerFrontMode, DispatchKey.FuncTorchDynamicLayerBackMode
)
"""What every call has while a transform is active."""

_AUTOCAST = DispatchKeySet.of(*AUTOCAST_KEYS)
_BETWEEN = (
    DispatchKeySet.full_after(DispatchKey.FuncTorchDynamicLayerFrontMode)
    - DispatchKeySet.full_after(DispatchKey.FuncTorchDynamicLayerBackMode)
    - DispatchKeySet.of(DispatchKey.FuncTorchDynamicLayerBackMode)
).add(DispatchKey.FuncTorchDynamicLayerFrontMode)
EXCLUDED_INSIDE = (_BETWEEN - _AUTOCAST).remove(DispatchKey.FuncTorchVmapMode)
"""What no transform enters, but for the keys that are its own. Autocast is left to itself, and so is the mode of vmap:
random operators of a `vmap` stay refused when they are called below it."""


@dataclass(frozen=True, slots=True)
class TransformKeys:
    """The keys of a kind of transform.

    Args:
        name: what it is called in `torch.func`.
        entered: the keys that it enters.
        also_included: the keys that are in every call which enters it.
        of_tensor: the key of its own that its tensors carry.
    """

    name: str
    entered: DispatchKeySet
    also_included: DispatchKeySet
    of_tensor: DispatchKey

    def excluded(self, before: DispatchKeySet) -> DispatchKeySet:
        """What the thread excludes inside, from what it excluded before."""
        return (before | (EXCLUDED_INSIDE - self.entered)) - self.entered

    def tensor_keys(self, value: DispatchKeySet, *, inference: bool = False) -> DispatchKeySet:
        """The keys of a tensor that stands for another one inside of it.

        Args:
            value: the keys of the other one.
            inference: it is made in inference mode.
        """
        if self is FUNCTIONALIZE:
            return (value | DispatchKeySet.of(self.of_tensor)) - NOT_IN_FUNCTIONAL
        return DispatchKeySet(_wrapper_keys(value.bits, self.of_tensor, inference=inference))


VMAP = TransformKeys(
    "vmap",
    DispatchKeySet.of(DispatchKey.FuncTorchBatched, DispatchKey.BatchedNestedTensor),
    DispatchKeySet.of(DispatchKey.FuncTorchVmapMode),
    DispatchKey.FuncTorchBatched,
)
GRAD = TransformKeys(
    "grad", AUTOGRAD_KEYS.add(DispatchKey.ADInplaceOrView), DispatchKeySet(), DispatchKey.FuncTorchGradWrapper
)
FUNCTIONALIZE = TransformKeys(
    "functionalize",
    DispatchKeySet.of(DispatchKey.Functionalize),
    DispatchKeySet.of(DispatchKey.Functionalize),
    DispatchKey.Functionalize,
)

NOT_IN_FUNCTIONAL = PYTHON_KEYS | DispatchKeySet.of(
    DispatchKey.FuncTorchBatched,
    DispatchKey.BatchedNestedTensor,
    DispatchKey.FuncTorchVmapMode,
    DispatchKey.Batched,
    DispatchKey.VmapMode,
    DispatchKey.FuncTorchGradWrapper,
)
"""What a functional tensor does not take over from the tensor that it stands for."""

_PROPAGATED = DispatchKeySet.of(
    *(DispatchKey.Negative, DispatchKey.Conjugate),
    *(DispatchKey.CPU, DispatchKey.CUDA, DispatchKey.XLA, DispatchKey.XPU, DispatchKey.HPU, DispatchKey.PrivateUse1),
    *(DispatchKey.SparseCPU, DispatchKey.SparseCUDA, DispatchKey.SparseCsrCPU, DispatchKey.SparseCsrCUDA),
).bits
"""The keys of a value that a wrapper has, too."""


@cache
def _wrapper_keys(value: int, own: DispatchKey, *, inference: bool) -> int:
    base = DispatchKeySet(value & _PROPAGATED).add(own)
    return tensor_key_set(base, inference=inference).bits


def is_in_place(schema: FunctionSchema) -> bool:
    """Whether an operator writes its first argument, returns it, and aliases nothing else."""
    aliases = [argument.alias for argument in schema.arguments]
    if len(schema.returns) != 1 or not aliases or aliases[0] is None or not aliases[0].is_write or any(aliases[1:]):
        return False
    returned = schema.returns[0].alias
    return returned is not None and returned.is_write


def slices_refused(schema: FunctionSchema) -> str:
    """Why an operator cannot be called with the slices of any argument or for any result; empty when it can."""
    lists = any(str(argument.type).startswith("Tensor") and "[" in str(argument.type) for argument in schema.arguments)
    if lists or any(str(one.type) != "Tensor" for one in schema.returns):
        return "a slice at a time can be done with single tensors only"
    return ""


def batch_refused(schema: FunctionSchema) -> str:
    """Why an operator cannot be called once for each slice of a batch; empty when it can."""
    if refused := slices_refused(schema):
        return refused
    if is_in_place(schema):
        return ""
    if any(one.alias is not None for one in (*schema.arguments, *schema.returns)):
        return "it writes an argument or returns a view, which a stack of slices is not"
    return "" if schema.returns else "it returns nothing"
