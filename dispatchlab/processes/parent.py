"""What a process does to those that it started."""

from __future__ import annotations

import os
import signal
from contextlib import suppress


def kill_group(pid: int) -> None:
    """Kill a process and the process group that it leads; harmless when they have ended."""
    if not hasattr(os, "killpg"):
        return
    with suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
