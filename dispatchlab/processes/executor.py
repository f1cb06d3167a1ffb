"""Choose where tasks run: processes of this machine, or the workers of a Dask cluster.

A task is a function that a worker can import, and values that can be pickled; so is its result.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import CancelledError, Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

from dispatchlab._version import __version__
from dispatchlab.errors import DispatchLabError

CONNECT_S: Final = 10
"""How long a scheduler may take to answer."""

NO_WORKERS_S: Final = 30
"""How long a cluster may take to have a worker."""


class ClusterError(DispatchLabError):
    """A cluster cannot be used.

    Args:
        address: of its scheduler.
        reason: what is wrong and what to do, a clause.
    """

    address: str
    reason: str

    template = "--cluster {address}: {reason}"


class WorkerDied(DispatchLabError):
    """A process that ran tasks ended, as one does that runs out of memory."""

    exit_code = 5

    template = "a worker process ended, as one does that runs out of memory: use --jobs 1, or select less"


@contextmanager
def executor_for(jobs: int, cluster: str | None = None) -> Iterator[Executor]:
    """Where tasks run. When the block raises, such as by Ctrl-C, tasks that are left are dropped.

    Args:
        jobs: how many processes of this machine.
        cluster: the address of a scheduler, whose workers run tasks instead.

    Raises:
        ClusterError: there is no such cluster, or it is lost.
        WorkerDied: a process of this machine ended.
    """
    with _processes(jobs) if cluster is None else _workers(cluster) as executor:
        yield executor


@contextmanager
def _processes(jobs: int) -> Iterator[Executor]:
    from multiprocessing import active_children, get_context

    executor = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_leave_interrupts_to_parent)
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


def _leave_interrupts_to_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _workers(address: str) -> Iterator[Executor]:
    try:
        distributed: Any = import_module("distributed")
    except ImportError:
        reason = "dask.distributed is not installed: pip install 'dispatchlab[cluster]'"
        raise ClusterError(address, reason) from None
    try:
        client = distributed.Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        reason = f"no Dask scheduler answers there ({error}): start one with `dask scheduler`"
        raise ClusterError(address, reason) from None
    with client:
        _check_workers(client, address)
        executor: Executor = client.get_executor(pure=False)
        try:
            yield executor
        except (distributed.KilledWorker, CancelledError, OSError) as error:
            raise ClusterError(address, f"a task was lost ({error}): see the log of the scheduler") from None
        finally:
            executor.shutdown(wait=False)


def _check_workers(client: Any, address: str) -> None:
    """Wait for a worker, and compare the version of each with this one."""
    try:
        client.wait_for_workers(1, timeout=NO_WORKERS_S)
    except TimeoutError:
        reason = f"there is no worker: start some with `dask worker {address}`"
        raise ClusterError(address, reason) from None
    for worker, there in sorted(client.run(version, on_error="return").items()):
        if there != __version__:
            reason = f"{worker} has {there!r} in place of dispatchlab {__version__}: install the same everywhere"
            raise ClusterError(address, reason)


def version() -> str:
    """The version of dispatchlab, as a worker is asked for it."""
    return __version__
