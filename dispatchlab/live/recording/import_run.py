"""One run of imports in a fresh process: what is registered afterwards, and what failed.

`run_order` runs where torch is, in a process that has imported nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import invalidate_caches

from dispatchlab.live.bridge.call_sites import CallSite
from dispatchlab.live.bridge.reserved_namespaces import IMPORT_ORDERS
from dispatchlab.live.bridge.torch import ImportEndedError, ImportFailedError, bindings, import_package, torch
from dispatchlab.live.introspection.package_paths import package_path, package_roots, without_roots
from dispatchlab.live.introspection.registry_reader import all_dumps
from dispatchlab.live.introspection.site_log import SiteLog, placed_texts
from dispatchlab.live.recording.import_footprint import ImportFootprint, footprint
from dispatchlab.live.recording.watch import RegistrationWatch, WatchedCall
from dispatchlab.model.registration import Fallback

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
    """

    failures: Mapping[str, str]
    dumps: Mapping[str, str]
    tables: Mapping[str, str]
    owners: Mapping[str, tuple[str, ...]]
    ended: bool = False

    @property
    def observed(self) -> tuple[object, ...]:
        """What two outcomes are compared by."""
        return tuple(tuple(sorted(mapping.items())) for mapping in (self.failures, self.dumps, self.tables))


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
    modules = frozenset(sys.modules)
    untouched = _untouched()
    with SiteLog() as log, RegistrationWatch() as watch:
        first = _look(before, _import_all(packages), watch.calls, log)
        if others:
            (package,) = packages
            found = footprint(
                package,
                others,
                before=before,
                modules=modules,
                changed=first.dumps,
                calls=watch.calls,
                namespaces=watch.namespaces,
                untouched=(untouched, _untouched()),
            )
            return ImportRun(tuple(packages), first, footprint=found)
        if not again:
            return ImportRun(tuple(packages), first)
        _purge(packages, modules)
        return ImportRun(tuple(packages), first, _look(before, _import_all(packages), watch.calls, log))


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


def _look(
    before: Mapping[str, str], failures: dict[str, str], calls: Sequence[WatchedCall], log: SiteLog
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
            owners.setdefault(name, {})[" via ".join(package_path(at, roots) for at in _lines(call.site))] = None
    table = bindings()._dispatch_dump_table
    texts = {name: placed_texts(log, now[name], table(name), whole=False) for name in changed if name in now}
    return ImportOutcome(
        failures,
        {name: without_roots(texts[name][0], roots) if name in texts else "" for name in changed},
        {
            **{name: without_roots(of_table, roots) for name, (_, of_table) in texts.items()},
            FALLBACKS: without_roots(table(_UNTOUCHED), roots),
        },
        {name: tuple(sites) for name, sites in owners.items() if name in changed or name == FALLBACKS},
    )


def _lines(site: CallSite) -> tuple[str, ...]:
    return str(site), *site.via
