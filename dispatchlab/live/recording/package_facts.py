"""Everything that is asked about packages, read in one process that imports them once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dispatchlab._gc_pause import collector_paused
from dispatchlab.live.introspection.registry_reader import RegistryMoments, RegistryReader, called_functions
from dispatchlab.live.introspection.site_log import import_logged
from dispatchlab.live.recording.record_package import PackageRecord, record_packages


@dataclass(frozen=True, slots=True)
class PackageFacts:
    """What one import of packages showed.

    Args:
        record: what they register.
        moments: the registry before it, after it, and after garbage was collected.
    """

    record: PackageRecord
    moments: RegistryMoments


def package_facts(packages: Sequence[str]) -> PackageFacts:
    """Import packages, and read what all questions about them are asked of.

    Raises:
        ImportFailedError: one cannot be imported.
        DispatchLabError: as for `record_registry`.
    """
    with collector_paused():  # else what has no reference may go before it is read
        witness = _Witness()
        record = record_packages(packages, witness)
        return PackageFacts(record, witness.moments)


class _Witness:
    """Reads the registry while a recording goes on."""

    def __init__(self) -> None:
        self._reader = RegistryReader()
        self._before = self._after = before = self._reader.read()
        self._packages: tuple[str, ...] = ()
        self.moments = RegistryMoments(before, before, before, {})

    def import_packages(self, packages: Sequence[str], /) -> None:
        self._packages = tuple(packages)
        import_logged(packages)

    def imported(self) -> None:
        self._after = self._reader.read(self._packages)

    def collected(self) -> None:
        kept = self._reader.read(self._packages)
        self.moments = RegistryMoments(self._before, self._after, kept, called_functions())
