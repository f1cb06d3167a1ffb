"""Run the trials of an operator in a copy of this process, so that a crash costs its own trial."""

from __future__ import annotations

import os
import pickle
import re
import select
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, NoReturn

from dispatchlab.live.failure.program_watch import frames_of, raised_of
from dispatchlab.live.trials.subject import NotNeededError, OpenError, Subject
from dispatchlab.live.trials.trials import COMPILED, TRIALS
from dispatchlab.model.failure import Raised
from dispatchlab.model.trial_run import Status, TrialRun

_WHAT: Final = re.compile(r"^\s*what\(\):\s*(.*)$", re.MULTILINE)
_SIZE: Final = 8
_COMPILED_LIMIT_S: Final = 120.0


def run_trials(subject: Subject, names: Sequence[str], *, limit_s: float, before: str = "") -> Iterator[TrialRun]:
    """Run trials of an operator in a fork, and those after a crash in another one.

    Args:
        subject: the operator.
        names: the trials, in order.
        limit_s: how long one that needs no compiler may take.
        before: statements that are run first, such as a fix.
    """
    left = list(names)
    while left:
        with tempfile.TemporaryFile() as output:
            reader, writer = os.pipe()
            sys.stdout.flush()
            sys.stderr.flush()
            process = os.fork()
            if process == 0:
                os.close(reader)
                _child(writer, output.fileno(), subject, left, before)
            os.close(writer)
            stuck = False
            try:
                while (
                    run := _receive(reader, limit_s if left and left[0] not in COMPILED else _COMPILED_LIMIT_S)
                ) is not None:
                    left.remove(run.trial)
                    yield run
            except TimeoutError:
                stuck = True
            finally:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
                os.close(reader)
                _, status = os.waitpid(process, 0)
            if left:
                name = left.pop(0)
                if stuck:
                    yield TrialRun(
                        operator=subject.name, trial=name, status="open", why=f"no answer within {limit_s:g} s"
                    )
                else:
                    output.seek(0)
                    yield _crashed(subject, name, status, output.read().decode(errors="replace"))


def _receive(reader: int, limit_s: float) -> TrialRun | None:
    """Return the next run; None when the process has ended.

    Raises:
        TimeoutError: it takes too long.
    """
    end = time.monotonic() + limit_s
    data = b""
    wanted = _SIZE
    while len(data) < wanted:
        if not select.select([reader], [], [], max(0.0, end - time.monotonic()))[0]:
            raise TimeoutError
        part = os.read(reader, wanted - len(data))
        if not part:
            return None
        data += part
        if len(data) == _SIZE:
            wanted = _SIZE + int.from_bytes(data[:_SIZE], "big")
    run: TrialRun = pickle.loads(data[_SIZE:])
    return run


def _crashed(subject: Subject, name: str, status: int, output: str) -> TrialRun:
    how = (
        f"the process ended with {signal.Signals(os.WTERMSIG(status)).name}"
        if os.WIFSIGNALED(status)
        else f"the process ended with exit code {os.waitstatus_to_exitcode(status)}"
    )
    said = _WHAT.findall(output)
    text = said[-1] if said else how
    return TrialRun(
        operator=subject.name, trial=name, status="failed", why=how, raised=(Raised("builtins.RuntimeError", text),)
    )


def _child(writer: int, output: int, subject: Subject, names: Sequence[str], before: str) -> NoReturn:
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        import torch

        torch.set_num_threads(1)
        if before:
            exec(compile(before, "<fix>", "exec"), {"torch": torch})
        for name in names:
            data = pickle.dumps(run_trial(subject, name))
            os.write(writer, len(data).to_bytes(_SIZE, "big") + data)
    except BaseException as error:
        sys.stderr.write(f"\nwhat(): {type(error).__name__}: {error}\n")
        sys.stderr.flush()
        os._exit(3)
    os._exit(0)


def run_trial(subject: Subject, name: str) -> TrialRun:
    """Run one trial in this process."""
    watch = subject.watch
    noted = len(watch.events)
    try:
        subject.run(TRIALS[name])
    except NotNeededError as nothing:
        return TrialRun(operator=subject.name, trial=name, status="not needed", why=str(nothing))
    except OpenError as nothing:
        why = str(nothing)
        status: Status = "no input" if "input" in why or "generated" in why else "open"
        return TrialRun(operator=subject.name, trial=name, status=status, why=why)
    except Exception as error:
        frames, stack = frames_of(error, watch)
        return TrialRun(
            operator=subject.name,
            trial=name,
            status="failed",
            inputs="" if subject.now is None else str(subject.now),
            raised=raised_of(error),
            frames=frames[-200:],
            stack=stack[-200:],
            events=tuple(watch.events[noted:]),
        )
    return TrialRun(operator=subject.name, trial=name, status="passed")
