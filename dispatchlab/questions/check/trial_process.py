"""The process that imports packages and runs the trials of their operators.

python -m dispatchlab.questions.check.trial_process ANSWER_FILE REQUEST_FILE
"""

from __future__ import annotations

import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Final

from dispatchlab.live.failure.operator_facts import InstalledRegistry, privateuse1_name
from dispatchlab.live.failure.program_watch import frames_of, raised_of
from dispatchlab.live.introspection.registry_reader import all_dumps
from dispatchlab.live.trials.forks import run_trials
from dispatchlab.live.trials.inputs import InputsError, read_inputs
from dispatchlab.live.trials.package_watch import PackageWatch
from dispatchlab.live.trials.subject import Subject
from dispatchlab.live.trials.trials import COMPILED, TRIALS
from dispatchlab.model.failure import Event, Failure, Fix, Raised, Trial
from dispatchlab.model.trial_run import TrialRun
from dispatchlab.questions.why.diagnose import Answer, diagnose

_LIMIT_S: Final = 10.0
_WHOLE_S: Final = 3000.0
_BACKENDS: Final = ("CPU", "CUDA", "MPS", "XPU", "HPU", "XLA", "MTIA", "PrivateUse1")


@dataclass(frozen=True, slots=True)
class TrialRequest:
    """What is asked.

    Args:
        packages: the modules, imported in this order.
        path: folders in which modules are found.
        inputs: a file of inputs; empty for none.
        whole: run the trials that need a compiler, too.
        budget_s: no trial is begun later than this.
        seed: chooses generated inputs.
    """

    packages: tuple[str, ...]
    path: tuple[str, ...] = ()
    inputs: str = ""
    whole: bool = False
    budget_s: float = 90.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class TrialAnswer:
    """What came of the trials.

    Args:
        runs: each trial of each operator, with the cause of those that failed.
        error: what is wrong with the inputs; empty where nothing is.
    """

    runs: tuple[tuple[TrialRun, Answer | None], ...] = ()
    error: str = ""


def main(arguments: Sequence[str]) -> int:
    """Answer a request."""
    answer_file, request_file = arguments
    request: TrialRequest = pickle.loads(Path(request_file).read_bytes())
    os.environ.update(TORCHINDUCTOR_FORCE_DISABLE_CACHES="1", TORCHINDUCTOR_COMPILE_THREADS="1")  # caches go by names
    sys.path[:] = [each for each in request.path if each not in sys.path] + sys.path
    try:
        answer = TrialAnswer(tuple(_runs(request)))
    except InputsError as error:
        answer = TrialAnswer(error=str(error))
    Path(answer_file).write_bytes(pickle.dumps(answer))
    return 0


def _runs(request: TrialRequest) -> Iterator[tuple[TrialRun, Answer | None]]:
    watch = PackageWatch(os.getcwd(), request.packages)
    watch.start()
    import_module("torch")
    for module in (
        "torch._dynamo",
        "torch.fx.experimental.symbolic_shapes",
        *["torch._inductor.compile_fx"] * request.whole,
    ):
        import_module(module)  # before what registers operators of its own is compared, and once for all forks
    watch.watch_functions()
    before = all_dumps()
    for package in request.packages:
        try:
            import_module(package)
        except Exception as error:
            yield _failed_import(package, error, watch)
            return
    given = read_inputs(request.inputs) if request.inputs else {}
    yield from ((run, _answer(run, watch)) for run in registration_runs(watch))
    end = time.monotonic() + (_WHOLE_S if request.whole else request.budget_s)
    names = [name for name in TRIALS if request.whole or name not in COMPILED]
    after = all_dumps()
    changed = [name for name, dump in after.items() if before.get(name) != dump]
    for operator in sorted(changed):
        functions = tuple(each for each in watch.functions if each.operator == operator)
        subject = Subject(operator, functions, watch, given.get(operator, ()), operator in watch.unknown, request.seed)
        left = end - time.monotonic()
        if left <= 0:
            yield from (
                (TrialRun(operator=operator, trial=name, status="open", why="out of time"), None) for name in names
            )
            continue
        for run in run_trials(subject, names, limit_s=_LIMIT_S):
            yield run, _answer(run, watch, partial(_try_fix, run=run, subject=subject))


def registration_runs(watch: PackageWatch) -> Iterator[TrialRun]:
    """Return what is wrong with registrations as such: those that are gone, and custom operators that were replaced."""
    registry = InstalledRegistry()
    made: dict[str, Event] = {}
    for event in watch.events:
        packet, name = event.subject.partition(".")[0], event.subject
        if event.kind == "custom_op" and (earlier := made.get(name)) is not None and earlier.at != event.at:
            raised = Raised("builtins.AssertionError", f"{name} is made twice")
            yield _noted(name, raised, Event("replaced", name, "", event.at))
        if event.kind not in ("define", "impl", "custom_op") or event.at is None:
            continue
        if event.kind == "custom_op":
            made[name] = event
        facts = registry.operator(name)
        namespace, _, base = packet.partition("::")
        if event.kind == "impl" and facts is not None and facts.schema:
            if event.detail in _BACKENDS and "CompositeImplicitAutograd" in facts.kernels:
                formula = registry.operator(f"{packet}_backward") if "Autograd" in facts.kernels else None
                has = {f"Autograd{event.detail}"} & {*facts.kernels} or (formula and event.detail in formula.kernels)
                if not has and event.subject.startswith("aten::"):
                    yield _noted(
                        name,
                        Raised("builtins.AssertionError", f"{name} is composite, and {event.detail} overrides it"),
                        Event("overrides composite", name, event.detail, event.at),
                    )
            if event.detail not in facts.kernels and not _was_destroyed(watch, name, event.detail):
                text = f"Could not run '{name}' with arguments from the '{event.detail}' backend."
                yield _noted(
                    name,
                    Raised("builtins.NotImplementedError", text),
                    Event("collected", name, event.detail, event.at),
                )
        elif event.kind == "define" and (facts is None or not facts.schema) and name not in watch.destroyed:
            text = f"'_OpNamespace' '{namespace}' object has no attribute '{base}'"
            yield _noted(name, Raised("builtins.AttributeError", text), Event("collected", name, "def", event.at))


def _was_destroyed(watch: PackageWatch, name: str, key: str) -> bool:
    return f"{name.replace('::', '/')}/{key}" in watch.destroyed


def _noted(name: str, raised: Raised, event: Event) -> TrialRun:
    frames = () if event.at is None else (event.at,)
    return TrialRun(
        operator=name, trial="registrations", status="failed", raised=(raised,), frames=frames, events=(event,)
    )


def _failed_import(package: str, error: Exception, watch: PackageWatch) -> tuple[TrialRun, Answer | None]:
    frames, stack = frames_of(error, watch)
    run = TrialRun(
        operator=package, trial="import", status="failed", raised=raised_of(error), frames=frames, stack=stack
    )
    return run, _answer(run, watch)


def _answer(run: TrialRun, watch: PackageWatch, attempt: Callable[[Fix], Trial] | None = None) -> Answer | None:
    if run.status != "failed":
        return None
    packet = run.operator.partition(".")[0]
    about = ("define", "impl", "custom_op", "register_fake", "register_autograd")
    events = [
        event
        for event in (*watch.events, *run.events)
        if event.kind not in about or event.subject.partition(".")[0] == packet or run.trial == "import"
    ]
    call = f"torch.ops.{packet.replace('::', '.')}{run.inputs or '(...)'}"
    stack = (*run.stack, "torch._ops.__call__")
    failure = Failure(
        run.raised, run.frames, tuple(events), InstalledRegistry(), stack=stack, device=privateuse1_name(), call=call
    )
    return diagnose(failure, attempt)


def _try_fix(fix: Fix, *, run: TrialRun, subject: Subject) -> Trial:
    """Apply a fix in a fork and run the trial again."""
    if fix.needs:
        return Trial(fix, "not tried", f"it needs {fix.needs}")
    if not fix.code:
        return Trial(fix, "not tried", "it is an edit of your package")
    names = list(dict.fromkeys(("call", run.trial)))
    runs = list(run_trials(subject, names, limit_s=_LIMIT_S, before=fix.code))
    bad = next((each for each in runs if each.status == "failed"), None)
    return Trial(fix, "works") if bad is None else Trial(fix, "fails", bad.error)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
