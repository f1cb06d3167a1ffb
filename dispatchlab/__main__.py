"""`python -m dispatchlab` is the command `dispatchlab`."""

from __future__ import annotations

import os
import signal
import sys
from _thread import get_ident, interrupt_main, start_new_thread
from time import sleep
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_INTERRUPTED = 130
_AGAIN_S = 0.001

# Note [Interrupts of a process]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A command handles its interrupts; before and after it, in imports and in what Python does at its end, there is nothing
# to be handled, and an exception there may come out as another one. So an interrupt ends the process at once with 130.
# A process that only frees its memory hears none: it would be killed by it although its result is out.
#
# An exception in a finalizer is printed and lost, and an interrupt must not be: it comes again.


def run() -> None:
    """Run the command line in a process of its own; what interrupts it before and after a command ends it at once."""
    try:
        import dispatchlab._interrupts  # noqa: F401  ends this process when one comes

        _hear_interrupts_to_the_end()
        try:
            from dispatchlab.cli import main

            main(prog_name="dispatchlab")
        finally:
            # An interrupt that went through a text that Python compiles, as that of a dataclass, is kept as one that
            # nobody caught, and `python -m` ends as killed by it. The next text forgets it.
            exec("")
    except KeyboardInterrupt:
        os._exit(_INTERRUPTED)


def _hear_interrupts_to_the_end() -> None:
    """See Note [Interrupts of a process]."""
    import atexit

    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)  # the first one is called last
    usual, main_thread = sys.unraisablehook, get_ident()

    def unraisable(error: UnraisableHookArgs) -> None:
        if getattr(error.exc_type, "__name__", "") in ("KeyboardInterrupt", "Terminated"):  # a deadline comes by itself
            start_new_thread(_interrupt_again, (main_thread,))
        else:
            usual(error)

    sys.unraisablehook = unraisable


def _interrupt_again(thread: int) -> None:
    sleep(_AGAIN_S)  # until the finalizer is over
    if hasattr(signal, "pthread_kill"):  # which wakes it up, too
        signal.pthread_kill(thread, signal.SIGINT)
    else:
        interrupt_main()


if __name__ == "__main__":
    run()
