"""Which rules of `torch.library` hold in the running PyTorch: a small program for each, with operators of its own.

A second registration of a kind, or one after another, is accepted or refused. `LIBRARY_RULES` has the names of rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from importlib import import_module
from itertools import count
from typing import Any

from dispatchlab.model.keys import BACKENDS
from dispatchlab.model.profile import Names
from dispatchlab.model.torch_library_rules import LIBRARY_RULES
from dispatchlab.pytorch.bridge.reserved_namespaces import PROFILE
from dispatchlab.pytorch.bridge.torch import torch

_DEVICES = (*(backend.lower() for backend in BACKENDS), "privateuseone")
_numbers = count(10_000)  # behind those of profile_probe


class _OwnOperator:
    """An operator of its own, and what a program does with it; `undo` releases its libraries."""

    def __init__(self, undo: ExitStack) -> None:
        self.namespace = f"{PROFILE}{next(_numbers)}"
        self.name, self.api, self._undo = f"{self.namespace}::probed", torch().library, undo

    def library(self) -> Any:
        made = self.api.Library(self.namespace, "FRAGMENT")
        self._undo.callback(made._destroy)
        return made

    def defined(self, key: str = "") -> Any:
        made = self.library()
        made.define("probed(Tensor x) -> Tensor")
        if key:
            made.impl("probed", _kernel, key)
        return made

    def custom(self, **options: object) -> Any:
        def function(x):  # type: ignore[no-untyped-def]
            return x.clone()

        function.__annotations__ = {"x": torch().Tensor, "return": torch().Tensor}
        libraries = torch()._library.custom_ops.OPDEF_TO_LIB  # where one that is refused stays, too
        self._undo.callback(self.accepts, lambda: libraries.pop(self.name)._destroy())
        return self.api.custom_op(self.name, function, mutates_args=(), **options)

    def accepts(self, call: Callable[..., object], *arguments: object, **options: object) -> bool:
        try:
            call(*arguments, **options)
        except (RuntimeError, ValueError, AssertionError, AttributeError, TypeError, KeyError):
            return False
        return True

    def takes_a_second(self, call: Callable[..., object], *arguments: object, **options: object) -> bool:
        return self.accepts(call, *arguments, **options) and self.accepts(call, *arguments, **options)


def _kernel(x: Any) -> Any:
    return x.clone()


def _fakes(own: _OwnOperator, before: str, after: str) -> bool:
    """Whether one is accepted after the other: a fake implementation, or a kernel at Meta."""
    own.defined("CPU")
    ways = {
        "fake": lambda: own.api.register_fake(own.name, _kernel, lib=own.library()),
        "meta": lambda: own.library().impl("probed", _kernel, "Meta"),
    }
    return own.accepts(ways[before]) and own.accepts(ways[after])


def _second_kernel(own: _OwnOperator) -> bool:
    own.defined("CPU")
    return own.accepts(own.library().impl, "probed", _kernel, "CPU")


def _second(name: str, *arguments: object) -> Callable[[_OwnOperator], bool]:
    def takes(own: _OwnOperator) -> bool:
        library = own.defined("CPU")
        called = getattr(own.api, name, None)
        return called is not None and own.takes_a_second(called, own.name, *arguments, lib=library)

    return takes


def _second_autocast(own: _OwnOperator) -> bool:
    library, dtype = own.defined("CPU"), torch().bfloat16
    called = getattr(own.api, "register_autocast", None)
    return called is not None and own.takes_a_second(called, own.name, "cpu", dtype, lib=library)


def _one_dispatch_rule(own: _OwnOperator) -> bool:
    library = own.defined("CPU")
    called = getattr(own.api, "register_torch_dispatch", None)
    modes = import_module("torch.utils._python_dispatch")
    mode = type("Mode", (modes.TorchDispatchMode,), {})
    if called is None or not own.accepts(called, own.name, mode, _kernel, lib=library):
        return False
    return not own.accepts(called, own.name, mode, _kernel, lib=library)


def _meta_beside_composite(own: _OwnOperator) -> bool:
    own.defined("CompositeImplicitAutograd")
    meta = own.accepts(own.library().impl, "probed", _kernel, "Meta")
    return not meta and not own.accepts(own.api.register_fake, own.name, _kernel, lib=own.library())


def _autograd_needs_def(own: _OwnOperator) -> bool:
    return not own.accepts(own.api.register_autograd, own.name, lambda context, gradient: gradient)


def _autograd_of_a_view(own: _OwnOperator) -> bool:
    made = own.custom(schema="(Tensor(a) x) -> Tensor(a)")
    return own.accepts(made.register_autograd, lambda context, gradient: gradient)


def _second_custom_op(own: _OwnOperator) -> bool:
    own.custom()
    return own.accepts(own.custom)


def _custom_op_of_a_def(own: _OwnOperator) -> bool:
    own.defined()
    return not own.accepts(own.custom)


def _def_of_a_custom_op(own: _OwnOperator) -> bool:
    own.custom()
    return not own.accepts(own.library().define, "probed(Tensor x) -> Tensor")


def _kept_casts(own: _OwnOperator) -> int:
    """How many Python kernels a cast leaves."""
    own.defined("CPU")
    library, called = own.library(), getattr(own.api, "register_autocast", None)
    overload = getattr(torch().ops, own.namespace).probed.default
    if called is None or not own.accepts(called, own.name, "cpu", torch().bfloat16, lib=library):
        return 0
    library._destroy()
    return len(overload.py_kernels)


_PROGRAMS: Mapping[str, Callable[[_OwnOperator], bool]] = {
    "fake_after_fake": lambda own: _fakes(own, "fake", "fake"),
    "meta_after_fake": lambda own: _fakes(own, "fake", "meta"),
    "fake_after_meta": lambda own: _fakes(own, "meta", "fake"),
    "no_meta_beside_composite": _meta_beside_composite,
    "meta_needs_operator": lambda own: not own.accepts(own.library().impl, "probed", _kernel, "Meta"),
    "kernel_after_kernel": _second_kernel,
    "autograd_after_autograd": _second("register_autograd", lambda context, gradient: gradient),
    "autograd_needs_def": _autograd_needs_def,
    "autograd_of_a_view": _autograd_of_a_view,
    "vmap_after_vmap": _second("register_vmap", lambda info, in_dims, x: (x, in_dims[0])),
    "autocast_after_autocast": _second_autocast,
    "autocast_kernel_stays": lambda own: _kept_casts(own) > 0,
    "autocast_kernel_everywhere": lambda own: _kept_casts(own) > 1,
    "one_torch_dispatch_rule": _one_dispatch_rule,
    "custom_op_after_custom_op": _second_custom_op,
    "no_custom_op_of_a_def": _custom_op_of_a_def,
    "no_def_of_a_custom_op": _def_of_a_custom_op,
    "custom_op_needs_device": lambda own: not own.accepts(own.custom, schema="(int n) -> Tensor", device_types="cpu"),
    "prim_is_reserved": lambda own: not own.accepts(own.api.Library, "prim", "FRAGMENT"),
    "register_vmap": lambda own: hasattr(own.api, "register_vmap"),
    "register_autocast": lambda own: hasattr(own.api, "register_autocast"),
    "register_torch_dispatch": lambda own: hasattr(own.api, "register_torch_dispatch"),
}
assert {*_PROGRAMS} == {*LIBRARY_RULES}


def library_rules() -> Names:
    """Those of `LIBRARY_RULES` that hold here."""
    found = []
    for name in LIBRARY_RULES:
        with ExitStack() as undo:
            if _PROGRAMS[name](_OwnOperator(undo)):
                found.append(name)
    return tuple(found)


def autocast_devices() -> Names:
    """The device types that `torch.library` registers a cast for."""
    with ExitStack() as undo:
        own = _OwnOperator(undo)
        library, called = own.defined("CPU"), getattr(own.api, "register_autocast", None)
        dtype = torch().bfloat16
        accepted = (each for each in _DEVICES if called and own.accepts(called, own.name, each, dtype, lib=library))
        return tuple(accepted)
