"""Run the trials of an operator in a copy of this process, so that a crash costs its own trial."""

from __future__ import annotations

import multiprocessing
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Final

from dispatchlab.live.failure.program_watch import frames_of, raised_of
from dispatchlab.live.trials.subject import NothingTriedError, NotNeededError, Subject
from dispatchlab.live.trials.trials import COMPILED, TRIALS
from dispatchlab.model.failure import Raised
from dispatchlab.model.trial_run import TrialRun

_WHAT: Final = re.compile(r"^\s*what\(\):\s*(.*)$", re.MULTILINE)
_LIMIT_S: Final = 10.0
_COMPILED_LIMIT_S: Final = 300.0


def run_trials(subject: Subject, names: Sequence[str], *, before: str = "") -> Iterator[TrialRun]:
    """Run trials of an operator in a fork, and those after a crash in another one.

    Args:
        subject: the operator.
        names: the trials, in order.
        before: statements that are run first, such as a fix.
    """
    context: Any = multiprocessing.get_context("fork")
    left = list(names)
    while left:
        outcome = partial(TrialRun, operator=subject.name, trial=left[0])
        with tempfile.TemporaryFile() as output:
            answers, answered = context.Pipe(duplex=False)
            process = context.Process(target=_run, args=(answered, output.fileno(), subject, tuple(left), before))
            process.start()
            answered.close()
            try:
                while left:
                    outcome = partial(TrialRun, operator=subject.name, trial=left[0])
                    if not answers.poll(_COMPILED_LIMIT_S if left[0] in COMPILED else _LIMIT_S):
                        yield outcome(status="open", why="there is no answer in time")
                        break
                    yield answers.recv()
                    left.pop(0)
                else:
                    return
            except EOFError:
                process.join()
                output.seek(0)
                said = _WHAT.findall(output.read().decode(errors="replace"))
                text = said[-1] if said else f"the process ended with exit code {process.exitcode}"
                yield outcome(status="failed", raised=(Raised("builtins.RuntimeError", text),))
            finally:
                process.kill()
                process.join()
                answers.close()
        left.pop(0)


def _run(answered: Connection, output: int, subject: Subject, names: Sequence[str], before: str) -> None:
    """Run trials in this process, which is a fork, and send what came of each."""
    import torch

    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    sys.stdout, sys.stderr = (os.fdopen(os.dup(output), "w", buffering=1) for _ in range(2))
    torch.set_num_threads(1)
    exec(compile(before, "<fix>", "exec"), {"torch": torch})
    for earlier in ("call", "schema"):
        if earlier not in names:  # a trial after it has ended the process: what it found is needed again
            with suppress(Exception):
                TRIALS[earlier](subject)
    for name in names:
        answered.send(run_trial(subject, name))


def run_trial(subject: Subject, name: str) -> TrialRun:
    """Run one trial in this process."""
    outcome = partial(TrialRun, operator=subject.name, trial=name)
    try:
        subject.run(TRIALS[name])
    except NotNeededError as nothing:
        return outcome(status="not needed", why=str(nothing))
    except NothingTriedError as nothing:
        return outcome(status="no input", why=str(nothing))
    except Exception as error:
        frames, stack = frames_of(error, subject.watch)
        return outcome(
            status="failed",
            inputs=str(subject.now or ""),
            raised=raised_of(error),
            frames=frames[-200:],
            stack=stack[-200:],
            events=tuple(event for event in subject.watch.events if event.subject == subject.name),
        )
    return outcome(status="passed")
