"""An executor whose tasks run on the workers of a Dask cluster.

`distributed` is imported here and nowhere else, when a cluster is asked for.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import warnings
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from importlib import import_module
from threading import Lock
from time import monotonic
from typing import Any, Final, ParamSpec, TypeVar

from dispatchlab.errors import DispatchLabError
from dispatchlab.processes.cluster_task import Installation, run_task
from dispatchlab.processes.executor import ClusterError, TaskDied, TaskExecutor, TaskFuture, TaskStopped, signals_wait
from dispatchlab.processes.plain_data import PlainReader, fits

# Note [Workers that die]
# ~~~~~~~~~~~~~~~~~~~~~~~
# When a worker dies, the scheduler hands its tasks to another one, and so it does with results that were on it and that
# nobody has fetched. A task during which several workers died is given up by the scheduler, which takes it for the
# culprit: it cannot be, since it runs in a process of its own, and so it is handed over again, a few times.
# A scheduler that is lost takes every task along, and nothing is handed over to another one.

# Note [What a worker can do here]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A result is bytes, which Dask passes on as they are (its deserializer is msgpack, and no pickle), and which are plain
# data, see Note [Plain data] in plain_data.py. What Dask itself says of a task that failed is a pickle, and the
# scheduler may send one at any time; so a scheduler and what is built into Dask are trusted, and results are not.

CONNECT_S: Final = 10.0
"""How long a scheduler may take to answer at first."""

SILENT_S: Final = 20.0
"""How long a scheduler may be silent before it counts as lost."""

NO_WORKERS_S: Final = 30.0
"""How long a cluster may have no worker."""

_AGAIN: Final = 3  # how often a task is handed over again that was killed from outside
_FROM_OUTSIDE: Final = ("signal SIGKILL", "signal SIGTERM", "no answer")
_LOOK_EVERY_S: Final = 0.5
_CLOSE_S: Final = 1.0
_AHEAD: Final = 4  # for each thread of a worker
_LEAST_AHEAD: Final = 16

P = ParamSpec("P")
R = TypeVar("R")


class ClusterMissingError(ClusterError):
    """`distributed` is not installed."""

    template = "--cluster needs dask.distributed, which is not installed: pip install 'dispatchlab[cluster]'"


class NoSchedulerError(ClusterError):
    """No scheduler answers at the address.

    Args:
        address: where.
        reason: what was found there, a clause.
    """

    address: str
    reason: str

    template = (
        "--cluster {address}: no Dask scheduler answers there ({reason}): start one with "
        "`dask scheduler`, and name the address that it prints, such as tcp://10.0.0.1:8786"
    )


class SchedulerLostError(ClusterError):
    """The scheduler answers no more."""

    exit_code = 5

    address: str

    template = "--cluster {address}: the connection to the scheduler was lost, and the tasks that ran with it"


class NoWorkersError(ClusterError):
    """The cluster has no workers.

    Args:
        address: of its scheduler.
        seconds: for how long.
    """

    exit_code = 5

    address: str
    seconds: float

    template = (
        "--cluster {address}: for {seconds:g} seconds there has been no worker: start some with `dask worker {address}`"
    )


class OtherInstallationError(ClusterError):
    """A worker has not what the client has, so its results might be others.

    Args:
        worker: its address.
        what: what differs.
        there: what the worker has; empty for nothing.
        here: what the client has.
    """

    worker: str
    what: str
    there: str
    here: str

    def __str__(self) -> str:
        return (
            f"{self.worker or 'a worker'} has {self.what} {self.there or '(none)'} and this machine has "
            f"{self.here or '(none)'}: install the same on all machines of the cluster"
        )


class WorkerCannotImportError(ClusterError):
    """A worker cannot import dispatchlab.

    Args:
        worker: its address.
        reason: the error there.
    """

    worker: str
    reason: str

    template = (
        "the worker {worker} cannot run dispatchlab ({reason}): install the same version there, with "
        "pip install 'dispatchlab[cluster]'"
    )


class TaskLostError(ClusterError):
    """The cluster gave a task up."""

    exit_code = 5

    reason: str

    template = "the cluster did not run a task: {reason}"


class ClusterExecutor(TaskExecutor):
    """The workers of a Dask cluster. They run tasks in processes of their own; see Note [Processes on a cluster] in
    cluster_task.py, and Note [Workers that die].

    Args:
        address: of the scheduler, such as `tcp://10.0.0.1:8786`.
        describe: describes an installation; the workers' have to be as this one. It is called here and there.

    Raises:
        ClusterMissingError: `distributed` is not installed.
        NoSchedulerError: nothing answers in time.
        NoWorkersError: there is a scheduler alone.
        OtherInstallationError: a worker has another version.
        WorkerCannotImportError: a worker has none.
    """

    def __init__(self, address: str, describe: Callable[[], Installation]) -> None:
        self._address, self._describe, self._here = address, describe, dict(describe())
        self._lock = Lock()
        self._open: dict[TaskFuture[Any], Any] = {}  # with the future of `distributed`
        self._trouble: ClusterError | None = None
        self._is_stopped = self._is_closed = False
        self.ahead = _LEAST_AHEAD
        self._heard_at = self._workers_at = monotonic()
        self._log = logging.getLogger("distributed")
        self._log_level = self._log.level
        try:
            self._client = self._connected()
        except BaseException:
            self._log.setLevel(self._log_level)
            raise
        try:
            self._start(self._watch())
            self._check_workers()
        except BaseException:
            self.shutdown(wait=False)
            raise

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Hand over a task: a function that a worker can import, and its arguments, which are pickled by value."""
        assert not kwargs, "a task has positional arguments"
        future: TaskFuture[R] = TaskFuture()
        future.set_running_or_notify_cancel()
        with signals_wait():
            try:
                task = pickle.dumps((fn, args))
            except Exception as error:
                future.set_exception(error)
                return future
            self._hand_over(future, task, 0)
        return future

    def stop(self) -> None:
        """Cancel all tasks; workers end the processes of those that run."""
        with signals_wait():
            self._is_stopped = True
            self._give_up(TaskStopped())

    def check(self) -> None:
        """Raise the reason why tasks will never end, if there is one.

        Raises:
            SchedulerLostError: the scheduler is lost.
            NoWorkersError: all workers are.
            OtherInstallationError: a worker that came later has another version.
        """
        now = monotonic()
        if self._trouble is None and now - self._heard_at > SILENT_S:
            self._fail(SchedulerLostError(self._address))
        if self._trouble is None and now - self._workers_at > NO_WORKERS_S:
            self._fail(NoWorkersError(self._address, NO_WORKERS_S))
        if self._trouble is not None:
            raise self._trouble

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002  # as Executor
        """Leave the cluster, which goes on without this client.

        Args:
            wait: wait for what was handed over first; else it is cancelled.
            cancel_futures: cancel it in any case.
        """
        with signals_wait():
            if self._is_closed:
                return
            self._is_closed = True
        if wait and not cancel_futures:
            for future in list(self._open):
                with suppress(Exception, CancelledError):
                    future.exception()
        with signals_wait():
            self._give_up(TaskStopped())
            with suppress(Exception), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._client.close(timeout=_CLOSE_S)
            self._log.setLevel(self._log_level)

    def workers(self) -> list[str]:
        """The addresses of the workers."""
        return sorted(self._client.nthreads(callback_timeout=CONNECT_S))

    # -- the client

    def _connected(self) -> Any:
        try:
            client = import_module("distributed").Client
        except ImportError:
            raise ClusterMissingError from None
        self._log.setLevel(logging.CRITICAL + 1)  # what it would say is said in a sentence
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of versions that differ: what matters is compared below
                # A client that never connects does not end in time, so one is made where a scheduler has answered.
                found = asyncio.run(_who_answers(self._address))
                if found != "Scheduler":
                    raise NoSchedulerError(self._address, f"a {found.lower()} does")
                return client(
                    self._address,
                    timeout=CONNECT_S,
                    set_as_default=False,
                    name="dispatchlab",
                    serializers=("dask", "pickle"),
                    deserializers=("msgpack",),
                )
        except (OSError, ValueError, TypeError, RuntimeError, ImportError) as error:
            # Whether Dask or we run out of time first is chance.
            late = isinstance(error, TimeoutError) or "Timed out" in str(error)
            reason = f"no answer within {CONNECT_S:g} s" if late else _first_line(error)
            raise NoSchedulerError(self._address, reason) from None

    def _check_workers(self) -> None:
        """Wait for a worker, and compare every installation with this one."""
        try:
            self._client.wait_for_workers(1, timeout=NO_WORKERS_S)
        except TimeoutError:
            raise NoWorkersError(self._address, NO_WORKERS_S) from None
        try:
            found = self._client.run(self._describe, on_error="return", callback_timeout=CONNECT_S)
        except (TimeoutError, OSError):
            raise SchedulerLostError(self._address) from None
        for worker, there in sorted(found.items()):
            if not isinstance(there, Mapping):
                raise WorkerCannotImportError(worker, _first_line(there))
            trouble = self._difference(f"the worker {worker}", there)
            if trouble is not None:
                raise trouble

    def _difference(self, worker: str, there: Installation) -> OtherInstallationError | None:
        for what in (*self._here, *there):
            if there.get(what, "") != self._here.get(what, ""):
                return OtherInstallationError(worker, what, there.get(what, ""), self._here.get(what, ""))
        return None

    def _hand_over(self, future: TaskFuture[Any], task: bytes, times: int) -> None:
        with self._lock:
            if self._trouble is None and not self._is_stopped:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", UserWarning)  # of large tasks
                    theirs = self._client.submit(run_task, task, self._describe, self._here, pure=False, retries=_AGAIN)
                self._open[future] = theirs
                self._start(self._follow(future, theirs, task, times))
                return
        future.set_exception(self._trouble or TaskStopped())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start something in the loop of the client, whose thread is another one."""
        asyncio.run_coroutine_threadsafe(work, self._client.loop.asyncio_loop)

    def _give_up(self, reason: Exception) -> None:
        """End all futures, and have the scheduler cancel their tasks."""
        with self._lock:
            left, self._open = self._open, {}
        if left:
            self._start(self._cancel(list(left.values())))
        for future in left:
            with suppress(InvalidStateError):
                future.set_exception(reason)

    def _fail(self, trouble: ClusterError) -> None:
        with self._lock:
            self._trouble = self._trouble or trouble
        self._give_up(self._trouble)

    # -- in the loop of the client

    async def _cancel(self, theirs: list[Any]) -> None:
        with suppress(Exception, CancelledError, asyncio.CancelledError):
            await self._client.cancel(theirs, asynchronous=True)

    async def _watch(self) -> None:
        """Note when the scheduler was heard last, and when it had a worker."""
        while not self._is_closed:
            with suppress(Exception, asyncio.CancelledError):
                threads = await asyncio.wait_for(self._client.scheduler.ncores(), SILENT_S)
                self._heard_at = monotonic()
                if threads:
                    self._workers_at = self._heard_at
                    self.ahead = max(_LEAST_AHEAD, _AHEAD * sum(threads.values()))
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _follow(self, future: TaskFuture[Any], theirs: Any, task: bytes, times: int) -> None:
        """Pass on how a task ended, or hand it over again."""
        killed: type[Exception] = import_module("distributed").KilledWorker
        try:
            data = await self._client.gather(theirs, asynchronous=True)
            kind, value = PlainReader().read(data, tuple[str, Any])
        except killed as error:
            kind, value = "killed", error
        except (CancelledError, asyncio.CancelledError):
            if future in self._open:  # it was not cancelled here
                self._fail(SchedulerLostError(self._address))
            return
        except Exception as error:
            kind, value = "lost", error
        with self._lock:
            if self._open.pop(future, None) is None:
                return
        if times < _AGAIN and (kind == "killed" or (kind == "died" and value in _FROM_OUTSIDE)):
            self._hand_over(future, task, times + 1)
            return
        match kind:
            case "done":
                future.set_result(value)
            case "raised":
                future.set_exception(value if isinstance(value, DispatchLabError) else RuntimeError(value))
            case "died" if isinstance(value, str):
                future.set_exception(TaskDied(value))
            case "differs" if fits(value, dict[str, str]) and (trouble := self._difference("", value)) is not None:
                future.set_exception(trouble)
                self._fail(trouble)
            case _:
                future.set_exception(TaskLostError(_first_line(value)))


async def _who_answers(address: str) -> str:
    """`Scheduler`, `Worker` or `Nanny`, as what answers there says."""
    who = import_module("distributed.core").rpc(address, timeout=CONNECT_S)
    try:
        found = await asyncio.wait_for(who.identity(), CONNECT_S)
        return str(found["type"])
    finally:
        await who.close_rpc()


def _first_line(error: object) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".:") if lines else type(error).__name__
