"""`backward`: the walk over the autograd graph from a result to the leaves.

Leaves come before all others. Among equals the order is that of a binary heap as C++ keeps it (`ReadyQueue`, a
`std::priority_queue`), so that gradients are computed in PyTorch's order to the last call.
Source: torch/csrc/autograd/engine.cpp.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from math import prod

from dispatchlab.call.tensor import Tensor
from dispatchlab.call.tensor_options import MemoryFormat
from dispatchlab.lab.autograd_graph import AccumulateGrad, Edge, Gradients, Node, edge_of, run_hooks
from dispatchlab.lab.errors import AutogradError, AutogradErrorKind
from dispatchlab.lab.grad_mode import is_grad_enabled, set_grad_enabled
from dispatchlab.lab.tensor_geometry import Calls, Geometry, copied_like


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
        tensor: the tensor to differentiate.
        gradient: the gradient of the tensor; default: 1 for a tensor with one element.
        retain_graph: keep saved tensors, so that `backward` can run again.
        create_graph: record the computation of the gradients, too.

    Raises:
        AutogradError: there is nothing to differentiate, or a saved tensor is gone or was modified.
    """
    if not tensor.requires_grad:
        message = (
            "the tensor does not require gradients and was computed from none that does: make one with "
            "requires_grad=True, and compute outside of no_grad()"
        )
        raise AutogradError(AutogradErrorKind.NO_GRADIENT, message)
    edge = edge_of(tensor)
    if edge is None:
        message = "the tensor is a view that was made under no_grad(), and has no history: make it outside of no_grad()"
        raise AutogradError(AutogradErrorKind.NO_GRADIENT, message)
    root, output = edge
    first = _first_gradient(calls, tensor, gradient)
    depends = _dependencies(root)
    arriving: defaultdict[Node, dict[int, Tensor]] = defaultdict(dict, {root: {output: first}})
    ready = _ReadyQueue()
    ready.push(root)
    with set_grad_enabled(create_graph):
        while ready:
            node = ready.pop()
            arrived = arriving.pop(node, {})
            passed_on = _passed_on(calls, node, arrived)
            if not (retain_graph or create_graph):
                node.release()
            for next_edge, one in zip(node.next_edges, passed_on, strict=True):
                if next_edge is None:
                    continue
                _arrive(calls, arriving, next_edge, one)
                depends[next_edge[0]] -= 1
                if not depends[next_edge[0]]:
                    ready.push(next_edge[0])


def _arrive(calls: Calls, arriving: defaultdict[Node, dict[int, Tensor]], edge: Edge, one: Tensor | None) -> None:
    if one is not None:
        node, position = edge
        held = arriving[node].get(position)
        arriving[node][position] = one if held is None else calls("add.Tensor")(held, one)


class _ReadyQueue:
    """Nodes whose gradients have all arrived."""

    def __init__(self) -> None:
        self._heap: list[Node] = []

    def __bool__(self) -> bool:
        return bool(self._heap)

    def push(self, node: Node) -> None:
        """Add a node."""
        self._heap.append(node)
        self._rise(len(self._heap) - 1, node)

    def pop(self) -> Node:
        """Remove the next node, and return it."""
        heap = self._heap
        first, last = heap[0], heap.pop()
        if not heap:
            return first
        # The hole at the top sinks to a leaf, to the right among equals, and the last node rises from there.
        hole = 0
        while (child := 2 * hole + 2) < len(heap):
            if heap[child].sequence < heap[child - 1].sequence:
                child -= 1
            heap[hole], hole = heap[child], child
        if child == len(heap):
            heap[hole], hole = heap[child - 1], child - 1
        self._rise(hole, last)
        return first

    def _rise(self, hole: int, node: Node) -> None:
        heap = self._heap
        while hole and heap[parent := (hole - 1) // 2].sequence < node.sequence:
            heap[hole], hole = heap[parent], parent
        heap[hole] = node


def _passed_on(calls: Calls, node: Node, arrived: Mapping[int, Tensor]) -> Gradients:
    run_hooks(node)
    if not arrived:
        node.run_without_gradients()
        return [None] * len(node.next_edges)
    if isinstance(node, AccumulateGrad):
        _accumulate(calls, node.leaf, arrived[0])
        return ()
    return node.backward(node, [arrived.get(at) for at in range(node.results)])


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
    """Add a gradient to the gradient of a leaf; source: torch/csrc/autograd/functions/accumulate_grad.h.

    The first one is copied, for others may have it. Later ones are added in place, unless that is recorded or would
    write something of more keys, such as a batch, into something of fewer.
    """
    held = leaf.grad
    if held is None:
        leaf.grad = copied_like(calls, gradient, Geometry.of(leaf))
    elif is_grad_enabled() or gradient.key_bits & ~held.key_bits:
        leaf.grad = calls("add.Tensor")(held, gradient)
    else:
        calls("add_.Tensor")(held, gradient)


def _dependencies(root: Node) -> defaultdict[Node, int]:
    """Return for every node below `root` the number of edges that lead to it."""
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
