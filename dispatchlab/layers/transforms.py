"""The transforms: `vmap`, `grad`, `grad_and_value` and `functionalize`, which nest in any order.

Each puts a layer on the stack of transforms, wraps the arguments for its level, calls the function, and unwraps what it
returns. Source: torch/_functorch/vmap.py, eager_transforms.py; torch/csrc/functorch/init.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from dispatchlab.call.local_key_set import KeyGuard, excluded, included
from dispatchlab.call.tensor import Tensor
from dispatchlab.layers import backward
from dispatchlab.layers.batching_rules import moved
from dispatchlab.layers.derivatives import Calls
from dispatchlab.layers.dynamic_layers import FunctionalizeLayer, GradLayer, VmapLayer, active
from dispatchlab.layers.errors import AutogradError, AutogradErrorKind, TransformError, TransformErrorKind
from dispatchlab.layers.functional_tensors import FunctionalTensor, reapplied_views
from dispatchlab.layers.grad_mode import set_grad_enabled
from dispatchlab.layers.level_tensors import LevelBatchedTensor, TensorWrapper
from dispatchlab.model.key_set import DispatchKeySet

Function: TypeAlias = Callable[..., Any]
Dims: TypeAlias = Any
"""A dimension, None, or a tuple, list or dict of these that is structured as the values are."""


def vmap(
    calls: Calls, function: Function, in_dims: Dims = 0, out_dims: Dims = 0, *, randomness: str = "error"
) -> Function:
    """A function that does for a whole batch what `function` does for one element, each operator called once.

    Args:
        calls: the operators.
        function: takes tensors, and gives one or several.
        in_dims: the dimension of the batch in each argument; None for an argument that is not batched.
        out_dims: where the batch goes in each result; None for one that is not batched.
        randomness: what random operators do: `error`, `same` or `different` numbers for the elements.

    Raises:
        TransformError: the randomness is none of these.
    """
    if randomness not in ("error", "same", "different"):
        message = f"randomness is 'error', 'same' or 'different', but got {randomness!r}"
        raise TransformError(TransformErrorKind.WRONG_ARGUMENT, message)

    def batched(*arguments: Any, **named: Any) -> Any:
        for one in _leaves(out_dims):
            if not (one is None or isinstance(one, int)):
                raise _wrong_dims(f"out_dims holds dimensions and None, but got {one!r}")
        if not isinstance(in_dims, int | tuple):
            raise _wrong_dims(f"in_dims is a dimension or a tuple that is structured as the arguments, not {in_dims!r}")
        values = [*_leaves(arguments)]
        if not values:
            raise _wrong_dims("the function got no argument that could be a batch")
        dims = _broadcast(in_dims, arguments, "in_dims", "the arguments")
        size, dims = _batch_size(values, dims)
        with active(lambda level: VmapLayer(level, size, randomness)) as layer:
            inner = iter(
                one if dim is None else LevelBatchedTensor(one, dim, layer.level)
                for one, dim in zip(values, dims, strict=True)
            )
            result = function(*_mapped(lambda one: next(inner), arguments), **named)
            outer = _out_dims(out_dims, result)
            return _mapped(lambda one: _without_batch(calls, one, layer.level, size, next(outer)), result)

    return batched


def _batch_size(values: Sequence[Any], dims: Sequence[Any]) -> tuple[int, list[int | None]]:
    found: list[int | None] = []
    for one, dim in zip(values, dims, strict=True):
        if not (dim is None or isinstance(dim, int)):
            raise _wrong_dims(f"in_dims holds dimensions and None, but got {dim!r}")
        if dim is None:
            found.append(None)
        elif not isinstance(one, Tensor):
            raise _wrong_dims(f"in_dims has the dimension {dim} for a {type(one).__name__}: say None there")
        elif not -one.dim <= dim < one.dim:
            raise _wrong_dims(f"in_dims has the dimension {dim} for a tensor of shape {list(one.shape)}")
        else:
            found.append(dim % one.dim)
    sizes = [one.shape[dim] for one, dim in zip(values, found, strict=True) if dim is not None]
    if len({*sizes}) != 1:
        raise _wrong_dims(f"vmap expects batches of one size, but got {', '.join(map(str, sizes)) or 'none'}")
    return sizes[0], found


def _out_dims(out_dims: Dims, result: Any) -> Iterator[int | None]:
    if isinstance(result, Tensor):
        if isinstance(out_dims, tuple) and len(out_dims) == 1:
            return iter(out_dims)
        if not (out_dims is None or isinstance(out_dims, int)):
            raise _wrong_dims(f"out_dims is {out_dims!r}, and the function returned one tensor")
        return iter((out_dims,))
    return iter(_broadcast(out_dims, result, "out_dims", "the result"))


def _without_batch(calls: Calls, one: Any, level: int, size: int, dim: int | None) -> Any:
    if dim is None:
        if isinstance(one, LevelBatchedTensor):
            raise TransformError(TransformErrorKind.WRONG_OUTPUT, "out_dims has None for a result that is batched")
        return one
    if not isinstance(one, Tensor):
        message = f"a function of vmap() returns tensors, but got {type(one).__name__}: say out_dims=None for that one"
        raise TransformError(TransformErrorKind.WRONG_OUTPUT, message)
    if not (isinstance(one, LevelBatchedTensor) and one.level == level):
        at = dim if dim >= 0 else dim + one.dim + 1
        if not 0 <= at <= one.dim:
            raise _wrong_dims(f"out_dims has {dim}, and the result has the shape {list(one.shape)} without the batch")
        return calls("expand")(one, [*one.shape[:at], size, *one.shape[at:]])
    rank = one.value.dim
    if not -rank <= dim < rank:
        raise _wrong_dims(f"out_dims has {dim}, and the result has the shape {list(one.shape)} without the batch")
    return one.value if dim % rank == one.bdim else moved(calls, one.value, one.bdim, dim % rank)


def grad_and_value(
    calls: Calls, function: Function, argnums: int | tuple[int, ...] = 0, *, has_aux: bool = False
) -> Function:
    """A function that gives the gradient of `function` and its value.

    Args:
        calls: the operators.
        function: gives a tensor of no dimensions; with `has_aux`, a tuple of that and anything else.
        argnums: the positional argument to differentiate by; with a tuple, the gradient is a tuple.
        has_aux: whether the value is a tuple, of which the second part is handed on.
    """

    def differentiated(*arguments: Any, **named: Any) -> tuple[Any, Any]:
        with active(GradLayer) as layer, NormalTensors(), set_grad_enabled(enabled=True):
            assert isinstance(layer, GradLayer)

            def wrapped(one: Any) -> Any:
                return layer.wrapped(one) if isinstance(one, Tensor) else one

            inner = _mapped(wrapped, arguments)
            chosen = _chosen(inner, argnums)
            _mapped(_differentiable, chosen)
            result = function(*inner, **_mapped(wrapped, named))
            aux = None
            if has_aux:
                if not (isinstance(result, tuple) and len(result) == 2):
                    message = f"with has_aux, the function returns a tuple of two, but got {type(result).__name__}"
                    raise TransformError(TransformErrorKind.WRONG_OUTPUT, message)
                result, aux = result
            if not isinstance(result, Tensor) or result.dim:
                found = f"the shape {list(result.shape)}" if isinstance(result, Tensor) else type(result).__name__
                message = f"grad() is of a function that returns a tensor without dimensions, but got {found}"
                raise TransformError(TransformErrorKind.WRONG_OUTPUT, message)
            by = [*_leaves(chosen)]
            gradients = iter(
                calls("zeros_like")(one, pin_memory=False) if gradient is None else gradient
                for one, gradient in zip(by, backward.gradients(calls, result, by), strict=True)
            )

            def unwrapped(one: Any) -> Any:
                if isinstance(one, TensorWrapper) and (one.level == layer.level or not one.lifetime.alive):
                    return one.value
                return one

            found = _mapped(lambda one: unwrapped(next(gradients)), chosen)
            value = unwrapped(result)
            return found, (value, _mapped(unwrapped, aux)) if has_aux else value

    return differentiated


def grad(calls: Calls, function: Function, argnums: int | tuple[int, ...] = 0, *, has_aux: bool = False) -> Function:
    """A function that gives the gradient of `function`; with `has_aux`, that and the second part of its value."""
    both = grad_and_value(calls, function, argnums, has_aux=has_aux)

    def differentiated(*arguments: Any, **named: Any) -> Any:
        gradient, value = both(*arguments, **named)
        return (gradient, value[1]) if has_aux else gradient

    return differentiated


class NormalTensors(KeyGuard):
    """Tensors that are made now are no inference tensors; what is included and excluded stays as it is."""

    __slots__ = ()

    def _wanted(self) -> tuple[DispatchKeySet, DispatchKeySet, bool]:
        return included(), excluded(), False


def _differentiable(one: Any) -> None:
    if not isinstance(one, Tensor):
        message = f"grad() differentiates by tensors, but got {type(one).__name__}"
        raise TransformError(TransformErrorKind.WRONG_ARGUMENT, message)
    if not one.dtype.is_differentiable:
        message = f"a tensor of {one.dtype} cannot require gradients: use a floating point dtype"
        raise AutogradError(AutogradErrorKind.NOT_DIFFERENTIABLE, message)
    one.requires_grad = True


def _chosen(arguments: tuple[Any, ...], argnums: int | tuple[int, ...]) -> Any:
    count = len(arguments)
    each = argnums if isinstance(argnums, tuple) else (argnums,)
    if not each or any(not -count <= one < count for one in each) or len({one % count for one in each}) != len(each):
        message = f"argnums is {argnums!r}, and the function got {count} positional arguments"
        raise TransformError(TransformErrorKind.WRONG_ARGUMENT, message)
    return tuple(arguments[one] for one in each) if isinstance(argnums, tuple) else arguments[argnums]


def functionalize(calls: Calls, function: Function, *, remove: str = "mutations") -> Function:
    """A function that does what `function` does, by operators that write nothing; arguments are written at the end.

    Args:
        calls: the operators.
        function: any function of tensors.
        remove: `mutations`, or `mutations_and_views`, by which views become copies, too.

    Raises:
        TransformError: `remove` is none of these.
    """
    if remove not in ("mutations", "mutations_and_views"):
        message = f"remove is 'mutations' or 'mutations_and_views', but got {remove!r}"
        raise TransformError(TransformErrorKind.WRONG_ARGUMENT, message)
    reapplied = remove == "mutations"

    def functional(*arguments: Any, **named: Any) -> Any:
        with active(lambda level: FunctionalizeLayer(level, reapplies_views=reapplied)) as layer:

            def wrapped(one: Any) -> Any:
                if not isinstance(one, Tensor):
                    return one
                if isinstance(one, FunctionalTensor):
                    message = (
                        "functionalize() got a tensor of another one: one inside of the other is all that there is"
                    )
                    raise TransformError(TransformErrorKind.WRONG_ARGUMENT, message)
                made = FunctionalTensor(one)
                made.level = layer.level
                return made

            def unwrapped(one: Any) -> Any:
                if not isinstance(one, FunctionalTensor):
                    return one
                one.sync()
                with reapplied_views(reapplied):
                    if one.storage.apply_updates():
                        one.regenerate()
                return one.value

            outside = (arguments, named)
            inside = _mapped(wrapped, outside)
            result = _mapped(unwrapped, function(*inside[0], **inside[1]))
            for tensor, functional in zip(_leaves(outside), _leaves(inside), strict=True):
                if isinstance(functional, FunctionalTensor):
                    functional.sync()
                    if tensor is not functional.value:
                        calls("copy_")(tensor, functional.value)
            return result

    return functional


# -- values within tuples, lists and dicts


def _leaves(tree: Any) -> Iterator[Any]:
    """Everything in a tree but its tuples, lists and dicts, in their order."""
    if isinstance(tree, list | tuple):
        for one in tree:
            yield from _leaves(one)
    elif isinstance(tree, dict):
        for one in tree.values():
            yield from _leaves(one)
    else:
        yield tree


def _mapped(function: Callable[[Any], Any], tree: Any) -> Any:
    """The same tree with a function of each leaf, called in their order."""
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(_mapped(function, one) for one in tree))
    if isinstance(tree, list | tuple):
        return type(tree)([_mapped(function, one) for one in tree])
    if isinstance(tree, dict):
        return {key: _mapped(function, one) for key, one in tree.items()}
    return function(tree)


def _broadcast(dims: Dims, tree: Any, name: str, what: str) -> list[Any]:
    """For each leaf of a tree its dimension; one dimension stands for all leaves below it."""
    if dims is None or isinstance(dims, int):
        return [dims for _ in _leaves(tree)]
    if type(dims) is type(tree) and len(dims) == len(tree):
        if isinstance(dims, dict) and dims.keys() == tree.keys():
            pairs = [(dims[key], one) for key, one in tree.items()]
        elif not isinstance(dims, dict):
            pairs = [*zip(dims, tree, strict=True)]
        else:
            pairs = []
        if pairs or not dims:
            return [found for one, below in pairs for found in _broadcast(one, below, name, what)]
    raise _wrong_dims(f"{name} is {dims!r}, which is not structured as {what}")


def _wrong_dims(message: str) -> TransformError:
    return TransformError(TransformErrorKind.WRONG_DIMS, message)
