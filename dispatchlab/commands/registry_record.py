"""`dispatchlab record --all`: everything that the running PyTorch has registered, in a file."""

from __future__ import annotations

from dataclasses import dataclass

from dispatchlab.commands.output import note


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
    from dispatchlab.live.record_registry import record_registry
    from dispatchlab.registry.write import save_registry

    registry = record_registry(request.imports)
    size = save_registry(registry, request.file)
    note(
        f"{request.file}: {len(registry):,} operators, {registry.kernel_count:,} kernels and {len(registry.fallbacks)} "
        f"fallbacks of PyTorch {registry.torch} in {size:,} bytes"
    )
    return 0
