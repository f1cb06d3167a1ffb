"""A process that runs one task at a time, so that a crash is blamed on its task: as its parent sees it, and inside."""

from __future__ import annotations

import pickle
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from dispatchlab.processes.parent import end_with_parent, kill_group, leave_interrupts_to_parent

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

# Note [Interrupts and processes]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A terminal sends SIGINT to all processes, a script only to the first. The workers ignore it; the first process asks
# each of them to stop, and each hands in what it has covered, exactly once. An exception in the middle of a message
# would leave half of it in the pipe, so a thread reads and writes them, where no signal raises anything.
#
# Each worker has one pipe, and nothing is shared: a queue or an event of `multiprocessing` is a file that a worker
# opens while it starts, and it dies with a traceback when all tasks are done by then.

STOP_S: Final = 1.5
"""How long a worker may take to hand in what it has covered, after it was asked to stop."""


class TaskProcess:
    """A process for tasks, as the one that started it sees it."""

    def __init__(self) -> None:
        from multiprocessing import get_context

        context = get_context("spawn")
        self.connection: Connection[Any, Any]
        self.connection, theirs = context.Pipe()
        self.process: SpawnProcess = context.Process(target=_serve, args=(theirs,), daemon=True)
        try:
            with _may_have_children():
                self.process.start()
        finally:
            theirs.close()

    def give(self, work: Callable[..., Any], arguments: tuple[object, ...]) -> None:
        """Give it a task.

        Raises:
            Exception: the task cannot be pickled; the process waits for another one.
        """
        self._send((work, arguments))

    def give_pickled(self, task: bytes) -> None:
        """Give it a task: the function and the tuple of its arguments, pickled."""
        with suppress(BrokenPipeError, ConnectionError):
            self.connection.send_bytes(task)

    def ask_to_stop(self) -> None:
        """Ask it to hand in what it has."""
        self._send(None)

    def receive(self) -> tuple[str, Any]:
        """Its next message: ("report", value), ("done", value), ("raised", error), or ("died", how it ended)."""
        try:
            kind, value = self.connection.recv()
        except (EOFError, OSError):
            return "died", self._autopsy()
        return kind, value

    def has_message(self) -> bool:
        """Whether `receive` returns at once."""
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

    def _send(self, message: object) -> None:
        """Send a message; when it has no reader any more, the next `receive` finds that out."""
        with suppress(BrokenPipeError, ConnectionError):
            self.connection.send(message)

    def _kill(self) -> None:
        if self.process.is_alive() and self.process.pid is not None:
            kill_group(self.process.pid)
            self.process.kill()

    def _autopsy(self) -> str:
        self.connection.close()
        self.process.join(STOP_S)
        code = self.process.exitcode
        self.join()
        if code is None:
            return "no answer"
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


@contextmanager
def _may_have_children() -> Iterator[None]:
    """Let a daemonic process, as a worker of a cluster may be, start processes; ours end with it in any case."""
    from multiprocessing import current_process

    this = current_process()
    if not this.daemon:
        yield
        return
    this.daemon = False
    try:
        yield
    finally:
        this.daemon = True


# -- in the process

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


def _serve(connection: Connection[Any, Any]) -> None:
    from multiprocessing import parent_process

    global _connection, _stopped
    leave_interrupts_to_parent()
    parent = parent_process()
    if sys.platform != "win32" and parent is not None:
        end_with_parent(parent.sentinel)
    _connection = connection
    while True:
        try:
            message = connection.recv_bytes()
        except (EOFError, OSError):
            return
        _stopped = False
        try:
            task = pickle.loads(message)  # which imports what the task names, so it may fail
            if task is None:  # it was asked to stop when it had just finished
                continue
            work, arguments = task
            reply = "done", work(*arguments)
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
