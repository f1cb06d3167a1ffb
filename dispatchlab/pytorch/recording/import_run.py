"""One run of imports in a fresh process: what is registered afterwards, and what failed.

`run_order` runs where torch is, in a process that has imported nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import invalidate_caches
from typing import Any

from dispatchlab.model.python_layer import PythonRegistration
from dispatchlab.model.registration import Fallback
from dispatchlab.pytorch.bridge.reserved_namespaces import IMPORT_ORDERS
from dispatchlab.pytorch.bridge.torch import ImportEndedError, ImportFailedError, bindings, import_package, torch
from dispatchlab.pytorch.introspection.package_paths import package_roots, site_chain, without_roots
from dispatchlab.pytorch.introspection.registry_reader import all_dumps
from dispatchlab.pytorch.introspection.site_log import SiteLog, placed_texts
from dispatchlab.pytorch.recording.import_footprint import ImportFootprint, footprint
from dispatchlab.pytorch.recording.python_watch import PythonWatch, Slot, is_in_pytorch
from dispatchlab.pytorch.recording.watch import RegistrationWatch, WatchedCall

FALLBACKS = "backend fallbacks"
"""Stands for an operator in a state: the table of one that nobody touched."""

_UNTOUCHED = f"{IMPORT_ORDERS}::untouched"


@dataclass(frozen=True, slots=True)
class ImportOutcome:
    """What is registered after the packages were imported, and what failed.

    Args:
        failures: the error of each import that failed, by package.
        dumps: the dump of every operator that is not as it was before.
        tables: the table of each of these, and of an untouched one under `FALLBACKS`.
        owners: where these were registered, by operator, `file:line` each.
        ended: the process ended over an import, so that nothing is known of what is registered.
        python: what each slot of a Python-side registry has that is not as it was before, a line for each entry.
    """

    failures: Mapping[str, str]
    dumps: Mapping[str, str]
    tables: Mapping[str, str]
    owners: Mapping[str, tuple[str, ...]]
    ended: bool = False
    python: Mapping[Slot, str] = field(default_factory=dict)

    @property
    def observed(self) -> tuple[object, ...]:
        """What two outcomes are compared by."""
        compared: tuple[Mapping[Any, str], ...] = (self.failures, self.dumps, self.tables, self.python)
        return tuple(tuple(sorted(mapping.items())) for mapping in compared)


@dataclass(frozen=True, slots=True)
class ImportRun:
    """One order of imports, run.

    Args:
        order: the packages as they were imported.
        first: the outcome.
        again: the outcome after their modules were purged and they were imported once more; None when they were not.
        footprint: that of a package which was imported by itself, when it was asked for.
    """

    order: tuple[str, ...]
    first: ImportOutcome
    again: ImportOutcome | None = None
    footprint: ImportFootprint | None = None


def run_order(packages: Sequence[str], again: bool, others: Sequence[str] = ()) -> ImportRun:  # noqa: FBT001  # a message has no keywords
    """Import packages in this order, and look.

    Args:
        packages: the modules, in order.
        again: purge their modules, import them again, and look again.
        others: the packages whose names the footprint looks for; it is found where there are some.

    Raises:
        ImportEndedError: one calls `sys.exit`.
    """
    torch()
    before = all_dumps()
    kept = bindings()._dispatch_library("FRAGMENT", IMPORT_ORDERS, "")
    kept.define("untouched() -> ()", "")
    untouched = _untouched()
    with SiteLog() as log, RegistrationWatch() as watch, PythonWatch(package_roots()) as python:
        modules = frozenset(sys.modules)
        failures = _import_all(packages)
        loaded = frozenset(sys.modules)  # the packages load no more, but what looks at them may
        changed = python.changed()
        first = _look(before, failures, watch.calls, log, changed)
        if others:
            (package,) = packages
            found = footprint(
                package,
                others,
                before=before,
                modules=(modules, loaded),
                changed=first.dumps,
                calls=watch.calls,
                namespaces=watch.namespaces,
                untouched=(untouched, _untouched()),
                python=changed,
                python_by_torch=python.by_torch(changed),
            )
            return ImportRun(tuple(packages), first, footprint=found)
        if not again:
            return ImportRun(tuple(packages), first)
        _purge(packages, modules)
        failures = _import_all(packages)
        return ImportRun(tuple(packages), first, _look(before, failures, watch.calls, log, python.changed()))


def _untouched() -> str:
    return without_roots(bindings()._dispatch_dump_table(_UNTOUCHED), package_roots())


def _import_all(packages: Iterable[str]) -> dict[str, str]:
    failures: dict[str, str] = {}
    for package in packages:
        try:
            import_package(package)
        except ImportEndedError:
            raise
        except ImportFailedError as error:
            failures[package] = error.reason.strip().partition("\n")[0]
    return failures


def _purge(packages: Sequence[str], before: frozenset[str]) -> None:
    """Forget the packages; what they have imported from elsewhere stays, PyTorch first of all."""
    for name in set(sys.modules) - before:
        if any(name == package or name.startswith(f"{package}.") for package in packages):
            del sys.modules[name]
    invalidate_caches()


# Note [Sites in orders of imports]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# Two packages that register by `torch.library.impl` for the same operator and key look alike in dumps: both are from
# torch/library.py:931. So what is compared names the line that made each call. Not the whole chain, because the package
# that is imported first may be the one that makes a third register something, and that is no difference.
#
# In the Python-side registries the newest entry of a slot is the only one, so what is there names the last writer: its
# function, and the line of the call where the call is known, else that of the function.


def _look(
    before: Mapping[str, str],
    failures: dict[str, str],
    calls: Sequence[WatchedCall],
    log: SiteLog,
    python: Mapping[Slot, Sequence[PythonRegistration]],
) -> ImportOutcome:
    """What is registered now. See Note [Sites in orders of imports]."""
    now, roots = all_dumps(), package_roots()
    changed = sorted(name for name in {*now, *before} if now.get(name) != before.get(name))
    owners: dict[str, dict[str, None]] = {}
    for call in calls:
        for one in call.made:
            name = FALLBACKS
            if not isinstance(one, Fallback):
                name = str(replace(one.operator, namespace=call.namespace))
            owners.setdefault(name, {})[site_chain(call.site, roots)] = None
    for has in python.values():
        for entry in has:
            if entry.site and not is_in_pytorch(entry):
                owners.setdefault(entry.operator, {})[entry.site] = None
    in_python = {operator for _, operator, _ in python}
    table = bindings()._dispatch_dump_table
    texts = {name: placed_texts(log, now[name], table(name), whole=False) for name in changed if name in now}
    return ImportOutcome(
        failures,
        {name: without_roots(texts[name][0], roots) if name in texts else "" for name in changed},
        {
            **{name: without_roots(of_table, roots) for name, (_, of_table) in texts.items()},
            FALLBACKS: without_roots(table(_UNTOUCHED), roots),
        },
        {
            name: tuple(sites)
            for name, sites in owners.items()
            if name in changed or name in in_python or name == FALLBACKS
        },
        python={slot: "\n".join(map(_entry, has)) for slot, has in python.items()},
    )


def _entry(one: PythonRegistration) -> str:
    """One entry of a slot; of the chain of lines that led to it, the one that made the call."""
    site = one.site.rpartition(" via ")[2]
    return f"{one.function}{f', registered at {site}' if site else ''}{'' if one.active else ' (replaced)'}"
