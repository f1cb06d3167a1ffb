"""The autograd graph: the nodes on the path of a gradient, and their saved tensors.

A node is one call. It keeps the formula, the values that the formula needs, and for each argument the node that gets
its gradient. Source: torch/csrc/autograd/function.h, saved_variable.cpp, engine.cpp.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import count
from typing import TypeAlias
from weakref import ref

from dispatchlab.call.local_key_set import excluded, included
from dispatchlab.call.operators import Operator
from dispatchlab.call.tensor import Tensor, is_inference_tensor, shallow_copy
from dispatchlab.engine.semantics import NamedFunction
from dispatchlab.lab.errors import AutogradError, AutogradErrorKind
from dispatchlab.lab.views import history_of, share_version
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.keys import DispatchKey

Gradients: TypeAlias = Sequence[Tensor | None]


_PYTHON = DispatchKeySet.of(DispatchKey.Python).bits
_DETACH_BY_HANDLERS = NamedFunction("dispatchlab.lab.overrides.torch_dispatch:detach_by_handlers")


class SavedTensor:
    """A tensor that a formula needs, and the version that it had.

    Args:
        tensor: it.
        is_result: it is a result of the node that saves it, which then does not keep itself alive through it.
        node: the node that saves it.

    Raises:
        AutogradError: it was made in inference mode.
    """

    __slots__ = ("_name", "_node", "_tensor", "_version")

    def __init__(self, tensor: Tensor, *, is_result: bool, node: Node, name: str) -> None:
        if is_inference_tensor(tensor):
            message = (
                f"{node} would save {name}, which was made in inference mode, for backward: clone it outside of "
                "inference mode, or compute under no_grad()"
            )
            raise AutogradError(AutogradErrorKind.INFERENCE_TENSOR, message)
        self._tensor: Tensor | None = _shallow_copy(node, tensor) if is_result else tensor
        self._node = ref(node) if is_result else None
        self._version = tensor.version
        self._name = name

    def __repr__(self) -> str:
        return f"<SavedTensor of {self._name} at version {self._version}>"

    def check(self, node: Node) -> Tensor:
        """Check a value, and return it in the form that is kept.

        Raises:
            AutogradError: its memory was written afterwards, or `backward` has already used this node.
        """
        tensor = self._tensor
        if tensor is None:
            message = (
                f"{node} has already given its saved values away: call backward once, "
                "or with retain_graph=True all but the last time"
            )
            raise AutogradError(AutogradErrorKind.GRAPH_FREED, message)
        if tensor.version != self._version:
            message = (
                f"{node} needs {self._name} as it was at version {self._version}, and it is at version "
                f"{tensor.version}: something modified it in place; clone it before that"
            )
            raise AutogradError(AutogradErrorKind.SAVED_VALUE_MODIFIED, message)
        return tensor

    def unpack(self, node: Node) -> Tensor:
        """Return the tensor.

        Raises:
            AutogradError: its memory was written afterwards, or `backward` has already used this node.
        """
        tensor = self.check(node)
        if self._node is not None:
            result = _shallow_copy(node, tensor)
            result.requires_grad, result.grad_fn = True, node
            return result
        return tensor

    def release(self) -> None:
        """Forget the tensor."""
        self._tensor = None


def _shallow_copy(node: Node, tensor: Tensor) -> Tensor:
    """Return a tensor with the same memory and no history; handlers see a `detach` that calls no operator.

    Source: c10/core/TensorImpl.cpp (`shallow_copy_and_detach_core`).
    """
    detach = node.detach
    handled = (tensor.key_bits | included().bits) & _PYTHON and not excluded().bits & _PYTHON
    copied = _DETACH_BY_HANDLERS(detach, tensor) if handled and detach is not None else None
    if copied is None:
        return _detached(tensor)
    assert isinstance(copied, Tensor)
    share_version(tensor, copied)
    return copied


def _detached(tensor: Tensor) -> Tensor:
    """Return a tensor with the same memory and version counter, and no history; this makes no call."""
    other = shallow_copy(tensor, type(tensor))
    other.grad = other.grad_fn = other.view_history = None
    other.requires_grad = False
    return other


Hook: TypeAlias = Callable[[], None]
Backward: TypeAlias = "Callable[[Node, Gradients], Gradients]"
_sequence = count()


class Node:
    """One call on the autograd graph.

    Args:
        name: its name, such as `MulBackward`.
        backward: given the node and the gradients of the results, the gradients of the inputs.
        inputs: the tensors that get a gradient; None for a tensor that needs no gradient.

    Attributes:
        detach: the operator with which handlers copy saved tensors; None if no handler is called.
        hooks: for each result, the functions that run before its gradient is used.
        sequence: the number of calls that were recorded before; `backward` takes the latest first.
    """

    __slots__ = (*("__weakref__", "backward", "detach", "hooks", "name", "next_edges", "results", "saved", "sequence"),)

    def __init__(self, name: str, backward: Backward, inputs: Sequence[Tensor | None]) -> None:
        self.name = name
        self.backward = backward
        self.next_edges: tuple[Edge | None, ...] = tuple(
            None if one is None or not one.requires_grad else edge_of(one) for one in inputs
        )
        self.saved: dict[str, SavedTensor] = {}
        self.detach: Operator | None = None
        self.results = 1
        self.hooks: list[tuple[int, Hook]] = []
        self.sequence = next(_sequence)

    def save(self, name: str, tensor: Tensor, *, is_result: bool = False) -> None:
        """Keep a tensor for the formula."""
        self.saved[name] = SavedTensor(tensor, is_result=is_result, node=self, name=name)

    def unpack(self, name: str) -> Tensor:
        """Return a tensor that was kept.

        Raises:
            AutogradError: the tensor was written afterwards, or is gone.
        """
        return self.saved[name].unpack(self)

    def check_saved(self) -> None:
        """Check all saved tensors, as PyTorch does before it computes anything.

        Raises:
            AutogradError: a saved tensor was written afterwards, or is gone.
        """
        for saved in self.saved.values():
            saved.check(self)

    def run_without_gradients(self) -> None:
        """Check the kept values, as PyTorch does when no gradient of any result has arrived, too.

        Raises:
            AutogradError: a saved tensor was written afterwards, or is gone.
        """
        self.check_saved()

    def needs(self, at: int) -> bool:
        """Return whether the gradient of input `at` is needed."""
        return self.next_edges[at] is not None

    def release(self) -> None:
        """Forget the kept values."""
        for saved in self.saved.values():
            saved.release()

    def __repr__(self) -> str:
        return f"<{self.name}>"


class AccumulateGrad(Node):
    """The end of a gradient: it is added to the `grad` of a leaf, as soon as all of it has arrived."""

    __slots__ = ("leaf",)

    def __init__(self, leaf: Tensor) -> None:
        super().__init__("AccumulateGrad", lambda node, gradients: (), ())
        self.leaf = leaf
        self.sequence = sys.maxsize


Edge: TypeAlias = tuple[Node, int]


def node_of(tensor: Tensor) -> Node | None:
    """Return the node that made a tensor; None for a leaf."""
    made_by = tensor.grad_fn
    assert made_by is None or isinstance(made_by, Node)
    return made_by


def edge_of(tensor: Tensor) -> Edge | None:
    """Return the target of a tensor's gradient: the node that made the tensor, or the leaf itself.

    None for a view of a tensor that requires gradients, if the view was made under `no_grad`.

    Raises:
        AutogradError: the tensor is such a view, and its memory was written afterwards.
    """
    made_by = node_of(tensor)
    if made_by is not None:
        return made_by, tensor.output_nr
    history = history_of(tensor)
    if history is not None and history.base.requires_grad:
        return None  # It requires gradients as its base does, and no call on the way to it was recorded.
    # One node for each leaf, as long as the graph leads there: two uses are added up before they arrive.
    node = None if tensor.grad_accumulator is None else tensor.grad_accumulator()
    if not isinstance(node, AccumulateGrad):
        node = AccumulateGrad(tensor)
        tensor.grad_accumulator = ref(node)
    return node, 0


def register_hook(tensor: Tensor, hook: Hook) -> None:
    """Run a function in a backward pass, as soon as the whole gradient of a tensor has arrived.

    The hook lives as long as the graph; the hook of a leaf lives as long as the leaf.
    """
    made_by = node_of(tensor)
    if made_by is not None:
        made_by.hooks.append((tensor.output_nr, hook))
    else:
        tensor.hooks = [*(tensor.hooks or ()), hook]


def run_hooks(node: Node) -> None:
    """Run the hooks of a node, or of the leaf that adds up its gradient."""
    hooks = (node.leaf.hooks or ()) if isinstance(node, AccumulateGrad) else [hook for _, hook in node.hooks]
    for hook in hooks:
        hook()
