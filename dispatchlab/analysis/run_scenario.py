"""Run scenarios: one, with all that its report shows, or several, in this process or one each."""

from __future__ import annotations

import atexit
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, runtime_checkable

from dispatchlab.analysis.conformance import conform, sentence
from dispatchlab.analysis.counterexamples import explained, kept_text, model_of, program_of, replayed
from dispatchlab.analysis.engines import EngineName, engine_for, kept_engines
from dispatchlab.analysis.pool_interrupts import leave_interrupts_to_parent
from dispatchlab.analysis.report import Report, report_of
from dispatchlab.analysis.stand_ins import class_note, stand_in_note, with_known_classes, with_stand_ins
from dispatchlab.analysis.state_graph import NotDrawnError, PartOfGraph, StateGraph, state_graph
from dispatchlab.engine.semantics import SEMANTICS
from dispatchlab.errors import DispatchLabError
from dispatchlab.explore.explore import explore
from dispatchlab.explore.limits import Interrupted, Progress
from dispatchlab.explore.partition import parts_of
from dispatchlab.explore.program_walk import explore_program
from dispatchlab.explore.protocol import Engine, Forkable
from dispatchlab.explore.result import Expectation, Exploration, Verdict, judge
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Block, Fallback, Registration
from dispatchlab.scenario.load import load_scenario
from dispatchlab.scenario.replay_file import check_scenario, load_replay, staleness
from dispatchlab.scenario.scenario import Scenario, operators_named_by

if TYPE_CHECKING:
    from concurrent.futures import Future
    from multiprocessing.queues import SimpleQueue
    from multiprocessing.synchronize import Event

# Note [Ctrl-C in several processes]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A terminal sends SIGINT to all of them, a script only to the first. The workers ignore it and look at an event
# instead, about ten times a second, so that each of them hands in what it has covered, exactly once, and no worker that
# waits for work dies with a traceback.

LIVE_TIMEOUT_S: Final = 120.0
"""The bound on the time of one scenario on the live engine, where no other is given."""

WalkName: TypeAlias = Literal["graph", "orders", "sample"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How to run a scenario; each field is an option of `permute`, None where it was not given."""

    engine: EngineName | None = None
    semantics: str | None = None
    walk: WalkName = "graph"
    samples: int | None = None
    seed: int = 0
    passes: int | None = None
    free: bool = False
    max_states: int | None = None
    timeout_s: float | None = None
    require_proof: bool = False
    allow_import: bool = False
    conform: bool = False
    every_table: bool = False
    imports: tuple[str, ...] = ()
    replay: str | None = None
    save: str | None = None
    graph: str | None = None

    @property
    def bounds(self) -> dict[str, Any]:
        """The options that the explorer knows, without those that were not given."""
        options = {
            "walk": self.walk,
            "samples": self.samples,
            "seed": self.seed,
            "passes": self.passes,
            "max_states": self.max_states,
            "timeout_s": self.timeout_s,
        }
        return {name: value for name, value in options.items() if value is not None}


class FreeOptionError(DispatchLabError):
    """An option is about single registrations, and the scenario has modules, which run in program order."""

    def __init__(self, option: str) -> None:
        super().__init__(option)
        self.option = option

    def __str__(self) -> str:
        return f"{self.option} is about single registrations, and this scenario has modules: add --free"


class NothingToExploreError(DispatchLabError):
    """A verdict would stand on nothing.

    Args:
        reason: what is missing, a sentence.
    """

    def __init__(self, scenario: Scenario, reason: str) -> None:
        super().__init__(scenario, reason)
        self.scenario, self.reason = scenario, reason

    def __str__(self) -> str:
        return f"{self.scenario.file or self.scenario.claim}: there is nothing to explore: {self.reason}"


def check_subject(scenario: Scenario, options: RunOptions) -> None:
    """Refuse what would give a verdict on nothing.

    Raises:
        NothingToExploreError: nothing is registered, no operator that is observed can change, or no pair is sampled.
    """
    if not scenario.registrations:
        raise NothingToExploreError(scenario, "it has no registrations")
    named = operators_named_by(scenario.registrations)
    if scenario.operators and named and not set(named) & set(scenario.operators) and not _has_fallback(scenario):
        observed, others = _few(scenario.operators), _few(named)
        raise NothingToExploreError(
            scenario, f"what is observed is {observed}, and the registrations are about {others}; name one of these"
        )
    if options.walk == "sample" and len(scenario.registrations) < _PAIR:
        raise NothingToExploreError(scenario, "it has one registration, so there are no pairs to sample")


def _few(operators: Sequence[OperatorName]) -> str:
    more = f" and {len(operators) - _SHOWN:,} more" if len(operators) > _SHOWN else ""
    return f"{', '.join(map(str, operators[:_SHOWN]))}{more}"


def _has_fallback(scenario: Scenario) -> bool:
    """Whether something reaches operators that it does not name."""
    return any(
        isinstance(inner, Fallback)
        for one in scenario.registrations
        for inner in (one.registrations if isinstance(one, Block) else (one,))
    )


_PAIR: Final = 2
_SHOWN: Final = 3


class NoModelError(DispatchLabError):
    """There is nothing to hold an engine to."""

    def __init__(self, engine: str, semantics: str) -> None:
        super().__init__(engine, semantics)
        self.engine, self.semantics = engine, semantics

    def __str__(self) -> str:
        if self.engine == "lab":
            return "--conform compares the live engine with its model: use it with --engine torch"
        return f"--conform: there is no model of {self.semantics}; there are {', '.join(SEMANTICS)}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one scenario.

    Args:
        report: the findings.
        saved: the text of the file that keeps the counterexample; None without one.
        not_saved: why there is no such file, when one was asked for.
        program: a program that shows a violation of the live engine, when nothing was to be saved and there can be one.
        graph: the states, when a picture of them was asked for.
        not_drawn: why there is no picture, when one was asked for.
        notes: what else a reader should know, a line each.
        interrupted: somebody pressed Ctrl-C, and the report is what was covered until then.
    """

    report: Report
    saved: str | None = None
    not_saved: str | None = None
    program: str | None = None
    graph: StateGraph | None = None
    not_drawn: str | None = None
    notes: tuple[str, ...] = field(default=())
    interrupted: bool = False


@runtime_checkable
class Explores(Protocol):
    """An engine that walks by itself, as one in another process does."""

    def explore(
        self, registrations: Sequence[Registration], operators: Sequence[OperatorName], /, **options: Any
    ) -> Exploration:
        """Find out whether the order of registrations matters."""


def run_scenario(
    source: str | Scenario,
    options: RunOptions,
    *,
    progress: Callable[[Progress], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Outcome:
    """Explore a scenario or replay a counterexample, and compare with what the scenario expects.

    Args:
        source: the scenario, or the path of its file.
        options: how to run it.
        progress: is called about ten times a second with how far it has come.
        cancelled: is asked about ten times a second whether to stop.

    Raises:
        DispatchLabError: the scenario or an option cannot be used.
    """
    scenario = load_scenario(source, allow_import=options.allow_import) if isinstance(source, str) else source
    check_subject(scenario, options)
    saved = None if options.replay is None else load_replay(options.replay)
    if saved is not None:
        check_scenario(saved, scenario)
    name: EngineName = options.engine or ("torch" if saved is not None and saved.engine == "torch" else "lab")
    in_file = scenario.semantics if saved is None else saved.semantics
    interrupted = False
    bounded = name == "torch" and options.timeout_s is None
    if name == "torch":
        progress = _stoppable(progress, cancelled)
        options = replace(options, timeout_s=LIVE_TIMEOUT_S) if bounded else options
    with warnings.catch_warnings(), _engine(name, options, in_file) as engine:
        warnings.simplefilter("ignore")  # of kernels that are overridden: here that is what is looked for
        notes: tuple[str, ...] = ()
        if name == "torch" and scenario.semantics not in (None, engine.semantics):
            about = scenario.file or "the scenario"
            notes = (f"{about} is about the semantics {scenario.semantics}, and the engine is {engine.semantics}",)
        if options.conform and model_of(engine) is None:
            raise NoModelError(engine.name, engine.semantics)
        run, stand_ins, classes = scenario, 0, tuple[str, ...]()
        if name == "torch":
            registrations, stand_ins = with_stand_ins(scenario.registrations)
            if not options.imports:
                registrations, classes = with_known_classes(registrations)
            run = replace(scenario, registrations=registrations)
        try:
            if saved is not None:
                notes += tuple(
                    f"{options.replay} is older than the scenario: {each}" for each in staleness(saved, scenario)
                )
                found = explained(engine, run, replayed(engine, run, saved))
            else:
                found = explained(engine, run, _explored(engine, run, options, progress, cancelled))
        except Interrupted as error:
            found, interrupted = error.exploration, True
        report = report_of(scenario, engine, found, require_proof=options.require_proof)
        if bounded and found.verdict is Verdict.INCOMPLETE and not interrupted:
            report = _noted(report, "that is the default bound with --engine torch; --timeout SECONDS sets another")
        if stand_ins:
            report = _noted(report, stand_in_note(stand_ins))
        if classes:
            report = _noted(report, class_note(classes))
        if options.conform and not interrupted:
            try:
                report = _conforming(report, engine, run, options, progress)
            except Interrupted as error:
                report, interrupted = _noted(report, sentence(error.exploration)), True
        kept, not_kept, program = None, None, None
        if options.save is not None:
            try:
                kept = kept_text(scenario, report, options.save)
            except DispatchLabError as error:
                not_kept = f"{options.save} was not written: {error}"
        elif name == "torch":
            with suppress(DispatchLabError):
                program = program_of(run, report)
        outcome = Outcome(report, kept, not_kept, program, notes=notes, interrupted=interrupted)
        if options.graph is None or interrupted:
            return outcome
        if scenario.modules and not options.free:
            return replace(outcome, not_drawn=str(FreeOptionError("--graph")))
        return _with_graph(outcome, scenario, engine)


def _explored(
    engine: Engine,
    scenario: Scenario,
    options: RunOptions,
    progress: Callable[[Progress], None] | None,
    cancelled: Callable[[], bool] | None,
) -> Exploration:
    program = None if options.free else scenario.program
    if program is not None and options.passes is not None:
        raise FreeOptionError("--passes")
    asked: dict[str, Any] = {**options.bounds, "progress": progress}
    asked |= {"order": scenario.order} if program is None else {"program": program}
    if isinstance(engine, Explores):
        return engine.explore(scenario.registrations, scenario.operators, **asked)
    walk = explore if program is None else explore_program
    found: Exploration = walk(engine, scenario.registrations, scenario.operators, cancelled=cancelled, **asked)
    return found


def _conforming(
    report: Report, engine: Engine, scenario: Scenario, options: RunOptions, progress: Callable[[Progress], None] | None
) -> Report:
    """Compare an engine with its model and note the result in the report; where they differ, nothing is as expected."""
    together = conform(
        engine,
        engine.semantics,
        scenario,
        seed=options.seed,
        passes=options.passes,
        timeout_s=options.timeout_s,
        progress=progress,
    )
    report = _noted(report, sentence(together))
    if together.verdict is Verdict.NO_VIOLATION_FOUND:
        return report
    _, code = judge(together.verdict, Expectation.ORDER_INDEPENDENT, conflicts=0, require_proof=False)
    return replace(report, as_expected=False, exit_code=max(code, report.exit_code))


def _noted(report: Report, note: str) -> Report:
    return replace(report, exploration=replace(report.exploration, notes=(*report.exploration.notes, note)))


def _engine(name: EngineName, options: RunOptions, in_file: str | None) -> AbstractContextManager[Engine]:
    return engine_for(
        name, asked=options.semantics, in_file=in_file, imports=options.imports, every_table=options.every_table
    )


def _stoppable(
    progress: Callable[[Progress], None] | None, cancelled: Callable[[], bool] | None
) -> Callable[[Progress], None] | None:
    """Progress that interrupts: the only thing that is heard here while a walk runs in another process."""
    if cancelled is None:
        return progress

    def stop_or_report(value: Progress) -> None:
        if progress is not None:
            progress(value)
        if cancelled():
            raise KeyboardInterrupt

    return stop_or_report


def _with_graph(outcome: Outcome, scenario: Scenario, engine: Engine) -> Outcome:
    if not isinstance(engine, Forkable):
        return replace(outcome, not_drawn=str(NotDrawnError(f"the states of the engine {engine.name} cannot be read")))
    report = outcome.report
    try:
        graph = state_graph(
            _parts_to_draw(engine, scenario, report.exploration),
            report.registrations,
            title=f"{scenario.claim} ({report.semantics}: {report.exploration.verdict})",
            counterexample=report.exploration.counterexample,
        )
    except NotDrawnError as error:
        return replace(outcome, not_drawn=str(error))
    return replace(outcome, graph=_counted(graph, report.exploration))


def _parts_to_draw(engine: Forkable, scenario: Scenario, found: Exploration) -> tuple[PartOfGraph, ...]:
    """The parts that were explored; the whole where it was not explored in parts."""
    whole = engine.space(scenario.registrations, scenario.operators)
    if found.components < 2:
        return (PartOfGraph(whole, tuple(range(len(scenario.registrations))), scenario.order),)
    return tuple(
        PartOfGraph(
            engine.space([scenario.registrations[index] for index in part.indices], part.operators),
            part.indices,
            part.order,
        )
        for part in parts_of(whole, scenario.registrations, scenario.operators, scenario.order)
    )


def _counted(graph: StateGraph, found: Exploration) -> StateGraph:
    """The picture, with why the report counts other states than it has."""
    if graph.is_cut or len(graph.nodes) == found.states:
        return graph
    match found.verdict:
        case _ if found.walk != "graph":
            why = f"the walk {found.walk!r} does not count every state"
        case Verdict.ORDER_DEPENDENT | Verdict.NONDETERMINISTIC | Verdict.CRASHED:
            why = "its walk ended at the counterexample"
        case _:
            why = "its walk was stopped"
    note = f"{len(graph.nodes):,} states are drawn; the report counts {found.states:,}, since {why}"
    return replace(graph, notes=(note, *graph.notes))


Finished: TypeAlias = tuple[str, Outcome | DispatchLabError]
"""A file, and its outcome or the reason why there is none."""

ProgressOf: TypeAlias = Callable[[str, Progress], None]
"""Is called about ten times a second with a file and how far its exploration has come."""

_LOOK_EVERY_S = 0.1


class WorkerDied(DispatchLabError):
    """The process of a scenario died, as one that needs too much memory does."""

    exit_code = 5

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"{self.path}: the process that explored it ended; bound it with --max-states, or use --jobs 1"


def run_scenarios(
    files: Sequence[str],
    options: RunOptions,
    *,
    jobs: int = 1,
    progress: ProgressOf,
    finished: Callable[[str], None],
) -> Generator[Finished, None, None]:
    """Run scenarios, several at once when `jobs` is more than 1.

    Args:
        files: the scenarios.
        options: how to run each.
        jobs: how many at once.
        progress: see `ProgressOf`.
        finished: is called with a file as soon as its exploration has ended.

    Yields:
        Each file with its outcome; after Ctrl-C only those that were done or under way.
    """
    if jobs > 1 and len(files) > 1:
        yield from _in_processes(files, options, jobs, progress, finished)
        return
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


def _in_processes(
    files: Sequence[str], options: RunOptions, jobs: int, progress: ProgressOf, finished: Callable[[str], None]
) -> Generator[Finished, None, None]:
    from concurrent.futures import ProcessPoolExecutor, wait
    from multiprocessing import get_context

    context = get_context("spawn")
    stop, reports = context.Event(), context.SimpleQueue()
    with ProcessPoolExecutor(min(jobs, len(files)), context, _initialise, (stop, reports)) as pool:
        futures = [pool.submit(_run, path, options) for path in files]
        try:
            for path, future in zip(files, futures, strict=True):
                while not future.done():
                    try:
                        wait([future], timeout=_LOOK_EVERY_S)
                        newest = _drain(reports)
                        for other, one in zip(files, futures, strict=True):
                            if one.done():
                                finished(other)
                            elif other in newest:
                                progress(other, newest[other])
                    except KeyboardInterrupt:
                        stop.set()
                        for each in futures:
                            each.cancel()
                finished(path)
                if not future.cancelled():
                    yield path, _result(path, future, interrupted=stop.is_set())
        finally:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            while any(not future.done() for future in futures):
                wait(futures, timeout=_LOOK_EVERY_S)
                _drain(reports)


def _drain(reports: SimpleQueue[tuple[str, Progress]]) -> dict[str, Progress]:
    newest: dict[str, Progress] = {}
    while not reports.empty():
        path, progress = reports.get()
        newest[path] = progress
    return newest


def _result(path: str, future: Future[Outcome], *, interrupted: bool) -> Outcome | DispatchLabError:
    from concurrent.futures import BrokenExecutor, CancelledError

    try:
        outcome = future.result()
    except DispatchLabError as error:
        return error
    except (BrokenExecutor, CancelledError):
        return WorkerDied(path)
    return replace(outcome, interrupted=interrupted)


# -- in a worker

_stop: Event | None = None
_reports: SimpleQueue[tuple[str, Progress]] | None = None


def _initialise(stop: Event, reports: SimpleQueue[tuple[str, Progress]]) -> None:
    global _stop, _reports
    _stop, _reports = stop, reports
    leave_interrupts_to_parent()
    engines = ExitStack()
    engines.enter_context(kept_engines())
    atexit.register(engines.close)


def _run(path: str, options: RunOptions) -> Outcome:
    """Run in a worker. See Note [Ctrl-C in several processes]."""
    assert _stop is not None
    assert _reports is not None
    reports = _reports
    return run_scenario(path, options, progress=lambda progress: reports.put((path, progress)), cancelled=_stop.is_set)
