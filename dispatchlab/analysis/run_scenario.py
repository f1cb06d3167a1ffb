"""Run one scenario: explore it, replay it, hold it to its model, and gather what a report shows."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from dispatchlab.analysis.conformance import conform, sentence
from dispatchlab.analysis.engines import EngineName, engine_for
from dispatchlab.analysis.replay import explained, model_of, replayed
from dispatchlab.analysis.report import Report, report_of
from dispatchlab.analysis.reproduce import PROGRAM_SUFFIX, SCENARIO_SUFFIX, cut_text, program_text
from dispatchlab.analysis.state_graph import NotDrawnError, StateGraph, state_graph
from dispatchlab.engine.semantics import SEMANTICS
from dispatchlab.errors import DispatchLabError
from dispatchlab.explore.explore import explore
from dispatchlab.explore.limits import Interrupted, Progress
from dispatchlab.explore.protocol import Engine, Forkable
from dispatchlab.explore.result import Counterexample, Expectation, Exploration, Verdict, judge
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Registration
from dispatchlab.model.snapshot import TABLES
from dispatchlab.scenario.load import load_scenario
from dispatchlab.scenario.replay_file import load_replay, make_replay, replay_text, staleness
from dispatchlab.scenario.scenario import Scenario

WalkName: TypeAlias = Literal["graph", "orders", "sample"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is asked about a scenario; each field is an option of `permute`, None where it was not given."""

    engine: EngineName | None = None
    semantics: str | None = None
    walk: WalkName = "graph"
    samples: int | None = None
    seed: int = 0
    passes: int | None = None
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


class OneSequenceError(DispatchLabError):
    """A program compares two sequences, and the counterexample has one."""

    def __str__(self) -> str:
        return "one sequence is at fault by itself, and the program would compare two; save it as a replay or scenario"


class NoModelError(DispatchLabError):
    """There is nothing to hold an engine to."""

    def __init__(self, engine: str, semantics: str) -> None:
        super().__init__(engine, semantics)
        self.engine, self.semantics = engine, semantics

    def __str__(self) -> str:
        if self.engine == "lab":
            return "--conform holds the live engine to its model: use it with --engine torch"
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
        notes: what else to tell, a line each.
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


def examine(
    path: str,
    asked: Asked,
    *,
    progress: Callable[[Progress], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Outcome:
    """Load a scenario, explore it or replay a counterexample, and compare with what it expects.

    Args:
        path: the scenario file.
        asked: what is asked.
        progress: told about ten times a second how far it has come.
        cancelled: asked about ten times a second whether to stop.

    Raises:
        DispatchLabError: the scenario or an option cannot be used.
    """
    scenario = load_scenario(path, allow_import=asked.allow_import)
    saved = None if asked.replay is None else load_replay(asked.replay)
    name: EngineName = asked.engine or ("torch" if saved is not None and saved.engine == "torch" else "lab")
    in_file = scenario.semantics if saved is None else saved.semantics
    interrupted = False
    if name == "torch":
        progress = _stoppable(progress, cancelled)
    with warnings.catch_warnings(), _engine(name, asked, in_file) as engine:
        warnings.simplefilter("ignore")  # of kernels that are overridden: here that is what is looked for
        notes: tuple[str, ...] = ()
        if name == "torch" and scenario.semantics not in (None, engine.semantics):
            notes = (f"{path} is about the semantics {scenario.semantics}, and the engine is {engine.semantics}",)
        if asked.conform and model_of(engine) is None:
            raise NoModelError(engine.name, engine.semantics)
        try:
            if saved is not None:
                notes += tuple(
                    f"{asked.replay} is older than the scenario: {each}" for each in staleness(saved, scenario)
                )
                found = explained(engine, scenario, replayed(engine, scenario, saved))
            else:
                found = explained(engine, scenario, _explored(engine, scenario, asked, progress, cancelled))
        except Interrupted as error:
            found, interrupted = error.exploration, True
        report = report_of(scenario, engine, found, require_proof=asked.require_proof)
        if asked.conform and not interrupted:
            try:
                report = _conforming(report, engine, scenario, asked, progress)
            except Interrupted as error:
                report, interrupted = _noted(report, sentence(error.exploration)), True
        kept, not_kept, program = None, None, None
        if asked.save is not None:
            try:
                kept = _kept(scenario, report, asked.save)
            except DispatchLabError as error:
                not_kept = f"{asked.save} was not written: {error}"
        elif name == "torch":
            with suppress(DispatchLabError):
                program = _program(scenario, report)
        outcome = Outcome(report, kept, not_kept, program, notes=notes, interrupted=interrupted)
        return outcome if asked.graph is None or interrupted else _with_graph(outcome, scenario, engine)


def _explored(
    engine: Engine,
    scenario: Scenario,
    asked: Asked,
    progress: Callable[[Progress], None] | None,
    cancelled: Callable[[], bool] | None,
) -> Exploration:
    about = scenario.registrations, scenario.operators
    if isinstance(engine, Explores):
        return engine.explore(*about, order=scenario.order, progress=progress, **asked.bounds)
    return explore(engine, *about, order=scenario.order, progress=progress, cancelled=cancelled, **asked.bounds)


def _conforming(
    report: Report, engine: Engine, scenario: Scenario, asked: Asked, progress: Callable[[Progress], None] | None
) -> Report:
    """Hold an engine to its model, and say in the report what came of it; where they differ, nothing is as expected."""
    together = conform(
        engine,
        engine.semantics,
        scenario,
        seed=asked.seed,
        passes=asked.passes,
        timeout_s=asked.timeout_s,
        progress=progress,
    )
    report = _noted(report, sentence(together))
    if together.verdict is Verdict.NO_VIOLATION_FOUND:
        return report
    _, code = judge(together.verdict, Expectation.COMMUTES, conflicts=0, require_proof=False)
    return replace(report, as_expected=False, exit_code=max(code, report.exit_code))


def _noted(report: Report, note: str) -> Report:
    return replace(report, exploration=replace(report.exploration, notes=(*report.exploration.notes, note)))


def _engine(name: EngineName, asked: Asked, in_file: str | None) -> AbstractContextManager[Engine]:
    return engine_for(
        name, asked=asked.semantics, in_file=in_file, imports=asked.imports, every_table=asked.every_table
    )


def _stoppable(
    progress: Callable[[Progress], None] | None, cancelled: Callable[[], bool] | None
) -> Callable[[Progress], None] | None:
    """Progress that interrupts: the only thing that is heard here while a walk runs in another process."""
    if cancelled is None:
        return progress

    def told(value: Progress) -> None:
        if progress is not None:
            progress(value)
        if cancelled():
            raise KeyboardInterrupt

    return told


def _kept(scenario: Scenario, report: Report, path: str) -> str | None:
    """The counterexample in the form that the name of its file asks for."""
    told = report.exploration.counterexample
    if told is None:
        return None
    if path.endswith(PROGRAM_SUFFIX):
        return _program(scenario, report)
    if path.endswith(SCENARIO_SUFFIX):
        return cut_text(scenario, told, report.semantics)
    saved = make_replay(
        scenario,
        told.expected_sequence,
        told.actual_sequence,
        engine=report.engine,
        semantics=report.semantics,
        seed=report.exploration.seed,
    )
    return replay_text(saved)


def _program(scenario: Scenario, report: Report) -> str | None:
    """A program for what runs the engine: torch alone for the live one, this package for the lab."""
    told = report.exploration.counterexample
    if told is None:
        return None
    if report.engine != "torch":
        return program_text(scenario, told, report.semantics)
    from dispatchlab.live.program import program_text as torch_program

    if told.expected_sequence == told.actual_sequence:
        raise OneSequenceError
    return torch_program(scenario.registrations, told.expected_sequence, told.actual_sequence, keys=_slots_in(told))


def _slots_in(told: Counterexample) -> tuple[str, ...]:
    """The first keys whose slots differ, by the diff."""
    slots = told.diff.partition(f", {TABLES[1]}\n")[2]
    return tuple(dict.fromkeys(re.findall(r"^[+](\w+): ", slots, re.MULTILINE)))[:2]


def _with_graph(outcome: Outcome, scenario: Scenario, engine: Engine) -> Outcome:
    if not isinstance(engine, Forkable):
        return replace(outcome, not_drawn=str(NotDrawnError(f"the states of the engine {engine.name} cannot be read")))
    report = outcome.report
    try:
        graph = state_graph(
            engine.space(scenario.registrations, scenario.operators),
            report.registrations,
            title=f"{scenario.claim} ({report.semantics}: {report.exploration.verdict})",
            order=scenario.order,
            counterexample=report.exploration.counterexample,
        )
    except NotDrawnError as error:
        return replace(outcome, not_drawn=str(error))
    return replace(outcome, graph=graph)
