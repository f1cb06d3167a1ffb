"""Read the entries that PyTorch keeps in Python for an operator of a sandbox, in the form of the lab engine's state."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from types import FunctionType
from typing import Any

from dispatchlab.live.bridge.call_mark import CallMark
from dispatchlab.live.bridge.torch import torch
from dispatchlab.live.bridge.torch_library_calls import NUMBER, known_overload
from dispatchlab.live.introspection.python_registries import casts_of

UNKNOWN = "made by nobody here"
"""The text of an entry that no call of the sandbox has made."""


def kept_in_python(qualified: str, mark: CallMark) -> str:
    """Return a line for each entry, with the debug texts of this mark; see `PythonState.text`.

    Args:
        qualified: the name of the operator in PyTorch.
        mark: the mark of the sandbox's calls.
    """
    lines: list[str] = []
    kept = {(registry, key): functions for registry, key, functions in _entries(qualified)}
    for (registry, key), functions in sorted(kept.items(), key=lambda item: item[0]):
        for at, function in enumerate(functions):
            shown = f"{registry} {key}" if key else registry
            inactive = " (inactive)" if at else ""
            lines.append(f"{shown}{inactive}: {_text(function, mark)}\n")
    return "".join(lines)


def _text(function: object, mark: CallMark) -> str:
    number = number_of(function)
    return UNKNOWN if number is None else mark.debug(number)


def number_of(function: object) -> int | None:
    """Return the number of the call that registered the function under the wrappers, or of its `custom_op`."""
    custom_op = torch()._library.custom_ops.CustomOpDef
    owners: list[Any] = []
    left, seen = deque([function]), set[int]()
    while left:
        one = left.popleft()
        number = getattr(one, NUMBER, None)
        if isinstance(number, int):
            return number
        if isinstance(one, custom_op):
            owners.append(one)
        if id(one) in seen or not isinstance(one, FunctionType):
            continue
        seen.add(id(one))
        left.extend(_closed_over(one))
    return number_of(owners[0]._init_fn) if owners else None


def _closed_over(function: FunctionType) -> Iterator[object]:
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # nothing was assigned to the name yet, or it was deleted
            yield cell.cell_contents


def _entries(qualified: str) -> Iterator[tuple[str, str, list[object]]]:
    """Return the registry, the key, and the functions that are registered at the key, newest first."""
    found = torch()._library.simple_registry.singleton._data.get(qualified)
    if found is not None:
        holder = getattr(found, "fake_impl", None) or found.abstract_impl
        kernels = getattr(holder, "kernels", None)
        if kernels is None:  # before PyTorch 2.7 there was one
            kernels = [] if holder.kernel is None else [holder.kernel]
        yield "torch_library", "fake", [kernel.func for kernel in reversed(kernels)]
        for on, rule in getattr(getattr(found, "torch_dispatch_rules", None), "_data", {}).items():
            yield "torch_library", f"torch_dispatch {_class_text(on)}", [rule]
    made = torch()._library.custom_ops.OPDEFS.get(qualified)
    if made is not None:
        yield "custom_ops", "custom_op", [made._init_fn]
        for device, function in made._backend_fns.items():
            if device is not None:
                yield "custom_ops", f"kernel {device}", [function]
        for key, attribute in (("fake", "_abstract_fn"), ("backward", "_backward_fn"), ("vmap", "_vmap_fn")):
            if getattr(made, attribute, None) is not None:
                yield "custom_ops", key, [getattr(made, attribute)]
        for on, rule in getattr(made, "_torch_dispatch_fns", {}).items():
            yield "custom_ops", f"torch_dispatch {_class_text(on)}", [rule]
        for device, _ in casts_of(made):
            yield "custom_ops", f"autocast {device}", [made._init_fn]
    overload = known_overload(qualified)
    for key, kernel in getattr(overload, "py_kernels", {}).items():
        yield "py_kernels", str(key.name), [kernel]


def _class_text(on: type) -> str:
    return f"{on.__module__}.{on.__qualname__}"
