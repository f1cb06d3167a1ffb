"""Read the whole registry of the running PyTorch: every operator, kernel and fallback that there is now."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable
from dataclasses import replace
from importlib import import_module

from dispatchlab._gc_pause import collector_paused
from dispatchlab.errors import DispatchLabError
from dispatchlab.live.bridge.reserved_namespaces import FALLBACKS, is_own
from dispatchlab.live.bridge.torch import bindings, torch
from dispatchlab.registry.model import RecordedOperator, Registry, read_dump, read_fallbacks, registry_of


def is_imported() -> bool:
    """Whether somebody has imported torch as a whole; asking does not import it."""
    module = sys.modules.get("torch")
    return module is not None and hasattr(module, "library") and hasattr(module, "_C")


def dumps() -> dict[str, str]:
    """The dump of every operator, without those that this package itself has made."""
    c = bindings()
    dump = c._dispatch_dump
    return {name: dump(name) for name in c._dispatch_get_all_op_names() if not is_own(name)}


def fallback_rows() -> str:
    """The rows that the backend fallbacks fill, as a table prints them.

    Read off an operator of our own, which has no kernel, so that its table shows nothing else.
    """
    library = bindings()._dispatch_library("FRAGMENT", FALLBACKS, "")
    library.define("untouched() -> ()", "")
    try:
        return str(bindings()._dispatch_dump_table(f"{FALLBACKS}::untouched"))
    finally:
        library.reset()


"""The namespaces in which this package makes operators of its own."""

_AT = "registered at "


class ImportFailedError(DispatchLabError):
    """A module that was to be imported before the registry is read cannot be.

    Args:
        module: the module.
        reason: what the import said.
    """

    def __init__(self, module: str, reason: str) -> None:
        super().__init__(module, reason)
        self.module, self.reason = module, reason

    def __str__(self) -> str:
        return f"{self.module} cannot be imported: {self.reason}; install it, or leave it out"


def record_registry(imports: Iterable[str] = (), *, only: Collection[str] | None = None) -> Registry:
    """Everything that is registered in this process.

    Args:
        imports: modules to import first, for what they register.
        only: record these operators alone, and all fallbacks; every operator when left out.

    Returns:
        The registry, without the operators that this package itself has made here.

    Raises:
        TorchMissingError: PyTorch cannot be imported.
        ImportFailedError: one of `imports` cannot be.
        DumpError: this PyTorch prints something that this version cannot read.
    """
    version, imported = str(torch().__version__), tuple(imports)
    for module in imported:
        try:
            import_module(module)
        except Exception as error:
            raise ImportFailedError(module, f"{type(error).__name__}: {error}") from error
    roots = package_roots()
    with collector_paused():  # else it may take away an operator that nobody keeps while that is being read
        names = [name for name in bindings()._dispatch_get_all_op_names() if not is_own(name)]
        if only is not None:
            names = [name for name in names if name in only]
        fallbacks = [replace(one, debug=without_root(one.debug, roots)) for one in read_fallbacks(fallback_rows())]
        return registry_of(version, [_operator(name, roots) for name in names], fallbacks, imported)


def record_operators(names: Collection[str]) -> Registry:
    """Some operators of this process, with all fallbacks."""
    return record_registry(only=frozenset(names))


def package_roots() -> tuple[str, ...]:
    """The directories of this machine in which packages are found, longest first, each with its separator."""
    places = [os.path.dirname(os.path.dirname(torch().__file__)), *(path or os.getcwd() for path in sys.path)]
    found = {os.path.join(place, "") for path in places for place in (os.path.abspath(path), os.path.realpath(path))}
    return tuple(sorted((place for place in found if os.path.dirname(place) != place), key=lambda p: (-len(p), p)))


def without_root(debug: str, roots: tuple[str, ...]) -> str:
    """A debug text that starts at the package and not at the place where this machine keeps its packages.

    `registered at /home/me/lib/python3.12/site-packages/torch/library.py:9` becomes
    `registered at torch/library.py:9`; paths of the machine that built a package stay as they are.
    """
    path = debug.removeprefix(_AT)
    if path == debug:
        return debug
    root = next((root for root in roots if path.startswith(root)), "")
    return _AT + path[len(root) :].replace("\\", "/") if root else debug


def _operator(name: str, roots: tuple[str, ...]) -> RecordedOperator:
    read = read_dump(bindings()._dispatch_dump(name))
    kernels = tuple(replace(kernel, debug=without_root(kernel.debug, roots)) for kernel in read.kernels)
    return replace(read, debug=without_root(read.debug, roots), tags=_tags(read), kernels=kernels)


def _tags(operator: RecordedOperator) -> frozenset[str]:
    if operator.is_dangling:
        return frozenset()
    found = bindings()._get_operation_overload(operator.name.qualified, operator.name.overload)
    return frozenset() if found is None else frozenset(tag.name for tag in found[2])
