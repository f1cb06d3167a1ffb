"""Record what packages register, in a worker process that has PyTorch and nothing else."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dispatchlab.pytorch.recording.record_package import PackageRecord

MOST_ORDERS = 24
"""Up to so many orders of imports are all run; of more, so many are chosen."""


def recorded_packages(
    packages: Sequence[str], *, once: bool = False, most: int = MOST_ORDERS, jobs: int | None = None
) -> PackageRecord:
    """Import packages and record what they register, in this order and in others.

    Args:
        packages: the modules, imported in this order.
        once: import them in this order alone; then no verdict on the record is a proof.
        most: run all orders up to so many; of more, this many are chosen.
        jobs: how many orders run at once; one for each core when left out.

    Raises:
        ImportFailedError: one cannot be imported.
        ImportEndedError: one ends its process.
        ImportTimeoutError: one takes too long.
        TorchMissingError: there is no PyTorch.
    """
    from dispatchlab.pytorch.recording.record_package import OrderBudget
    from dispatchlab.pytorch.worker.engine import LiveEngine
    from dispatchlab.pytorch.worker.process import IMPORT_LIMIT_S, limit_in_force
    from dispatchlab.records.builds import measure_installed

    budget = None
    if not once:
        limit_s = limit_in_force()
        budget = OrderBudget(most, IMPORT_LIMIT_S if limit_s is None else limit_s, jobs or os.cpu_count() or 1)
    measure_installed()
    with LiveEngine() as engine:
        found: PackageRecord = engine.ask(
            "dispatchlab.pytorch.recording.record_package:record_packages", tuple(packages), budget
        )
    return found
