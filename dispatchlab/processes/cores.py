"""How many processes are of use on this machine."""

from __future__ import annotations

import os
from typing import Final

_MOST_JOBS: Final = 2


def most_jobs() -> int:
    """How many processes are of use: one for each core that this process may use, and two in any case."""
    if hasattr(os, "sched_getaffinity"):
        return max(_MOST_JOBS, len(os.sched_getaffinity(0)))
    return max(_MOST_JOBS, os.cpu_count() or 1)
