"""Tasks for tests of executors, in a module that workers on other machines can import."""

from __future__ import annotations

import os
import pickle
import signal
import time
import zlib


def slow(number: int) -> tuple[int, str]:
    """Take a moment."""
    time.sleep(0.15)
    return number, "x" * number


def end(how: str) -> str:
    """End as is asked."""
    match how:
        case "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "raise":
            raise ValueError(how)
    return how


def note_and_hang(path: str) -> None:
    """Write one's process id to a file, and hang."""
    with open(path, "w", encoding="ascii") as file:
        file.write(str(os.getpid()))
    time.sleep(600)


def other_installation() -> dict[str, str]:
    """Another one in every process."""
    return {"dispatchlab": "1.0", "Python": str(os.getpid())}


# -- in place of `run_task`: what a worker could give back that means harm


class _Command:
    def __reduce__(self) -> tuple[object, ...]:
        return open, ("owned", "w")


def pickled_command(*arguments: object) -> bytes:
    """What runs a command in whoever unpickles it, as bytes."""
    return pickle.dumps(("done", _Command()))


def command_to_pickle(*arguments: object) -> object:
    """The same as an object, which is left to Dask."""
    return _Command()


def bomb(*arguments: object) -> bytes:
    """Few bytes that are many."""
    return zlib.compress(b"[" + b" " * 2**28 + b"0]")
