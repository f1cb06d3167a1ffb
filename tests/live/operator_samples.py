"""PyTorch's own samples of its operators, run on a device and on the CPU."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

OPERATORS: dict[str, Any] = {
    one.formatted_name: one
    for one in importlib.import_module("torch.testing._internal.common_methods_invocations").op_db
    if torch.float32 in one.dtypes and "empty" not in one.name  # whose values are those that were there
}
"""The operators by name: all of PyTorch's with samples of float32."""

_ERRORS = (RuntimeError, ValueError, TypeError, AssertionError)


def compare(name: str, device: str, *, most: int = 3) -> Iterator[str]:
    """Run the first samples of an operator, forward, and backward where it can, and say how each compares.

    Args:
        name: the operator.
        device: where to run it, besides the CPU.
        most: how many samples.
    """
    operator = OPERATORS[name]
    for backward in (False, True)[: 1 + operator.supports_autograd]:
        torch.manual_seed(0)
        for sample in islice(operator.sample_inputs("cpu", torch.float32, requires_grad=backward), most):
            try:
                wanted = _results(operator, sample, "cpu", backward=backward)
            except _ERRORS as error:
                yield f"the CPU raises {type(error).__name__}"
                continue
            try:
                found = _results(operator, sample, device, backward=backward)
            except _ERRORS as error:
                yield f"raises {type(error).__name__}: {str(error)[:80]!r}"
                continue
            yield "same" if len(found) == len(wanted) and all(map(_same, wanted, found)) else "other"


def _results(operator: Any, sample: Any, device: str, *, backward: bool) -> list[Any]:
    """The outputs, and the gradients of what was given."""
    torch.manual_seed(0)
    random.seed(0)
    given = tree_map(_mover(device), (sample.input, sample.args, sample.kwargs))
    outputs = [one for one in tree_leaves(operator(given[0], *given[1], **given[2])) if isinstance(one, torch.Tensor)]
    ends = [one for one in outputs if one.requires_grad] if backward else []
    if not ends:
        return outputs
    torch.autograd.backward(
        ends, [torch.linspace(-1, 1, one.numel()).reshape(one.shape).to(one.dtype).to(device) for one in ends]
    )
    return [*outputs, *(one.grad for one in tree_leaves(given) if isinstance(one, torch.Tensor) and one.requires_grad)]


def _mover(device: str) -> Callable[[Any], Any]:
    """Move what a sample has to a device, the same tensor once."""
    moved: dict[int, torch.Tensor] = {}

    def move(one: Any) -> Any:
        if isinstance(one, torch.Tensor):
            if id(one) not in moved:
                moved[id(one)] = one.detach().clone().to(device).requires_grad_(one.requires_grad)
            return moved[id(one)]
        return device if one == "cpu" else torch.device(device) if isinstance(one, torch.device) else one

    return move


def _same(left: Any, right: Any) -> bool:
    """Whether tensors have the same numbers but for rounding, and the same strides."""
    if left is None or right is None:
        return left is right
    strides = [one.stride() if one.layout is torch.strided else () for one in (left, right)]
    number = left.detach()
    return strides[0] == strides[1] and torch.allclose(
        right.detach().cpu().to(number.dtype), number, rtol=1e-3, atol=1e-3, equal_nan=True
    )
