"""The trials of packages' operators, in a copy of the worker that has imported the packages."""

from __future__ import annotations

import gc
import io
import os
import pickle
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from typing import Any, Final

from dispatchlab.errors import did_you_mean
from dispatchlab.live.bridge.torch import ImportFailedError
from dispatchlab.live.device_trials import fallback_text, own_trial
from dispatchlab.live.failure.operator_facts import InstalledRegistry, privateuse1_name
from dispatchlab.live.failure.program_watch import ProgramWatch, frames_of, raised_of
from dispatchlab.live.failure.torch_watch import start
from dispatchlab.live.introspection.process_copies import ProcessCopy, Say, how_it_ended
from dispatchlab.live.introspection.registry_reader import all_dumps
from dispatchlab.live.introspection.site_log import running_ownership
from dispatchlab.live.recording.order_runs import copy_for_orders
from dispatchlab.live.recording.package_facts import PackageFacts, package_facts
from dispatchlab.live.recording.record_package import PackageRecord
from dispatchlab.live.trials.inputs import NOTED, InputsError, noted_inputs, read_inputs
from dispatchlab.live.trials.subject import Subject
from dispatchlab.live.trials.trials import COMPILED, TRIALS, run_all_trials, run_trials
from dispatchlab.model.failure import Event, Failure, Fix, Position, Raised, Trial
from dispatchlab.model.names import is_chosen
from dispatchlab.model.trial_run import BY_FALLBACK, TrialRun
from dispatchlab.processes import NoForkError
from dispatchlab.questions.check.trials import Run, TrialRequest, TrialsFailedError
from dispatchlab.questions.why.diagnose import Answer, diagnose
from dispatchlab.registries.debug_text import sites_in
from dispatchlab.registries.model import read_dump

_ALL_TRIALS: Final = 40
"""Of so many operators all trials are run that need no compiler."""

_SOME_TRIALS: Final = 300
"""Of so many operators the most telling trials are run, with one input that their calls take."""

_TELLING: Final = ("signature", "call", "schema", "fake")
_TRIED_FIXES: Final = 5
"""For so many failures of one kind the fix is tried."""

_trials: Final[list[ProcessCopy]] = []
_results: Final = tempfile.TemporaryFile()  # noqa: SIM115  # the planned trials, then each result as it comes
_failed_imports: Final[list[Run]] = []
_BACKENDS: Final = ("CPU", "CUDA", "MPS", "XPU", "HPU", "XLA", "MTIA", "PrivateUse1")
_SERVED: Final = (
    *("aten::relu", "aten::trace", "aten::nonzero", "aten::equal", "aten::var_mean.correction", "aten::tril_indices"),
    *("aten::masked_fill_.Scalar", "aten::cumsum.out", "aten::cat.out"),
)
"""Operators that a fallback may serve, of each kind: results, factories, in-place and out, lists of tensors."""
_ABOUT: Final = ("define", "impl", "custom_op")
_MADE_FOR: Final = {"fake": "register_fake", "backward": "register_autograd", "vmap": "register_vmap"}
"""The events that registered what a trial tests."""


def facts_and_trials(request: TrialRequest) -> PackageFacts:
    """Import packages, start the trials of their operators in a copy of this process, and return the facts.

    Raises:
        ImportFailedError: a package cannot be imported; `trial_runs` returns why.
    """
    sys.path[:] = [each for each in request.path if each not in sys.path] + sys.path
    with suppress(NoForkError):
        if request.orders and len(request.packages) + len(request.submodules) > 1:
            copy_for_orders()
    warnings.simplefilter("default")
    vars(warnings)["showwarning"] = lambda *_, **__: None  # the watch notes them
    watch = ProgramWatch(os.getcwd(), request.packages)
    start(watch)
    before = all_dumps()

    def failed(error: ImportFailedError) -> None:
        raised = error.__cause__ or error
        frames, stack = frames_of(raised, watch)
        run = TrialRun(
            operator=error.module, trial="import", status="failed", raised=raised_of(raised), frames=frames, stack=stack
        )
        answer = _answer(run, watch)
        if error.module in request.packages or (answer is not None and answer.dispatcher):
            _failed_imports.append((run, answer))

    def tried(foreign: Collection[str], say: Say) -> None:
        gc.enable()
        try:
            for result in _runs(request, watch, before, foreign):
                pickle.dump(result, _results)
                _results.flush()  # what is there counts, however this process ends
            say("")
        except InputsError as error:
            say(str(error))

    def recorded(record: PackageRecord) -> None:
        if request.trials:
            with suppress(NoForkError):
                _trials.append(ProcessCopy(partial(tried, record.foreign(request.packages))))

    return package_facts(request.packages, request.submodules, failed=failed, recorded=recorded)


def trial_runs(limit_s: float) -> list[Run]:
    """Return the results of the trials and what was not tried until the limit.

    Raises:
        TrialsFailedError: the trials had not begun, or the inputs have a mistake.
    """
    runs = list(_failed_imports)
    if not runs and not hasattr(os, "fork"):
        raise TrialsFailedError(str(NoForkError()))
    for copy in _trials:
        try:
            answer = next(copy.answers(lambda: limit_s), None)
        except TimeoutError:
            answer, reason = None, f"there is no answer within {limit_s:g} s"
        else:
            last = copy.printed().strip().rpartition(chr(10))[2]
            reason = f"their process ended with {how_it_ended(copy.code)}: {last}"
        planned, *found = _written() or [[]]
        if answer or (answer is None and not planned):
            raise TrialsFailedError(str(answer or reason))
        runs += found
        tried = {run.operator for run, _ in found if run.trial in TRIALS}
        runs += [(replace(run, why=reason), None) for run in planned if answer is None and run.operator not in tried]
    return runs


def _written() -> list[Any]:
    """Return what the trials wrote; the end may be cut."""
    data = io.BytesIO(os.pread(_results.fileno(), os.fstat(_results.fileno()).st_size, 0))
    written: list[Any] = []
    with suppress(EOFError, pickle.UnpicklingError):
        while True:
            written.append(pickle.load(data))
    return written


def _runs(
    request: TrialRequest, watch: ProgramWatch, before: Mapping[str, str], foreign: Collection[str]
) -> Iterator[list[TrialRun] | Run]:
    """Return the planned trials, and then the results, without operators that only other packages register."""

    def is_tried(operator: str) -> bool:
        return operator not in foreign and is_chosen(operator, request.operators)

    os.environ.update(TORCHINDUCTOR_FORCE_DISABLE_CACHES="1", TORCHINDUCTOR_COMPILE_THREADS="1")  # caches go by names
    ownership = running_ownership()  # importing a package may import parts of PyTorch that register
    dumps = all_dumps()
    operators = [
        operator
        for operator, dump in sorted(dumps.items())
        if before.get(operator) != dump and not ownership.is_own_operator(read_dump(dump)) and is_tried(operator)
    ]
    given = read_inputs(request.inputs) if request.inputs else {}
    for unknown in given.keys() - dumps:
        raise InputsError(f"{request.inputs}: there is no operator {unknown}{did_you_mean(unknown, operators)}")
    others = [name for name in dict.fromkeys((*given, *_SERVED)) if name not in operators and is_tried(name)]
    served = [*filter(fallback_text, others)]
    operators += served
    unused = sorted({*given}.intersection(others).difference(served))
    trials = [name for name in TRIALS if request.whole or name not in COMPILED]
    yield [TrialRun(operator=each, trial=name, status="not tried") for each in operators for name in trials]
    yield from ((run, _answer(run, watch)) for run in _registration_runs(watch) if is_tried(run.operator))
    if unused:
        why = f"inputs of {', '.join(unused)} are not used, because no kernel of the package serves these operators"
        yield TrialRun(operator="", trial=request.inputs, status="open", why=why), None
    if not operators:
        return
    for module in (  # once for all forks
        "torch._dynamo",
        "torch.fx.experimental.symbolic_shapes",
        *["torch.testing._internal.optests"] * request.whole,
    ):
        import_module(module)
    noted: Mapping[str, list[Any]] = {}
    try:
        noted = noted_inputs()
    except Exception as error:
        said = f"{type(error).__name__} {error}".partition("\n")[0].strip()
        why = f"the stored inputs of your tests cannot be loaded, so inputs are generated: {said}"
        yield TrialRun(operator="", trial=str(NOTED), status="open", why=why), None
    subjects = {
        operator: Subject(
            operator,
            watch,
            given.get(operator, ()),
            noted.get(operator, []) + noted.get(operator.partition(".")[0], []),
            request.seed,
            run=own_trial(operator, before, dumps),
        )
        for operator in operators
    }
    whole = (run for subject in subjects.values() for run in run_trials(subject, [*TRIALS]))
    attempts = Counter[str]()
    for found in whole if request.whole else _most_telling([*subjects.values()]):
        is_served = found.operator in served and found.trial == "call"
        run = replace(found, why=BY_FALLBACK) if is_served and found.status != "open" else found
        kind = f"{run.trial} {run.error.partition(':')[0]}"
        attempts[kind] += run.status == "failed"
        attempt = partial(_try_fix, run=run, subject=subjects[run.operator])
        yield run, _answer(run, watch, attempt if request.whole or attempts[kind] <= _TRIED_FIXES else None)


def _most_telling(subjects: Sequence[Subject]) -> Iterator[TrialRun]:
    """Run the trials that need no compiler: all trials for a few operators, the most important trials for many.

    If the user gave inputs for an operator, all its trials run.
    """
    plain = [name for name in TRIALS if name not in COMPILED]
    if len(subjects) <= _ALL_TRIALS:
        yield from run_all_trials(subjects, plain)
        return
    yield from run_all_trials([subject for subject in subjects if subject.given], plain)
    generated = [subject for subject in subjects if not subject.given]
    some, others = generated[:_SOME_TRIALS], generated[_SOME_TRIALS:]
    yield from run_all_trials(some, _TELLING, most=1)
    left_out = [(subject, name) for subject in some for name in plain if name not in _TELLING]
    for subject, name in (*left_out, *((subject, name) for subject in others for name in plain)):
        yield TrialRun(operator=subject.name, trial=name, status="not tried", why="there are many operators")


def _registration_runs(watch: ProgramWatch) -> Iterator[TrialRun]:
    """Return mistakes in the registrations themselves: released, replaced, or hiding a composite."""
    facts_of = cache(InstalledRegistry().operator)
    made: dict[str, Event] = {}
    for event in [each for each in watch.events if each.kind in _ABOUT and each.at is not None]:
        name, key = event.subject, event.detail
        packet = name.partition(".")[0]
        facts = facts_of(name)
        frames = (event.at,) if event.at else ()
        run = partial(TrialRun, operator=name, trial="registrations", status="failed", frames=frames)
        if event.kind == "custom_op":
            if made.setdefault(name, event).at != event.at:
                raised = Raised("builtins.AssertionError", f"{name} is made twice")
                yield run(raised=(raised,), events=(Event("replaced", name, "", event.at),))
            for kernel in [each for each in made if each.startswith(f"{name} ")]:  # of what was replaced
                del made[kernel]
        elif event.kind == "define" and (facts is None or not facts.schema) and name not in watch.destroyed:
            namespace, _, base = packet.partition("::")
            text = f"'_OpNamespace' '{namespace}' object has no attribute '{base}'"
            yield run(raised=(Raised("builtins.AttributeError", text),))
        elif event.kind == "impl" and (facts is None or facts.schema or not facts.kernels):
            kernels = facts.kernels if facts else {}
            if facts and facts.custom_op and made.setdefault(f"{name} {key}", event).at != event.at:
                raised = Raised("builtins.AssertionError", f"{name} has two kernels for {key}")
                yield run(trial="overrides", raised=(raised,))
            gone = key not in kernels and f"{name.replace('::', '/')}/{key}" not in watch.destroyed
            backward = f"{packet}_backward"
            formula = facts_of(backward) if "Autograd" in kernels else None
            hides = key in _BACKENDS and "CompositeImplicitAutograd" in kernels and formula is not None
            covered = f"Autograd{key}" in kernels or (formula is not None and key in formula.kernels)
            if gone or (hides and not covered):
                text = f"Could not run '{name if gone else backward}' with arguments from the '{key}' backend."
                yield run(raised=(Raised("builtins.NotImplementedError", text),))


def _answer(run: TrialRun, watch: ProgramWatch, attempt: Callable[[Fix], Trial] | None = None) -> Answer | None:
    """Return the cause of a failed trial, from the events of its operator."""
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
        call="" if run.trial == "import" else f"torch.ops.{packet.replace('::', '.')}{run.inputs or '(...)'}",
        fake_body=lambda _: next((event.detail for event in run.events if event.kind == "fake body"), ""),
    )
    answer = diagnose(failure, attempt)
    return replace(answer, at=answer.at or _registered_at(run, watch))


def _registered_at(run: TrialRun, watch: ProgramWatch) -> Position | None:
    """Return the line that registered what a trial tests, else the operator; None if unknown."""
    functions = [event for event in run.events if event.kind == "function" and event.detail == run.trial]
    functions += [each for each in watch.events if each.kind == "fallback" and run.why == BY_FALLBACK]
    tested = [*functions, *(event for event in run.events if event.kind == _MADE_FOR.get(run.trial))]
    made = [event for event in run.events if event.kind in _ABOUT and event.detail != "Meta"]  # a fake kernel, too
    at = next((event.at for event in (*tested, *made) if event.at is not None), None)
    facts = InstalledRegistry().operator(run.operator) if at is None else None
    sites = () if facts is None else (*map(facts.kernels.get, (*_BACKENDS, *facts.kernels)), facts.site)
    sites = (fallback_text(run.operator),) if run.why == BY_FALLBACK else sites
    return at or next((Position(path, line) for debug in sites for path, line in sites_in(debug or "")), None)


def _try_fix(fix: Fix, *, run: TrialRun, subject: Subject) -> Trial:
    """Apply a fix in a fork and run the trial again."""
    if fix.needs or not fix.code:
        return Trial(fix, "not tried", f"it needs {fix.needs}" if fix.needs else "it is an edit of your package")
    runs = list(run_trials(subject, list(dict.fromkeys(("call", run.trial))), before=fix.code))
    bad = next((each for each in runs if each.status == "failed"), None)
    return Trial(fix, "works") if bad is None else Trial(fix, "fails", bad.error)
