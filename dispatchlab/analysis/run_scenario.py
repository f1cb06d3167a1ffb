"""Run a scenario, with all that its report shows."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

from dispatchlab._version import __version__
from dispatchlab.analysis.conformance import conform, sentence
from dispatchlab.analysis.counterexamples import explained, kept_text, model_of, program_of, replayed
from dispatchlab.analysis.engines import EngineName, engine_for
from dispatchlab.analysis.report import Report, report_of
from dispatchlab.analysis.stand_ins import class_note, stand_in_note, with_known_classes, with_stand_ins
from dispatchlab.bounded_read import ReadError, read_file
from dispatchlab.engine.semantics import SEMANTICS, semantics_named, unknown_keys
from dispatchlab.errors import DispatchLabError, RegistrationError
from dispatchlab.explore.explore import TakeShares, explore
from dispatchlab.explore.limits import Interrupted, Progress, count_orders
from dispatchlab.explore.partition import parts_of
from dispatchlab.explore.protocol import Engine, Forkable
from dispatchlab.explore.result import Expectation, Exploration, Verdict, judge
from dispatchlab.explore.walk_log import WalkLog
from dispatchlab.journal import Journal
from dispatchlab.model.names import OperatorName
from dispatchlab.model.operator_view import OperatorView
from dispatchlab.model.profile import read_profile
from dispatchlab.model.registration import Block, Fallback, PythonImpl, Registration
from dispatchlab.model.short_names import short_names
from dispatchlab.processes.deadline import Deadline, DeadlineReached
from dispatchlab.processes.memory import default_memory_bound
from dispatchlab.scenario.explored import explored
from dispatchlab.scenario.load import MAX_BYTES, load_scenario
from dispatchlab.scenario.replay_file import Replay, check_scenario, load_replay, staleness
from dispatchlab.scenario.scenario import Scenario, operators_named_by

if TYPE_CHECKING:
    from dispatchlab.analysis.state_graph import PartOfGraph, StateGraph

LIVE_TIMEOUT_S: Final = 120.0
"""The bound on the time of one scenario on the live engine, where no other is given."""

_SLACK_S: Final = 1.0

WalkName: TypeAlias = Literal["auto", "graph", "orders", "sample"]


_OPTION: Final = {"imports": "--import"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How to run a scenario; each field is an option of `permute`, None where it was not given."""

    engine: EngineName | None = None
    semantics: str | None = None
    walk: WalkName = "auto"
    samples: int | None = None
    seed: int = 0
    passes: int | None = None
    free: bool = False
    max_states: int | None = None
    timeout_s: float | None = None
    max_memory: int | None = None
    require_proof: bool = False
    allow_import: bool = False
    conform: bool = False
    every_table: bool = False
    imports: tuple[str, ...] = ()
    replay: str | None = None
    save: str | None = None
    graph: str | None = None
    pictures: Literal["all", "violations"] | None = None
    checkpoint: str | None = None

    @property
    def what(self) -> dict[str, str]:
        """What makes a run the same as another, by the names of its options; bounds may change from one to the next."""
        bounds = {"timeout_s", "max_states", "max_memory", "checkpoint", "pictures"}
        values = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in bounds}
        return {
            _OPTION.get(name, f"--{name.replace('_', '-')}"): " ".join(value)
            if isinstance(value, tuple)
            else str(value)
            for name, value in values.items()
            if value not in (None, False, ())
        }

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
            "max_memory": self.max_memory,
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
        if scenario.python:
            number = f"{len(scenario.python):,} registration{'' if len(scenario.python) == 1 else 's'}"
            raise NothingToExploreError(scenario, f"it has {number} of Python alone, which cannot be explored here")
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
        return (
            f"--conform: there is no model of {self.semantics}: `dispatchlab profile -o FILE` measures one, and "
            f"--semantics FILE names it; there are {', '.join(SEMANTICS)}"
        )


class IncompleteModelError(DispatchLabError):
    """The model that an engine should be held to leaves out dispatch keys that this package does not know.

    Args:
        semantics: the file of the model.
        unknown: these keys.
    """

    def __init__(self, semantics: str, unknown: tuple[str, ...]) -> None:
        super().__init__(semantics, unknown)
        self.semantics, self.unknown = semantics, unknown

    def __str__(self) -> str:
        more = f" and {len(self.unknown) - _SHOWN} more" if len(self.unknown) > _SHOWN else ""
        return (
            f"--conform: {self.semantics} has dispatch keys that dispatchlab does not know, "
            f"{', '.join(self.unknown[:_SHOWN])}{more}; a model leaves them out, and never agrees with what has them"
        )


def _check_model(semantics: str) -> None:
    """Refuse a model that cannot agree with any engine.

    Raises:
        UnknownSemanticsError: there are no such semantics.
        ProfileError: the file is no profile.
        IncompleteModelError: it has keys that this package does not know.
    """
    semantics_named(semantics)
    if semantics not in SEMANTICS and semantics.endswith(".json"):
        unknown = unknown_keys(read_profile(semantics))
        if unknown:
            raise IncompleteModelError(semantics, unknown)


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
        names: a short name for each registration.
        operators: the operators with everything registered in the order of the file, when a picture was asked for.
        notes: what else a reader should know, a line each.
        interrupted: somebody pressed Ctrl-C, and the report is what was covered until then.
    """

    report: Report
    saved: str | None = None
    not_saved: str | None = None
    program: str | None = None
    graph: StateGraph | None = None
    not_drawn: str | None = None
    names: tuple[str, ...] = ()
    operators: tuple[OperatorView, ...] = ()
    notes: tuple[str, ...] = field(default=())
    interrupted: bool = False


@runtime_checkable
class Explores(Protocol):
    """An engine that walks by itself, as one in another process does."""

    def explore(
        self, registrations: Sequence[Registration], operators: Sequence[OperatorName], /, **options: Any
    ) -> Exploration:
        """Find out whether the order of registrations matters."""


@runtime_checkable
class Starts(Protocol):
    """An engine that takes long to start; its start is bounded by itself."""

    def start(self) -> None:
        """Start it; harmless when it has started."""


def run_scenario(
    source: str | Scenario,
    options: RunOptions,
    *,
    progress: Callable[[Progress], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
    shares: TakeShares | None = None,
) -> Outcome:
    """Explore a scenario or replay a counterexample, and compare with what the scenario expects.

    Args:
        source: the scenario, or the path of its file.
        options: how to run it.
        progress: is called about ten times a second with how far it has come.
        cancelled: is asked about ten times a second whether to stop.
        shares: takes shares of random walks elsewhere.

    Raises:
        DispatchLabError: the scenario or an option cannot be used.
    """
    limit, as_asked = _deadline(options), options
    try:
        with limit.running():
            scenario = load_scenario(source, allow_import=options.allow_import) if isinstance(source, str) else source
            saved = None if options.replay is None else load_replay(options.replay)
            name: EngineName = options.engine or ("torch" if saved is not None and saved.engine == "torch" else "lab")
            scenario = explored(scenario, live=name == "torch")
            check_subject(scenario, options)
            if saved is not None:
                check_scenario(saved, scenario)
    except DeadlineReached:
        assert options.timeout_s is not None
        raise NotInTimeError(source if isinstance(source, str) else str(source.claim), options.timeout_s) from None
    in_file = scenario.semantics if saved is None else saved.semantics
    if options.max_memory is None:
        options = replace(options, max_memory=default_memory_bound())
    bounded = name == "torch" and options.timeout_s is None
    if name == "torch":
        progress = _stoppable(progress, cancelled)
        options = replace(options, timeout_s=LIVE_TIMEOUT_S) if bounded else options
    if options.conform and name == "torch" and as_asked.semantics is not None:
        _check_model(as_asked.semantics)
    needed = () if name == "lab" else _modules_needed(scenario)
    with (
        warnings.catch_warnings(),
        _engine(name, replace(as_asked, imports=(*as_asked.imports, *needed)), in_file) as engine,
    ):
        warnings.simplefilter("ignore")  # of kernels that are overridden: here that is what is looked for
        notes: tuple[str, ...] = ()
        if name == "torch" and scenario.semantics not in (None, engine.semantics):
            about = scenario.file or "the scenario"
            notes = (f"{about} is about the semantics {scenario.semantics}, and the engine is {engine.semantics}",)
        if options.conform and (name == "lab" or (as_asked.semantics is None and model_of(engine) is None)):
            raise NoModelError(engine.name, engine.semantics)
        run, stand_ins, classes = scenario, 0, tuple[str, ...]()
        if name == "torch":
            registrations, stand_ins = with_stand_ins(scenario.registrations)
            if not options.imports:
                registrations, classes = with_known_classes(registrations)
            run = replace(scenario, registrations=registrations)
        if saved is not None:
            notes += tuple(
                f"{options.replay} is older than the scenario: {each}" for each in staleness(saved, scenario)
            )
        found, interrupted = _found(engine, run, options, saved, limit, progress, cancelled, shares)
        report = report_of(scenario, engine, found, require_proof=options.require_proof)
        if bounded and found.verdict is Verdict.INCOMPLETE and not interrupted:
            report = _noted(report, "that is the default bound with --engine torch; --timeout SECONDS sets another")
        if stand_ins:
            report = _noted(report, stand_in_note(stand_ins))
        if classes:
            report = _noted(report, class_note(classes))
        if options.conform and not interrupted:
            limit = _deadline(options)
            try:
                with limit.running():
                    report = _conforming(report, engine, run, options, progress)
            except Interrupted as error:
                report, interrupted = _noted(report, sentence(error.exploration)), not limit.passed
            except KeyboardInterrupt:
                if not limit.passed:
                    raise
                report = _noted(report, f"not compared with the model: {_bound_text(options)}")
        kept, not_kept, program = None, None, None
        if options.save is not None:
            try:
                kept = kept_text(scenario, report, options.save)
            except DispatchLabError as error:
                not_kept = f"{options.save} was not written: {error}"
        elif name == "torch":
            with suppress(DispatchLabError):
                program = program_of(run, report)
        names = short_names(scenario.registrations)
        outcome = Outcome(report, kept, not_kept, program, names=names, notes=notes, interrupted=interrupted)
        if interrupted or not _is_drawn(options, report):
            return outcome
        if scenario.modules and not options.free:
            return replace(outcome, not_drawn=str(FreeOptionError("--graph")))
        return _with_graph(outcome, scenario, engine)


def _deadline(options: RunOptions) -> Deadline:
    """The deadline for what does not look at the clock itself; a walk does, and says how far it came."""
    return Deadline(None if options.timeout_s is None else options.timeout_s + _SLACK_S)


def _found(
    engine: Engine,
    scenario: Scenario,
    options: RunOptions,
    saved: Replay | None,
    limit: Deadline,
    progress: Callable[[Progress], None] | None,
    cancelled: Callable[[], bool] | None,
    shares: TakeShares | None,
) -> tuple[Exploration, bool]:
    """What was found until the end, a bound or Ctrl-C; and whether it was Ctrl-C."""
    found: Exploration | None = None
    if isinstance(engine, Starts):
        engine.start()
    started = perf_counter()
    try:
        with limit.running():
            if saved is not None:
                found = replayed(engine, scenario, saved)
            else:
                found = _explored(engine, scenario, options, progress, cancelled, shares)
            found = explained(engine, scenario, found)
    except Interrupted as error:
        if not limit.passed:
            return error.exploration, True
        others = (note for note in error.exploration.notes if note != "interrupted")
        return replace(error.exploration, notes=(_bound_text(options), *others)), False
    except KeyboardInterrupt:  # a worker passes a deadline on as Ctrl-C
        if not limit.passed:
            raise
        if found is None:
            count = len(scenario.registrations)
            orders = count_orders(count, scenario.order)
            notes = (_bound_text(options),)
            took = perf_counter() - started
            found = Exploration(Verdict.INCOMPLETE, options.walk, count, 0, 0, 0, orders, notes=notes, elapsed_s=took)
    return found, False


def _bound_text(options: RunOptions) -> str:
    return f"stopped at the bound of {options.timeout_s:g} seconds"


def _explored(
    engine: Engine,
    scenario: Scenario,
    options: RunOptions,
    progress: Callable[[Progress], None] | None,
    cancelled: Callable[[], bool] | None,
    shares: TakeShares | None,
) -> Exploration:
    program = None if options.free else scenario.program
    if program is not None and options.passes is not None:
        raise FreeOptionError("--passes")
    asked: dict[str, Any] = {**options.bounds, "progress": progress}
    asked |= {"order": scenario.order} if program is None else {"program": program}
    if isinstance(engine, Explores):
        return engine.explore(scenario.registrations, scenario.operators, **asked)
    if options.checkpoint is not None and options.walk in ("auto", "graph") and program is None:
        with Journal(options.checkpoint, run_of(scenario.file, options, engine.semantics)) as journal:
            return explore(
                engine,
                scenario.registrations,
                scenario.operators,
                cancelled=cancelled,
                log=WalkLog(journal),
                **asked,
            )
    if shares is not None and program is None:
        asked["shares"] = shares
    if program is None:
        return explore(engine, scenario.registrations, scenario.operators, cancelled=cancelled, **asked)
    from dispatchlab.explore.program_walk import explore_program

    return explore_program(engine, scenario.registrations, scenario.operators, cancelled=cancelled, **asked)


def run_of(file: str, options: RunOptions, semantics: str = "") -> dict[str, str]:
    """What a checkpoint says of the run that it is of."""
    content = "no file"
    if os.path.isfile(file):
        with suppress(OSError, ReadError):  # whoever loads the scenario reports it
            content = sha256(read_file(file, limit=MAX_BYTES, what="scenarios")).hexdigest()
    run = {"the command": "permute", "the version of dispatchlab": __version__, file or "the scenario": content}
    if options.engine == "torch":
        with suppress(PackageNotFoundError):
            run["the version of PyTorch"] = version("torch")
    return run | options.what | ({"--semantics": semantics} if semantics else {})


def _conforming(
    report: Report, engine: Engine, scenario: Scenario, options: RunOptions, progress: Callable[[Progress], None] | None
) -> Report:
    """Compare an engine with its model and note the result in the report; where they differ, nothing is as expected."""
    together = conform(
        engine,
        options.semantics or engine.semantics,
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


def _modules_needed(scenario: Scenario) -> tuple[str, ...]:
    """The parts of PyTorch that have the registries that are written: imported later, they would see our operators."""
    found = (one.code.described.needs for one in scenario.registrations if isinstance(one, PythonImpl))
    return tuple(dict.fromkeys(filter(None, found)))


@contextmanager
def _engine(name: EngineName, options: RunOptions, in_file: str | None) -> Iterator[Engine]:
    """The engine; each package that it imports first is given no more time than the scenario."""
    with ExitStack() as limits:
        if options.imports and options.timeout_s is not None:
            from dispatchlab.live.worker.process import import_limit

            limits.enter_context(import_limit(options.timeout_s, unless_set=True))
        # With --conform, semantics are those that the live engine is held to.
        asked = None if name == "torch" and options.conform else options.semantics
        with engine_for(
            name, asked=asked, in_file=in_file, imports=options.imports, every_table=options.every_table
        ) as engine:
            yield engine


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


def states_of(scenario: Scenario, report: Report) -> StateGraph | None:
    """The states of a scenario that was explored on the lab engine; None where they are not drawn.

    Args:
        scenario: what was explored.
        report: what was found about it.
    """
    scenario = explored(scenario)
    if report.engine != "lab" or (scenario.modules and report.exploration.walk == "program"):
        return None
    with warnings.catch_warnings(), engine_for("lab", asked=report.semantics, in_file=None) as engine:
        warnings.simplefilter("ignore")
        outcome = Outcome(report, names=short_names(scenario.registrations))
        return _with_graph(outcome, scenario, engine).graph


def _is_drawn(options: RunOptions, report: Report) -> bool:
    """Whether a picture is wanted, by itself or in a report."""
    if options.graph is not None or options.pictures == "all":
        return True
    return options.pictures == "violations" and report.exploration.counterexample is not None


def _with_graph(outcome: Outcome, scenario: Scenario, engine: Engine) -> Outcome:
    from dispatchlab.analysis.state_graph import NotDrawnError, state_graph

    if not isinstance(engine, Forkable):
        return replace(outcome, not_drawn=str(NotDrawnError(f"the states of the engine {engine.name} cannot be read")))
    report = outcome.report
    outcome = replace(outcome, operators=_all_registered(engine, scenario))
    try:
        graph = state_graph(
            _parts_to_draw(engine, scenario, report.exploration),
            report.registrations,
            title=f"{scenario.claim} ({report.semantics}: {report.exploration.verdict})",
            names=outcome.names,
            counterexample=report.exploration.counterexample,
        )
    except NotDrawnError as error:
        return replace(outcome, not_drawn=str(error))
    return replace(outcome, graph=_counted(graph, report.exploration))


def _all_registered(engine: Engine, scenario: Scenario) -> tuple[OperatorView, ...]:
    """The operators after the registrations in the order of the file, without those that are refused."""
    from dispatchlab.analysis.inspect_operators import view_in

    with engine.sandbox() as sandbox:
        held = []  # what nobody holds is released
        for registration in scenario.registrations:
            with suppress(RegistrationError):
                held.append(sandbox.register(registration))
        return tuple(view_in(sandbox, sandbox.snapshot(operator)) for operator in scenario.operators)


def _parts_to_draw(engine: Forkable, scenario: Scenario, found: Exploration) -> tuple[PartOfGraph, ...]:
    from dispatchlab.analysis.state_graph import PartOfGraph

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
    if graph.is_cut or graph.states == found.states:
        return graph
    match found.verdict:
        case _ if found.walk != "graph":
            why = f"the walk {found.walk!r} does not count every state"
        case _ if found.neighbourhoods:
            why = "it adds up those of neighbourhoods"
        case Verdict.ORDER_DEPENDENT | Verdict.NONDETERMINISTIC | Verdict.CRASHED:
            why = "its walk ended at the counterexample"
        case _:
            why = "its walk was stopped"
    note = f"{graph.states:,} states are drawn; the report counts {found.states:,}, since {why}"
    return replace(graph, notes=(note, *graph.notes))


class NotInTimeError(DispatchLabError):
    """Time was up before anything was explored.

    Args:
        path: the scenario.
        timeout_s: the bound.
    """

    exit_code = 3

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__(path, timeout_s)
        self.path, self.timeout_s = path, timeout_s

    def __str__(self) -> str:
        return f"{self.path}: stopped at the bound of {self.timeout_s:g} seconds, before anything was explored"


Finished: TypeAlias = tuple[str, Outcome | DispatchLabError]
"""A file, and its outcome or the reason why there is none."""

ProgressOf: TypeAlias = Callable[[str, Progress], None]
"""Is called about ten times a second with a file and how far its exploration has come."""


class Asked(NamedTuple):
    """A scenario to run, and the files that it reads where the machine that runs it does not have them."""

    path: str
    options: RunOptions
    files: tuple[tuple[str, bytes], ...] = ()
