"""Ctrl-C and SIGTERM in worker processes: the first process hears them, and decides when to stop."""

from __future__ import annotations

import os
import signal
from contextlib import suppress


def leave_interrupts_to_parent() -> None:
    """Hear no Ctrl-C, and no SIGTERM that is sent to the group of the first process, as `timeout` sends it.

    SIGTERM for this process alone ends it as ever: that is how a pool of processes ends its workers.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "setpgid"):
        with suppress(OSError):
            os.setpgid(0, 0)
