"""The resources of this machine for processes, and how to end processes."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from dispatchlab.errors import DispatchLabError

T = TypeVar("T")

_MOST_JOBS: Final = 2
_SHARE: Final = 2
_NO_LIMIT: Final = 1 << 60  # what the first control groups say when there is no limit is near 2 to the 63
_CONTROL_GROUPS: Final = Path("/sys/fs/cgroup")


class NoForkError(DispatchLabError):
    """This system cannot copy a process."""

    template = "this runs in a copy of a process and needs fork, which this system lacks: use Linux or macOS"


def check_fork() -> None:
    """Refuse work that needs a copy of this process, if the system cannot copy it.

    Raises:
        NoForkError: this system cannot copy a process.
    """
    if not hasattr(os, "fork"):
        raise NoForkError


def most_jobs() -> int:
    """Return the useful number of processes: one for each core that this process may use, and at least two."""
    if hasattr(os, "sched_getaffinity"):
        return max(_MOST_JOBS, len(os.sched_getaffinity(0)))
    return max(_MOST_JOBS, os.cpu_count() or 1)


def used_memory() -> int:
    """Return the bytes of memory that this process uses, or the most that it ever used; 0 when neither is known."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _page_size()
    except (OSError, ValueError, IndexError):
        pass
    try:
        import resource
    except ImportError:
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def default_memory_bound() -> int | None:
    """Return the most bytes that a process may use: half of the memory; None when that is not known."""
    limits = [limit for limit in (_machine(), *_control_group(), _own_limit()) if limit is not None]
    return min(limits) // _SHARE if limits else None


def _page_size() -> int:
    return os.sysconf("SC_PAGE_SIZE")


def _machine() -> int | None:
    try:
        pages = os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
    return pages * _page_size() if pages > 0 else None


def _control_group() -> list[int]:
    """Return the limits of the control groups that this process is in, as a container has."""
    paths = [_CONTROL_GROUPS / "memory.max", _CONTROL_GROUPS / "memory" / "memory.limit_in_bytes"]
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            number, _, group = line.split(":", 2)
            if number == "0":
                folder = _CONTROL_GROUPS / group.lstrip("/")
                paths += [each / "memory.max" for each in (folder, *folder.parents) if _CONTROL_GROUPS in each.parents]
    limits = []
    for path in paths:
        with suppress(OSError, ValueError):
            limits.append(int(path.read_text(encoding="ascii")))
    return [limit for limit in limits if limit < _NO_LIMIT]


def _own_limit() -> int | None:
    try:
        import resource
    except ImportError:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def kill_group(pid: int) -> None:
    """Kill a process and the process group that it leads; harmless when they have ended."""
    if not hasattr(os, "killpg"):
        return
    with suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
