"""View history: which tensors are views of which, and how to make the same view of another tensor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias
from weakref import WeakValueDictionary

from dispatchlab.call.operators import Operator
from dispatchlab.call.tensor import Tensor
from dispatchlab.layers.autograd_graph import is_grad_enabled

Step: TypeAlias = tuple[Operator, tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class ViewHistory:
    """How a tensor came to be a view of another one.

    Args:
        base: the tensor that all of it is a view of, and that is none itself.
        steps: the operators from there to here, each with its arguments after the first.
        without_grad: one of the views was made while nothing was recorded. It requires gradients as its base does, and
            has no history.
        version: that of the memory when the view was made.
    """

    base: Tensor
    steps: tuple[Step, ...]
    without_grad: bool
    version: int


def record_view(viewed: Tensor, view: Tensor, operator: Operator, others: tuple[object, ...]) -> None:
    """Keep that `view` is what the operator made of `viewed`; the base knows its views while they are alive."""
    earlier = viewed.view_history
    base = viewed if earlier is None else earlier.base
    steps = () if earlier is None else earlier.steps
    without_grad = not is_grad_enabled() or (earlier is not None and earlier.without_grad)
    view.view_history = ViewHistory(base, (*steps, (operator, others)), without_grad, base.version)
    if without_grad:
        view.requires_grad = base.requires_grad
    if base.live_views is None:
        base.live_views = WeakValueDictionary()
    base.live_views[id(view)] = view


def replayed(base: Tensor, steps: tuple[Step, ...]) -> Tensor:
    """The same view of another tensor."""
    stack: list[object] = [base]
    for operator, others in steps:
        stack += others
        operator.call_boxed(stack)
    (view,) = stack
    assert isinstance(view, Tensor)
    return view
