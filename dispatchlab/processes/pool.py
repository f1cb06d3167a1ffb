"""An executor whose tasks run in processes of this machine, each one task at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from dispatchlab.processes.executor import TaskDied, TaskExecutor, TaskFuture, TaskStopped, signals_wait
from dispatchlab.processes.machine import most_jobs
from dispatchlab.processes.task_process import STOP_S, TaskProcess

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_AHEAD: Final = 4  # for each process, so that none waits while results are looked at

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class _Task:
    future: TaskFuture[Any]
    work: Callable[..., Any]
    arguments: tuple[Any, ...]


class ProcessExecutor(TaskExecutor):
    """Processes of this machine, which are started when there are tasks for them.

    They hear no Ctrl-C and end with this process. See Note [Interrupts and processes] in task_process.py.

    Args:
        jobs: how many there are at most; more than `most_jobs()` are of no use and are not started.
    """

    def __init__(self, jobs: int) -> None:
        self._jobs = min(jobs, most_jobs())
        self.ahead = _AHEAD * self._jobs
        self._lock = Lock()
        self._pending: deque[_Task] = deque()
        self._stops = 0  # how often it was asked to stop
        self._wait_at_end: bool | None = None  # known once it is shut down
        self._trouble: BaseException | None = None
        self._woken = False
        self._wake: Connection[Any, Any] | None = None
        self._thread: Thread | None = None

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Hand over a task: a function that a worker can import, and its arguments."""
        assert not kwargs, "a task has positional arguments"
        future: TaskFuture[R] = TaskFuture()
        with signals_wait():
            with self._lock:
                if self._wait_at_end is not None:
                    raise RuntimeError("no task can be handed over after the shutdown")
                if self._trouble is not None:
                    raise self._trouble
                self._pending.append(_Task(future, fn, args))
            self._heed()
        return future

    def stop(self) -> None:
        """Start no task any more, and ask those that run to stop; see `is_stopped`. They are ended if they do not, and
        when this is called once more.
        """
        with signals_wait():
            with self._lock:
                self._stops += 1
            self._heed()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002  # as Executor
        """End all processes.

        Args:
            wait: let what was handed over end first; else all are killed at once.
            cancel_futures: let only what runs end first.
        """
        with signals_wait():
            with self._lock:
                self._wait_at_end = wait
                dropped = list(self._pending) if cancel_futures else []
                if cancel_futures:
                    self._pending.clear()
            for task in dropped:
                task.future.cancel()
            if self._thread is not None:
                self._heed()
                self._thread.join()
                self._thread = None

    def _heed(self) -> None:
        """Have the thread look at what is asked of it."""
        from multiprocessing import Pipe

        if self._thread is None:
            reader, self._wake = Pipe(duplex=False)
            loop = _Loop(self, reader)
            thread = Thread(target=loop.run, name="pool", daemon=True)
            thread.start()  # which the system may refuse
            self._thread = thread
        assert self._wake is not None
        with self._lock:
            is_woken, self._woken = self._woken, True
        if not is_woken:
            with suppress(OSError):  # it has ended
                self._wake.send_bytes(b".")

    def _take(self) -> _Task | None:
        with self._lock:
            return self._pending.popleft() if self._pending else None

    def _asked(self) -> tuple[int, bool | None]:
        """How often it was asked to stop; whether to wait at the end, when that has come."""
        with self._lock:
            self._woken = False
            return self._stops, self._wait_at_end

    def _break(self, trouble: BaseException) -> None:
        """Take no task any more."""
        with self._lock:
            self._trouble = trouble


class _Loop:
    """What the thread of an executor does: it alone has to do with the processes."""

    def __init__(self, executor: ProcessExecutor, wake: Connection[Any, Any]) -> None:
        self._executor, self._wake = executor, wake
        self._idle: list[TaskProcess] = []
        self._busy: dict[TaskProcess, TaskFuture[Any]] = {}
        self._stops = 0
        self._wait_at_end: bool | None = None
        self._killed_at: float | None = None

    def run(self) -> None:
        trouble: BaseException | None = None
        try:
            while self._turn():
                pass
        except BaseException as error:  # such as no process to be had: every future raises it
            trouble = error
            self._executor._break(error)
        finally:
            self._end(trouble)

    def _turn(self) -> bool:
        """Do what there is to do, and wait for more; whether there is more to come."""
        from multiprocessing.connection import wait

        if self._wake.poll():
            self._wake.recv_bytes()
        stops, self._wait_at_end = self._executor._asked()
        if self._wait_at_end is False:
            return False
        if stops > self._stops:
            self._stop(now=self._stops > 0 or stops > 1)
            self._stops = stops
        self._start_tasks()
        if self._wait_at_end and not self._busy:
            return False
        left = None
        if self._killed_at is not None and self._busy:
            left = max(0.0, self._killed_at - monotonic())
            if not left:
                self._kill()
                return True
        ready = wait([self._wake, *(process.connection for process in self._busy)], left)
        for process in [one for one in self._busy if one.connection in ready]:
            while process in self._busy and process.has_message():
                self._receive(process)
        return True

    def _start_tasks(self) -> None:
        while len(self._busy) < self._executor._jobs:
            task = self._executor._take()
            if task is None:
                return
            if not task.future.set_running_or_notify_cancel():
                continue
            if self._stops:
                task.future.set_exception(TaskStopped())
                continue
            try:
                process = self._idle.pop() if self._idle else TaskProcess()
            except BaseException as error:
                task.future.set_exception(error)
                raise
            try:
                process.give(task.work, task.arguments)
            except Exception as error:  # it cannot be pickled
                task.future.set_exception(error)
                self._idle.append(process)
                continue
            self._busy[process] = task.future

    def _receive(self, process: TaskProcess) -> None:
        kind, value = process.receive()
        if kind == "report":
            self._busy[process].reported = value
            return
        future = self._busy.pop(process)
        if kind == "died":
            future.set_exception(TaskDied(value))
            return
        self._idle.append(process)
        if kind == "done":
            future.set_result(value)
        else:
            future.set_exception(value)

    def _stop(self, *, now: bool) -> None:
        while (task := self._executor._take()) is not None:
            if task.future.set_running_or_notify_cancel():
                task.future.set_exception(TaskStopped())
        self._killed_at = monotonic() + (0.0 if now else STOP_S)
        for process in self._busy:
            process.ask_to_stop()

    def _kill(self) -> None:
        for process in self._busy:
            process.end(wait=False)
        for process, future in self._busy.items():
            process.join()
            future.set_exception(TaskStopped())
        self._busy.clear()

    def _end(self, trouble: BaseException | None) -> None:
        for process in self._idle:
            process.end(wait=bool(self._wait_at_end) and not self._stops)
        for process in self._busy:
            process.end(wait=False)
        for process in (*self._idle, *self._busy):
            process.join()
        left = list(self._busy.values())
        while (task := self._executor._take()) is not None:
            if task.future.set_running_or_notify_cancel():
                left.append(task.future)
        for future in left:
            future.set_exception(TaskStopped() if trouble is None else trouble)
        self._wake.close()
