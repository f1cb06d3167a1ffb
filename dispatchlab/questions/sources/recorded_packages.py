"""Record the registrations of packages, in a worker process that has only PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dispatchlab.live.recording.record_package import PackageRecord


def recorded_packages(packages: Sequence[str]) -> PackageRecord:
    """Import packages in this order and record their registrations.

    Raises:
        ImportFailedError: one cannot be imported.
        ImportEndedError: one ends its process.
        ImportTimeoutError: one takes too long.
        TorchMissingError: there is no PyTorch.
    """
    from dispatchlab.live.worker.engine import LiveEngine

    with LiveEngine() as engine:
        found: PackageRecord = engine.ask("dispatchlab.live.recording.record_package:record_packages", tuple(packages))
    return found
