"""What runs on a worker of a cluster: each task in a process of its own there, as on one machine.

`run_task` runs in a thread of the worker. The process is kept for the next task, and ended when the task is cancelled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any, Final, TypeAlias

from dispatchlab.errors import DispatchLabError
from dispatchlab.processes.plain_data import NotPlainError, plain_bytes
from dispatchlab.processes.task_process import TaskProcess

# Note [Processes on a cluster]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A worker of Dask runs tasks in threads. There a deadline cannot interrupt what looks at no clock, a task that was
# cancelled runs on, threads share one interpreter lock, and a kernel that crashes takes the worker along with all that
# it has computed. So a thread of the worker only waits, for a process that runs the task as on one machine. It ends
# with the worker, however that ends: see Note [Ending with the parent] in parent.py.
#
# A process that is killed from outside, as all are when a worker shuts down or when memory runs out, says nothing about
# its task. The client hands such a task over again, a few times.

_LOOK_EVERY_S: Final = 0.2

Installation: TypeAlias = Mapping[str, str]
"""What must be the same on every machine, such as the version of dispatchlab, by its name."""

_idle: list[TaskProcess] = []


class _Cancelled(Exception):
    """The result is not wanted any more."""


def run_task(task: bytes, describe: Callable[[], Installation], expected: Installation) -> bytes:
    """Run a task in a process of this machine.

    Args:
        task: a function and its arguments, pickled.
        describe: describes the installation of this machine.
        expected: the installation of the client; with any other one the task is not run.

    Returns:
        ("done", value), ("raised", error), ("died", how its process ended) or ("differs", this installation), as plain
        data. An error that is none of ours is the text of its traceback, and so is a value that is no plain data.
    """
    found = describe()
    if found != expected:
        return plain_bytes(("differs", dict(found)))
    process = _idle.pop() if _idle else TaskProcess()
    try:
        process.give_pickled(task)
        kind, value = _answer(process)
    except BaseException:
        process.end(wait=False)
        process.join()
        raise
    if kind != "died":
        _idle.append(process)
    if isinstance(value, BaseException) and not isinstance(value, DispatchLabError):
        value = "\n".join(getattr(value, "__notes__", [repr(value)]))
    try:
        return plain_bytes((kind, value))
    except NotPlainError as error:
        return plain_bytes(("raised", f"a result cannot be sent to another machine: {error}"))


def _answer(process: TaskProcess) -> tuple[str, Any]:
    while True:
        try:
            is_there = process.connection.poll(_LOOK_EVERY_S)
        except (EOFError, OSError):
            is_there = True
        if is_there:
            kind, value = process.receive()
            if kind != "report":
                return kind, value
        if not _is_wanted():
            raise _Cancelled


def _is_wanted() -> bool:
    """Whether the scheduler still wants the result of the task of this thread; true where that is not known."""
    with suppress(ValueError, AttributeError, KeyError):  # not on a worker, or its state is kept elsewhere
        worker = import_module("distributed").get_worker()
        state = worker.state.tasks.get(worker.get_current_task())
        return state is not None and state.state != "cancelled"
    return True
