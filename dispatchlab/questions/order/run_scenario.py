"""Run a scenario, with all that its report shows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import partial
from time import perf_counter
from typing import Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

from dispatchlab.errors import DispatchLabError, RequestError, first_of
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Fallback, Registration, inner_of
from dispatchlab.processes import default_memory_bound
from dispatchlab.prover.chains import Chains, Module, count_orders
from dispatchlab.prover.explore import explore
from dispatchlab.prover.limits import Interrupted, Progress, WalkOptions
from dispatchlab.prover.protocol import Engine
from dispatchlab.prover.result import Exploration, Verdict
from dispatchlab.questions.order.report import Report, report_of
from dispatchlab.questions.sources.engines import EngineName, engine_for, kept_engines
from dispatchlab.scenario.load import load_scenario
from dispatchlab.scenario.scenario import Scenario, operators_named_by

LIVE_TIMEOUT_S: Final = 120.0
"""The bound on the time of one scenario on the live engine, where no other is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions(WalkOptions):
    """The options of a run; each field, including the fields of the walk, is an option of `permute`."""

    engine: EngineName | None = None
    semantics: str | None = None
    require_proof: bool = False
    allow_import: bool = False
    conform: bool = False
    imports: tuple[str, ...] = ()
    save: str | None = None

    @property
    def walk_options(self) -> WalkOptions:
        """The options that the explorer knows."""
        return WalkOptions(**{field.name: getattr(self, field.name) for field in fields(WalkOptions)})


class NothingToExploreError(DispatchLabError):
    """There is nothing to explore.

    Args:
        reason: a sentence about what is missing.
    """

    scenario: Scenario
    reason: str

    def __str__(self) -> str:
        return f"{self.scenario.file or self.scenario.claim}: there is nothing to explore: {self.reason}"


def check_subject(scenario: Scenario, options: RunOptions) -> None:
    """Refuse a scenario with nothing to check.

    Raises:
        NothingToExploreError: there is no registration, no observed operator can change, or no pair is sampled.
    """
    if not scenario.registrations:
        if scenario.python:
            number = f"{len(scenario.python):,} registration{'' if len(scenario.python) == 1 else 's'}"
            raise NothingToExploreError(scenario, f"it has {number} in Python only, which cannot be explored here")
        raise NothingToExploreError(scenario, "it has no registrations")
    named = operators_named_by(scenario.registrations)
    fallbacks = [each for one in scenario.registrations for each in inner_of(one) if isinstance(each, Fallback)]
    if scenario.operators and named and not set(named) & set(scenario.operators) and not fallbacks:
        observed, others = first_of(scenario.operators, _SHOWN), first_of(named, _SHOWN)
        raise NothingToExploreError(
            scenario, f"it observes {observed}, but the registrations are about {others}; observe one of these"
        )
    if options.walk == "sample" and len(scenario.registrations) < _PAIR:
        raise NothingToExploreError(scenario, "it has one registration, so there are no pairs to sample")


_PAIR: Final = 2
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one scenario.

    Args:
        report: the findings.
        saved: the text of the file with the counterexample; None without one.
        not_saved: why there is no such file, if the user asked for one.
        program: a program that shows a violation of the live engine, if there can be one and the user saves nothing.
        notes: further lines for the reader.
        interrupted: whether Ctrl-C was pressed; then the report covers the work until this moment.
    """

    report: Report
    saved: str | None = None
    not_saved: str | None = None
    program: str | None = None
    notes: tuple[str, ...] = field(default=())
    interrupted: bool = False


@runtime_checkable
class Explores(Protocol):
    """An engine that runs walks itself, such as an engine in another process."""

    def start(self) -> None:
        """Start the engine, with a time limit of its own; harmless if it has started."""

    def explore(
        self,
        registrations: Sequence[Registration],
        operators: Sequence[OperatorName],
        options: WalkOptions,
        /,
        *,
        order: Chains,
        modules: Sequence[Module],
        progress: Callable[[Progress], None] | None,
    ) -> Exploration:
        """Explore whether the order of registrations matters."""


def run_scenario(
    source: str | Scenario,
    options: RunOptions,
    *,
    progress: Callable[[Progress], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Outcome:
    """Explore a scenario, and compare the result with its expectation.

    Args:
        source: the scenario, or the path of its file.
        options: the options of the run.
        progress: a function that gets the progress about ten times a second.
        cancelled: a function that returns whether to stop; it is called about ten times a second.

    Raises:
        DispatchLabError: the scenario or an option cannot be used.
    """
    scenario = load_scenario(source, allow_import=options.allow_import) if isinstance(source, str) else source
    check_subject(scenario, options)
    subject = _Subject(scenario, options.engine or "lab")
    bounded = _with_default_bounds(options, subject)
    if subject.is_live:
        progress = _stoppable(progress, cancelled)
    with (
        warnings.catch_warnings(),
        engine_for(
            subject.engine, asked=options.semantics, in_file=subject.scenario.semantics, imports=options.imports
        ) as engine,
    ):
        warnings.simplefilter("ignore")  # of kernels that are overridden: here that is what is looked for
        if options.conform:
            from dispatchlab.questions.order.conformance import check_model

            check_model(engine)
        run, stand_in_notes = _as_engine_takes_it(subject, options)
        exploration, interrupted = _found(engine, run, bounded, progress, cancelled)
        report = report_of(subject.scenario, engine, exploration, require_proof=options.require_proof)
        for note in stand_in_notes:
            report = report.noted(note)
        try:
            if bounded.timeout_s != options.timeout_s and exploration.verdict is Verdict.INCOMPLETE and not interrupted:
                report = report.noted("that is the default bound with --engine torch; --timeout SECONDS sets another")
            if options.conform and not interrupted:
                from dispatchlab.questions.order.conformance import conforming

                report, interrupted = conforming(report, engine, run, bounded.walk_options, progress)
        except KeyboardInterrupt:  # what was found by then stands
            report, interrupted = report.noted(_LATE), True
        outcome = Outcome(report, notes=_subject_notes(subject, engine), interrupted=interrupted)
        try:
            outcome = _with_counterexample(outcome, subject, run, options)
            return outcome
        except KeyboardInterrupt:
            return replace(outcome, report=report.noted(_LATE), interrupted=True)


_LATE: Final = "interrupted after the exploration"


class _Subject(NamedTuple):
    """The subject of a run: a scenario and an engine."""

    scenario: Scenario
    engine: EngineName

    @property
    def is_live(self) -> bool:
        return self.engine == "torch"


def _with_default_bounds(options: RunOptions, subject: _Subject) -> RunOptions:
    """Return the options with default bounds where none was given."""
    if options.max_memory is None:
        options = replace(options, max_memory=default_memory_bound())
    if subject.is_live and options.timeout_s is None:
        options = replace(options, timeout_s=LIVE_TIMEOUT_S)
    return options


def _as_engine_takes_it(subject: _Subject, options: RunOptions) -> tuple[Scenario, tuple[str, ...]]:
    """Return the scenario with stand-ins for registrations that PyTorch cannot make, and a note on each kind."""
    if not subject.is_live:
        return subject.scenario, ()
    from dispatchlab.questions.order.stand_ins import class_note, stand_in_note, with_known_classes, with_stand_ins

    registrations, kernels = with_stand_ins(subject.scenario.registrations)
    notes = [stand_in_note(kernels)] if kernels else []
    if not options.imports:
        registrations, classes = with_known_classes(registrations)
        notes += [class_note(classes)] if classes else []
    return replace(subject.scenario, registrations=registrations), tuple(notes)


def _subject_notes(subject: _Subject, engine: Engine) -> tuple[str, ...]:
    """Return notes about the file, for example that it names other semantics."""
    scenario = subject.scenario
    if subject.is_live and scenario.semantics not in (None, engine.semantics):
        about = scenario.file or "the scenario"
        return (f"{about} is about the semantics {scenario.semantics}, and the engine is {engine.semantics}",)
    return ()


def _with_counterexample(outcome: Outcome, subject: _Subject, run: Scenario, options: RunOptions) -> Outcome:
    """Return the outcome with the text of the requested file, or else with a program for the live engine."""
    if outcome.report.exploration.counterexample is None:
        return outcome
    from dispatchlab.questions.order.counterexamples import kept_text, program_of

    if options.save is not None:
        try:
            return replace(outcome, saved=kept_text(subject.scenario, outcome.report, options.save))
        except DispatchLabError as error:
            return replace(outcome, not_saved=f"{options.save} was not written: {error}")
    if subject.is_live:
        with suppress(DispatchLabError):
            return replace(outcome, program=program_of(run, outcome.report))
    return outcome


def _found(
    engine: Engine,
    scenario: Scenario,
    options: RunOptions,
    progress: Callable[[Progress], None] | None,
    cancelled: Callable[[], bool] | None,
) -> tuple[Exploration, bool]:
    """Return the findings until the end, a bound or Ctrl-C, and whether Ctrl-C was pressed."""
    found: Exploration | None = None
    modules, walk = scenario.modules, options.walk_options
    if modules and options.passes is not None:
        what = "--passes works with single registrations, but this scenario has `modules`"
        raise RequestError(f"{what}: leave one of the two out")
    about = scenario.registrations, scenario.operators, walk
    if isinstance(engine, Explores):
        engine.start()
    started = perf_counter()
    try:
        if isinstance(engine, Explores):
            found = engine.explore(*about, order=scenario.order, modules=modules, progress=progress)
        else:
            found = explore(
                engine, *about, order=scenario.order, modules=modules, cancelled=cancelled, progress=progress
            )
        if found.counterexample is not None:
            from dispatchlab.questions.order.counterexamples import explained

            found = explained(engine, scenario, found)
    except Interrupted as error:
        return error.exploration, True
    except KeyboardInterrupt:  # while it was planned
        if found is None:
            count = len(scenario.registrations)
            orders = count_orders(count, scenario.order)
            took = perf_counter() - started
            notes = ("interrupted",)
            found = Exploration(Verdict.INCOMPLETE, options.walk, count, 0, 0, 0, orders, notes=notes, elapsed_s=took)
        return found, True
    return found, False


def _stoppable(
    progress: Callable[[Progress], None] | None, cancelled: Callable[[], bool] | None
) -> Callable[[Progress], None] | None:
    """Return a progress function that can interrupt, which is the only way while a walk runs in another process."""
    if cancelled is None:
        return progress

    def stop_or_report(value: Progress) -> None:
        if progress is not None:
            progress(value)
        if cancelled():
            raise KeyboardInterrupt

    return stop_or_report


# -- several scenarios


Finished: TypeAlias = tuple[str, Outcome | DispatchLabError]
"""A file, and its outcome or the reason why there is none."""

ProgressOf: TypeAlias = Callable[[str, Progress], None]
"""Is called about ten times a second with a file and how far its exploration has come."""


def run_scenarios(
    files: Sequence[str], options: RunOptions, *, progress: ProgressOf, finished: Callable[[str], None]
) -> Generator[Finished, None, None]:
    """Run scenarios.

    Args:
        files: the scenarios.
        options: the options of the runs.
        progress: see `ProgressOf`.
        finished: a function that gets each file when its exploration has ended.

    Yields:
        Each file with its outcome; after Ctrl-C, also the interrupted one.
    """
    with kept_engines():
        for path in files:
            outcome: Outcome | DispatchLabError
            try:
                outcome = run_scenario(path, options, progress=partial(progress, path))
            except DispatchLabError as error:
                outcome = error
            finished(path)
            yield path, outcome
            if isinstance(outcome, Outcome) and outcome.interrupted:
                return
