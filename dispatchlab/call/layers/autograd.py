"""Autograd: a boxed kernel that records each call on the tape, and `backward`, which walks it the other way.

Source: tools/autograd/templates/VariableType.cpp for the kernel, torch/csrc/autograd/engine.cpp for the walk.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from dispatchlab.call.key_state import AutoDispatchBelowADInplaceOrView, AutoDispatchBelowAutograd
from dispatchlab.call.layers.derivatives import Calls, Derivative
from dispatchlab.call.layers.tape import (
    AccumulateGrad,
    AutogradError,
    AutogradErrorKind,
    Gradients,
    Node,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
)
from dispatchlab.call.operators import Operator
from dispatchlab.call.tensor import Tensor
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.keys import DispatchKey

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
                _check_written(values[0])
            node = _recorded(calls, derivative, operator, tensors, dict(zip(names, values, strict=True)))
        # A view and a write still have to pass ADInplaceOrView; everything else has nothing to do there.
        below = AutoDispatchBelowAutograd() if writes or views or detaches else AutoDispatchBelowADInplaceOrView()
        with below:
            operator.redispatch_boxed(keys & _BELOW, stack)
        if node is not None:
            results = stack[len(stack) - len(operator.schema.returns) :]
            _set_history(node, _tensors(results))
            if derivative is not None and derivative.saves_result:
                (result,) = results
                assert isinstance(result, Tensor)
                node.save("result", result, is_result=True)

    return kernel


def backward(
    calls: Calls,
    tensor: Tensor,
    gradient: Tensor | None = None,
    *,
    retain_graph: bool = False,
    create_graph: bool = False,
) -> None:
    """Add the gradient of `tensor` to the `grad` of every leaf that it was computed from.

    Args:
        calls: the operators.
        tensor: what is differentiated.
        gradient: of what comes after it; 1 for a tensor of one element when left out.
        retain_graph: keep what was saved, so that `backward` can come again.
        create_graph: record the computation of the gradients, too.

    Raises:
        AutogradError: there is nothing to differentiate, or what was saved is gone or was modified.
    """
    if not tensor.requires_grad:
        message = "the tensor does not require gradients and was computed from none that does"
        raise AutogradError(AutogradErrorKind.NO_GRADIENT, message)
    first = _first_gradient(tensor, gradient)
    with set_grad_enabled(create_graph):
        if tensor.grad_fn is None:
            _accumulate(calls, tensor, first)
            return
        order, waiting = _in_order(tensor.grad_fn)
        waiting[tensor.grad_fn][tensor.output_nr] = first
        for node in order:
            arrived = waiting.pop(node)
            gradients = [arrived.get(at) for at in range(node.results)]
            if isinstance(node, AccumulateGrad):
                if gradients[0] is not None:
                    _accumulate(calls, node.leaf, gradients[0])
                continue
            if all(one is None for one in gradients):
                continue
            passed_on = node.backward(node, gradients)
            if not (retain_graph or create_graph):
                node.release()
            for edge, one in zip(node.next_edges, passed_on, strict=True):
                if edge is None or one is None:
                    continue
                held = waiting[edge[0]].get(edge[1])
                waiting[edge[0]][edge[1]] = one if held is None else calls("add.Tensor")(held, one)


def _tensors(values: Sequence[object]) -> list[Tensor | None]:
    """The tensor arguments; a list counts as its elements, and None for a tensor is kept."""
    found: list[Tensor | None] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list):
            found += [one for one in value if isinstance(one, Tensor)]
    return found


def _check_written(written: object) -> None:
    assert isinstance(written, Tensor)
    if written.requires_grad and written.is_leaf:
        message = "a leaf that requires gradients cannot be written in place: clone it, or write under no_grad()"
        raise AutogradError(AutogradErrorKind.LEAF_MODIFIED, message)
    if written.base is not None and (written.requires_grad or written.base.requires_grad):
        message = (
            "a view of a tensor that requires gradients cannot be written in place here (PyTorch can): "
            "write to the whole tensor, or to a clone"
        )
        raise AutogradError(AutogradErrorKind.NOT_DIFFERENTIABLE, message)


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
        return _as_inputs(formula(calls, node, gradient), node)

    node = Node(derivative.name, run, tensors)
    node.stash.update({f"{name}.shape": value.shape for name, value in values.items() if isinstance(value, Tensor)})
    node.stash.update({name: value for name, value in values.items() if not isinstance(value, Tensor | list)})
    node.stash.update({name: value for name, value in values.items() if name == "dim"})
    node.stash["detach"] = calls("detach")
    node.stash["dtypes"] = tuple(None if one is None else one.dtype for one in tensors)
    if derivative.save is not None:
        with no_grad():
            derivative.save(calls, node, values)
    return node


def _as_inputs(gradients: Gradients, node: Node) -> Gradients:
    """The gradients in the dtypes of the inputs that they belong to."""
    dtypes = node.stash["dtypes"]
    assert isinstance(dtypes, tuple)
    return [
        one if one is None or one.dtype == dtype else Tensor(one.data, device=one.device, dtype=dtype)
        for one, dtype in zip(gradients, dtypes, strict=True)
    ]


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


def _first_gradient(tensor: Tensor, gradient: Tensor | None) -> Tensor:
    if gradient is not None:
        if gradient.shape != tensor.shape:
            message = f"the gradient has the shape {list(gradient.shape)} and the tensor {list(tensor.shape)}"
            raise AutogradError(AutogradErrorKind.WRONG_GRADIENT, message)
        return gradient
    if int(np.prod(tensor.shape)) != 1:
        message = f"a tensor of shape {list(tensor.shape)} needs a gradient to start from: pass one of that shape"
        raise AutogradError(AutogradErrorKind.NO_GRADIENT, message)
    return Tensor(np.ones(tensor.shape, tensor.dtype.numpy), device=tensor.device, dtype=tensor.dtype)


def _accumulate(calls: Calls, leaf: Tensor, gradient: Tensor) -> None:
    held = leaf.grad
    leaf.grad = calls("clone")(gradient) if held is None else calls("add.Tensor")(held, gradient)


def _in_order(root: Node) -> tuple[list[Node], defaultdict[Node, dict[int, Tensor]]]:
    """Every node that `root` leads to, each after all that lead to it."""
    depends: defaultdict[Node, int] = defaultdict(int)
    seen, todo = {root}, [root]
    while todo:
        for edge in todo.pop().next_edges:
            if edge is not None:
                depends[edge[0]] += 1
                if edge[0] not in seen:
                    seen.add(edge[0])
                    todo.append(edge[0])
    order, ready = [], [root]
    while ready:
        node = ready.pop()
        order.append(node)
        for edge in node.next_edges:
            if edge is not None:
                depends[edge[0]] -= 1
                if not depends[edge[0]]:
                    ready.append(edge[0])
    return order, defaultdict(dict, {node: {} for node in order})
