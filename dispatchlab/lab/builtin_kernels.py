"""The kernels behind PyTorch 2.13's backend fallbacks, as the dispatcher's builtin fallbacks run them.

`engine.builtin_fallbacks` names each of them beside its key; a dispatcher imports them when a call first gets there.
The lab has no transforms of functorch and no Python dispatcher: their keys refuse as PyTorch's do where none is
active.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, TypeAlias

import numpy as np

from dispatchlab.call.local_key_set import ExcludeDispatchKeyGuard
from dispatchlab.call.operators import Operator, operator
from dispatchlab.call.tensor import Tensor, VersionCounter, shallow_copy
from dispatchlab.errors import CallError, ErrorKind
from dispatchlab.lab import batching
from dispatchlab.lab.autograd_graph import Node
from dispatchlab.lab.grad_mode import is_grad_enabled
from dispatchlab.lab.kernels import tensors_in
from dispatchlab.lab.lazy_elements import LAZY_BITS, held, meant
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.schema import OPTIONAL_TENSORS, TENSOR, ListType, OptionalType
from dispatchlab.model.schema_parser import parse_name

BoxedKernel: TypeAlias = Callable[[Operator, DispatchKeySet, list[object]], None]

# -- Conjugate, Negative, ZeroTensor: tensors that only stand for their elements


def conjugate(called: Operator, keys: DispatchKeySet, stack: list[object]) -> None:
    """Redispatch with the conjugated elements of conjugate tensors. Source: aten/src/ATen/native/MathBitsFallback.h"""
    _materialize(called, keys, stack, DispatchKey.Conjugate)


def negative(called: Operator, keys: DispatchKeySet, stack: list[object]) -> None:
    """Redispatch with the negated elements of negated tensors. Source: aten/src/ATen/native/MathBitsFallback.h"""
    _materialize(called, keys, stack, DispatchKey.Negative)


def zero_tensor(called: Operator, keys: DispatchKeySet, stack: list[object]) -> None:
    """Redispatch with the elements of tensors of zeros. Source: aten/src/ATen/ZeroTensorFallback.cpp"""
    _materialize(called, keys, stack, DispatchKey.ZeroTensor)


def _materialize(called: Operator, keys: DispatchKeySet, stack: list[object], key: DispatchKey) -> None:
    """Replace tensors with `key` by tensors with elements, redispatch below it, and write back the changes."""
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

    def with_elements(value: Tensor, *, is_written: bool) -> Tensor:
        if not value.key_bits & bit:
            return value
        if key is DispatchKey.ZeroTensor:
            if is_written:
                raise _refused(called, key, "a tensor of zeros cannot be written: pass a clone of it")
            return _zeros(called, value)
        if written and is_written:
            raise _refused(called, key, "it writes more than one such tensor: clone all but one")
        made = _clone(called, value)
        if is_written:
            written.append((value, made))
        return made

    for at, argument in enumerate(called.schema.arguments, start):
        value, is_written = stack[at], argument.alias is not None
        if isinstance(value, Tensor):
            stack[at] = with_elements(value, is_written=is_written)
        elif isinstance(value, list) and argument.type != OPTIONAL_TENSORS:
            # NB: PyTorch does not look into a list that may hold None, which is another kind of list to it
            if is_written and any(isinstance(one, Tensor) and one.key_bits & bit for one in value):
                raise _refused(called, key, "it writes a list with such a tensor: clone the tensors of the list")
            stack[at] = [with_elements(one, is_written=False) if isinstance(one, Tensor) else one for one in value]
    called.redispatch_boxed(below, stack)
    for original, made in written:
        if not called.schema.returns or stack[start] is not made:
            raise _refused(called, key, "its kernel did not return the tensor that it was given to write")
        _copy_back(called, original, made)
        stack[start] = original


def _found(called: Operator, name: str) -> Operator | None:
    """Return an operator of PyTorch, if the dispatcher has it."""
    known = parse_name(f"aten::{name}")
    return None if called.dispatcher.find_schema(known) is None else operator(called.dispatcher, known)


def _clone(called: Operator, tensor: Tensor) -> Tensor:
    """Return a tensor with the represented elements of another: a call of `clone`, which every key above sees."""
    clone = _found(called, "clone")
    made = _standing_for_itself(tensor) if clone is None else clone(tensor)
    assert isinstance(made, Tensor)
    return made


def _zeros(called: Operator, tensor: Tensor) -> Tensor:
    """Return zeros: one expanded zero, if the dispatcher has the operators for it."""
    zeros, expand = _found(called, "zeros"), _found(called, "expand")
    if zeros is None or expand is None:
        return _standing_for_itself(tensor)
    made = expand(zeros([], dtype=tensor.dtype, layout=tensor.layout, device=tensor.device), [*tensor.shape])
    assert isinstance(made, Tensor)
    return made


def _copy_back(called: Operator, original: Tensor, made: Tensor) -> None:
    copy_ = _found(called, "copy_")
    if copy_ is None:
        original.data[...] = held(original, made.data)
        original.version_counter.value += 1
    else:
        copy_(original, made)


def _standing_for_itself(tensor: Tensor) -> Tensor:
    """Return a copy of the represented elements of a tensor, without a call."""
    made = shallow_copy(tensor, type(tensor))
    made.key_bits = tensor.key_bits & ~LAZY_BITS
    if tensor.elements is not None:
        made.elements = np.array(meant(tensor))
    node = (
        Node("CloneBackward0", lambda _, gradients: gradients, (tensor,))
        if tensor.requires_grad and is_grad_enabled()
        else None
    )
    made.start_history(VersionCounter(), requires_grad=node is not None)
    made.grad_fn = node
    return made


# -- keys that hand on


def functionalize(called: Operator, keys: DispatchKeySet, stack: list[object]) -> None:
    """Call the operator again without Functionalize, because there are no functional tensors to unwrap.

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


def tracer(called: Operator, keys: DispatchKeySet, stack: list[object]) -> None:
    """Redispatch without Tracer; no call is recorded. Source: torch/csrc/jit/frontend/tracer.cpp"""
    with ExcludeDispatchKeyGuard(DispatchKey.Tracer):
        called.redispatch_boxed(keys & _below(DispatchKey.Tracer), stack)


def batched(called: Operator, keys: DispatchKeySet, stack: list[object]) -> None:
    """Call once for each element of a batch, if the dispatcher has the operators to split a batch.

    Source: aten/src/ATen/LegacyBatchedFallback.cpp
    """
    if not any(isinstance(one, batching.BatchedTensor) for one in tensors_in(_arguments(called, stack))):
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


_TENSOR_OR_NONE = (TENSOR, OptionalType(TENSOR))


def _batches(key: DispatchKey) -> BoxedKernel:
    def kernel(called: Operator, keys: DispatchKeySet, stack: list[object]) -> None:
        # A list of tensors stops it even when it is empty, a result that is none does, and None for a tensor counts as
        # one.
        schema = called.schema
        types = [argument.type for argument in schema.arguments]
        stops = any(isinstance(type_, ListType) and type_.element in _TENSOR_OR_NONE for type_ in types)
        stops = stops or any(one.type != TENSOR for one in schema.returns)
        if stops or any(
            isinstance(value, Tensor) or type_ == TENSOR
            for type_, value in zip(types, _arguments(called, stack), strict=True)
        ):
            raise _refused(called, key, "no vmap of functorch is active")
        with ExcludeDispatchKeyGuard(key):
            called.call_boxed(stack)

    return kernel


# Source: aten/src/ATen/functorch/BatchedFallback.cpp
functorch_batched = _batches(DispatchKey.FuncTorchBatched)
batched_nested_tensor = _batches(DispatchKey.BatchedNestedTensor)
# Source: aten/src/ATen/functorch/DynamicLayer.cpp
dynamic_layer_front = _fails_outside(DispatchKey.FuncTorchDynamicLayerFrontMode, "no transform is active")
dynamic_layer_back = _fails_outside(DispatchKey.FuncTorchDynamicLayerBackMode, "no transform is active")
# Source: aten/src/ATen/functorch/TensorWrapper.cpp
functorch_grad_wrapper = _fails_outside(
    DispatchKey.FuncTorchGradWrapper, "no argument is wrapped by a transform that is over"
)
# Source: aten/src/ATen/core/PythonFallbackKernel.cpp
python_dispatcher = _fails_outside(DispatchKey.PythonDispatcher, "this thread has no Python dispatcher")


# -- what they share


def _below(key: DispatchKey) -> DispatchKeySet:
    return DispatchKeySet.full_after(key)


def _arguments(called: Operator, stack: list[object]) -> list[object]:
    return stack[len(stack) - len(called.schema.arguments) :]


def _facts(called: Operator, key: DispatchKey) -> dict[str, str]:
    return {"operator": str(called.name), "schema": str(called.schema), "key": str(key)}


def _refused(called: Operator, key: DispatchKey, why: str) -> CallError:
    message = f"the builtin fallback of {key} cannot run {called.name}: {why}\n  {called.schema}"
    return CallError(ErrorKind.OTHER, message, _facts(called, key))
