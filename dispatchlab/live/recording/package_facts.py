"""The facts for all questions about packages, read in one process that imports them once."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from dispatchlab._gc_pause import collector_paused
from dispatchlab.live.bridge.torch import ImportFailedError
from dispatchlab.live.introspection.registry_reader import RegistryMoments, RegistryReader, called_functions
from dispatchlab.live.introspection.site_log import import_logged, log_of_imports
from dispatchlab.live.recording.order_runs import prepare_copy
from dispatchlab.live.recording.record_package import PackageRecord, record_packages


@dataclass(frozen=True, slots=True)
class PackageFacts:
    """The facts from one import of packages.

    Args:
        record: their registrations.
        moments: the registry before the import, after it, and after garbage collection.
        later: modules that the packages do not import, which were imported after the packages.
        failed: the modules that could not be imported, with the reason.
        along: the modules that the packages import.
    """

    record: PackageRecord
    moments: RegistryMoments
    later: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    along: frozenset[str] = frozenset()


def package_facts(
    packages: Sequence[str],
    submodules: Sequence[str] = (),
    *,
    failed: Callable[[ImportFailedError], None] = lambda error: None,
    recorded: Callable[[PackageRecord], None] = lambda record: None,
) -> PackageFacts:
    """Import packages and then some of their modules, and return the facts for all questions.

    Args:
        packages: the modules, imported in this order.
        submodules: modules to import afterwards; if one fails, the others are still imported.
        failed: a function that gets the failure of each module.
        recorded: a function that gets the registrations after the imports.

    Raises:
        ImportFailedError: one cannot be imported.
        DispatchLabError: as for `record_registry`.
    """
    with collector_paused():  # else what has no reference may go before it is read
        witness = _Witness(submodules, failed)
        try:
            record = record_packages(packages, witness)
        except ImportFailedError as error:
            failed(error)
            raise
        recorded(record)
        return PackageFacts(record, witness.moments, tuple(witness.later), witness.failed, witness.along)


class _Witness:
    """Reads the registry during a recording."""

    def __init__(self, submodules: Sequence[str], fails: Callable[[ImportFailedError], None]) -> None:
        self._submodules, self._fails = submodules, fails
        self.later, self.failed = list[str](), dict[str, str]()
        self.along, self._known = frozenset[str](), {*sys.modules}
        self._reader = RegistryReader(slots=False)
        self._before = self._after = before = self._reader.read()
        self._packages: tuple[str, ...] = ()
        self.moments = RegistryMoments(before, before, before, {})

    def import_packages(self, packages: Sequence[str], /) -> None:
        self._packages = tuple(packages)
        for name in packages:
            import_logged([name])
            if len(packages) > 1:
                self._tell_libraries()
        self.along = frozenset(sys.modules)
        for name in self._submodules:
            if name in sys.modules:
                continue
            self._tell_libraries()
            try:
                import_logged([name])
            except ImportFailedError as error:
                self.failed[name] = error.reason.partition("\n")[0]
                self._fails(error)
            else:
                self.later.append(name)

    def _tell_libraries(self) -> None:
        """Tell the copy for orders which new modules are of an installed library that registers nothing."""
        log = log_of_imports()
        apart = {name.partition(".")[0] for name in (*self._packages, *(log.modules if log else ()))}
        folders = {sysconfig.get_path("stdlib"), "site-packages", "dist-packages"}
        new = {name: getattr(sys.modules[name], "__file__", "") for name in [*sys.modules] if name not in self._known}
        self._known.update(new)
        installed = [name for name, file in new.items() if any(one in str(file) for one in folders)]
        prepare_copy([name for name in installed if name.partition(".")[0] not in apart])

    def imported(self) -> None:
        self._after = self._reader.read(self._packages)

    def collected(self) -> None:
        self.moments = RegistryMoments(self._before, self._after, self._reader.read(self._packages), called_functions())
