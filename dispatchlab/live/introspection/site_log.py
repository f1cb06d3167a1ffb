"""Log who registers: the call site of each registration that Python makes while the log is on.

PyTorch's dumps name the line that made a library. `SiteLog` remembers the lines that registered, and writes them
into dumps, so that `ownership` and readers see the origin of each registration.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from dispatchlab.errors import DispatchLabError
from dispatchlab.live.bridge.call_sites import CallSite, torch_folder
from dispatchlab.live.bridge.torch import bindings, import_packages
from dispatchlab.live.bridge.watch import LoggedRegistration, RegistrationWatch
from dispatchlab.live.introspection.package_paths import site_chain
from dispatchlab.model.dump_format import Provenance, aliases_of, parse_table, row_text
from dispatchlab.model.keys import DispatchKey
from dispatchlab.registries.model import RecordedKernel, RecordedOperator, dump_text, read_dump
from dispatchlab.registries.ownership import Ownership, build_folder

# Note [Matching sites with dumps]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# The kernels of an operator at one key are listed newest first, each with the line that made its library. The log has
# the registrations on each library that are in force, and knows that line too, unless the library is older than the
# log. So the entries for one operator and key are matched with the kernels from the newest on, those of one line with
# those of that line; kernels of C++ lie between them with texts of their own. Where the log has more entries than the
# dump has kernels, something went that the log has not seen go; then nothing is known, and the text stays as it is.
#
# A table names the kernel in each slot by the same text. Its provenance says at which key that kernel is registered.


class SiteLog(RegistrationWatch):
    """A log of who registered what, between `open` and `pause`."""

    def sites(self, operator: str, key: DispatchKey | None, shown: Sequence[str]) -> tuple[CallSite | None, ...]:
        """Return the site of each kernel of an operator at one key; None for an unknown site.

        Args:
            operator: its full name; empty for backend fallbacks.
            key: the key; None for the def.
            shown: the debug texts of the kernels, newest first. See Note [Matching sites with dumps].
        """
        made = self._in_force.get((operator, "" if key is None else str(key)), [])
        if len(made) > len(shown):
            return (None,) * len(shown)
        left = list(made)
        return tuple(_matching(left, text) for text in shown)

    def has_formula(self, operator: str) -> bool:
        """Return whether `register_autograd` made the active Autograd kernel of an operator."""
        return any(made.is_formula for made in self._in_force.get((operator, "Autograd"), [])[-1:])

    @property
    def modules(self) -> frozenset[str]:
        """The modules with the lines of the registrations in force, without PyTorch's."""
        sites = (each.site for made in self._in_force.values() for each in made)
        return frozenset(site.module for site in sites if not site.by_torch)

    def placed(self, operator: RecordedOperator) -> RecordedOperator:
        """Return an operator whose debug texts name the known call sites.

        Args:
            operator: as its dump has it, with paths as PyTorch shows them.
        """
        name = str(operator.name)
        debug = operator.debug
        if operator.schema is not None:
            debug = _placed_text(self.sites(name, None, [operator.debug])[0], debug)
        kernels: list[RecordedKernel] = []
        for key in dict.fromkeys(kernel.key for kernel in operator.kernels):
            found = operator.kernels_at(key)
            sites = self.sites(name, key, [kernel.debug for kernel in found])
            kernels += [
                replace(kernel, debug=_placed_text(site, kernel.debug))
                for kernel, site in zip(found, sites, strict=True)
            ]
        return replace(operator, debug=debug, kernels=tuple(kernels))


def _matching(left: list[LoggedRegistration], text: str) -> CallSite | None:
    """Remove and return the site of the newest entry that can have this debug text."""
    for at in range(len(left) - 1, -1, -1):
        if left[at].shown == text:
            return left.pop(at).site
    if left and left[-1].shown is None:
        return left.pop().site
    return None


def _placed_text(site: CallSite | None, debug: str) -> str:
    return debug if site is None else site_text(site, ())


def site_text(site: CallSite, roots: tuple[str, ...]) -> str:
    """Return a call site as a debug text: `registered at my/ops.py:12 via my/utils.py:250`."""
    return f"registered at {site_chain(site, roots)}"


def placed_texts(log: SiteLog, dump: str, table: str) -> tuple[str, str]:
    """Return a dump and a table with the known call sites; unchanged if they cannot be read.

    Args:
        log: the log.
        dump: the dump of an operator, not empty.
        table: its computed table, or an empty text.
    """
    try:
        operator, rows = read_dump(dump), parse_table(table)
    except (DispatchLabError, ValueError):
        return dump, table
    placed = log.placed(operator)
    if placed == operator:
        return dump, table
    shown = {
        (kernel.key, kernel.debug): at.debug
        for kernel, at in zip(operator.kernels, placed.kernels, strict=True)
        if kernel.active
    }
    lines = []
    for key, entry in rows.items():
        sources = (key,) if entry.provenance is Provenance.KERNEL else aliases_of(entry.provenance)
        found = next((shown[at, entry.debug] for at in sources if (at, entry.debug) in shown), entry.debug)
        lines.append(row_text(key, str(entry._replace(debug=found))))
    return dump_text(placed), "".join(lines)


_of_imports: list[SiteLog] = []


def log_of_imports() -> SiteLog | None:
    """Return the log of all logged imports of this process; None without such imports."""
    return _of_imports[0] if _of_imports else None


def import_logged(packages: Iterable[str]) -> None:
    """Import packages of the user, and log their registrations.

    Raises:
        ImportFailedError: one cannot be imported.
        ImportEndedError: one calls `sys.exit`, or raises an error that `except Exception` does not catch.
    """
    names = tuple(packages)
    if names:
        with registrations_logged():
            import_packages(names)


@contextmanager
def registrations_logged() -> Iterator[None]:
    """Log the registrations inside a `with` block."""
    if not _of_imports:
        _of_imports.append(SiteLog())
    (log,) = _of_imports
    log.open()
    try:
        yield
    finally:
        log.pause()


def running_ownership() -> Ownership:
    """Return the registrations of this process that belong to PyTorch."""
    folder = os.path.dirname(os.path.dirname(torch_folder()))
    known = bindings()._dispatch_dump("aten::relu")
    installed = dict.fromkeys(os.path.join(path, "") for path in (folder, os.path.realpath(folder)))
    return Ownership(build_folder(read_dump(known).debug), tuple(installed))
