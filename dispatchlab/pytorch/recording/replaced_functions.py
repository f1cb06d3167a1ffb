"""Functions of PyTorch that a package put others in the place of: what they do with registrations, nobody knows."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from types import FunctionType
from typing import Any, NamedTuple

from dispatchlab.model.python_layer import ASSIGNMENT, EVERY_REGISTRY, FUNCTIONS, PythonRegistration, WriteEffect
from dispatchlab.pytorch.bridge.call_sites import torch_folder
from dispatchlab.pytorch.introspection.python_sites import FunctionSites

# Note [Functions that are replaced]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A package may put a function of its own in the place of one that registers: `torch.library.Library.impl = mine`. What
# is registered through it is recorded all the same, since the bindings beneath are watched. Yet what it does may depend
# on what there is, and who registers before the package is imported goes another way. So each is listed, and is not
# explored.
#
# The functions and classes of `torch.library`, `torch._library` and `torch._ops`, what these classes have, and the
# bindings of the dispatcher are compared by identity with what they were before the imports. A function that writes a
# registry of Python may lie in a module that only the package imports. It is PyTorch's when its code is.
#
# The watches put wrappers in the place of many of them. The function that such a wrapper calls is compared.

_WHOLE = ("torch.library", "torch._ops", "torch._library", "torch._custom_op", "torch._custom_ops")
"""The modules of which every function counts, with those below them."""

_BINDINGS = "torch._C"
_OF_DISPATCHER = ("_dispatch", "_Dispatch")
"""What the names of the bindings of the dispatcher begin with."""

_OWN = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(__file__))), "")
"""The folder of our own code, whose wrappers the watches put in the place of functions."""


class ReplacedFunctions:
    """Remembers the functions of PyTorch that register, and finds those that are others now.

    Args:
        roots: the folders in which packages are found.
    """

    def __init__(self, roots: tuple[str, ...]) -> None:
        self._sites = FunctionSites(roots)
        self._known = {one.at: one for one in _functions()}

    def found(self) -> Iterator[PythonRegistration]:
        """The functions that are others now. See Note [Functions that are replaced]."""
        now = {one.at: one for one in _functions()}
        for at, known in self._known.items():
            if at not in now:
                yield self._registration(known.path, None, effect="removed")
            elif now[at].value is not known.value:
                yield self._registration(known.path, now[at].value)
        for path in dict.fromkeys(function.path for one in EVERY_REGISTRY for function in one.calls):
            module, _, names = path.partition(":")
            value: Any = sys.modules.get(module)
            for part in names.split("."):
                value = getattr(value, part, None)
            value = _unwrapped(value)
            if isinstance(value, FunctionType) and not (_is_whole(module) or _is_of_torch(value)):
                yield self._registration(f"{module}.{names}", value)

    def _registration(self, path: str, value: object, effect: WriteEffect = "") -> PythonRegistration:
        function, site = ("", "") if value is None else self._sites.itself(getattr(value, "__func__", value))
        operator = f"{FUNCTIONS}::{path}"
        return PythonRegistration(
            "replaced_functions", operator, function=function, site=site, call=ASSIGNMENT, effect=effect
        )


class _Function(NamedTuple):
    """A function or a class of PyTorch, or what a class has.

    Args:
        owner: the module or the class that has it.
        name: the name of the attribute.
        path: its dotted name.
        value: what is there, without wrappers of our own.
    """

    owner: Any
    name: str
    path: str
    value: object

    @property
    def at(self) -> tuple[int, str]:
        """The place of the attribute."""
        return id(self.owner), self.name


def _functions() -> Iterator[_Function]:
    """The functions that are compared with what they were."""
    for at, module in list(sys.modules.items()):
        if not (_is_whole(at) or at == _BINDINGS):
            continue
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if not callable(value) or (at == _BINDINGS and not name.startswith(_OF_DISPATCHER)):
                continue
            yield _Function(module, name, f"{at}.{name}", _unwrapped(value))
            for own, method in list(vars(value).items()) if isinstance(value, type) and value.__module__ == at else ():
                if callable(method) or isinstance(method, staticmethod | classmethod | property):
                    yield _Function(value, own, f"{at}.{name}.{own}", _unwrapped(method))


def _is_whole(module: str) -> bool:
    return module.startswith(_WHOLE) and any(module == one or module.startswith(f"{one}.") for one in _WHOLE)


def _unwrapped(value: Any) -> Any:
    """What a wrapper of our own calls; anything else as it is."""
    while isinstance(value, FunctionType) and value.__code__.co_filename.startswith(_OWN):
        value = getattr(value, "__wrapped__", None)
    return value


def _is_of_torch(function: FunctionType) -> bool:
    return function.__code__.co_filename.startswith(torch_folder())
