"""Facts about operators, read from the PyTorch of this process when a cause needs them."""

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
from dispatchlab.live.introspection.python_registries import UNREADABLE, entries_of
from dispatchlab.model.failure import OperatorFacts

_KERNEL = re.compile(r"^(\w+)(?:\[alias\])?: (.*?)(?: :: .*)?$")
_HEAD = ("name", "schema", "debug", "alias analysis kind")


class InstalledRegistry:
    """The dispatcher of this process, as a `Registry`; empty if torch was not imported."""

    def __init__(self) -> None:
        self.version = str(torch().__version__) if "torch" in sys.modules else ""

    def operator(self, name: str) -> OperatorFacts | None:
        """Return the facts of an overload, or of the first overload of a name; None if there is no such operator."""
        packet, _, overload = name.partition(".")
        if not overload and not self._dump(packet):
            overloads = self.overloads(packet)
            name = f"{packet}.{overloads[0]}" if overloads and overloads[0] else packet
        dump = self._dump(name)
        return None if not dump else _facts(name, dump)

    def overloads(self, packet: str) -> tuple[str, ...]:
        """Return the overloads of a name that have a def."""
        with suppress(RuntimeError):
            return tuple(bindings()._jit_get_operation(packet)[1] or ()) if self.version else ()
        return ()

    def names(self, namespace: str) -> tuple[str, ...]:
        """Return the full names of all operators of a namespace; of every namespace for an empty name."""
        found = bindings()._dispatch_get_all_op_names() if self.version else ()
        return tuple(sorted(name for name in found if name.startswith(f"{namespace}::" if namespace else "")))

    def _dump(self, name: str) -> str:
        try:
            return str(bindings()._dispatch_dump(name)) if self.version else ""
        except RuntimeError:
            return ""


def _facts(name: str, dump: str) -> OperatorFacts:
    head: dict[str, str] = {}
    kernels: dict[str, str] = {}
    for line in dump.splitlines():
        key, _, rest = line.partition(": ")
        if key in _HEAD:
            head.setdefault(key, rest)
        elif (found := _KERNEL.match(line)) is not None:
            kernels.setdefault(found[1], found[2].removeprefix("registered at "))
    functions = _functions(name.partition(".")[0])
    made, fake, backward = (functions.get(key) for key in ("custom_op", "fake", "backward"))
    in_cpp = not re.search(r"\.py:|/pytorch/", head.get("debug", ""))
    return OperatorFacts(
        name,
        schema=head.get("schema", "") if head.get("schema") != "(none)" else "",
        kernels=kernels,
        site=line_of(made) if made is not None else head.get("debug", "") if in_cpp else "",
        custom_op=made is not None,
        fake=(line_of(fake) or "a place that is not known") if fake is not None else "",
        empty_fake=_is_empty_fake(fake),
        autograd=line_of(backward) if backward is not None else "",
    )


def _functions(packet: str) -> dict[str, Any]:
    """Return the registrations of Python for an operator: key -> the user's function."""
    for registry in ("custom_ops", "torch_library"):  # custom_op registers a fake, too, which calls the user's
        found: dict[str, Any] = {}
        with suppress(*UNREADABLE):
            found = {entry.key: entry.value for entry in entries_of(registry) if entry.operator == packet}
        if "custom_op" in found:
            return found
    if "fake" in found:  # register_fake wraps the function, and keeps it in a closure
        found["fake"] = inspect.getclosurevars(found["fake"]).nonlocals.get("func", found["fake"])
    return found


def _is_empty_fake(function: Any) -> bool:
    """Return whether every return of a fake kernel returns None."""
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
    """Return the file and line of a function; empty for a function that is not in Python."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return "" if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def privateuse1_name() -> str:
    """Return the name that a package gave to PrivateUse1; empty without a name."""
    if "torch" not in sys.modules:
        return ""
    name = str(bindings()._get_privateuse1_backend_name())
    return "" if name == "privateuseone" else name
