"""A worker process ends when its parent has ended, however that ended, and takes what it started along."""

from __future__ import annotations

import os
import select
import signal
import sys
from contextlib import suppress
from threading import Thread
from time import monotonic, sleep
from typing import Final

# Note [Ending with the parent]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A parent that is killed cannot end its workers. So each worker has the reading end of a pipe whose writing end only
# the parent has, and which nobody writes to: it ends with the parent. A thread waits for that, but a thread of Python
# does not run while a kernel or an import keeps the interpreter lock. So on Linux the pipe is also set up to signal,
# and the kernel itself kills the worker, with all that it started, since it leads a process group of its own.
# PR_SET_PDEATHSIG would kill the worker alone, and as soon as the thread that started it ends.

_TRACKER_S: Final = 0.5
_REFUSED: Final = 74
_F_SETSIG: Final = 10  # of Linux; `fcntl` has it from Python 3.13 on


def lead_process_group() -> None:
    """Lead a process group of one's own, which hears no Ctrl-C, and no SIGTERM that `timeout` sends to its group."""
    if hasattr(os, "setpgid"):
        with suppress(OSError):
            os.setpgid(0, 0)


def leave_interrupts_to_parent() -> None:
    """Hear no Ctrl-C and nothing that is sent to the process group of the parent, which decides when to stop.

    SIGTERM for this process alone ends it as ever.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    lead_process_group()


def end_with_parent(lifeline: int) -> None:
    """End this process, and its process group when it leads one, as soon as the parent has ended.

    See Note [Ending with the parent].

    Args:
        lifeline: the reading end of a pipe that nothing writes to.
    """
    with suppress(ImportError, OSError, AttributeError):
        _signal_at_end(lifeline)
    try:
        Thread(target=_wait, args=(lifeline,), name="parent", daemon=True).start()
    except RuntimeError:  # the system starts no thread, so this process ends before it might outlive its parent
        os._exit(_REFUSED)


def kill_group(pid: int) -> None:
    """Kill a process and the process group that it leads; harmless when they have ended."""
    if not hasattr(os, "killpg"):
        return
    with suppress(OSError):
        os.killpg(pid, signal.SIGKILL)


def end_resource_tracker() -> None:
    """End the process with which `multiprocessing` looks after semaphores, which would outlive this one by a moment."""
    tracker = getattr(sys.modules.get("multiprocessing.resource_tracker"), "_resource_tracker", None)
    with suppress(AttributeError, OSError, TypeError):  # there is none, or another version of Python keeps it otherwise
        os.close(tracker._fd)  # type: ignore[union-attr]
        tracker._fd, pid = None, tracker._pid  # type: ignore[union-attr]
        tracker._pid = None  # type: ignore[union-attr]
        until = monotonic() + _TRACKER_S  # a worker that is killed has its pipe for a moment more
        while os.waitpid(pid, os.WNOHANG)[0] == 0 and monotonic() < until:
            sleep(0.005)


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


def _signal_at_end(lifeline: int) -> None:
    import fcntl

    if sys.platform != "linux":
        return
    pid = os.getpid()
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -pid if os.getpgid(0) == pid else pid)
    fcntl.fcntl(lifeline, _F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    poll = select.poll()
    poll.register(lifeline, 0)  # asks for nothing, and hears that the other end was closed
    if poll.poll(0):
        _end()


def _wait(lifeline: int) -> None:
    with suppress(OSError):
        while os.read(lifeline, 1):
            pass
    _end()


def _end() -> None:
    if hasattr(os, "killpg") and os.getpgid(0) == os.getpid():
        kill_group(os.getpid())
    os._exit(1)
