"""Which node of the tape comes next: of those that are ready, the one that was recorded last.

Leaves come before all others. Among equals the order is that of a binary heap as C++ keeps it, so that gradients are
computed in PyTorch's order to the last call. Source: torch/csrc/autograd/engine.cpp (`ReadyQueue`), a
`std::priority_queue`.
"""

from __future__ import annotations

from dispatchlab.call.layers.tape import Node


class ReadyQueue:
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
        """Take the next node away."""
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
