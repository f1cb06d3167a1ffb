"""The trials: each runs an operator in one way, in a copy of this process, so that a crash ends only its own trial.

A trial is a function of a `Subject`. It returns if it passes, raises `NotNeededError` if there is nothing to
try, and raises another error if the operator fails. It calls the operator on copies of the inputs, and checks them.
"""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import torch

from dispatchlab.live.failure.fake_body import Call, body_in_a_copy
from dispatchlab.live.failure.program_watch import frames_of, raised_of
from dispatchlab.live.introspection.process_copies import ProcessCopy, Say, how_it_ended
from dispatchlab.live.trials import behaviour, transforms
from dispatchlab.live.trials.inputs import KEPT, NothingTriedError
from dispatchlab.live.trials.subject import NotNeededError, Subject, Trial, WrongResultError
from dispatchlab.model.failure import Raised
from dispatchlab.model.trial_run import TrialRun

TRIALS: Final[dict[str, Trial]] = {
    "signature": behaviour.signature,
    "call": behaviour.call,
    "schema": behaviour.schema,
    "fake": behaviour.fake,
    "autograd registration": behaviour.autograd_registration,
    "backward": transforms.backward,
    "vmap": transforms.vmap,
    "autocast": transforms.autocast,
    "functionalize": transforms.functionalize,
    "AOT": transforms.aot,
    "compile with a consumer": transforms.compile_consumer,
    "compile before a write": transforms.compile_write,
}
"""The trials, in the order in which they are run."""

COMPILED: Final = ("AOT", "compile with a consumer", "compile before a write")
"""Those that need a compiler."""

_HEAP: Final = re.compile(r"^(?:free|malloc|realloc|munmap_chunk|corrupted|double free)\b.*", re.MULTILINE)
_WHAT: Final = re.compile(r"^\s*what\(\):\s*(.*)$", re.MULTILINE)
_FIRST: Final = ("call", "schema")
_BY_VALUES: Final = (signal.SIGABRT, signal.SIGFPE, signal.SIGSEGV)
"""Signals that a kernel in C++ gets for values that no caller gives, such as an index that is out of range.

An exception that it does not catch ends in `what():`, and is no such signal.
"""

_LIMIT_S: Final = 10.0
_PROCESSOR_S: Final = 5.0  # on generated inputs, on which an operator may never end
_RUN_AGAIN: Final = 10
"""How many failures of one kind are run again in forks of their own."""

_LONG_S: Final = 300.0


def run_all_trials(subjects: Sequence[Subject], names: Sequence[str], *, most: int = KEPT) -> Iterator[TrialRun]:
    """Run the trials of many operators in one fork. If an operator fails, run its trials again in a separate fork.

    An operator may leave something behind that changes the next result. So a failure counts if it happens in a
    separate fork, too, or if others of the same kind did.

    Args:
        subjects: the operators.
        names: the trials, in order.
        most: the number of generated inputs of an operator in the first fork.
    """
    left, limit_s = list(subjects), _LIMIT_S
    again = Counter[tuple[str, str]]()
    while left:
        runs: list[TrialRun] = []
        copy = ProcessCopy(partial(_run_all, tuple(left), names, most))
        try:
            for run in copy.answers(partial(lambda few: _LONG_S if left[0].given or left[0].noted else few, limit_s)):
                runs.append(run)
                if len(runs) < len(names):
                    continue
                subject, failures = left.pop(0), {(run.trial, run.error) for run in runs if run.status == "failed"}
                kinds = {(trial, error.partition(":")[0]) for trial, error in failures}
                if any(again[kind] < _RUN_AGAIN for kind in kinds):
                    again.update(kinds)
                    runs = list(run_trials(subject, names))
                yield from runs
                runs = []
                if not left:
                    return
            yield from run_trials(left.pop(0), names)
        except TimeoutError:
            limit_s = max(1.0, limit_s / 2)
            yield from runs
            yield _silent(left.pop(0), names[len(runs)])


def _run_all(subjects: Sequence[Subject], names: Sequence[str], most: int, say: Say) -> None:
    for subject in subjects:
        subject.most = most
        for name in names:
            say(run_trial(subject, name))


def _silent(subject: Subject, name: str) -> TrialRun:
    return TrialRun(operator=subject.name, trial=name, status="open", why="there is no answer in time")


def run_trials(subject: Subject, names: Sequence[str], *, before: str = "") -> Iterator[TrialRun]:
    """Run the trials of an operator in a fork. After a crash, run the remaining trials in another fork.

    Args:
        subject: the operator.
        names: the trials, in order.
        before: statements to run first, such as a fix.
    """
    left, chosen = list(names), subject.given or subject.noted
    while left:
        copy = ProcessCopy(partial(_run, subject, tuple(left), before))
        try:
            for run in copy.answers(lambda: _LONG_S if chosen or left[0] in COMPILED else _LIMIT_S):
                left.pop(0)
                yield run
                if not left:
                    return
            said = _WHAT.findall(copy.printed())
            broken = -copy.code in _BY_VALUES or _HEAP.search(copy.printed())
            if broken and left[0] in _FIRST and not said and not subject.given:
                why = f"{how_it_ended(copy.code)} on a generated input, which the operator may not be meant for"
                yield TrialRun(operator=subject.name, trial=left[0], status="open", why=why)
                return
            text = said[-1] if said else f"the process ended with exit code {copy.code}"
            raised = (Raised("builtins.RuntimeError", text),)
            yield TrialRun(operator=subject.name, trial=left.pop(0), status="failed", raised=raised)
        except TimeoutError:
            yield _silent(subject, name := left.pop(0))
            if name in _FIRST:  # every other trial needs the call, too
                return


def _run(subject: Subject, names: Sequence[str], before: str, say: Say) -> None:
    """Run trials in this process, which is a fork, and report each result."""
    exec(compile(before, "<fix>", "exec"), {"torch": torch})
    for earlier in _FIRST:
        if earlier not in names:  # a trial after it has ended the process: what it found is needed again
            with suppress(Exception):
                TRIALS[earlier](subject)
    for name in names:
        say(run_trial(subject, name))


def run_trial(subject: Subject, name: str) -> TrialRun:
    """Run one trial in this process, which is a fork."""
    outcome = partial(TrialRun, operator=subject.name, trial=name)
    noted, subject.reached = len(subject.watch.events), subject.device * (name != "signature")
    signal.setitimer(signal.ITIMER_PROF, 0 if name in COMPILED or subject.given or subject.noted else _PROCESSOR_S)
    try:
        subject.now = None
        if subject.run is None:
            TRIALS[name](subject)
        else:
            subject.run(subject, name, TRIALS[name])
    except (NotNeededError, NothingTriedError) as nothing:
        return outcome(status="not needed" if isinstance(nothing, NotNeededError) else "no input", why=str(nothing))
    except Exception as error:
        frames, stack = frames_of(error, subject.watch)
        if name == "fake" and isinstance(error, WrongResultError) and (now := subject.now):
            subject.watch.note("fake body", subject.name, body_in_a_copy(Call(subject.op, now.positional, now.named)))
        return outcome(
            status="failed",
            device=subject.reached,
            inputs=str(subject.now or ""),
            raised=raised_of(error),
            frames=frames[-200:],
            stack=stack[-200:],
            events=tuple(event for event in subject.watch.events if event.subject == subject.name),
        )
    finally:
        if name not in _FIRST:  # what they found counts for those after them
            del subject.watch.events[noted:]
    return outcome(status="passed", device=subject.reached)
