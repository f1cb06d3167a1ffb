"""What a process does to those that it started."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress


def kill_group(pid: int) -> None:
    """Kill a process and the process group that it leads; harmless when they have ended."""
    if not hasattr(os, "killpg"):
        return
    with suppress(OSError):
        os.killpg(pid, signal.SIGKILL)


def is_alive(pid: int) -> bool:
    """Whether a process with this id may be running; true where that cannot be found out."""
    if sys.platform == "win32":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
