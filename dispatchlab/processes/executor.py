"""Executors: where tasks run, in the shape of the standard library's `concurrent.futures.Executor`.

Whatever runs in parallel is handed to a `TaskExecutor`: processes of this machine (`pool`), or a cluster (`cluster`).
"""

from __future__ import annotations

import signal
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from threading import current_thread, main_thread
from types import FrameType, TracebackType
from typing import Any, Final, Generic, TypeVar

from dispatchlab.errors import DispatchLabError

# Note [What a task is]
# ~~~~~~~~~~~~~~~~~~~~~
# A task is a function that a worker can import, and plain data: facts and options, never an open file, a closure, or
# something that only this process knows. So it can be pickled by value, sent to another machine, and sent once more
# when a worker has died; it must not matter how often it ran. A function that a task names is imported where it runs.
#
# Tasks end in any order. Their results are merged by the numbers of the tasks, so that one process, eight
# and a cluster print the same.

_LOOK_EVERY_S: Final = 0.1

A = TypeVar("A")
R = TypeVar("R")


class ClusterError(DispatchLabError):
    """A cluster cannot be used, or not any more."""


class TaskDied(Exception):
    """The process of a task ended: `how` is `signal SIGKILL` or `exit code 1`."""

    def __init__(self, how: str) -> None:
        super().__init__(how)
        self.how = how


class TaskStopped(Exception):
    """A task was never started, or it did not stop in time and was ended."""


class TaskFuture(Future[R], Generic[R]):
    """A future that also has what its task reported last; None before that, and where reports are not sent."""

    reported: Any = None


class TaskExecutor(Executor):
    """An executor whose tasks can be asked to stop, and hand in what they have.

    A future raises what its task raised, `TaskDied` when the process of the task ended, and `TaskStopped`.
    """

    ahead: int
    """How many tasks are worth handing over at once."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown(wait=error is None)

    @abstractmethod
    def stop(self) -> None:
        """Start no task any more, and ask those that run to stop. They are ended if they do not, and when this is
        called once more.
        """

    def check(self) -> None:
        """Raise the reason why tasks will never end, if there is one."""


def completed(
    executor: TaskExecutor, work: Callable[[A], R], tasks: Iterable[A], *, tick: Callable[[], None] = lambda: None
) -> Iterator[tuple[int, A, Future[R]]]:
    """Run tasks; each with its number and its future, which is done, in the order in which they end.

    Args:
        executor: where they run. No more tasks are handed over ahead than it asks for.
        work: a function that a worker can import. See Note [What a task is].
        tasks: the tasks.
        tick: is called about ten times a second while they are waited for.
    """
    given = enumerate(tasks)
    under_way: dict[int, tuple[A, Future[R]]] = {}
    done: SimpleQueue[int] = SimpleQueue()

    def hand_over() -> None:
        while len(under_way) < executor.ahead:
            following = next(given, None)
            if following is None:
                return
            number, task = following
            future = executor.submit(work, task)
            under_way[number] = task, future
            future.add_done_callback(lambda _, number=number: done.put(number))  # type: ignore[misc]

    while True:
        with signals_wait():
            hand_over()
        if not under_way:
            return
        number = _next(done)
        if number is None:
            executor.check()
            tick()
            continue
        task, future = under_way.pop(number)
        with signals_wait():
            hand_over()
        yield number, task, future


def _next(done: SimpleQueue[int]) -> int | None:
    with signals_wait():
        try:
            return done.get(timeout=_LOOK_EVERY_S)
        except Empty:
            return None


def wait_for(future: Future[Any]) -> bool:
    """Wait for a future, but no longer than a moment; whether it is done.

    Raises:
        KeyboardInterrupt: Ctrl-C or SIGTERM came. Nothing is lost: the future is as it was.
    """
    from concurrent.futures import wait

    with signals_wait():
        wait([future], timeout=_LOOK_EVERY_S)
    return future.done()


@contextmanager
def signals_wait() -> Iterator[None]:
    """Let SIGINT and SIGTERM wait until this is done, so that no lock is left locked and no message half sent."""
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
