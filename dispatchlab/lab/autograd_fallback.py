"""The builtin fallback of the autograd keys, for operators without an Autograd kernel, and its effect on gradients.

It continues the call below autograd. A result without a history gets a node; if `backward` reaches the node, it warns
and passes no gradient on. A result with a history keeps it; then a hook warns, and the gradient continues.
Source: torch/csrc/autograd/autograd_not_implemented_fallback.cpp (`basicAutogradNotImplementedFallback`).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from dispatchlab._short_repr import WordEnum
from dispatchlab.call.operators import Operator
from dispatchlab.call.tensor import Tensor
from dispatchlab.lab.autograd_graph import Gradients, Node, register_hook
from dispatchlab.lab.grad_mode import is_grad_enabled
from dispatchlab.lab.kernels import tensors_in
from dispatchlab.lab.views import history_of
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.schema import OPTIONAL_TENSORS

# Note [No check of what a kernel below autograd does]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# PyTorch's autograd kernels can check that a kernel below them returns no argument that its schema does not name, and
# keeps the storage of each argument. The checks are inside of `#ifndef NDEBUG`, and no wheel has them: there, a kernel
# that returns its argument moves the argument into the graph, and a write that the schema does not declare raises no
# version. So it is here.


class AutogradFallbackMode(WordEnum):
    """The mode of the fallback: only call on, or also record that the gradient is not known."""

    NOTHING = "nothing"
    WARN = "warn"


_mode = AutogradFallbackMode.WARN


def autograd_fallback_mode() -> AutogradFallbackMode:
    """Return the mode of this process.

    >>> from dispatchlab.lab import autograd_fallback_mode
    >>> autograd_fallback_mode()
    AutogradFallbackMode.WARN
    """
    return _mode


def set_autograd_fallback_mode(mode: AutogradFallbackMode | str) -> None:
    """Set the mode of this process, as `torch._C._set_autograd_fallback_mode` does.

    Args:
        mode: the mode, or its value. PyTorch also has the mode "error", but refuses to set it.

    Raises:
        ValueError: there is no such mode.
    """
    global _mode
    _mode = AutogradFallbackMode(mode)


def autograd_fallback(called: Operator, keys: DispatchKeySet, stack: list[object]) -> None:
    """Redispatch, and handle the results by the mode."""
    # See Note [No check of what a kernel below autograd does]
    below = keys & DispatchKeySet.full_after(DispatchKey.AutogradOther)
    arguments = called.schema.arguments
    # A list that may hold None is another kind of list to PyTorch, which does not look into it.
    tensors = [
        one
        for argument, value in zip(arguments, stack[len(stack) - len(arguments) :], strict=True)
        if argument.type != OPTIONAL_TENSORS
        for one in tensors_in((value,))
    ]
    records = _mode is AutogradFallbackMode.WARN and any(one.requires_grad for one in tensors) and is_grad_enabled()
    node = WarnNotImplemented(str(called.name), tensors) if records else None
    called.redispatch_boxed(below, stack)
    if node is None:
        return
    node.results = 0
    returns = called.schema.returns
    for returned, value in zip(returns, stack[len(stack) - len(returns) :], strict=True):
        for result in tensors_in((value,)):
            _mark(node, result, is_written=returned.is_written)


class WarnNotImplemented(Node):
    """A node that warns and hands no gradient on; it also warns when no gradient arrives."""

    __slots__ = ("operator",)

    def __init__(self, operator: str, inputs: Sequence[Tensor]) -> None:
        super().__init__("WarnNotImplemented", self._run, inputs)
        self.operator = operator

    def run_without_gradients(self) -> None:
        """Warn."""
        _warn(self.operator)

    def _run(self, node: Node, gradients: Gradients) -> Gradients:
        _warn(self.operator)
        return [None] * len(self.next_edges)


def _mark(node: WarnNotImplemented, result: Tensor, *, is_written: bool) -> None:
    if not result.dtype.is_differentiable:
        return
    if result.requires_grad:
        operator = node.operator
        register_hook(result, lambda: _warn(operator))
        history = history_of(result)
        if is_written and history is not None and history.base.requires_grad:
            register_hook(history.base, lambda: _warn(operator))
    elif not is_written:  # What was written may be a view, and PyTorch leaves those alone.
        result.requires_grad, result.grad_fn, result.output_nr = True, node, node.results
        node.results += 1


def _warn(operator: str) -> None:
    warnings.warn(
        f"{operator} has no Autograd kernel, and a gradient gets to it, which may be wrong from here on: register one "
        "that records a formula, a fallthrough if it is not differentiable, or call it under no_grad()",
        UserWarning,
        stacklevel=2,
    )
