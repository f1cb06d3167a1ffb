"""Batching rules: how an operator is called once for a whole batch, by the key FuncTorchBatched.

A rule gets each tensor with the dimension that is hidden at this level, or None, and gives the result in the same form.
An operator without a rule is called once for each slice, which warns. A random operator is met before, at
FuncTorchVmapMode, for it draws as often as the randomness of the `vmap` says, whether its tensors are batched or not.
Source: aten/src/ATen/functorch/BatchRules*.cpp, BatchedFallback.cpp, LegacyVmapTransforms.cpp, PlumbingHelper.cpp;
torchgen/gen_vmap_plumbing.py.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple, TypeAlias

from dispatchlab.call.local_key_set import ExcludeDispatchKeyGuard
from dispatchlab.call.operators import Operator
from dispatchlab.call.tensor import Tensor, is_viewable
from dispatchlab.call.tensor_options import MemoryFormat, result_dtype
from dispatchlab.call.transform_rules import batch_refused, is_in_place, slices_refused
from dispatchlab.layers.derivatives import Calls
from dispatchlab.layers.dynamic_layers import VmapLayer, current_layer
from dispatchlab.layers.errors import TransformError, TransformErrorKind
from dispatchlab.layers.kernels import refused
from dispatchlab.layers.level_tensors import LevelBatchedTensor, unwrapped_at
from dispatchlab.layers.schemas import COMPARISONS
from dispatchlab.model.keys import DispatchKey


class Batch(NamedTuple):
    """A tensor, and the dimension that is hidden; None when it is none of the batch."""

    tensor: Tensor
    bdim: int | None

    @property
    def rank(self) -> int:
        """The number of dimensions that are not hidden."""
        return self.tensor.dim - (self.bdim is not None)


Rule: TypeAlias = Callable[..., Batch | list[Batch] | None]
BoxedKernel: TypeAlias = Callable[[Operator, list[object]], None]


def vmap_layer(name: str) -> VmapLayer:
    """The innermost transform, which is a `vmap`.

    Raises:
        TransformError: of kind `escaped_tensor`, when it is none.
    """
    layer = current_layer()
    if isinstance(layer, VmapLayer):
        return layer
    message = f"{name} got a tensor of a vmap() that is over: return it from the function to get the whole batch"
    raise TransformError(TransformErrorKind.ESCAPED_TENSOR, message)


def plumbing(calls: Calls, rule: Rule) -> BoxedKernel:
    """The boxed kernel of a rule.

    Args:
        calls: the operators.
        rule: given the operators and every argument, those that are tensors as `Batch`; what it gives is the result,
            and None that the first argument was written.
    """

    def kernel(called: Operator, stack: list[object]) -> None:
        with ExcludeDispatchKeyGuard(DispatchKey.FuncTorchBatched):
            level = vmap_layer(str(called.name)).level
            start = len(stack) - len(called.schema.arguments)
            values = stack[start:]
            if not any(_participates(one, level) for one in values):
                called.call_boxed(stack)
                return
            result = rule(calls, *(_as_batch(one, level) for one in values))
            if result is None:
                stack[start:] = values[:1]
            else:
                results = result if isinstance(result, list) else [result]
                stack[start:] = [_rebatched(one, level) for one in results]

    return kernel


def slow_fallback(calls: Calls, called: Operator, stack: list[object]) -> None:
    """Call once for each slice of the batch, and stack the results.

    Raises:
        TransformError: of kind `no_batching_rule`: it takes or returns something that cannot be sliced or stacked.
    """
    schema = called.schema
    start = len(stack) - len(schema.arguments)
    values = stack[start:]
    if why := slices_refused(schema):
        raise _no_rule(called, why)
    level = vmap_layer(str(called.name)).level
    if not any(_participates(one, level) for one in values):
        with ExcludeDispatchKeyGuard(DispatchKey.FuncTorchBatched):
            called.call_boxed(stack)
        return
    in_place = is_in_place(schema)
    if why := batch_refused(schema):
        raise _no_rule(called, why)
    warnings.warn(
        f"{called.name} has no batching rule, and is called once for each element of the batch: register a kernel at "
        "FuncTorchBatched",
        UserWarning,
        stacklevel=2,
    )
    if in_place:
        first = values[0].level if isinstance(values[0], LevelBatchedTensor) else None
        if any(isinstance(one, LevelBatchedTensor) and one.level != first for one in values):
            raise _unbatched_write(str(called.name))
    size, slices = _sliced(calls, values, level)
    if size == 0:
        raise _no_rule(called, "the batch has no element to call it with")
    rows: list[list[object]] = []
    for index in range(size):
        inner = [one(index) for one in slices]
        if in_place:
            called.call_boxed(inner)
        else:
            with ExcludeDispatchKeyGuard(DispatchKey.FuncTorchBatched):
                called.call_boxed(inner)
        rows.append(inner)
    if in_place:
        stack[start:] = values[:1]
        return
    with ExcludeDispatchKeyGuard(DispatchKey.FuncTorchBatched):
        stack[start:] = [_stacked(calls, called, column, level) for column in zip(*rows, strict=True)]


def _sliced(calls: Calls, values: Sequence[object], level: int) -> tuple[int, list[Callable[[int], object]]]:
    """The size of the batch, and for each argument what it is at an index."""
    with ExcludeDispatchKeyGuard(DispatchKey.FuncTorchBatched):
        (size, *_) = (
            one.value.shape[one.bdim] for one in values if isinstance(one, LevelBatchedTensor) and one.level == level
        )
        fronts = [
            _with_front(calls, Batch(*unwrapped_at(one, level)), size) if isinstance(one, LevelBatchedTensor) else None
            for one in values
        ]
    select = calls("select.int")

    def at(front: Tensor | None, value: object) -> Callable[[int], object]:
        def find(index: int) -> object:
            if front is None:
                return value
            with ExcludeDispatchKeyGuard(DispatchKey.FuncTorchBatched):
                return select(front, 0, index)

        return find

    return size, [at(front, value) for front, value in zip(fronts, values, strict=True)]


def _stacked(calls: Calls, called: Operator, column: Sequence[object], level: int) -> object:
    if all(one is None for one in column):
        return None
    if any(one is None for one in column):
        raise _no_rule(called, "it returned a tensor for some elements of the batch and none for others")
    whole = calls("stack")([*column])
    return LevelBatchedTensor(calls("view")(whole, [*whole.shape]), 0, level)


# -- what rules are made of


def moved(calls: Calls, tensor: Tensor, source: int, destination: int) -> Tensor:
    """One dimension moved, the others in their order."""
    result: Tensor = calls("movedim.int")(tensor, source, destination)
    return result


def _front(calls: Calls, batch: Batch) -> Tensor:
    return moved(calls, batch.tensor, batch.bdim, 0) if batch.bdim else batch.tensor


def _padded(calls: Calls, tensor: Tensor, batch: Batch, rank: int) -> Tensor:
    if batch.bdim is None or batch.rank >= rank:
        return tensor
    first, *others = tensor.shape
    padded: Tensor = calls("view")(tensor, [first, *[1] * (rank - batch.rank), *others])
    return padded


def _wrapped(dim: int, rank: int) -> int:
    rank = max(rank, 1)
    if not -rank <= dim < rank:
        raise refused(f"dimension {dim} is out of range for a tensor of {rank} dimensions inside of vmap()")
    return dim % rank


def _unary(name: str) -> Rule:
    def rule(calls: Calls, self: Batch, *others: object) -> Batch:
        return Batch(_called(calls, name, self.tensor, *others), self.bdim)

    return rule


def _called(calls: Calls, name: str, *arguments: object) -> Tensor:
    stack = [*arguments]
    calls(name).call_boxed(stack)
    (result,) = stack
    assert isinstance(result, Tensor)
    return result


def _binary_arguments(calls: Calls, first: Batch, second: Batch, *, promotes: bool) -> tuple[Tensor, Tensor]:
    rank = max(first.rank, second.rank)
    one, other = _front(calls, first), _front(calls, second)
    if promotes:
        # A batch of scalars has dimensions, and yet it must not count as a tensor that has.
        if not first.rank and first.bdim is not None and not (not second.rank and second.bdim is not None):
            one, other = _as_scalar(calls, one, other)
        if not second.rank and second.bdim is not None and not (not first.rank and first.bdim is not None):
            other, one = _as_scalar(calls, other, one)
    return _padded(calls, one, first, rank), _padded(calls, other, second, rank)


def _as_scalar(calls: Calls, scalars: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    one = calls("select.int")(scalars, 0, 0)
    dtype = result_dtype(each.item() if each.is_wrapped_number else (each.dtype, each.dim) for each in (one, other))
    to_copy = calls("_to_copy")
    return (
        scalars if scalars.dtype == dtype else to_copy(scalars, dtype=dtype),
        other if other.dtype == dtype else to_copy(other, dtype=dtype),
    )


def _binary(name: str, *, promotes: bool = True) -> Rule:
    def rule(calls: Calls, self: Batch, other: Batch, *others: object) -> Batch:
        one, two = _binary_arguments(calls, self, other, promotes=promotes)
        return Batch(_called(calls, name, one, two, *others), 0)

    return rule


def _boxed_pointwise(name: str) -> Rule:
    """Of a binary operator whatever it writes: the result is what it returns, with the dimension in front."""

    def rule(calls: Calls, self: Batch, other: Batch, *others: object) -> Batch:
        rank = max(self.rank, other.rank)
        one, two = (_padded(calls, _front(calls, each), each, rank) for each in (self, other))
        return Batch(_called(calls, name, one, two, *others), 0)

    return rule


def _binary_in_place(name: str) -> Rule:
    def rule(calls: Calls, self: Batch, other: Batch, *others: object) -> None:
        if self.bdim is None and other.bdim is not None:
            raise _unbatched_write(name)
        one, two = _binary_arguments(calls, self, other, promotes=False)
        _called(calls, name, one, two, *others)

    return rule


def _products(name: str, rank: int, expected: str) -> Rule:
    def rule(calls: Calls, self: Batch, mat2: Batch) -> Batch:
        if self.rank != rank or mat2.rank != rank:
            raise refused(f"{name} expects {expected} {self.rank} and {mat2.rank} dimensions inside of vmap()")
        return Batch(_called(calls, "matmul", _front(calls, self), _front(calls, mat2)), 0)

    return rule


def _mv(calls: Calls, self: Batch, vec: Batch) -> Batch:
    if self.rank != 2 or vec.rank != 1:
        raise refused(
            f"mv expects a matrix and a vector, but got {self.rank} and {vec.rank} dimensions inside of vmap()"
        )
    if self.bdim is None:
        assert vec.bdim is not None
        columns = moved(calls, vec.tensor, vec.bdim, vec.tensor.dim - 1)
        return Batch(_called(calls, "matmul", self.tensor, columns), 1)
    if vec.bdim is None:
        return Batch(_called(calls, "matmul", _front(calls, self), vec.tensor), 0)
    matrices = moved(calls, self.tensor, self.bdim, 0)
    vectors = calls("unsqueeze")(_front(calls, vec), -1)
    result = calls("squeeze.dim")(_called(calls, "matmul", matrices, vectors), -1)
    return Batch(result, result.dim - 2)


def _dot(calls: Calls, self: Batch, tensor: Batch) -> Batch:
    if self.rank != 1 or tensor.rank != 1:
        raise refused(f"dot expects two vectors, but got {self.rank} and {tensor.rank} dimensions inside of vmap()")
    one, two = _front(calls, self), _front(calls, tensor)
    if self.bdim is None or tensor.bdim is None:
        return Batch(_called(calls, "matmul", one, calls("t")(two)), 0)
    column = calls("unsqueeze")(two, -1)
    product = _called(calls, "matmul", calls("unsqueeze")(one, -2), column)
    squeeze = calls("squeeze.dim")
    return Batch(squeeze(squeeze(product, -1), -1), 0)


def _sum(calls: Calls, self: Batch, dim: Any, keepdim: bool, dtype: object) -> Batch:  # noqa: FBT001
    front = _front(calls, self)
    rank = front.dim - 1
    dims = list(range(max(rank, 1))) if not dim else [*dim]
    physical = [_wrapped(one, rank) + 1 for one in dims]
    is_scalar = rank == 0 and len(dims) == 1 and dims[0] in (0, -1)
    if is_scalar:
        front, physical = calls("unsqueeze")(front, -1), [1]
    result = calls("sum.dim_IntList")(front, physical, keepdim, dtype=dtype)
    return Batch(calls("squeeze.dim")(result, -1) if is_scalar and keepdim else result, 0)


def _clone(calls: Calls, self: Batch, memory_format: object) -> Batch:
    if memory_format is MemoryFormat.contiguous_format:
        return Batch(calls("clone")(_front(calls, self), memory_format=memory_format), 0)
    return Batch(_called(calls, "clone", self.tensor, memory_format), self.bdim)


def _view(name: str) -> Rule:
    def rule(calls: Calls, self: Batch, size: Sequence[int]) -> Batch:
        front = _front(calls, self)
        wanted = [front.shape[0], *size]
        if name == "_unsafe_view":
            known = prod(one for one in wanted if one != -1)
            inferred = [prod(front.shape) // known if one == -1 and known else one for one in wanted]
            if not is_viewable(front.shape, front.strides, inferred):
                front = calls("clone")(front, memory_format=MemoryFormat.contiguous_format)
        return Batch(calls(name)(front, wanted), 0)

    return rule


def _expand(name: str) -> Rule:
    def rule(calls: Calls, self: Batch, size: Sequence[int], implicit: object) -> Batch:
        if self.rank > len(size):
            message = (
                f"expand to {list(size)} has fewer dimensions than the tensor, which has {self.rank} inside of vmap()"
            )
            raise TransformError(TransformErrorKind.WRONG_DIMS, message)
        front = _front(calls, self)
        first, *others = front.shape
        viewed = calls("view")(front, [first, *[1] * (len(size) - self.rank), *others])
        return Batch(_called(calls, name, viewed, [first, *size], implicit), 0)

    return rule


def _unsqueeze(calls: Calls, self: Batch, dim: int) -> Batch:
    front = _front(calls, self)
    return Batch(calls("unsqueeze")(front, _wrapped(dim, self.rank + 1) + 1), 0)


def _squeeze(calls: Calls, self: Batch, dim: int) -> Batch:
    bdim = self.bdim
    assert bdim is not None
    if not self.rank:
        if dim not in (0, -1):
            raise refused(f"squeeze cannot take dimension {dim} of a scalar inside of vmap()")
        return Batch(calls("alias")(self.tensor), bdim)
    actual = _wrapped(dim, self.rank)
    if actual >= bdim:
        return Batch(calls("squeeze.dims")(self.tensor, [actual + 1]), bdim)
    gone = self.tensor.shape[actual] == 1
    return Batch(calls("squeeze.dims")(self.tensor, [actual]), bdim - gone)


def _squeeze_dims(calls: Calls, self: Batch, dims: Sequence[int]) -> Batch:
    bdim = self.bdim
    assert bdim is not None
    if not self.rank:
        return Batch(calls("alias")(self.tensor), bdim)
    actual = [_wrapped(one, self.rank) for one in dims]
    gone = sum(one < bdim and self.tensor.shape[one] == 1 for one in actual)
    return Batch(calls("squeeze.dims")(self.tensor, [one + (one >= bdim) for one in actual]), bdim - gone)


def _select(calls: Calls, self: Batch, dim: int, index: int) -> Batch:
    front = _front(calls, self)
    return Batch(calls("select.int")(front, _wrapped(dim, self.rank) + 1, index), 0)


def _select_backward(calls: Calls, grad: Batch, input_sizes: Sequence[int], dim: int, index: int) -> Batch:
    front = _front(calls, grad)
    sizes = [front.shape[0], *input_sizes]
    return Batch(calls("select_backward")(front, sizes, _wrapped(dim, grad.rank + 1) + 1, index), 0)


def _select_scatter(calls: Calls, self: Batch, src: Batch, dim: int, index: int) -> Batch:
    size = next(one.tensor.shape[one.bdim] for one in (self, src) if one.bdim is not None)
    one, two = (_with_front(calls, each, size) for each in (self, src))
    return Batch(calls("select_scatter")(one, two, _wrapped(dim, self.rank) + 1, index), 0)


def _with_front(calls: Calls, batch: Batch, size: int) -> Tensor:
    """The dimension in front, by `expand` for a tensor that is none of the batch."""
    if batch.bdim is not None:
        return moved(calls, batch.tensor, batch.bdim, 0)
    front: Tensor = calls("unsqueeze")(batch.tensor, 0)
    front = calls("expand")(front, [size, *front.shape[1:]])
    return front


def _transpose(calls: Calls, self: Batch, dim0: int, dim1: int) -> Batch:
    if self.tensor.dim == 1 and dim0 in (0, -1) and dim1 in (0, -1):
        return self
    front = _front(calls, self)
    return Batch(calls("transpose.int")(front, _wrapped(dim0, self.rank) + 1, _wrapped(dim1, self.rank) + 1), 0)


def _permute(calls: Calls, self: Batch, dims: Sequence[int]) -> Batch:
    front = _front(calls, self)
    return Batch(calls("permute")(front, [0, *(_wrapped(one, self.rank) + 1 for one in dims)]), 0)


def _stack(calls: Calls, tensors: Sequence[Batch], dim: int) -> Batch:
    size = next(one.tensor.shape[one.bdim] for one in tensors if one.bdim is not None)
    fronts = [_with_front(calls, one, size) for one in tensors]
    rank = tensors[0].rank
    return Batch(calls("stack")(fronts, _wrapped(dim, rank + 1) + 1), 0)


def _new_empty_strided(
    calls: Calls, self: Batch, size: Sequence[int], stride: Sequence[int], *options: object
) -> Batch:
    front = _front(calls, self)
    if len(size) != len(stride):
        raise refused(f"new_empty_strided got the size {list(size)} and the strides {list(stride)}")
    gap = 1 + sum((one - 1) * step for one, step in zip(size, stride, strict=True)) if 0 not in size else 0
    made = _called(calls, "new_empty_strided", front, [front.shape[0], *size], [gap, *stride], *options)
    return Batch(made, 0)


def _lu_factor(calls: Calls, self: Batch, *options: object) -> list[Batch]:
    if self.rank < 2:
        raise refused(f"linalg_lu_factor_ex expects matrices, but got {self.rank} dimensions inside of vmap()")
    stack: list[object] = [_front(calls, self), *options]
    calls("linalg_lu_factor_ex").call_boxed(stack)
    return [Batch(one, 0) for one in stack if isinstance(one, Tensor)]


def _depends_on_values(name: str) -> Rule:
    def rule(calls: Calls, *arguments: object) -> Batch:
        message = (
            f"{name} gives results whose sizes differ with the values, which is no batch: call it outside of vmap()"
        )
        raise TransformError(TransformErrorKind.NO_BATCHING_RULE, message)

    return rule


_POINTWISE = ("neg", "sin", "cos", "exp", "relu", "mul.Scalar", "detach", "_to_copy", "ones_like", "zeros_like")

RULES: dict[str, Rule] = {
    **{name: _unary(name) for name in (*_POINTWISE, "alias")},
    **{f"{name}.Scalar": _unary(f"{name}.Scalar") for name in COMPARISONS},
    **{f"{name}.Tensor": _binary(f"{name}.Tensor") for name in ("add", "sub", "mul", "div")},
    **{f"{name}.Tensor": _binary(f"{name}.Tensor", promotes=False) for name in COMPARISONS},
    **{name: _boxed_pointwise(name) for name in ("add_.Tensor", "threshold_backward")},
    **{name: _binary_in_place(name) for name in ("sub_.Tensor", "mul_.Tensor", "copy_")},
    "mm": _products("mm", 2, "two matrices, but got tensors of"),
    "mv": _mv,
    "dot": _dot,
    "bmm": _products("bmm", 3, "batches of matrices, but got"),
    "sum.dim_IntList": _sum,
    "clone": _clone,
    "view": _view("view"),
    "view_copy": _view("view_copy"),
    "_unsafe_view": _view("_unsafe_view"),
    "expand": _expand("expand"),
    "expand_copy": _expand("expand_copy"),
    "unsqueeze": _unsqueeze,
    "squeeze.dim": _squeeze,
    "squeeze.dims": _squeeze_dims,
    "select.int": _select,
    "select_backward": _select_backward,
    "transpose.int": _transpose,
    "permute": _permute,
    "stack": _stack,
    "new_empty_strided": _new_empty_strided,
    "select_scatter": _select_scatter,
    "linalg_lu_factor_ex": _lu_factor,
    **{name: _depends_on_values(name) for name in ("_unique2", "unique_dim")},
}
"""The rules, by operator."""


# -- decompositions: operators made of others that have rules


def sum_decomposed(calls: Calls) -> Callable[..., Tensor]:
    """`sum` as a sum over all dimensions."""

    def kernel(self: Tensor, *, dtype: object = None) -> Tensor:
        result: Tensor = calls("sum.dim_IntList")(self, list(range(self.dim)), dtype=dtype)
        return result

    return kernel


def t_decomposed(calls: Calls) -> Callable[..., Tensor]:
    """`t` as a transposition of the two dimensions, of one with itself when there is one."""

    def kernel(self: Tensor) -> Tensor:
        if self.dim > 2:
            raise refused(f"t expects at most two dimensions, but got {self.dim} inside of vmap()")
        result: Tensor = calls("transpose.int")(self, 0, 0 if self.dim < 2 else 1)
        return result

    return kernel


# -- random operators, at FuncTorchVmapMode


def random_factory(called: Operator, stack: list[object]) -> None:
    """The boxed kernel of a random factory, whose first argument is the size."""
    with ExcludeDispatchKeyGuard(DispatchKey.FuncTorchVmapMode):
        layer = vmap_layer(str(called.name))
        _check_randomness(layer, str(called.name))
        start = len(stack) - len(called.schema.arguments)
        size = stack[start]
        assert isinstance(size, list)
        if layer.randomness == "different":
            stack[start] = [layer.batch_size, *size]
        called.call_boxed(stack)
        if layer.randomness == "different":
            (made,) = stack[start:]
            assert isinstance(made, Tensor)
            stack[start:] = [LevelBatchedTensor(made, 0, layer.level)]


def random_in_place(calls: Calls) -> BoxedKernel:
    """The boxed kernel of a random operator that writes its first argument."""

    def kernel(called: Operator, stack: list[object]) -> None:
        with ExcludeDispatchKeyGuard(DispatchKey.FuncTorchVmapMode):
            layer = vmap_layer(str(called.name))
            start = len(stack) - len(called.schema.arguments)
            written, *others = stack[start:]
            assert isinstance(written, Tensor)
            batch = Batch(*unwrapped_at(written, layer.level))
            front = _front(calls, batch)
            _check_randomness(layer, str(called.name))
            if layer.randomness == "different" and batch.bdim is None:
                message = (
                    f"{called.name} cannot draw differently for each element of the batch into a tensor that is none "
                    "of it: use a tensor that is computed from an argument"
                )
                raise TransformError(TransformErrorKind.RANDOMNESS, message)
            if layer.randomness == "same" and batch.bdim is not None:
                drawn = calls("empty.memory_format")(
                    [*written.shape], dtype=written.dtype, layout=written.layout, device=written.device
                )
                called.call_boxed([drawn, *others])
                calls("copy_")(written, drawn)
            else:
                called.call_boxed([front, *others])
            stack[start:] = [written]

    return kernel


def _check_randomness(layer: VmapLayer, name: str) -> None:
    if layer.randomness == "error":
        message = (
            f"{name} draws random numbers inside of vmap(): say randomness='same' or randomness='different', or draw "
            "them outside"
        )
        raise TransformError(TransformErrorKind.RANDOMNESS, message)


# -- between tensors and batches


def _participates(value: object, level: int) -> bool:
    if isinstance(value, list):
        return any(_participates(one, level) for one in value)
    return isinstance(value, LevelBatchedTensor) and value.level == level


def _as_batch(value: object, level: int) -> object:
    if isinstance(value, Tensor):
        return Batch(*unwrapped_at(value, level))
    if isinstance(value, list) and any(isinstance(one, Tensor) for one in value):
        return [_as_batch(one, level) for one in value]
    return value


def _rebatched(result: Batch, level: int) -> Tensor:
    return result.tensor if result.bdim is None else LevelBatchedTensor(result.tensor, result.bdim, level)


def _no_rule(called: Operator, why: str) -> TransformError:
    message = (
        f"{called.name} has no batching rule, and {why}: register a kernel at FuncTorchBatched, or one at "
        f"CompositeImplicitAutograd and FuncTorchBatchedDecomposition that is made of operators with rules\n"
        f"  {called.schema}"
    )
    return TransformError(TransformErrorKind.NO_BATCHING_RULE, message)


def _unbatched_write(name: str) -> TransformError:
    message = (
        f"{name} would write a whole batch into a tensor that is none of it inside of vmap(): use the operator that "
        "returns a new tensor"
    )
    return TransformError(TransformErrorKind.UNBATCHED_WRITE, message)
