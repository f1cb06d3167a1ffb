"""`python -m dispatchlab` is the command `dispatchlab`."""

from __future__ import annotations

import os
import signal
import sys

_INTERRUPTED = 130


def run() -> None:
    """Run the command line in a process of its own; what interrupts it before and after a command ends it at once."""
    try:
        from dispatchlab.cli import main

        main(prog_name="dispatchlab")
    except KeyboardInterrupt:
        os._exit(_INTERRUPTED)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        # An interrupt that went through a text that Python compiles, as that of a dataclass, is kept as one that nobody
        # caught, and `python -m` ends as killed by it. The next text forgets it.
        exec("")
        if "multiprocessing.resource_tracker" in sys.modules:
            from dispatchlab.processes.parent import end_resource_tracker

            end_resource_tracker()


if __name__ == "__main__":
    run()
