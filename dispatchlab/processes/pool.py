"""Worker processes that run one task each at a time, so that a crash is blamed on its task."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import current_thread, main_thread
from time import monotonic
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from dispatchlab.processes.parent import end_with_parent, kill_group, leave_interrupts_to_parent

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

# Note [Interrupts and the pool]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A terminal sends SIGINT to all processes, a script only to the first. The workers ignore it; the first process asks
# each of them to stop, and each hands in what it has covered, exactly once. An exception in the middle of a message
# would leave half of it in the pipe, so signals wait until the messages that have come are read.
#
# Each worker has one pipe, and nothing is shared: a queue or an event of `multiprocessing` is a file that a worker
# opens while it starts, and it dies with a traceback when all tasks are done by then.

STOP_S: Final = 1.0
"""How long a worker may take to hand in what it has covered, after it was asked to stop."""

_MOST_JOBS: Final = 2


@dataclass(frozen=True, slots=True)
class Reported:
    """A task reported how far it has come."""

    task: int
    value: Any


@dataclass(frozen=True, slots=True)
class Done:
    """A task came to its end."""

    task: int
    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """A task raised an exception."""

    task: int
    error: BaseException


@dataclass(frozen=True, slots=True)
class Died:
    """The process of a task ended: `how` is `signal SIGKILL` or `exit code 1`."""

    task: int
    how: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """A task was never started, or it did not stop in time and its process was ended."""

    task: int


Event: TypeAlias = Reported | Done | Raised | Died | Stopped

_Work: TypeAlias = Callable[[Any], Any]


def most_jobs() -> int:
    """How many processes are of use: one for each core that this process may use, and two in any case."""
    if hasattr(os, "sched_getaffinity"):
        return max(_MOST_JOBS, len(os.sched_getaffinity(0)))
    return max(_MOST_JOBS, os.cpu_count() or 1)


class Pool:
    """Worker processes, which are started when there are tasks for them.

    Args:
        jobs: how many there are at most; more than `most_jobs()` are of no use and are not started.
        initialise: what each worker calls first.
        arguments: what it is called with.
    """

    def __init__(self, jobs: int, initialise: Callable[..., None], arguments: tuple[object, ...] = ()) -> None:
        self._jobs = min(jobs, most_jobs())
        self._initialise, self._arguments = initialise, arguments
        self._idle: list[_Worker] = []
        self._busy: dict[int, _Worker] = {}
        self._tasks: deque[tuple[int, Any]] = deque()
        self._work: _Work | None = None
        self._events: deque[Event] = deque()
        self._killed_at: float | None = None

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(wait=error is None)

    @property
    def is_done(self) -> bool:
        """Whether every task has come to an end, and each end was returned by `poll`."""
        return not (self._tasks or self._busy or self._events)

    def start(self, work: _Work, tasks: Iterable[object]) -> None:
        """Give it tasks; those from before are done.

        Args:
            work: a function that a worker can import; it is called with a task.
            tasks: the tasks, numbered from 0.
        """
        assert self.is_done
        self._work, self._tasks = work, deque(enumerate(tasks))

    def poll(self, seconds: float) -> list[Event]:
        """What happened meanwhile; waits for something to happen, but no longer than this.

        Raises:
            KeyboardInterrupt: Ctrl-C or SIGTERM came. Nothing is lost: what happened is returned by the next call.
        """
        with _signals_wait():
            self._start_tasks()
            self._collect(0.0 if self._events else seconds)
            self._start_tasks()
        events = list(self._events)
        self._events.clear()
        return events

    def stop(self) -> None:
        """Start no task any more, and ask those that run to stop; see `is_stopped`. They are ended if they do not, and
        when this is called once more.
        """
        with _signals_wait():
            self._events.extend(Stopped(task) for task, _ in self._tasks)
            self._tasks.clear()
            self._killed_at = monotonic() + (STOP_S if self._killed_at is None else 0.0)
            for worker in self._busy.values():
                worker.ask_to_stop()

    def close(self, *, wait: bool = True) -> None:
        """End all workers.

        Args:
            wait: let idle ones end by themselves; else all are killed at once.
        """
        with _signals_wait():
            self._tasks.clear()
            for worker in self._idle:
                worker.end(wait=wait and self._killed_at is None)
            for worker in self._busy.values():
                worker.end(wait=False)
            for worker in (*self._idle, *self._busy.values()):
                worker.join()
            self._idle.clear()
            self._busy.clear()

    def _start_tasks(self) -> None:
        assert self._work is not None
        while self._tasks and len(self._busy) < self._jobs:
            worker = self._idle.pop() if self._idle else _Worker(self._initialise, self._arguments)
            task, what = self._tasks.popleft()
            self._busy[task] = worker
            worker.send((self._work, task, what))

    def _collect(self, seconds: float) -> None:
        from multiprocessing.connection import wait

        if self._killed_at is not None and monotonic() >= self._killed_at:
            for task, worker in self._busy.items():
                worker.end(wait=False)
                worker.join()
                self._events.append(Stopped(task))
            self._busy.clear()
        ready = wait([worker.connection for worker in self._busy.values()], seconds)
        for task, worker in list(self._busy.items()):
            while worker.connection in ready and task in self._busy:
                self._receive(task, worker)
                if not worker.has_message():
                    break

    def _receive(self, task: int, worker: _Worker) -> None:
        try:
            kind, value = worker.connection.recv()
        except (EOFError, OSError):
            del self._busy[task]
            self._events.append(Died(task, worker.autopsy()))
            return
        if kind == "report":
            self._events.append(Reported(task, value))
            return
        self._events.append(Done(task, value) if kind == "done" else Raised(task, value))
        del self._busy[task]
        self._idle.append(worker)


class _Worker:
    """A worker process, as the first process sees it."""

    def __init__(self, initialise: Callable[..., None], arguments: tuple[object, ...]) -> None:
        from multiprocessing import get_context

        context = get_context("spawn")
        self.connection: Connection[Any, Any]
        self.connection, theirs = context.Pipe()
        first = pickle.dumps((initialise, arguments))  # read after the worker has seen to its end: imports take long
        self.process: SpawnProcess = context.Process(target=_serve, args=(theirs, first), daemon=True)
        try:
            self.process.start()
        finally:
            theirs.close()

    def send(self, message: object) -> None:
        """Send a message; when nobody reads it any more, the next `recv` finds that out."""
        with suppress(BrokenPipeError, ConnectionError):
            self.connection.send(message)

    def ask_to_stop(self) -> None:
        self.send(None)

    def has_message(self) -> bool:
        try:
            return self.connection.poll()
        except (EOFError, OSError):
            return True

    def end(self, *, wait: bool) -> None:
        """End it: by itself when it is idle and there is time."""
        self.connection.close()
        if not wait:
            self._kill()

    def join(self) -> None:
        """Wait until it has ended, and kill it when that takes long."""
        self.process.join(STOP_S)
        self._kill()
        self.process.join()

    def _kill(self) -> None:
        if self.process.is_alive() and self.process.pid is not None:
            kill_group(self.process.pid)
            self.process.kill()

    def autopsy(self) -> str:
        """How it ended."""
        self.connection.close()
        self.process.join(STOP_S)
        code = self.process.exitcode
        self.join()
        if code is None:
            return "no answer"
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


@contextmanager
def _signals_wait() -> Iterator[None]:
    """Let SIGINT and SIGTERM wait until this is done. See Note [Interrupts and the pool]."""
    if current_thread() is not main_thread():
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    before = {}
    for each in (signal.SIGINT, signal.SIGTERM):
        handler = signal.getsignal(each)
        if callable(handler):
            before[each] = handler
            signal.signal(each, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    for number, frame in came[:1]:
        before[signal.Signals(number)](number, frame)


# -- in a worker

_connection: Connection[Any, Any] | None = None
_stopped = False


def report(value: object) -> None:
    """Report how far the task has come, from within it."""
    assert _connection is not None
    _connection.send(("report", value))


def is_stopped() -> bool:
    """Whether the task was asked to stop, from within it."""
    global _stopped
    assert _connection is not None
    if not _stopped and _connection.poll():
        with suppress(EOFError, OSError):
            _connection.recv()
        _stopped = True
    return _stopped


def _serve(connection: Connection[Any, Any], first: bytes) -> None:
    from multiprocessing import parent_process

    global _connection, _stopped
    leave_interrupts_to_parent()
    parent = parent_process()
    if sys.platform != "win32" and parent is not None:
        end_with_parent(parent.sentinel)
    _connection = connection
    initialise, arguments = pickle.loads(first)
    initialise(*arguments)
    while True:
        try:
            message = connection.recv()
        except (EOFError, OSError):
            return
        if message is None:  # it was asked to stop when it had just finished
            continue
        work, _, task = message
        _stopped = False
        try:
            reply = "done", work(task)
        except BaseException as error:
            reply = "raised", _portable(error)
        try:
            connection.send(reply)
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            connection.send(("raised", RuntimeError(f"a result cannot be sent to another process: {error}")))
        except OSError:
            return


def _portable(error: BaseException) -> BaseException:
    """The error in a form that another process can read, with where it was raised as a note."""
    text = "".join(traceback.format_exception(error))
    error.__traceback__ = None
    try:
        error.add_note(f"in a worker process:\n{text}")
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(text)
    return error
