"""The process that imports packages and runs the trials of their operators."""

from __future__ import annotations

import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Final

from dispatchlab.live.failure.operator_facts import InstalledRegistry, privateuse1_name
from dispatchlab.live.failure.program_watch import ProgramWatch, frames_of, raised_of
from dispatchlab.live.failure.torch_watch import start
from dispatchlab.live.introspection.registry_reader import all_dumps
from dispatchlab.live.introspection.site_log import running_ownership
from dispatchlab.live.trials.inputs import InputsError, noted_inputs, read_inputs
from dispatchlab.live.trials.subject import Subject
from dispatchlab.live.trials.trials import COMPILED, TRIALS, run_trials
from dispatchlab.model.failure import Event, Failure, Fix, Raised, Trial
from dispatchlab.model.trial_run import TrialRun
from dispatchlab.questions.check.trials import Run, TrialRequest
from dispatchlab.questions.why.diagnose import Answer, diagnose
from dispatchlab.registries.model import read_dump

_LONGEST_S: Final = 90.0
_LONGEST_COMPILED_S: Final = 3000.0
_BACKENDS: Final = ("CPU", "CUDA", "MPS", "XPU", "HPU", "XLA", "MTIA", "PrivateUse1")
_ABOUT: Final = ("define", "impl", "custom_op")


def main(arguments: Sequence[str]) -> None:
    """Write the answer to the request in the second file to the first: runs, or mistakes in the inputs."""
    answer_file, request_file = map(Path, arguments)
    request: TrialRequest = pickle.loads(request_file.read_bytes())
    os.environ.update(TORCHINDUCTOR_FORCE_DISABLE_CACHES="1", TORCHINDUCTOR_COMPILE_THREADS="1")  # caches go by names
    sys.path[:] = [each for each in request.path if each not in sys.path] + sys.path
    answer: list[Run] | str
    try:
        answer = list(_runs(request))
    except InputsError as error:
        answer = str(error)
    answer_file.write_bytes(pickle.dumps(answer))
    sys.stdout.flush()
    os._exit(0)  # what a package has started may not end


def _runs(request: TrialRequest) -> Iterator[Run]:
    watch = ProgramWatch(os.getcwd(), request.packages)
    start(watch)
    # Before what registers operators of its own is compared, and once for all forks.
    for module in (
        "torch._dynamo",
        "torch.fx.experimental.symbolic_shapes",
        *["torch.testing._internal.optests"] * request.whole,
    ):
        import_module(module)
    before = all_dumps()
    for package in (*request.packages, *request.submodules):
        try:
            import_module(package)
        except Exception as error:
            frames, stack = frames_of(error, watch)
            outcome = partial(TrialRun, operator=package, trial="import", status="failed")
            run = outcome(raised=raised_of(error), frames=frames, stack=stack)
            answer = _answer(run, watch)
            if package in request.packages:
                yield run, answer
                return
            if answer is not None and answer.dispatcher:
                yield run, answer
    given = read_inputs(request.inputs) if request.inputs else {}
    noted = noted_inputs()
    yield from ((run, _answer(run, watch)) for run in _registration_runs(watch))
    end = time.monotonic() + (_LONGEST_COMPILED_S if request.whole else _LONGEST_S)
    names = [name for name in TRIALS if request.whole or name not in COMPILED]
    ownership = running_ownership()  # importing a package may import parts of PyTorch that register
    for operator, dump in sorted(all_dumps().items()):
        if before.get(operator) == dump or ownership.is_own_operator(read_dump(dump)):
            continue
        if time.monotonic() > end:
            yield TrialRun(operator=operator, trial="call", status="open", why="the time is over"), None
            continue
        calls = noted.get(operator, []) + noted.get(operator.partition(".")[0], [])
        subject = Subject(operator, watch, given.get(operator, ()), calls, request.seed)
        for run in run_trials(subject, names):
            yield run, _answer(run, watch, partial(_try_fix, run=run, subject=subject))


def _registration_runs(watch: ProgramWatch) -> Iterator[TrialRun]:
    """Return the mistakes in registrations as such: gone, replaced, or hiding a composite."""
    registry = InstalledRegistry()
    made: dict[str, Event] = {}
    for event in [each for each in watch.events if each.kind in _ABOUT and each.at is not None]:
        name, key = event.subject, event.detail
        packet = name.partition(".")[0]
        facts = registry.operator(name)
        frames = (event.at,) if event.at else ()
        run = partial(TrialRun, operator=name, trial="registrations", status="failed", frames=frames)
        if event.kind == "custom_op":
            if made.setdefault(name, event).at != event.at:
                raised = Raised("builtins.AssertionError", f"{name} is made twice")
                yield run(raised=(raised,), events=(Event("replaced", name, "", event.at),))
        elif event.kind == "define" and (facts is None or not facts.schema) and name not in watch.destroyed:
            namespace, _, base = packet.partition("::")
            text = f"'_OpNamespace' '{namespace}' object has no attribute '{base}'"
            yield run(raised=(Raised("builtins.AttributeError", text),))
        elif event.kind == "impl" and facts is not None and facts.schema:
            gone = key not in facts.kernels and f"{name.replace('::', '/')}/{key}" not in watch.destroyed
            backward = f"{packet}_backward"
            formula = registry.operator(backward) if "Autograd" in facts.kernels else None
            hides = key in _BACKENDS and "CompositeImplicitAutograd" in facts.kernels and formula is not None
            covered = f"Autograd{key}" in facts.kernels or (formula is not None and key in formula.kernels)
            if gone or (hides and not covered):
                text = f"Could not run '{name if gone else backward}' with arguments from the '{key}' backend."
                yield run(raised=(Raised("builtins.NotImplementedError", text),))


def _answer(run: TrialRun, watch: ProgramWatch, attempt: Callable[[Fix], Trial] | None = None) -> Answer | None:
    """Return the cause of a failed trial, concluded from the events of its operator."""
    if run.status != "failed":
        return None
    packet = run.operator.partition(".")[0]
    about = [
        event
        for event in dict.fromkeys((*watch.events, *run.events))
        if "::" not in event.subject or event.subject.partition(".")[0] == packet or run.trial == "import"
    ]
    unfit = [event.at for event in about if event.kind == "unfit function" and event.at]
    failure = Failure(
        run.raised,
        run.frames or tuple(unfit[:1]),
        tuple(about),
        InstalledRegistry(),
        stack=run.stack,
        device=privateuse1_name(),
        call=f"torch.ops.{packet.replace('::', '.')}{run.inputs or '(...)'}",
    )
    return diagnose(failure, attempt)


def _try_fix(fix: Fix, *, run: TrialRun, subject: Subject) -> Trial:
    """Apply a fix in a fork and run the trial again."""
    if fix.needs or not fix.code:
        return Trial(fix, "not tried", f"it needs {fix.needs}" if fix.needs else "it is an edit of your package")
    runs = list(run_trials(subject, list(dict.fromkeys(("call", run.trial))), before=fix.code))
    bad = next((each for each in runs if each.status == "failed"), None)
    return Trial(fix, "works") if bad is None else Trial(fix, "fails", bad.error)
