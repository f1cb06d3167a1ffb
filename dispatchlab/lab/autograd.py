"""Autograd: a boxed kernel that records each call on the autograd graph, writes in place included.

A write to a view changes its base, and with that every other view of it. The base gets a node that takes the part that
was written out of the gradient and puts the gradient of what was there before in its place; every view gets a node
that leads to the base. Source: tools/autograd/templates/VariableType.cpp; torch/csrc/autograd/functions/tensor.cpp
(`CopySlices`) and torch/csrc/autograd/variable.cpp (`rebase_history`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dispatchlab.call.local_key_set import AutoDispatchBelowADInplaceOrView, AutoDispatchBelowAutograd
from dispatchlab.call.operators import Operator, operator
from dispatchlab.call.tensor import Tensor
from dispatchlab.lab.autograd_graph import Backward, Gradients, Node, node_of
from dispatchlab.lab.derivatives import Derivative, Recorded, sum_to_size
from dispatchlab.lab.errors import AutogradError, AutogradErrorKind
from dispatchlab.lab.grad_mode import is_grad_enabled, set_grad_enabled
from dispatchlab.lab.kernels import tensors_in
from dispatchlab.lab.tensor_geometry import Calls, Geometry, copied_like, empty_like
from dispatchlab.lab.views import ViewHistory, history_of, replayed
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.keys import DispatchKey

_MADE_WITHOUT_GRAD = (
    "this view was made under no_grad(), and a write to it would be recorded: make it outside of no_grad(), or write "
    "inside"
)
_ONE_OF_MANY = (
    "this view is one of several that one call made, and a write to it would be recorded: make it by an operator with "
    "one result, or write under no_grad()"
)


def check_written(written: object) -> None:
    """Refuse writes that cannot be recorded.

    Raises:
        AutogradError: of kind `leaf_modified` for a leaf that requires gradients, or a view of such a leaf; of kind
            `not_differentiable` for a view that was made under `no_grad`, and for one of several views.
    """
    assert isinstance(written, Tensor)
    history = history_of(written)
    if history is not None and history.without_grad:
        message = _ONE_OF_MANY if history.one_of_many else _MADE_WITHOUT_GRAD
        raise AutogradError(AutogradErrorKind.NOT_DIFFERENTIABLE, message)
    if history is not None and written.requires_grad and history.base.is_leaf:
        message = "a view of a leaf that requires gradients cannot be written in place: clone the leaf before the view"
        raise AutogradError(AutogradErrorKind.LEAF_MODIFIED, message)
    if written.requires_grad and written.is_leaf:
        message = "a leaf that requires gradients cannot be written in place: clone it, or write under no_grad()"
        raise AutogradError(AutogradErrorKind.LEAF_MODIFIED, message)


class CopySlices(Node):
    """The node of a base whose view was written."""

    __slots__ = ()

    def run_without_gradients(self) -> None:
        """Do nothing, because the node of the inner write has saved all needed values."""


def set_history_in_place(calls: Calls, node: Node, written: object) -> None:
    """Make a node the history of a written tensor, of its base, and of all other views."""
    assert isinstance(written, Tensor)
    history = history_of(written)
    if history is None:
        base = written
        _set(written, node)
    else:
        base = history.base
        copy = CopySlices("CopySlices", _copy_slices(calls, history, Geometry.of(base), node), [base])
        copy.next_edges += node.next_edges[1:]
        copy.saved = node.saved
        _set(base, copy)
        _lead_to_base(calls, written, history)
    for view in [] if base.live_views is None else [*base.live_views.values()]:
        history = history_of(view)
        if view is written or history is None:
            continue
        if history.without_grad:
            view.requires_grad = base.requires_grad
        else:
            _lead_to_base(calls, view, history)


def _set(tensor: Tensor, node: Node) -> None:
    if tensor.dtype.is_differentiable:
        tensor.requires_grad, tensor.grad_fn, tensor.output_nr = True, node, 0


def lead_to_base(view: Tensor) -> None:
    """Give a view a node that leads to its base."""
    history = history_of(view)
    assert history is not None
    dispatcher = history.calls[0][0].dispatcher
    _lead_to_base(lambda name: operator(dispatcher, f"aten::{name}"), view, history)


def _lead_to_base(calls: Calls, view: Tensor, history: ViewHistory) -> None:
    geometry, view_calls = Geometry.of(history.base), history.calls

    def backward(node: Node, gradients: Gradients) -> Gradients:
        (gradient,) = gradients
        assert gradient is not None
        leaf = empty_like(calls, gradient, geometry)
        leaf.requires_grad = True
        with set_grad_enabled(enabled=True):
            following = node_of(replayed(leaf, view_calls))
        while following is not None and following.next_edges:
            (gradient,) = following.backward(following, [gradient])
            edge = following.next_edges[0]
            following = None if edge is None else edge[0]
        return (gradient,)

    _set(view, Node("AsStridedBackward0", backward, [history.base]))


def _copy_slices(calls: Calls, history: ViewHistory, geometry: Geometry, written_by: Node) -> Backward:
    view_calls = history.calls

    def backward(node: Node, gradients: Gradients) -> Gradients:
        (gradient,) = gradients
        assert gradient is not None
        whole = copied_like(calls, gradient, geometry)
        part = replayed(whole, view_calls)
        before, *others = written_by.backward(written_by, [calls("clone")(part)])
        if not node.needs(0):
            return [None, *others]
        if before is not None:
            calls("copy_")(part, before)
        return [whole, *others]

    return backward


_BELOW = DispatchKeySet.full_after(DispatchKey.AutogradOther)
BoxedKernel = Callable[[Operator, DispatchKeySet, list[object]], None]


def autograd_kernel(
    calls: Calls, derivative: Derivative | None, *, writes: bool = False, views: bool = False, detaches: bool = False
) -> BoxedKernel:
    """Return the autograd kernel of an operator; without a formula, the kernel that all such operators share.

    Args:
        calls: the operators that formulas use.
        derivative: the formula; without a formula, a gradient through this node is an error.
        writes: the operator writes its first argument and returns it.
        views: its result is a view of its first argument.
        detaches: whether its result is not differentiable, without an error.
    """

    def kernel(operator: Operator, keys: DispatchKeySet, stack: list[object]) -> None:
        arguments = operator.table.signature.arguments
        values = stack[len(stack) - len(arguments) :]
        tensors = tensors_in(values)
        records = not detaches and is_grad_enabled() and any(one.requires_grad for one in tensors)
        node: Node | None = None
        if records:
            if writes:
                check_written(values[0])
            named = {argument.name: value for argument, value in zip(arguments, values, strict=True)}
            node = _recorded(calls, derivative, operator, tensors, named, writes=writes)
        # A view and a write still have to pass ADInplaceOrView; everything else has nothing to do there.
        below = AutoDispatchBelowAutograd() if writes or views or detaches else AutoDispatchBelowADInplaceOrView()
        with below:
            operator.redispatch_boxed(keys & _BELOW, stack)
        if node is not None:
            results = stack[len(stack) - len(operator.schema.returns) :]
            if writes:
                set_history_in_place(calls, node, values[0])
            else:
                _set_history(node, tensors_in(results))
            if derivative is not None and derivative.saves_result:
                (result,) = results
                assert isinstance(result, Tensor)
                node.save("result", result, is_result=True)

    return kernel


def _recorded(
    calls: Calls,
    derivative: Derivative | None,
    operator: Operator,
    tensors: Sequence[Tensor],
    values: dict[str, Any],
    *,
    writes: bool,
) -> Node:
    if derivative is None:
        return Node(f"{operator.name}: no formula", _no_formula(operator), tensors)
    inputs = [Geometry.of(tensor) for tensor in tensors]

    def run(node: Node, gradients: Gradients) -> Gradients:
        (gradient,) = gradients
        assert gradient is not None
        node.check_saved()
        return _as_inputs(calls, derivative.backward(Recorded(calls, node, values), gradient), inputs)

    node = Node(derivative.name, run, tensors)
    node.detach = calls("detach")
    if derivative.saves:
        order = [name for name in values if name in derivative.gradients]
        for name, needed_by in derivative.saves.items():
            if not needed_by or node.needs(order.index(needed_by)):
                node.save(name, calls("clone")(values[name]) if writes and name == order[0] else values[name])
    geometries = iter(inputs)
    for name, value in values.items():  # of a tensor its geometry is kept alone
        if isinstance(value, Tensor):
            values[name] = next(geometries)
        elif isinstance(value, list):
            values[name] = [next(geometries) if isinstance(one, Tensor) else one for one in value]
    return node


def _as_inputs(calls: Calls, gradients: Gradients, inputs: Sequence[Geometry]) -> Gradients:
    """Return the gradients in the shapes and dtypes of the inputs that they belong to.

    Source: torch/csrc/autograd/engine.cpp (`validate_outputs`).
    """
    found: list[Tensor | None] = []
    for one, like in zip(gradients, inputs, strict=True):
        summed = None if one is None else sum_to_size(calls, one, like.shape)
        if summed is not None and summed.dtype != like.dtype:
            summed = calls("_to_copy")(summed, dtype=like.dtype)
        found.append(summed)
    return found


def _no_formula(operator: Operator) -> Callable[[Node, Gradients], Gradients]:
    def run(node: Node, gradients: Gradients) -> Gradients:
        message = f"{operator.name} has no formula for gradients: register an Autograd kernel that records one"
        raise AutogradError(AutogradErrorKind.NOT_DIFFERENTIABLE, message)

    return run


def _set_history(node: Node, results: Sequence[Tensor]) -> None:
    node.results = len(results)
    for number, result in enumerate(results):
        if result.dtype.is_differentiable:
            result.requires_grad, result.grad_fn, result.output_nr = True, node, number
