"""The functions of `torch.library` that were called for operators, as PyTorch remembers it besides its registry."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from inspect import getclosurevars
from typing import Any

from dispatchlab.model.registration import TorchLibraryFunction

# Note [What custom_op was given]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# `custom_op` registers a Meta and an Autograd kernel whatever its author gives, so a dump does not tell an operator
# with a fake kernel from one whose fake kernel raises. The definition object knows. Fake kernels and rules of torch
# dispatch modes are in a registry of their own. Both are private; where a PyTorch has them elsewhere, nothing is known.


def called_functions() -> dict[str, frozenset[TorchLibraryFunction]]:
    """Operator -> the functions that were called for it; operators of which nothing is known are left out."""
    found: dict[str, set[TorchLibraryFunction]] = {}
    for name, entry in _entries().items():
        if getattr(getattr(entry, "fake_impl", None), "kernel", None) is not None:
            found.setdefault(name, set()).add(TorchLibraryFunction.REGISTER_FAKE)
        if getattr(getattr(entry, "torch_dispatch_rules", None), "_data", None):
            found.setdefault(name, set()).add(TorchLibraryFunction.REGISTER_TORCH_DISPATCH)
    for name, definition in _custom_ops().items():
        given = found.setdefault(name, set())
        given.discard(TorchLibraryFunction.REGISTER_FAKE)  # the one that `custom_op` itself registers
        given.add(TorchLibraryFunction.CUSTOM_OP)
        if getattr(definition, "_abstract_fn", None) is not None:
            given.add(TorchLibraryFunction.REGISTER_FAKE)
        if getattr(definition, "_backward_fn", None) is not None:
            given.add(TorchLibraryFunction.REGISTER_AUTOGRAD)
    return {name: frozenset(functions) for name, functions in found.items() if functions}


def fake_functions() -> dict[str, Callable[..., Any]]:
    """Operator -> its fake implementation, as its author wrote it; those that `custom_op` makes are left out."""
    definitions = _custom_ops()
    found: dict[str, Callable[..., Any]] = {}
    for name, entry in _entries().items():
        kernel = getattr(getattr(entry, "fake_impl", None), "kernel", None)
        function = _checked(getattr(kernel, "func", None))
        if name in definitions:
            function = getattr(definitions[name], "_abstract_fn", None)
        if callable(function):
            found[name] = function
    return found


def _checked(function: Any) -> Any:
    """What a wrapper of `torch.library.register_fake` calls once it has looked where the operator was defined."""
    if getattr(function, "__qualname__", "").startswith("_check_pystubs_once.<locals>"):
        return getclosurevars(function).nonlocals.get("func")
    return function


def _custom_ops() -> dict[str, Any]:
    known = import_module("torch._library.custom_ops")
    return dict(getattr(known, "OPDEFS", {}))


def _entries() -> dict[str, Any]:
    known = import_module("torch._library.simple_registry")
    return dict(getattr(getattr(known, "singleton", None), "_data", {}))
