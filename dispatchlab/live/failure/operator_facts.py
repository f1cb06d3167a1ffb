"""Facts of operators, read off the PyTorch of this process when a cause asks for them."""

from __future__ import annotations

import dis
import inspect
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

from dispatchlab.live.bridge.torch import bindings, torch
from dispatchlab.model.failure import OperatorFacts

_KERNEL = re.compile(r"^(\w+)(?:\[alias\])?: (.*?)(?: :: .*)?$")
_HEAD = ("name", "schema", "debug", "alias analysis kind")


class InstalledRegistry:
    """The dispatcher of this process, as `Registry`; it is empty where torch was not imported."""

    def __init__(self) -> None:
        self.version = str(torch().__version__) if "torch" in sys.modules else ""

    def operator(self, name: str) -> OperatorFacts | None:
        """Return the facts of an overload, or of the first overload of a name; None when nothing has that name."""
        packet, _, overload = name.partition(".")
        if not overload and not self._dump(packet):
            overloads = self.overloads(packet)
            name = f"{packet}.{overloads[0]}" if overloads and overloads[0] else packet
        dump = self._dump(name)
        return None if not dump else _facts(name, dump)

    def overloads(self, packet: str) -> tuple[str, ...]:
        """Return the overloads of a name, those with a def."""
        if not self.version or not _is_defined(packet):
            return ()
        return tuple(bindings()._jit_get_operation(packet)[1] or ())

    def names(self, namespace: str) -> tuple[str, ...]:
        """Return the full names of all operators of a namespace."""
        found = bindings()._dispatch_get_all_op_names() if self.version else ()
        return tuple(sorted(name for name in found if name.startswith(f"{namespace}::")))

    def _dump(self, name: str) -> str:
        try:
            return str(bindings()._dispatch_dump(name)) if self.version else ""
        except RuntimeError:
            return ""


def _is_defined(packet: str) -> bool:
    try:
        return bindings()._jit_get_operation(packet)[0] is not None
    except RuntimeError:
        return False


def _facts(name: str, dump: str) -> OperatorFacts:
    head: dict[str, str] = {}
    kernels: dict[str, str] = {}
    for line in dump.splitlines():
        key, _, rest = line.partition(": ")
        if key in _HEAD:
            head.setdefault(key, rest)
        elif (found := _KERNEL.match(line)) is not None:
            kernels.setdefault(found[1], found[2].removeprefix("registered at "))
    packet = name.partition(".")[0]
    definition = _custom_op(packet)
    return OperatorFacts(
        name,
        schema=head.get("schema", "") if head.get("schema") != "(none)" else "",
        kernels=kernels,
        site=line_of(definition._init_fn) if definition is not None else "",
        custom_op=definition is not None,
        fake=_fake(packet),
        empty_fake=_is_empty_fake(packet),
        autograd=line_of(definition._backward_fn) if definition is not None and definition._backward_fn else "",
    )


def _custom_op(packet: str) -> Any:
    with suppress(ImportError, AttributeError):
        from torch._library.custom_ops import OPDEFS

        return OPDEFS.get(packet)
    return None


def _fake(packet: str) -> str:
    function = _fake_function(packet)
    return "" if function is None else line_of(function) or "a place that is not known"


def _fake_function(packet: str) -> Any:
    """Return the user's fake kernel: custom_op registers one of its own, which calls the user's where there is one."""
    definition = _custom_op(packet)
    if definition is not None:
        return definition._abstract_fn
    with suppress(ImportError, AttributeError):
        from torch._library.simple_registry import singleton

        entry = singleton._data.get(packet)
        kernel = None if entry is None else entry.fake_impl.kernel
        # register_fake wraps the function, and keeps it in a closure.
        return None if kernel is None else inspect.getclosurevars(kernel.func).nonlocals.get("func", kernel.func)
    return None


def _is_empty_fake(packet: str) -> bool:
    """Return whether every return of an operator's fake kernel returns None."""
    function = _fake_function(packet)
    code = getattr(function, "__code__", None)
    if code is None:
        return False
    instructions = list(dis.get_instructions(code))
    return all(
        (instruction.argval is None if instruction.opname == "RETURN_CONST" else before.opname == "LOAD_CONST")
        and (instruction.opname == "RETURN_CONST" or before.argval is None)
        for before, instruction in pairwise(instructions)
        if instruction.opname.startswith("RETURN_") and instruction.opname != "RETURN_GENERATOR"
    )


def line_of(function: Callable[..., Any]) -> str:
    """Return the file and line of a function; empty when Python did not make it."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return "" if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def privateuse1_name() -> str:
    """Return the name that a package gave to PrivateUse1; empty where none did."""
    if "torch" not in sys.modules:
        return ""
    name = str(bindings()._get_privateuse1_backend_name())
    return "" if name == "privateuseone" else name
