"""Footprint of a package: what its import alone registers, makes libraries of, imports and names.

Two packages that share none of it need no orders between them. See Note [Orders between groups] in
questions/imports/import_groups.py.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from dispatchlab.files.bounded_read import ReadError, read_file
from dispatchlab.model.registration import Fallback
from dispatchlab.pytorch.bridge.torch import torch
from dispatchlab.pytorch.recording.python_watch import Slot
from dispatchlab.pytorch.recording.watch import WatchedCall

_LARGEST = 2**24


@dataclass(frozen=True, slots=True)
class ImportFootprint:
    """What the import of a package has to do with, in a process that has imported nothing else.

    Args:
        operators: those that it registers or changes, and those that it has registered and taken back.
        by_torch: those that only a part of PyTorch has registered, which is loaded by whoever uses it first.
        namespaces: of its libraries and its operators, without those that PyTorch has by itself.
        fallbacks: whether it registers backend fallbacks, which reach every operator.
        packages: those of the other packages that it imports, or that a source that it loads names.
        untouched: the table of an operator that nobody touched, before it was imported.
        python: the operators for which it writes into a registry of Python, whichever that is.
        python_by_torch: those for which only a part of PyTorch does.
    """

    operators: frozenset[str]
    by_torch: frozenset[str]
    namespaces: frozenset[str]
    fallbacks: bool
    packages: frozenset[str]
    untouched: str
    python: frozenset[str] = frozenset()
    python_by_torch: frozenset[str] = frozenset()


def footprint(
    package: str,
    others: Sequence[str],
    *,
    before: Collection[str],
    modules: tuple[Collection[str], Collection[str]],
    changed: Iterable[str],
    calls: Sequence[WatchedCall],
    namespaces: Iterable[str],
    untouched: tuple[str, str],
    python: Iterable[Slot] = (),
    python_by_torch: Collection[Slot] = frozenset(),
) -> ImportFootprint:
    """The footprint of a package that was just imported.

    Args:
        package: the package.
        others: the others of the list.
        before: the operators that there were before.
        modules: the modules that were imported before, and when its import was over.
        changed: the operators that are not as they were.
        calls: what was registered.
        namespaces: of the libraries that were made.
        untouched: the table of an operator that nobody touched, before and now.
        python: the slots of Python-side registries that are not as they were.
        python_by_torch: those of them that PyTorch alone has written.
    """
    by_torch: dict[str, bool] = {}
    fallbacks = untouched[0] != untouched[1]
    for call in calls:
        for one in call.made:
            if isinstance(one, Fallback):
                fallbacks = True
                continue
            name = str(replace(one.operator, namespace=call.namespace))
            by_torch[name] = by_torch.get(name, True) and call.site.by_torch
    whole = {*changed, *by_torch}
    of_torch = frozenset(name for name in whole if by_torch.get(name, False))
    own = frozenset(whole - of_torch)
    old = {name.partition("::")[0] for name in before}
    return ImportFootprint(
        operators=own,
        by_torch=of_torch,
        namespaces=frozenset({*namespaces, *(name.partition("::")[0] for name in own)} - old),
        fallbacks=fallbacks,
        packages=_packages(package, others, frozenset(modules[1]) - frozenset(modules[0])),
        untouched=untouched[0],
        python=frozenset(slot[1] for slot in python if slot not in python_by_torch),
        python_by_torch=frozenset(slot[1] for slot in python_by_torch),
    )


def _packages(package: str, others: Sequence[str], new: frozenset[str]) -> frozenset[str]:
    """The others that it imports, that have a folder in common with it, or that a source that it loads names."""
    tops = {other: other.partition(".")[0] for other in others}
    loaded = {name.partition(".")[0] for name in new}
    found = {
        other
        for other, top in tops.items()
        if other in new or top in loaded - {package.partition(".")[0]} or top == package.partition(".")[0]
    }
    left = {top: other for other, top in tops.items() if other not in found}
    if left:
        pattern = re.compile(rb"\b(" + b"|".join(re.escape(top.encode()) for top in left) + rb")\b")
        for name in new:
            source = _source(name)
            if source is None:  # nobody knows what it names
                return frozenset(others)
            for match in pattern.finditer(source):
                found |= {other for other, top in tops.items() if top == match[1].decode()}
    return frozenset(found)


def _source(module: str) -> bytes | None:
    """The source of a module that is neither PyTorch's nor of the standard library.

    Returns:
        Its text; empty where there is none, as for a module of C++, and None where there is one that cannot be read.
    """
    top = module.partition(".")[0]
    file = getattr(sys.modules.get(module), "__file__", None)
    if top == torch().__name__ or top in sys.stdlib_module_names or not isinstance(file, str) or file[-3:] != ".py":
        return b""
    try:
        return read_file(file, limit=_LARGEST, what="sources that are searched for names")
    except (OSError, ReadError):
        return None
