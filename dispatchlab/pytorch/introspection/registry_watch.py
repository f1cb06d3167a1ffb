"""Watch the registry of the running PyTorch: what others than PyTorch itself register and remove from now on."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from dispatchlab.errors import DispatchLabError, ParseError
from dispatchlab.pytorch.introspection.package_paths import package_roots, without_root, without_roots
from dispatchlab.pytorch.introspection.registry_reader import all_dumps, fallback_rows
from dispatchlab.pytorch.introspection.site_log import SiteLog, running_ownership, site_text
from dispatchlab.records.model import RecordedFallback, RecordedKernel, RecordedOperator, read_dump, read_fallbacks
from dispatchlab.records.ownership import Ownership, with_active


@dataclass(frozen=True, slots=True)
class ChangedOperator:
    """An operator that other code than PyTorch's has changed.

    Args:
        name: the operator.
        before: what it was; None when it was not there, and when a dump cannot be read.
        after: what it is, with call sites for debug texts; None when it went, and when a dump cannot be read.
        dumps: both dumps when one of them cannot be read.
        imported: the modules whose import registered something for it.
    """

    name: str
    before: RecordedOperator | None
    after: RecordedOperator | None
    dumps: tuple[str, str] | None = None
    imported: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RegistryChanges:
    """What other code than PyTorch's has changed.

    Args:
        operators: the operators, by name.
        came: backend fallbacks that came.
        went: backend fallbacks that went.
    """

    operators: tuple[ChangedOperator, ...]
    came: tuple[RecordedFallback, ...]
    went: tuple[RecordedFallback, ...]


class RegistryWatch:
    """Remembers what is registered now, and logs who registers from now on, until it is closed.

    Args:
        fresh: take everything that is not PyTorch's own for a change, for a PyTorch that somebody has just imported.
    """

    def __init__(self, *, fresh: bool = False) -> None:
        self._fresh = fresh
        self._dumps: Mapping[str, str] = {} if fresh else all_dumps()
        self._rows = "" if fresh else fallback_rows()
        self._log = SiteLog().__enter__()

    def close(self) -> None:
        """Stop logging; a second time is harmless."""
        self._log.close()

    def changes(self) -> RegistryChanges:
        """What is not as it was, apart from what PyTorch registered for itself."""
        now, roots, ownership = all_dumps(), shown_roots(), running_ownership()
        names = sorted(name for name in {*self._dumps, *now} if self._dumps.get(name) != now.get(name))
        operators = [self._operator(name, now.get(name, ""), roots, ownership) for name in names]
        came, went = self._fallbacks(roots, ownership)
        return RegistryChanges(tuple(operator for operator in operators if operator is not None), came, went)

    def _operator(self, name: str, text: str, roots: tuple[str, ...], ownership: Ownership) -> ChangedOperator | None:
        old_text = self._dumps.get(name, "")
        try:
            old, new = (read_dump(each) if each else None for each in (old_text, text))
        except (DispatchLabError, ParseError, ValueError):
            dumps = without_roots(old_text, roots), without_roots(text, roots)
            return ChangedOperator(name, None, None, dumps) if _is_foreign(name, old_text, text, ownership) else None
        if new is not None and self._fresh:
            old = _own_part(new, self._log.placed(new), ownership)
        if new is not None:
            new = _without_own(old or RecordedOperator(new.name), new, self._log.placed(new), ownership)
        if old == new:
            return None
        imported = tuple(dict.fromkeys(site.module for site in self._log.sites_of(name) if site.on_import))
        return ChangedOperator(name, _shown(old, roots), _shown(new, roots), imported=imported)

    def _fallbacks(
        self, roots: tuple[str, ...], ownership: Ownership
    ) -> tuple[tuple[RecordedFallback, ...], tuple[RecordedFallback, ...]]:
        rows = fallback_rows()
        if rows == self._rows:
            return (), ()
        old, new = read_fallbacks(self._rows), read_fallbacks(rows)
        came: list[RecordedFallback] = []
        for one in new:
            if one not in old:
                (site,) = self._log.sites("", one.key, [one.debug])
                placed = one if site is None else replace(one, debug=site_text(site, ()))
                if not ownership.is_own_fallback(placed):
                    came.append(replace(placed, debug=without_root(placed.debug, roots)))
        went = [replace(one, debug=without_root(one.debug, roots)) for one in old if one not in new]
        return tuple(came), tuple(went)


def _without_own(
    old: RecordedOperator, new: RecordedOperator, placed: RecordedOperator, ownership: Ownership
) -> RecordedOperator | None:
    """An operator without what PyTorch itself registered since; what is new has its call site for a debug text."""
    had = Counter(map(_identity, old.kernels))
    kept: list[RecordedKernel] = []
    for kernel, at in zip(reversed(new.kernels), reversed(placed.kernels), strict=True):  # the oldest first
        if had[_identity(kernel)]:
            had[_identity(kernel)] -= 1
            kept.append(kernel)
        elif not ownership.is_own_kernel(placed, at):
            kept.append(at)
    kernels = with_active(reversed(kept))
    if new.schema is None or (new.schema, new.debug, new.alias) == (old.schema, old.debug, old.alias):
        return replace(new, kernels=kernels) if new.schema is not None or kernels else None
    if ownership.is_own(str(new.name), None, placed.debug):
        found = replace(old, kernels=kernels)
        return found if found.schema is not None or kernels else None
    return replace(placed, kernels=kernels)


def _own_part(operator: RecordedOperator, placed: RecordedOperator, ownership: Ownership) -> RecordedOperator | None:
    """What PyTorch itself registered for an operator, with the debug texts that PyTorch shows."""
    pairs = zip(operator.kernels, placed.kernels, strict=True)
    kernels = with_active(kernel for kernel, at in pairs if ownership.is_own_kernel(placed, at))
    if operator.schema is not None and ownership.is_own(str(operator.name), None, placed.debug):
        return replace(operator, kernels=kernels)
    return RecordedOperator(operator.name, kernels=kernels) if kernels else None


def _identity(kernel: RecordedKernel) -> tuple[object, ...]:
    return kernel.key, kernel.debug, kernel.inferred, kernel.flags


def _is_foreign(name: str, old: str, new: str, ownership: Ownership) -> bool:
    """Whether a dump that cannot be read has lost a line, or got one that is not PyTorch's own."""
    before, now = old.splitlines(), new.splitlines()
    came = [line.partition(": ")[2].partition(" :: ")[0] for line in now if line not in before]
    sites = [line for line in came if line.startswith("registered")]
    return any(line not in now for line in before) or not all(ownership.is_own(name, None, line) for line in sites)


def shown_roots() -> tuple[str, ...]:
    """The folders that paths are shown without: they start where the program runs, or else at their package."""
    here = os.path.join(os.getcwd(), "")
    return (*(root for root in package_roots() if not root.startswith(here) or "-packages" in root), here)


def _shown(operator: RecordedOperator | None, roots: tuple[str, ...]) -> RecordedOperator | None:
    """An operator whose paths start at the package."""
    if operator is None:
        return None
    kernels = tuple(replace(kernel, debug=without_root(kernel.debug, roots)) for kernel in operator.kernels)
    return replace(operator, debug=without_root(operator.debug, roots), kernels=kernels)
