"""Run code in a copy of this process, so that this process neither changes nor crashes."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, NoReturn, TypeAlias

from dispatchlab.live.bridge.torch import torch
from dispatchlab.processes import check_fork

Say: TypeAlias = Callable[[object], None]
"""Says something to the process that was copied."""


_inherited: list[Connection] = []
"""The pipes that this process, and those it is a copy of, write to."""


class CopyEndedError(Exception):
    """A copy of this process ended without a message.

    Args:
        code: its exit code, negative for a signal.
    """

    def __init__(self, code: int) -> None:
        super().__init__(how_it_ended(code))
        self.code = code


def how_it_ended(code: int) -> str:
    """Return an exit code in words, or the name of the signal."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


class ProcessCopy:
    """A copy of this process that runs a function and ends.

    Args:
        work: the function to run; it gets a function that sends a message to this process.

    Raises:
        NoForkError: this system cannot copy a process.
    """

    def __init__(self, work: Callable[[Say], None]) -> None:
        check_fork()
        self._said, says = Pipe(duplex=False)
        _inherited.append(says)
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  # which goes with this object
        self.code = 0
        sys.stdout.flush()
        sys.stderr.flush()
        self._process = os.fork()
        if not self._process:
            for other in _inherited[:-1]:  # or the process that reads there would never see its end
                other.close()
            _work(work, says, self._output.fileno())
        _inherited.pop().close()

    def answers(self, limit_s: Callable[[], float]) -> Iterator[Any]:
        """Return the messages of the copy. Then the copy has ended, and `code` is its exit code.

        Args:
            limit_s: the time limit for the next message, in seconds.

        Raises:
            TimeoutError: no message came in this time, or the copy used up the processor time of its ITIMER_PROF.
        """
        try:
            while self._said.poll(seconds := limit_s()):
                yield self._said.recv()
            raise TimeoutError(f"no answer within {seconds:g} s")
        except EOFError:
            pass
        finally:
            os.kill(self._process, signal.SIGKILL)
            self.code = os.waitstatus_to_exitcode(os.waitpid(self._process, 0)[1])
            self._said.close()
        if self.code == -signal.SIGPROF:
            raise TimeoutError("its processor time is used up")

    def printed(self) -> str:
        """Return the output of the copy."""
        self._output.seek(0)
        return self._output.read().decode(errors="replace")


def _work(work: Callable[[Say], None], says: Connection, output: int) -> NoReturn:
    code = 1
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout, sys.stderr = (os.fdopen(os.dup(output), "w", buffering=1) for _ in range(2))
        if "torch" in sys.modules:  # whose threads do not live on in a copy
            sys.modules["torch"].set_num_threads(1)
        work(says.send)
        code = 0
    except BaseException as error:
        sys.stderr.write(f"\nwhat(): {type(error).__name__}: {error}\n")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def in_a_copy(function: Callable[[], object], limit_s: float) -> Any:
    """Return the result of a function in a copy of this process.

    Raises:
        TimeoutError: the function takes longer.
        CopyEndedError: the function raises, or ends the process.
    """
    copy = ProcessCopy(lambda say: say(function()))
    for answer in copy.answers(lambda: limit_s):
        return answer
    raise CopyEndedError(copy.code)


def run_programs(sources: Sequence[str], seconds: float) -> tuple[str, list[str]]:
    """Run programs, each in a copy of this process.

    Args:
        sources: the programs.
        seconds: the time limit of each program.

    Returns:
        The version of PyTorch, and the exception of each program; empty if it succeeded.
    """
    return str(torch().__version__), [_raised(source, seconds) for source in sources]


def _raised(program: str, seconds: float) -> str:
    try:
        return str(in_a_copy(partial(_run, program), seconds))
    except TimeoutError:
        return f"it did not end within {seconds:g} s"
    except CopyEndedError as ended:
        return f"it ended the process with {ended}"


def _run(program: str) -> str:
    try:
        exec(compile(program, "<program>", "exec"), {"torch": torch()})
    except BaseException as error:
        return f"{type(error).__name__}: {error}"[:4000]
    return ""
