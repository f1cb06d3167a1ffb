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
from dispatchlab.lab.derivatives import Calls, Derivative, sum_to_size
from dispatchlab.lab.errors import AutogradError, AutogradErrorKind
from dispatchlab.lab.grad_mode import is_grad_enabled, set_grad_enabled
from dispatchlab.lab.tensor_geometry import Geometry, copied_like, empty_like
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
    """Refuse what cannot be recorded.

    Raises:
        AutogradError: of kind `leaf_modified` for a leaf that requires gradients, or a view of one; of kind
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
        """Nothing: what it would need, the node of the write inside of it has saved."""


def set_history_in_place(calls: Calls, node: Node, written: object) -> None:
    """Make a node the history of what it wrote, of the base of that, and of all other views."""
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
    """The autograd kernel of an operator, or, without a formula, of all that have none.

    Args:
        calls: the operators that formulas use.
        derivative: the formula; without one, a gradient that comes this way is an error.
        writes: the operator writes its first argument and returns it.
        views: its result is a view of its first argument.
        detaches: its result is not differentiable, and that is no error.
    """

    def kernel(operator: Operator, keys: DispatchKeySet, stack: list[object]) -> None:
        names = [argument.name for argument in operator.schema.arguments]
        values = stack[len(stack) - len(names) :]
        tensors = _tensors(values)
        records = not detaches and is_grad_enabled() and any(one.requires_grad for one in tensors if one is not None)
        node: Node | None = None
        if records:
            if writes:
                check_written(values[0])
            node = _recorded(calls, derivative, operator, tensors, dict(zip(names, values, strict=True)))
        # A view and a write still have to pass ADInplaceOrView; everything else has nothing to do there.
        below = AutoDispatchBelowAutograd() if writes or views or detaches else AutoDispatchBelowADInplaceOrView()
        with below:
            operator.redispatch_boxed(keys & _BELOW, stack)
        if node is not None:
            results = stack[len(stack) - len(operator.schema.returns) :]
            if writes:
                set_history_in_place(calls, node, values[0])
            else:
                _set_history(node, _tensors(results))
            if derivative is not None and derivative.saves_result:
                (result,) = results
                assert isinstance(result, Tensor)
                node.save("result", result, is_result=True)

    return kernel


def with_debug_asserts(kernel: BoxedKernel) -> BoxedKernel:
    """The same, which raises when an input does not work on the memory that it had, as a debug build does.

    Source: tools/autograd/gen_variable_type.py (`ENFORCE_SAME_TENSOR_STORAGE`), inside of `#ifndef NDEBUG`.
    """

    def checked(operator: Operator, keys: DispatchKeySet, stack: list[object]) -> None:
        arguments = operator.schema.arguments
        values = stack[len(stack) - len(arguments) :]
        before = [[_memory(one) for one in _tensors([value])] for value in values]
        kernel(operator, keys, stack)
        for argument, value, memories in zip(arguments, values, before, strict=True):
            for one, memory in zip(_tensors([value]), memories, strict=True):
                if _memory(one) is not memory:
                    message = (
                        f"a kernel below autograd gave {argument.name} of {operator.name} other memory: write into the "
                        "elements that it has"
                    )
                    raise AutogradError(AutogradErrorKind.INPUT_REPLACED, message)

    return checked


def _memory(tensor: Tensor | None) -> object:
    found: Any = None if tensor is None else tensor.elements
    while getattr(found, "base", None) is not None:
        found = found.base
    return found


def _tensors(values: Sequence[object]) -> list[Tensor | None]:
    """The tensor arguments; a list counts as its elements, and None for a tensor is kept."""
    found: list[Tensor | None] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list):
            found += [one for one in value if isinstance(one, Tensor)]
    return found


def _recorded(
    calls: Calls,
    derivative: Derivative | None,
    operator: Operator,
    tensors: Sequence[Tensor | None],
    values: dict[str, object],
) -> Node:
    if derivative is None:
        return Node(f"{operator.name}: no formula", _no_formula(operator), tensors)
    formula = derivative.backward

    def run(node: Node, gradients: Gradients) -> Gradients:
        (gradient,) = gradients
        assert gradient is not None
        node.check_saved()
        return _as_inputs(calls, formula(calls, node, gradient), node)

    node = Node(derivative.name, run, tensors)
    node.stash["detach"] = calls("detach")
    node.stash["inputs"] = tuple(None if tensor is None else (tensor.shape, tensor.dtype) for tensor in tensors)
    if derivative.save is not None:
        derivative.save(calls, node, values)
    return node


def _as_inputs(calls: Calls, gradients: Gradients, node: Node) -> Gradients:
    """The gradients in the shapes and dtypes of the inputs that they belong to.

    Source: torch/csrc/autograd/engine.cpp (`validate_outputs`).
    """
    inputs = node.stash["inputs"]
    assert isinstance(inputs, tuple)
    found: list[Tensor | None] = []
    for one, like in zip(gradients, inputs, strict=True):
        if one is None or like is None:
            found.append(None)
            continue
        shape, dtype = like
        summed = sum_to_size(calls, one, shape)
        found.append(summed if summed.dtype == dtype else calls("_to_copy")(summed, dtype=dtype))
    return found


def _no_formula(operator: Operator) -> Callable[[Node, Gradients], Gradients]:
    def run(node: Node, gradients: Gradients) -> Gradients:
        message = f"{operator.name} has no formula for gradients: register an Autograd kernel that records one"
        raise AutogradError(AutogradErrorKind.NOT_DIFFERENTIABLE, message)

    return run


def _set_history(node: Node, results: Sequence[Tensor | None]) -> None:
    node.results = len(results)
    for number, result in enumerate(results):
        if result is not None and result.dtype.is_differentiable:
            result.requires_grad, result.grad_fn, result.output_nr = True, node, number
