"""Read what the readiness of packages is judged by: operators, Python registrations, and the functions called."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from dis import get_instructions
from functools import wraps
from importlib import import_module
from inspect import Parameter, signature
from typing import Any, NamedTuple

from dispatchlab._gc_pause import collector_paused
from dispatchlab.model.operator_runs import FunctionParameter
from dispatchlab.model.registration import TorchLibraryFunction
from dispatchlab.pytorch.bridge.registry_tables import operator_text
from dispatchlab.pytorch.introspection.python_registries import read_whole_layer
from dispatchlab.pytorch.introspection.registry_reader import called_functions, fake_functions, record_registry
from dispatchlab.records.model import Registry


class PackageOperators(NamedTuple):
    """What packages brought.

    Args:
        registry: everything after their import, with the Python layer.
        before: the operators that had a def before.
        functions: what was called of `torch.library`, by operator.
        refusing: the operators whose backward raises, whatever it is given.
        fakes: the parameters of the fake implementation of each operator, where Python says them.
        offered: the functions that packages can call here to register things, by their full names.
    """

    registry: Registry
    before: frozenset[str]
    functions: dict[str, frozenset[TorchLibraryFunction]]
    refusing: frozenset[str] = frozenset()
    fakes: dict[str, tuple[FunctionParameter, ...]] = {}  # noqa: RUF012
    offered: frozenset[str] = frozenset()


def record_package_operators(imports: Iterable[str]) -> PackageOperators:
    """Import packages, and read what their readiness is judged by.

    Raises:
        DispatchLabError: as for `record_registry`.
    """
    with collector_paused():
        before = record_registry()
        with autograd_watched() as given:
            registry = record_registry(tuple(imports))
        functions = called_functions()
    return package_operators(before, replace(registry, python=read_whole_layer()), functions, given)


def package_operators(
    before: Registry,
    after: Registry,
    functions: Mapping[str, frozenset[TorchLibraryFunction]],
    backwards: Mapping[str, object],
) -> PackageOperators:
    """What packages brought to this process.

    Args:
        before: everything before their import.
        after: everything after it, with the Python layer.
        functions: what was called of `torch.library`, by operator.
        backwards: what `register_autograd` was given, by operator.
    """
    called = dict(functions)
    for name in backwards:
        called[name] = called.get(name, frozenset()) | {TorchLibraryFunction.REGISTER_AUTOGRAD}
    refusing = frozenset(name for name, backward in backwards.items() if always_raises(backward))
    fakes = {name: known for name, fake in fake_functions().items() if (known := parameters_of(fake)) is not None}
    names = frozenset(str(one.name) for one in before if not one.is_dangling)
    return PackageOperators(after, names, called, refusing, fakes, offered_functions())


def offered_functions() -> frozenset[str]:
    """The functions of this PyTorch that register things for operators, by their full names."""
    found: set[str] = set()
    for module in ("torch.library", "torch.distributed.tensor.experimental"):
        try:
            names = dir(import_module(module))
        except Exception:  # a build without torch.distributed, or a version that has it elsewhere
            continue
        found |= {f"{module}.{name}" for name in names}
    return frozenset(found)


def parameters_of(function: Callable[..., Any]) -> tuple[FunctionParameter, ...] | None:
    """The parameters of a function; None when it does not say them, or says those of one that it wraps."""
    if hasattr(function, "__wrapped__"):
        return None
    try:
        found = signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    return tuple(FunctionParameter(one.name, one.kind.name, one.default is not Parameter.empty) for one in found)


def always_raises(function: object) -> bool:
    """Whether a Python function has an instruction that raises and none that returns or yields."""
    code = getattr(function, "__code__", None)
    if code is None:
        return False
    named = [one.opname for one in get_instructions(code)]
    return "RAISE_VARARGS" in named and not any(
        name.startswith(("RETURN_VALUE", "RETURN_CONST", "YIELD")) for name in named
    )


@contextmanager
def autograd_watched() -> Iterator[dict[str, object]]:
    """Operator -> what `torch.library.register_autograd` is given for it meanwhile; PyTorch keeps no list."""
    library: Any = import_module("torch.library")
    original: Callable[..., Any] | None = getattr(library, "register_autograd", None)
    given: dict[str, object] = {}
    if original is None:
        yield given
        return

    @wraps(original)
    def watched(op: Any, backward: Any, *arguments: Any, **named: Any) -> Any:
        result = original(op, backward, *arguments, **named)
        name = op if isinstance(op, str) else getattr(op, "_qualname", "") or operator_text(op)
        given[name.removesuffix(".default")] = backward
        return result

    library.register_autograd = watched
    try:
        yield given
    finally:
        library.register_autograd = original
