"""Find the origin of Python code in a registry: its function without decorators, and the line of this function."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple

from dispatchlab.live.bridge.call_sites import API_FILES, torch_folder
from dispatchlab.live.introspection.package_paths import package_path

# Note [The site of a function]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A registry holds what its decorators made of a function: a `functools.partial`, a wrapper with `__wrapped__`, or a
# closure of the registration API that has the function in a cell and names it nowhere. The site is the function that
# somebody wrote. `__wrapped__` is followed as far as it goes. A closure is followed while its code lies in a file that
# only makes wrappers, and holds one function that does not. What is left without code of its own is an object: its
# `__call__` has a line, or its class. An operator of PyTorch that stands where a function could has none.

_WRAPPERS = (
    *API_FILES,
    "_ops.py",
    "_compile.py",
    "_decomp/__init__.py",
    "_prims_common/wrappers.py",
    "_higher_order_ops/utils.py",
    "_functorch/autograd_function.py",
    "_dynamo/",
    "utils/_contextlib.py",
)
"""Files below the folder of torch whose closures wrap what others wrote."""

_MAKE_WRAPPERS = ("register_func.<locals>.",)
"""Functions in other files whose closures wrap what others wrote."""

_DEEP = 20


class FunctionSite(NamedTuple):
    """A function and its line.

    Args:
        function: `module:qualified name`.
        site: `file:line`; empty without a line.
    """

    function: str
    site: str


class FunctionSites:
    """Finds the sites of functions.

    Args:
        roots: the folders of packages, as `package_roots` returns them.
    """

    def __init__(self, roots: tuple[str, ...]) -> None:
        self._roots = roots
        self._wrappers = tuple(torch_folder() + path.replace("/", os.sep) for path in _WRAPPERS)
        self._known: dict[int, tuple[object, FunctionSite]] = {}

    def of(self, value: object) -> FunctionSite:
        """Return the function behind a value and its line. See Note [The site of a function]."""
        kept = self._known.get(id(value))
        if kept is None:  # the value is kept beside, so that its id stays its own
            kept = self._known[id(value)] = value, self._found(value)
        return kept[1]

    def _found(self, value: object) -> FunctionSite:
        if isinstance(value, str):  # a name that was registered
            return FunctionSite(value, "")
        return self.itself(self.unwrapped(value))

    def itself(self, function: object) -> FunctionSite:
        """Return a function and its line, without looking through wrappers."""
        code = _code(function)
        return FunctionSite(_name(function), "" if code is None else self.line(code.co_filename, code.co_firstlineno))

    def line(self, file: str, line: int) -> str:
        """Return `file:line` below the folder of the package; empty for code without a file."""
        return f"{package_path(file, self._roots)}:{line}" if os.path.isfile(file) else ""

    def unwrapped(self, value: object) -> object:
        """Return the user's function under its wrappers."""
        for _ in range(_DEEP):
            inner = self._inner(value)
            if inner is None:
                return value
            value = inner
        return value

    def _inner(self, value: object) -> object | None:
        if isinstance(value, functools.partial):
            return value.func
        if isinstance(value, MethodType):
            return value.__func__
        wrapped = getattr(value, "__wrapped__", None)
        if wrapped is not None and _code(wrapped) is not None:  # it may be an operator, or a function of C
            return wrapped  # type: ignore[no-any-return]
        if not isinstance(value, FunctionType) or not self._is_wrapper(value.__code__):
            return None
        functions = [each for each in _closed_over(value) if self._is_written(each)]
        return functions[0] if len(functions) == 1 else None

    def _is_wrapper(self, code: CodeType) -> bool:
        return code.co_filename.startswith(self._wrappers) or code.co_qualname.startswith(_MAKE_WRAPPERS)

    def _is_written(self, value: object) -> bool:
        code = _code(value)
        return code is not None and (not self._is_wrapper(code) or self._inner(value) is not None)


def _closed_over(function: FunctionType) -> Iterator[object]:
    """Return the functions in a closure, each once."""
    seen: set[int] = set()
    for cell in function.__closure__ or ():
        try:
            value: Any = cell.cell_contents
        except ValueError:  # the cell is empty
            continue
        if isinstance(value, FunctionType | MethodType | functools.partial) and id(value) not in seen:
            seen.add(id(value))
            yield value


def _code(value: object) -> CodeType | None:
    """Return the code of a callable value, or code of its class."""
    code = getattr(value, "__code__", None)
    if isinstance(code, CodeType):
        return code
    if isinstance(value, functools.partial | MethodType):
        return _code(value.func if isinstance(value, functools.partial) else value.__func__)
    if _is_operator(value):
        return None
    of = value if isinstance(value, type) else type(value)
    for each in of.__mro__:
        own = {name: one.__code__ for name, one in vars(each).items() if isinstance(one, FunctionType)}
        if own:
            first = min(own.values(), key=lambda code: code.co_firstlineno)
            return own.get("__call__") or own.get("__init__") or first
    return None


def _is_operator(value: object) -> bool:
    return type(value).__module__ == "torch._ops"


def _name(function: object) -> str:
    """Return `module:qualified name` of a function, or of the object in its place."""
    if isinstance(function, FunctionType):  # a decorator may have given it the names of something else
        return f"{function.__globals__.get('__name__', '')}:{function.__code__.co_qualname}"
    if _is_operator(function):
        return f"torch.ops:{function}"
    named = function if isinstance(function, type) else type(function)
    return f"{named.__module__}:{named.__qualname__}"
