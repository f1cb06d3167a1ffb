"""Batching: one boxed fallback makes every operator work on a batch, by a loop over one dimension.

`vmap(f)(x)` calls `f` with a tensor that hides a dimension of `x`. It carries the key Batched, above autograd, so that
each operator arrives at the fallback, which calls it once for each slice and stacks the results. Each nested `vmap` has
its own level; the fallback unwraps the innermost, and the calls with its slices reach the fallback for the next one.
Source: aten/src/ATen/LegacyBatchedFallback.cpp.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from dispatchlab.call.operators import Operator
from dispatchlab.call.tensor import Array, Tensor
from dispatchlab.call.tensor_keys import tensor_key_set
from dispatchlab.errors import CallError, ErrorKind
from dispatchlab.lab.tensor_geometry import Calls
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.keys import DispatchKey

# Note [Views inside of vmap]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~
# The loop stacks what it made, and a stack is a copy. For a view that is the right value and the wrong memory: a write
# to it would not reach the base, as it does outside of vmap. The slices that the loop itself takes must be views,
# nested or not, or no operator could write in place; so `select` has a rule of its own, which selects in the tensor
# with the hidden dimension. Every other view is marked, and a write to it is refused.

_BATCHED = tensor_key_set(DispatchKeySet.of(DispatchKey.Batched)).bits


class _Thread(threading.local):
    level: int = 0


_thread = _Thread()


class BatchedTensor(Tensor):
    """A tensor that hides one dimension of another tensor.

    Args:
        value: the tensor with the dimension.
        bdim: the number of the hidden dimension, from 0.
        level: how deeply the `vmap` is nested that hides it.
        copies: it should be a view and is a copy, see Note [Views inside of vmap].
    """

    __slots__ = ("bdim", "copies", "level", "value")
    __torch_function__ = None  # type: ignore[assignment]  # a place in a batch is nothing to preserve

    def __init__(self, value: Tensor, bdim: int, level: int, *, copies: bool = False) -> None:
        self.copies = copies
        self.value, self.bdim, self.level = value, bdim, level
        self.shape = (*value.shape[:bdim], *value.shape[bdim + 1 :])
        self.dtype, self.device, self.layout = value.dtype, value.device, value.layout
        self.key_bits = _BATCHED
        self.elements = None
        self.start_history(value.version_counter, requires_grad=value.requires_grad)

    @property
    def data(self) -> Array:
        """Raise: the element depends on the place in the batch."""
        message = (
            "a tensor inside of vmap has no elements of its own: compute with operators, look at the result outside"
        )
        raise CallError(ErrorKind.WRONG_TYPE, message, {"level": str(self.level)})

    def __repr__(self) -> str:
        return f"BatchedTensor(size={self.shape}, bdim={self.bdim}, level={self.level}, value={self.value!r})"


def batched_fallback(calls: Calls) -> Callable[[Operator, list[object]], None]:
    """Return the boxed fallback of the key Batched."""

    def fallback(operator: Operator, stack: list[object]) -> None:
        count = len(operator.schema.arguments)
        values = stack[len(stack) - count :]
        del stack[len(stack) - count :]
        batched = [one for value in values for one in _each(value) if isinstance(one, BatchedTensor)]
        level = max(one.level for one in batched)
        innermost = [one for one in batched if one.level == level]
        size = innermost[0].value.shape[innermost[0].bdim]
        written = [at for at, one in enumerate(operator.schema.arguments) if one.is_written]
        for at in written:
            _check_written(operator, operator.schema.arguments[at].name, values[at], innermost)
        rows: list[list[object]] = []
        for index in range(size):
            inner = [_sliced(calls, value, level, index) for value in values]
            operator.call_boxed(inner)
            rows.append(inner)
        if written and len(written) == len(operator.schema.returns):
            stack += [values[at] for at in written]
            return
        stack += [
            _joined(calls, operator, column, level, copies=returned.alias is not None)
            for column, returned in zip(zip(*rows, strict=True), operator.schema.returns, strict=True)
        ]

    return fallback


def select_rule(calls: Calls) -> Callable[[Tensor, int, int], Tensor]:
    """Select an index of a batched tensor, as a view of the tensor with the hidden dimension (`select.int`)."""

    def select(self: Tensor, dim: int, index: int) -> Tensor:
        # See Note [Views inside of vmap]
        assert isinstance(self, BatchedTensor)
        logical = dim % self.ndim if self.ndim else dim
        real = logical if logical < self.bdim else logical + 1
        selected = calls("select.int")(self.value, real, index)
        return BatchedTensor(selected, self.bdim - (real < self.bdim), self.level, copies=self.copies)

    return select


def vmap(
    calls: Calls, function: Callable[..., Any], in_dims: int | Sequence[int | None] = 0, out_dims: int = 0
) -> Callable[..., Any]:
    """Return a function that applies `function` to each element of a batch at once.

    Args:
        calls: the operators.
        function: takes tensors, and returns a tensor, or a tuple or list of tensors.
        in_dims: the dimension of the batch in each argument; None for an argument that is not batched.
        out_dims: the positions of the batch dimension in the results.
    """

    def batched(*arguments: object) -> object:
        dims = [in_dims] * len(arguments) if isinstance(in_dims, int) else [*in_dims]
        sizes = {
            argument.shape[dim]
            for argument, dim in zip(arguments, dims, strict=True)
            if isinstance(argument, Tensor) and dim is not None
        }
        if len(sizes) != 1 or 0 in sizes:
            found = ", ".join(map(str, sorted(sizes))) or "none"
            raise CallError(ErrorKind.OTHER, f"vmap expects batches of one size, at least 1, but found {found}")
        _thread.level += 1
        level = _thread.level
        try:
            inner = [
                BatchedTensor(argument, dim % argument.ndim, level)
                if isinstance(argument, Tensor) and dim is not None
                else argument
                for argument, dim in zip(arguments, dims, strict=True)
            ]
            result = function(*inner)
        finally:
            _thread.level -= 1
        (size,) = sizes
        if isinstance(result, list | tuple):
            return type(result)(_unwrapped(calls, one, level, size, out_dims) for one in result)
        return _unwrapped(calls, result, level, size, out_dims)

    return batched


def _check_written(operator: Operator, name: str, written: object, innermost: Sequence[BatchedTensor]) -> None:
    for one in _each(written):
        if isinstance(one, BatchedTensor) and one.copies:
            what = "which should be a view and is a copy inside of vmap: write to its base"
        elif not any(one is other for other in innermost):
            what = "which cannot hold a whole batch inside of vmap"
        else:
            continue
        message = f"{operator.name} would write {name!r}, {what}"
        raise CallError(ErrorKind.OTHER, message, {"operator": str(operator.name), "argument": name})


def _each(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else (value,)


def _sliced(calls: Calls, value: object, level: int, index: int) -> object:
    if isinstance(value, list):
        return [_sliced(calls, one, level, index) for one in value]
    if isinstance(value, BatchedTensor) and value.level == level:
        return calls("select.int")(value.value, value.bdim, index)
    return value


def _joined(calls: Calls, operator: Operator, column: Sequence[object], level: int, *, copies: bool) -> object:
    if not all(isinstance(one, Tensor) for one in column):
        message = f"{operator.name} returns more than tensors, and a batch of that cannot be stacked"
        raise CallError(ErrorKind.OTHER, message, {"operator": str(operator.name)})
    return BatchedTensor(calls("stack")([*column]), 0, level, copies=copies)


def _unwrapped(calls: Calls, result: object, level: int, size: int, out_dim: int) -> object:
    if not isinstance(result, Tensor):
        return result
    if not isinstance(result, BatchedTensor) or result.level != level:
        return calls("stack")([result] * size, out_dim)
    if result.bdim == out_dim % (result.ndim + 1):
        return result.value
    select = calls("select.int")
    return calls("stack")([select(result.value, result.bdim, at) for at in range(size)], out_dim)
