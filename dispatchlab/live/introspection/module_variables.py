"""Describe the public variables of modules: the type, the length and the plain value of each."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from types import FunctionType, ModuleType

from dispatchlab.live.bridge.torch import torch

_PLAIN = (type(None), bool, int, float, complex, str, bytes, range)
_SEQUENCES = (list, tuple, deque)
_SETS = (set, frozenset)
_MOST, _LONG, _DEEP = 50, 2_000, 2
"""How many items of a container are described, how long a value may be, and how many containers inside each other."""


def own_modules(packages: Iterable[str]) -> Iterator[tuple[str, ModuleType]]:
    """Return the imported modules of these packages, by name."""
    modules: Mapping[str, object] = sys.modules
    tops = {package.partition(".")[0] for package in packages}
    for name, module in sorted(modules.items()):
        if isinstance(module, ModuleType) and name.partition(".")[0] in tops:
            yield name, module


def shared_modules(packages: Iterable[str]) -> Iterator[tuple[str, ModuleType]]:
    """Return the modules that two of these packages import, by name, without PyTorch's and Python's."""
    users: dict[str, set[str]] = {}
    for name, module in own_modules(packages):
        for value in list(vars(module).values()):
            if isinstance(value, ModuleType):
                users.setdefault(value.__name__, set()).add(name.partition(".")[0])
    known = {"torch", "dispatchlab", *sys.stdlib_module_names, *sys.builtin_module_names}
    for name, tops in sorted(users.items()):
        if len(tops) > 1 and name.partition(".")[0] not in known | tops and name in sys.modules:
            yield name, sys.modules[name]


def public_variables(module: ModuleType) -> dict[str, str]:
    """Return a description of each public variable, without modules."""
    return {
        name: description(value)
        for name, value in list(vars(module).items())
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }


def description(value: object, deep: int = _DEEP) -> str:
    """Return the type and plain value of an object; for a container, the length and the plain items."""
    kind: type = type(value)
    if kind in _PLAIN:
        return _short(repr(value))
    if isinstance(value, type | FunctionType):
        return f"{'class' if isinstance(value, type) else 'function'} {value.__module__}:{value.__qualname__}"
    if isinstance(value, torch().Tensor):
        return f"{kind.__name__} of {value.dtype}, shape {tuple(value.shape)}"
    if isinstance(value, torch()._ops.OpOverload | torch()._ops.OpOverloadPacket | torch().dtype | torch().device):
        return str(value)
    if isinstance(value, dict):
        length = dict.__len__(value)
        items = [f"{description(key, 0)}: {description(one, deep - 1)}" for key, one in [*dict.items(value)][:_MOST]]
    elif isinstance(value, _SEQUENCES):
        length, items = len(value), [description(one, deep - 1) for one in [*value][:_MOST]]
    elif isinstance(value, _SETS):
        length, items = len(value), sorted(description(one, deep - 1) for one in value)[:_MOST]
    else:
        return f"{kind.__module__}:{kind.__qualname__}"
    inside = f": {', '.join(items)}{', ...' * (length > _MOST)}" if items and deep > 0 else ""
    return _short(f"{kind.__name__} of length {length}{inside}")


def _short(text: str) -> str:
    return text if len(text) <= _LONG else f"{text[:_LONG]}... ({len(text):,} characters)"
