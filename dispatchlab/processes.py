"""Processes of our own, and how much of this machine they may use."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from dispatchlab.errors import DispatchLabError

T = TypeVar("T")

_MOST_JOBS: Final = 2
_SHARE: Final = 2
_NO_LIMIT: Final = 1 << 60  # what the first control groups say when there is no limit is near 2 to the 63
_CONTROL_GROUPS: Final = Path("/sys/fs/cgroup")


def most_jobs() -> int:
    """How many processes are of use: one for each core that this process may use, and two in any case."""
    if hasattr(os, "sched_getaffinity"):
        return max(_MOST_JOBS, len(os.sched_getaffinity(0)))
    return max(_MOST_JOBS, os.cpu_count() or 1)


def used_memory() -> int:
    """How many bytes of memory this process uses; where only the most that it ever used is known, that; else 0."""
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


def default_memory_bound(processes: int = 1) -> int | None:
    """How many bytes each of some processes may use: together half of what there is; None when that is not known."""
    limits = [limit for limit in (_machine(), *_control_group(), _own_limit()) if limit is not None]
    return min(limits) // _SHARE // processes if limits else None


def _page_size() -> int:
    return os.sysconf("SC_PAGE_SIZE")


def _machine() -> int | None:
    try:
        pages = os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
    return pages * _page_size() if pages > 0 else None


def _control_group() -> list[int]:
    """The limits of the control groups that this process is in, as a container has."""
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


class WorkerDied(DispatchLabError):
    """A process that ran tasks ended, as one does that runs out of memory."""

    exit_code = 5

    template = "a worker process ended, as one does that runs out of memory: use --jobs 1, or select less"


class Processes(ProcessPoolExecutor):
    """Processes of this machine, whose tasks say how far they are, and which Ctrl-C interrupts.

    Args:
        jobs: how many.
    """

    def __init__(self, jobs: int) -> None:
        from multiprocessing import get_context

        context = get_context("spawn")
        self._reports, self._interrupted = context.SimpleQueue(), context.Event()
        super().__init__(jobs, mp_context=context, initializer=_begin, initargs=(self._reports, self._interrupted))

    def submit(self, function: Callable[..., T], /, *arguments: Any, **more: Any) -> Future[T]:
        """Have a task run. Processes start here, and ignore Ctrl-C until `_begin`: else it would show a traceback."""
        with _interrupts_ignored():
            return super().submit(function, *arguments, **more)

    def reports(self) -> Iterator[Any]:
        """What tasks have said by `report` since the last call."""
        while not self._reports.empty():
            yield self._reports.get()

    def interrupt(self) -> None:
        """Interrupt what runs, as Ctrl-C of a terminal does, which comes to all processes by itself: once is enough."""
        from multiprocessing import active_children

        self._interrupted.set()  # for processes that do not yet listen
        for process in active_children():
            if process.pid is not None:
                os.kill(process.pid, signal.SIGINT)


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # only that one can
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def processes_for(jobs: int) -> Iterator[Processes]:
    """Where tasks run. When the block raises, such as by Ctrl-C, tasks that are left are dropped.

    Args:
        jobs: how many processes.

    Raises:
        WorkerDied: a process ended.
    """
    from multiprocessing import active_children

    executor = Processes(jobs)
    try:
        yield executor
    except BaseException as error:
        for process in active_children():
            process.terminate()
        executor.shutdown(cancel_futures=True)
        if isinstance(error, BrokenProcessPool):
            raise WorkerDied from None
        raise
    executor.shutdown()


class _Here:
    """What a process that runs tasks knows of itself."""

    reports: Any = None
    all_interrupted: Any = None
    interrupted = False
    interruptible = False


def _begin(reports: Any, interrupted: Any) -> None:
    _Here.reports, _Here.all_interrupted = reports, interrupted
    signal.signal(signal.SIGINT, _note_interrupt)


def _note_interrupt(*_: object) -> None:
    first, _Here.interrupted = not _Here.interrupted, True
    if first and _Here.interruptible:
        raise KeyboardInterrupt


def report(value: Any) -> None:
    """Say in a task how far it is: `Processes.reports` has it."""
    _Here.reports.put(value)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C raise `KeyboardInterrupt` in what a task does here, once; at once where it came before."""
    _Here.interruptible = True
    try:
        if _Here.interrupted or _Here.all_interrupted.is_set():
            raise KeyboardInterrupt
        yield
    finally:
        _Here.interruptible = False
