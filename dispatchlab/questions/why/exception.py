"""Explain an exception from the PyTorch of this process, and try the fixes in forks."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import chain
from time import monotonic
from types import TracebackType
from typing import Any, Final

from dispatchlab.live.failure.failing_frame import events_of_frames
from dispatchlab.live.failure.failing_part import failing_part
from dispatchlab.live.failure.fake_body import Call, calls_of, fake_body
from dispatchlab.live.failure.fix_trial import failing_call, try_fix
from dispatchlab.live.failure.gradient_cut import gradient_cut
from dispatchlab.live.failure.operator_facts import InstalledRegistry, privateuse1_name
from dispatchlab.live.failure.program_watch import ProgramWatch, frames_of, raised_of
from dispatchlab.live.failure.torch_watch import start
from dispatchlab.live.introspection.process_copies import CopyEndedError, in_a_copy
from dispatchlab.model.failure import Event, EventKind, Failure, Fix, Trial
from dispatchlab.model.trial_run import TrialRun
from dispatchlab.questions.why.answer_blocks import why_view
from dispatchlab.questions.why.diagnose import Answer, diagnose

_LONGEST_S: Final = {False: 20.0, True: 2.0}  # of all trials; true if the program ended well
_OF_SHAPES: Final = re.compile(r"shape|size|dim|mat1|dtype|must be long|scalar type", re.IGNORECASE)
_TRACED: Final = re.compile(r"fake_tensor|_dynamo|_inductor|_functorch")

UNTRIED: Final = "an operator of a program that ended well is not tried"


def why_exception(
    error: BaseException,
    watch: ProgramWatch,
    *,
    later: Iterable[Event] = (),
    again: Callable[[Fix], Trial] | None = None,
) -> Answer:
    """Return the reason of an exception.

    Args:
        error: the exception, with its traceback.
        watch: the events before.
        later: the events in other processes.
        again: a function that tries a fix in another run of the whole program.
    """
    call = None
    with suppress(Exception):
        call = failing_call(error, watch)
    frames, stack = frames_of(error, watch)
    failure = Failure(
        raised_of(error),
        frames,
        (
            *(event for event in watch.events if event.kind != "wrote nothing"),
            *later,
            *events_of_frames(error, watch),
            *gradient_cut(error, call),
            *_failed_trials(error, stack, watch),
        ),
        InstalledRegistry(),
        stack=stack,
        device=privateuse1_name(),
        call="" if call is None else call.text,
        source=failing_part(frames),
        fake_body=lambda name: fake_body(name, error, watch),
    )
    return diagnose(failure, lambda fix: again(fix) if fix.again and again else try_fix(fix, call))


def _failed_trials(error: BaseException, stack: Sequence[str], watch: ProgramWatch) -> Iterator[Event]:
    """Return the operators whose formula, fake kernel or rule for vmap is wrong, where that can be the cause.

    The trials take the arguments of the operator's first call, or of a call that Dynamo traced.
    """
    ended_well, events = str(error) == UNTRIED, watch.events
    todo: list[tuple[EventKind, str, Event]] = []
    traced, compiled = _OF_SHAPES.search(str(error)) and _TRACED.search(" ".join(stack)), False
    if isinstance(error, AssertionError) or ended_well:
        compiled = any(event.kind == "compiled" for event in events)
        todo += [("formula differs", "backward", each) for each in events if each.detail in ("backward", "Function")]
        silent = [each for each in events if each.kind == "wrote nothing" and each.subject not in watch.wrote]
        todo += [("wrote nothing", "schema", event) for event in silent]
    if isinstance(error, AssertionError):
        todo += [("rule differs", "vmap", event) for event in events if event.detail == "FuncTorchBatched"]
        todo += [("ignores strides", "call", event) for event in events if event.kind in ("custom_op", "impl")]
    if traced or compiled or ended_well:
        todo += [("fake differs", "fake", event) for event in events if event.kind == "register_fake"]
    strides, end = "stride" in str(error) or (ended_well and compiled), monotonic() + _LONGEST_S[ended_well]
    for kind, trial, event in todo if hasattr(os, "fork") else ():
        calls = chain[Any](watch.calls.get(event.subject, ()), calls_of(event.subject, error))
        if (call := next(calls, None)) is None:
            continue
        with suppress(TimeoutError, CopyEndedError):
            found = in_a_copy(partial(_run_trial, trial, event.subject, call, watch), end - monotonic())
            shown = f": (shape|dtype{'|strides' * strides})" if trial == "fake" else ""
            if found.error.startswith("WrongResultError") and re.search(shown, found.error):
                detail = event.detail if trial == "schema" else re.split(r": |gives (?=a slope)", found.error)[-1]
                yield Event(kind, event.subject, detail, event.at)


def _run_trial(trial: str, name: str, call: Any, watch: ProgramWatch) -> TrialRun:
    """Run a trial with the arguments of a call; this makes tensors, so it runs in a copy of the process."""
    from dispatchlab.live.trials.inputs import Inputs, operator_of, varied
    from dispatchlab.live.trials.subject import Subject
    from dispatchlab.live.trials.trials import run_trial

    inputs, function = Inputs(*(call.real(0, 0) if isinstance(call, Call) else call)), watch.functions.get(name)
    operator, inputs = (name, inputs) if function is None else operator_of(function, inputs)
    subject = Subject(operator, watch, given=[inputs], inputs=[inputs], most=1)
    if trial == "schema" and not isinstance(call, Call):  # values that it writes, if these were right as they are
        watch.unknown.add(name)
        seeds = [Inputs(*Call(None, *call).real(seed, 0)) for seed in (0, 1, 2, 100, -100)]
        others = (each for one in seeds for each in varied(one, lambda flag: [flag is False] * isinstance(flag, bool)))
        subject.inputs = [*filter(subject.takes, (*seeds, *others))]
    return run_trial(subject, trial)


def watch_exceptions() -> ProgramWatch:
    """Watch this process, and print the reason below each exception that ends it, a thread, or a notebook's cell.

    Call it before torch is imported: registrations that were made before have no lines.
    """
    watch = _watch_process()

    def in_cell(shell: Any, kind: type[BaseException], error: BaseException, at: TracebackType, **_: object) -> None:
        shell.showtraceback()
        _show(error, watch)

    if "IPython" in sys.modules:
        shell = sys.modules["IPython"].get_ipython()
        if shell is not None:
            shell.set_custom_exc((Exception,), in_cell)
    return watch


@cache
def _watch_process() -> ProgramWatch:
    """Watch this process from now on, and show the reason below exceptions that end it or a thread."""
    watch = ProgramWatch(os.getcwd())
    start(watch)
    show, show_of_thread = sys.excepthook, threading.excepthook

    def excepthook(kind: type[BaseException], error: BaseException, at: TracebackType | None) -> None:
        show(kind, error, at)
        _show(error, watch)

    def in_thread(failed: threading.ExceptHookArgs) -> None:
        show_of_thread(failed)
        _show(failed.exc_value, watch)

    sys.excepthook, threading.excepthook = excepthook, in_thread
    return watch


def _show(error: BaseException | None, watch: ProgramWatch) -> None:
    if not isinstance(error, Exception) or "torch" not in sys.modules:
        return
    with suppress(Exception):
        answer = why_exception(error, watch)
        sys.stderr.write(why_view(answer).text() if answer.code else "")
