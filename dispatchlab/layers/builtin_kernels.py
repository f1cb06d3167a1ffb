"""The kernels behind PyTorch 2.13's backend fallbacks, as the dispatcher's builtin fallbacks run them.

`engine.builtin_fallbacks` names each of them beside its key; a dispatcher imports them when a call first gets there. A
fallback that needs a transform which this package does not have (functorch's, the Python dispatcher) fails as PyTorch's
does outside of one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeAlias

import numpy as np

from dispatchlab.call.local_key_set import ExcludeDispatchKeyGuard
from dispatchlab.call.operators import Operator, operator
from dispatchlab.call.tensor import Array, Tensor, VersionCounter, shallow_copy
from dispatchlab.errors import CallError, ErrorKind
from dispatchlab.layers import batching
from dispatchlab.layers.autograd_graph import Gradients, Node
from dispatchlab.layers.grad_mode import is_grad_enabled
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.keys import DispatchKey

BoxedKernel: TypeAlias = Callable[[Operator, DispatchKeySet, list[object]], None]

# -- Autograd


def autograd(called: Operator, keys: DispatchKeySet, stack: list[object]) -> None:
    """Redispatch below autograd; a result of arguments that require gradients warns when `backward` gets to it.

    Source: torch/csrc/autograd/autograd_not_implemented_fallback.cpp (`basicAutogradNotImplementedFallback`, whose mode
    in PyTorch 2.13 is "warn").
    """
    tensors = _tensors(_arguments(called, stack))
    node = None
    if is_grad_enabled() and any(one.requires_grad for one in tensors):
        node = Node("WarnNotImplemented", _warns(called), tensors)
    called.redispatch_boxed(keys & _below(DispatchKey.AutogradOther), stack)
    if node is None:
        return
    results = _tensors(stack[len(stack) - len(called.schema.returns) :])
    node.results = len(results)
    for number, result in enumerate(results):
        # What already requires gradients has a history, and PyTorch leaves it that.
        if result.dtype.is_differentiable and not result.requires_grad:
            result.requires_grad, result.grad_fn, result.output_nr = True, node, number


def _warns(called: Operator) -> Callable[[Node, Gradients], Gradients]:
    def run(node: Node, gradients: Gradients) -> Gradients:
        warnings.warn(
            f"{called.name} has no Autograd kernel, so no gradient goes through it: register one that records a "
            "formula, or call it under no_grad()",
            UserWarning,
            stacklevel=2,
        )
        return [None] * len(node.next_edges)

    return run


# -- Conjugate, Negative, ZeroTensor: tensors that only stand for their elements


def conjugate(called: Operator, keys: DispatchKeySet, stack: list[object]) -> None:
    """Hand on conjugate tensors as the elements that they stand for. Source: aten/src/ATen/native/MathBitsFallback.h"""
    _materialize(called, keys, stack, DispatchKey.Conjugate, np.conj)


def negative(called: Operator, keys: DispatchKeySet, stack: list[object]) -> None:
    """Hand on negated tensors as the elements that they stand for. Source: aten/src/ATen/native/MathBitsFallback.h"""
    _materialize(called, keys, stack, DispatchKey.Negative, np.negative)


def zero_tensor(called: Operator, keys: DispatchKeySet, stack: list[object]) -> None:
    """Hand on tensors of zeros with elements. Source: aten/src/ATen/ZeroTensorFallback.cpp"""
    _materialize(called, keys, stack, DispatchKey.ZeroTensor, None)


def _materialize(
    called: Operator,
    keys: DispatchKeySet,
    stack: list[object],
    key: DispatchKey,
    inverse: Callable[[Array], Array] | None,
) -> None:
    """Replace the tensors with `key` by copies without it, redispatch below it, and write back what was written.

    Args:
        inverse: from what is stored to what it stands for, and back; None where every element stands for zero.
    """
    below = keys & _below(key)
    aliases = [argument.alias for argument in called.schema.arguments if argument.alias is not None]
    writes = {alias.is_write for alias in aliases}
    if len(writes) > 1:
        raise _refused(called, key, "it both writes an argument and returns a view of one: register a kernel for it")
    if writes == {False}:  # A view keeps the key, and so its kernel knows what it does.
        called.redispatch_boxed(below, stack)
        return
    bit = DispatchKeySet.of(key).bits
    start = len(stack) - len(called.schema.arguments)
    written: list[tuple[Tensor, Tensor]] = []

    def resolved(value: Tensor, *, is_written: bool) -> Tensor:
        if not value.key_bits & bit:
            return value
        if is_written and inverse is None:
            raise _refused(called, key, "a tensor of zeros cannot be written: pass a clone of it")
        made = _resolved(value, bit, inverse)
        if is_written:
            written.append((value, made))
        return made

    for at, argument in enumerate(called.schema.arguments, start):
        value, is_written = stack[at], argument.alias is not None
        if isinstance(value, Tensor):
            stack[at] = resolved(value, is_written=is_written)
        elif isinstance(value, list):
            stack[at] = [resolved(one, is_written=is_written) if isinstance(one, Tensor) else one for one in value]
    if len(written) > 1:
        raise _refused(called, key, "it writes more than one such tensor: clone all but one")
    called.redispatch_boxed(below, stack)
    for original, made in written:
        assert inverse is not None
        original.data[...] = inverse(made.data)
        original.version_counter.value += 1
        first = len(stack) - len(called.schema.returns)
        stack[first:] = [original if one is made else one for one in stack[first:]]


def _resolved(tensor: Tensor, bit: int, inverse: Callable[[Array], Array] | None) -> Tensor:
    """A copy of the elements that a tensor stands for."""
    made = shallow_copy(tensor, type(tensor))
    made.key_bits = tensor.key_bits & ~bit
    if tensor.elements is not None:
        made.elements = np.zeros(tensor.shape, tensor.dtype.numpy) if inverse is None else inverse(tensor.data)
    node = Node("CloneBackward", _passes_on, (tensor,)) if tensor.requires_grad else None
    made.start_history(VersionCounter(), requires_grad=tensor.requires_grad)
    made.grad_fn = node
    return made


def _passes_on(node: Node, gradients: Gradients) -> Gradients:
    return gradients


# -- keys that hand on


def functionalize(called: Operator, keys: DispatchKeySet, stack: list[object]) -> None:
    """Call anew without Functionalize; there are no functional tensors here to unwrap.

    Source: aten/src/ATen/FunctionalizeFallbackKernel.cpp
    """
    returned = next((one for one in called.schema.returns if one.alias is not None), None)
    if returned is not None:
        raise _refused(
            called,
            DispatchKey.Functionalize,
            "its schema says that a result aliases an argument: register a kernel for Functionalize, or a variant "
            "of the operator without aliases",
        )
    with ExcludeDispatchKeyGuard(DispatchKey.Functionalize):
        called.call_boxed(stack)


def pre_dispatch(called: Operator, keys: DispatchKeySet, stack: list[object]) -> None:
    """Redispatch. Source: aten/src/ATen/core/PythonFallbackKernel.cpp"""
    called.redispatch_boxed(keys & _below(DispatchKey.PreDispatch), stack)


def batched(called: Operator, keys: DispatchKeySet, stack: list[object]) -> None:
    """Call once for each element of a batch, where the dispatcher has the operators that take a batch apart.

    Source: aten/src/ATen/LegacyBatchedFallback.cpp
    """
    if not any(isinstance(one, batching.BatchedTensor) for one in _tensors(_arguments(called, stack))):
        raise _refused(called, DispatchKey.Batched, "no argument is a batched tensor, as vmap makes them")
    batching.batched_fallback(lambda name: operator(called.dispatcher, f"aten::{name}"))(called, stack)


# -- keys that refuse


def meta(called: Operator, keys: DispatchKeySet, stack: list[object]) -> NoReturn:
    """Refuse a call with tensors on `meta`. Source: aten/src/ATen/core/MetaFallbackKernel.cpp"""
    name = called.name
    local = f"{name.name}.{name.overload}" if name.overload else name.name
    message = (
        f"{name} got tensors on the device meta, and has no kernel that computes what its results look like: "
        f'register one: lib.impl("{local}", kernel, "Meta")'
    )
    raise CallError(ErrorKind.MISSING_KERNEL, message, {**_facts(called, DispatchKey.Meta)})


def _fails_outside(key: DispatchKey, why: str) -> BoxedKernel:
    def kernel(called: Operator, keys: DispatchKeySet, stack: list[object]) -> NoReturn:
        raise _refused(called, key, why)

    return kernel


def _batches(key: DispatchKey) -> BoxedKernel:
    def kernel(called: Operator, keys: DispatchKeySet, stack: list[object]) -> None:
        # A list stops it even when it is empty, and None for a tensor counts as one.
        types = (str(argument.type) for argument in called.schema.arguments)
        if any(
            isinstance(value, Tensor) or type_ == "Tensor" or (type_.startswith("Tensor") and type_.endswith("]"))
            for type_, value in zip(types, _arguments(called, stack), strict=True)
        ):
            raise _refused(called, key, "no vmap of functorch is active")
        with ExcludeDispatchKeyGuard(key):
            called.call_boxed(stack)

    return kernel


# Source: aten/src/ATen/functorch/BatchedFallback.cpp
functorch_batched = _batches(DispatchKey.FuncTorchBatched)
batched_nested_tensor = _batches(DispatchKey.BatchedNestedTensor)
# Source: aten/src/ATen/functorch/TensorWrapper.cpp, DynamicLayer.cpp
functorch_grad_wrapper = _fails_outside(DispatchKey.FuncTorchGradWrapper, "no argument is wrapped by functorch")
dynamic_layer_front = _fails_outside(DispatchKey.FuncTorchDynamicLayerFrontMode, "no transform of functorch is active")
dynamic_layer_back = _fails_outside(DispatchKey.FuncTorchDynamicLayerBackMode, "no transform of functorch is active")
# Source: aten/src/ATen/core/PythonFallbackKernel.cpp
python_dispatcher = _fails_outside(DispatchKey.PythonDispatcher, "this thread has no Python dispatcher")


# -- what they share


def _below(key: DispatchKey) -> DispatchKeySet:
    return DispatchKeySet.full_after(key)


def _arguments(called: Operator, stack: list[object]) -> list[object]:
    return stack[len(stack) - len(called.schema.arguments) :]


def _tensors(values: Sequence[object]) -> list[Tensor]:
    """The tensors among values, those in lists included."""
    each = (one for value in values for one in (value if isinstance(value, list | tuple) else (value,)))
    return [one for one in each if isinstance(one, Tensor)]


def _facts(called: Operator, key: DispatchKey) -> dict[str, str]:
    return {"operator": str(called.name), "schema": str(called.schema), "key": str(key)}


def _refused(called: Operator, key: DispatchKey, why: str) -> CallError:
    message = f"the builtin fallback of {key} cannot run {called.name}: {why}\n  {called.schema}"
    return CallError(ErrorKind.OTHER, message, _facts(called, key))
