"""`dispatchlab record`: what packages register as a scenario, or the whole registry of the running PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dispatchlab.atomic_write import write_file
from dispatchlab.commands.output import note
from dispatchlab.errors import DispatchLabError

if TYPE_CHECKING:
    from dispatchlab.live.recording.record_package import PackageRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryRecordRequest:
    """What was asked for; each field is an option of the command."""

    file: str
    imports: tuple[str, ...] = ()


def record_all(request: RegistryRecordRequest) -> int:
    """Record, write, and tell what was written.

    Returns:
        The exit code, 0.

    Raises:
        DispatchLabError: PyTorch or a module cannot be imported, or the file cannot be written.
    """
    from dispatchlab.live.introspection.registry_reader import record_registry
    from dispatchlab.registry.file import save_registry

    registry = record_registry(request.imports)
    size = save_registry(registry, request.file)
    note(
        f"{request.file}: {len(registry):,} operators, {registry.kernel_count:,} kernels and {len(registry.fallbacks)} "
        f"fallbacks of PyTorch {registry.torch} in {size:,} bytes"
    )
    return 0


_FEW = 3


class NothingToRecordError(DispatchLabError):
    """Neither packages nor everything was asked for."""

    def __str__(self) -> str:
        return "there is nothing to record: name packages to import, or use --all for everything that is registered"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRequest:
    """What was asked for; each field is an option of the command."""

    packages: tuple[str, ...]
    file: str
    everything: bool = False


def record(request: RecordRequest) -> int:
    """Record, write, and tell what was written.

    Returns:
        The exit code, 0.

    Raises:
        DispatchLabError: PyTorch or a package cannot be imported, or what was registered cannot be written
            as a scenario, or not to the file.
    """
    if request.everything:
        return record_all(RegistryRecordRequest(file=request.file, imports=request.packages))
    if not request.packages:
        raise NothingToRecordError
    from dispatchlab.live.worker.engine import LiveEngine

    with LiveEngine() as engine:
        found: PackageRecord = engine.ask("dispatchlab.live.recording.record_package:record_packages", request.packages)
    write_file(request.file, found.text)
    for line in _told(found):
        note(f"{request.file}: {line}")
    return 0


def _told(found: PackageRecord) -> list[str]:
    native = f", {found.native} of these in C++" if found.native else ""
    lines = [
        f"{found.registrations} registrations at {len(found.sites)} sites, {found.operators} operators and "
        f"{found.kernels} kernels{native}; the dumps of PyTorch name {found.shown} places for them"
    ]
    if found.dangling:
        more = f" and {len(found.dangling) - _FEW} more" if len(found.dangling) > _FEW else ""
        lines.append(f"kernels without a def dangle: {', '.join(found.dangling[:_FEW])}{more}")
    if found.others:
        others = ", ".join(f"{count} by {package}" for package, count in found.others.items())
        lines.append(f"some were made by other packages: {others}")
    if found.by_torch:
        lines.append(f"{found.by_torch} registrations that PyTorch made for itself on the way were left out")
    lines += [f"could not be read: {each}" for each in found.unreadable]
    return lines
