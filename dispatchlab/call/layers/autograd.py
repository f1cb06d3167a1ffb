"""Autograd: a boxed kernel that records each call on the tape, and `backward`, which walks it the other way.

Source: tools/autograd/templates/VariableType.cpp for the kernel, torch/csrc/autograd/engine.cpp for the walk.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from math import prod

from dispatchlab.call.key_state import AutoDispatchBelowADInplaceOrView, AutoDispatchBelowAutograd
from dispatchlab.call.layers.derivatives import Calls, Derivative, sum_to_size
from dispatchlab.call.layers.ready_queue import ReadyQueue
from dispatchlab.call.layers.tape import (
    AccumulateGrad,
    AutogradError,
    AutogradErrorKind,
    Gradients,
    Node,
    edge_of,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
)
from dispatchlab.call.operators import Operator
from dispatchlab.call.strides import is_dense
from dispatchlab.call.tensor import Tensor
from dispatchlab.call.values import MemoryFormat
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
    first = _first_gradient(calls, tensor, gradient)
    root, output = edge_of(tensor)
    depends = _dependencies(root)
    arriving: defaultdict[Node, dict[int, Tensor]] = defaultdict(dict, {root: {output: first}})
    ready = ReadyQueue()
    ready.push(root)
    with set_grad_enabled(create_graph):
        while ready:
            node = ready.pop()
            arrived = arriving.pop(node, {})
            passed_on = _passed_on(calls, node, arrived)
            if arrived and not (retain_graph or create_graph):
                node.release()
            for edge, one in zip(node.next_edges, passed_on, strict=True):
                if edge is None:
                    continue
                following, place = edge
                if one is not None:
                    held = arriving[following].get(place)
                    arriving[following][place] = one if held is None else calls("add.Tensor")(held, one)
                depends[following] -= 1
                if not depends[following]:
                    ready.push(following)


def _passed_on(calls: Calls, node: Node, arrived: Mapping[int, Tensor]) -> Gradients:
    if not arrived:
        return [None] * len(node.next_edges)
    if isinstance(node, AccumulateGrad):
        _accumulate(calls, node.leaf, arrived[0])
        return ()
    return node.backward(node, [arrived.get(at) for at in range(node.results)])


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
        return _as_inputs(calls, formula(calls, node, gradient), node)

    node = Node(derivative.name, run, tensors)
    node.stash.update({f"{name}.shape": value.shape for name, value in values.items() if isinstance(value, Tensor)})
    node.stash.update({name: value for name, value in values.items() if not isinstance(value, Tensor | list)})
    node.stash.update({name: value for name, value in values.items() if name == "dim"})
    node.stash["detach"] = calls("detach")
    node.stash["inputs"] = tuple(None if one is None else (one.shape, one.dtype) for one in tensors)
    if derivative.save is not None:
        with no_grad():
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


def _first_gradient(calls: Calls, tensor: Tensor, gradient: Tensor | None) -> Tensor:
    if gradient is not None:
        if gradient.shape != tensor.shape:
            message = f"the gradient has the shape {list(gradient.shape)} and the tensor {list(tensor.shape)}"
            raise AutogradError(AutogradErrorKind.WRONG_GRADIENT, message)
        return gradient
    if prod(tensor.shape) != 1:
        message = f"a tensor of shape {list(tensor.shape)} needs a gradient to start from: pass one of that shape"
        raise AutogradError(AutogradErrorKind.NO_GRADIENT, message)
    ones = calls("ones_like")(tensor, pin_memory=False, memory_format=MemoryFormat.preserve_format)
    first: Tensor = calls("detach")(ones)
    return first


def _accumulate(calls: Calls, leaf: Tensor, gradient: Tensor) -> None:
    """Add a gradient to what a leaf has; source: torch/csrc/autograd/functions/accumulate_grad.h.

    The first one is copied, for others may have it. Later ones are added in place, unless that is recorded or would
    write something of more keys, such as a batch, into something of fewer.
    """
    held = leaf.grad
    if held is None:
        leaf.grad = _copied_for(calls, leaf, gradient)
    elif is_grad_enabled() or gradient.key_bits & ~held.key_bits:
        leaf.grad = calls("add.Tensor")(held, gradient)
    else:
        calls("add_.Tensor")(held, gradient)


def _copied_for(calls: Calls, leaf: Tensor, gradient: Tensor) -> Tensor:
    """A copy that lies in memory as the leaf does, where that leaves no gaps."""
    copied: Tensor
    if not is_dense(leaf.shape, leaf.strides):
        copied = calls("clone")(gradient, memory_format=MemoryFormat.contiguous_format)
        return copied
    size, strides = [*leaf.shape], [*leaf.strides]
    made = calls("new_empty_strided")(gradient, size, strides, dtype=leaf.dtype, layout=leaf.layout, device=leaf.device)
    copied = calls("copy_")(made, gradient)
    return copied


def _dependencies(root: Node) -> defaultdict[Node, int]:
    """For every node that `root` leads to, how many edges lead to it."""
    depends: defaultdict[Node, int] = defaultdict(int)
    seen, todo = {root}, [root]
    while todo:
        for edge in todo.pop().next_edges:
            if edge is not None:
                depends[edge[0]] += 1
                if edge[0] not in seen:
                    seen.add(edge[0])
                    todo.append(edge[0])
    return depends
