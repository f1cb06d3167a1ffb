"""Gradients of what is written in place: whose history changes, and which writes there are no gradients for.

A write to a view changes its base, and with that every other view of it. The base gets a node that takes the part that
was written out of the gradient and puts the gradient of what was there before in its place; every view gets a node
that leads to the base. Source: torch/csrc/autograd/functions/tensor.cpp (`CopySlices`) and
torch/csrc/autograd/variable.cpp (`rebase_history`).
"""

from __future__ import annotations

from dispatchlab.call.layers.derivatives import Calls
from dispatchlab.call.layers.geometry import Geometry, copied_like, empty_like
from dispatchlab.call.layers.tape import (
    AutogradError,
    AutogradErrorKind,
    Backward,
    Gradients,
    Node,
    set_grad_enabled,
)
from dispatchlab.call.layers.view_history import ViewHistory, replayed
from dispatchlab.call.tensor import Tensor


def check_written(written: object) -> None:
    """Refuse what cannot be recorded.

    Raises:
        AutogradError: of kind `leaf_modified` for a leaf that requires gradients, or a view of one; of kind
            `not_differentiable` for a view that was made under `no_grad`.
    """
    assert isinstance(written, Tensor)
    history = written.view_history
    if history is not None and history.without_grad:
        message = (
            "this view was made under no_grad(), and a write to it would be recorded: make it outside of no_grad(), "
            "or write inside"
        )
        raise AutogradError(AutogradErrorKind.NOT_DIFFERENTIABLE, message)
    if history is not None and written.requires_grad and history.base.is_leaf:
        message = "a view of a leaf that requires gradients cannot be written in place: clone the leaf before the view"
        raise AutogradError(AutogradErrorKind.LEAF_MODIFIED, message)
    if written.requires_grad and written.is_leaf:
        message = "a leaf that requires gradients cannot be written in place: clone it, or write under no_grad()"
        raise AutogradError(AutogradErrorKind.LEAF_MODIFIED, message)


def set_history_in_place(calls: Calls, node: Node, written: object) -> None:
    """Make a node the history of what it wrote, of the base of that, and of all other views."""
    assert isinstance(written, Tensor)
    history = written.view_history
    if history is None:
        base = written
        _set(written, node)
    else:
        base = history.base
        copy = Node("CopySlices", _copy_slices(calls, history, Geometry.of(base), node), [base])
        copy.next_edges += node.next_edges[1:]
        copy.saved = node.saved
        _set(base, copy)
        _lead_to_base(calls, written, history)
    for view in [] if base.live_views is None else [*base.live_views.values()]:
        if view is not written and view.view_history is not None:
            if view.view_history.without_grad:
                view.requires_grad = base.requires_grad
            else:
                _lead_to_base(calls, view, view.view_history)


def _set(tensor: Tensor, node: Node) -> None:
    if tensor.dtype.is_differentiable:
        tensor.requires_grad, tensor.grad_fn, tensor.output_nr = True, node, 0


def _lead_to_base(calls: Calls, view: Tensor, history: ViewHistory) -> None:
    geometry, steps = Geometry.of(history.base), history.steps

    def backward(node: Node, gradients: Gradients) -> Gradients:
        (gradient,) = gradients
        assert gradient is not None
        leaf = empty_like(calls, gradient, geometry)
        leaf.requires_grad = True
        with set_grad_enabled(enabled=True):
            step = replayed(leaf, steps).grad_fn
        while step is not None and step.next_edges:
            (gradient,) = step.backward(step, [gradient])
            edge = step.next_edges[0]
            step = None if edge is None else edge[0]
        return (gradient,)

    _set(view, Node("AsStridedBackward0", backward, [history.base]))


def _copy_slices(calls: Calls, history: ViewHistory, geometry: Geometry, written_by: Node) -> Backward:
    steps = history.steps

    def backward(node: Node, gradients: Gradients) -> Gradients:
        (gradient,) = gradients
        assert gradient is not None
        whole = copied_like(calls, gradient, geometry)
        part = replayed(whole, steps)
        before, *others = written_by.backward(written_by, [calls("clone")(part)])
        if not node.needs(0):
            return [None, *others]
        if before is not None:
            calls("copy_")(part, before)
        return [whole, *others]

    return backward
