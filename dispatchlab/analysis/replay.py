"""Replay a saved counterexample on its engine, and a live engine's counterexample on its model."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter
from typing import Any

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.engine.semantics import SEMANTICS
from dispatchlab.explore.compare_sequences import tell
from dispatchlab.explore.protocol import Engine, Forkable, StateSpace
from dispatchlab.explore.result import Counterexample, Exploration, Flaw, Verdict
from dispatchlab.explore.run_sequence import StateSession, on_sandboxes, run
from dispatchlab.model.sequence import StepSequence, format_sequence
from dispatchlab.scenario.replay_file import Replay, resolve
from dispatchlab.scenario.scenario import Scenario


def model_of(engine: Engine) -> LabEngine | None:
    """The lab engine that behaves as this one should; None for an engine that nobody has a model of, or is one."""
    if isinstance(engine, LabEngine) or engine.semantics not in SEMANTICS:
        return None
    return LabEngine(engine.semantics)


def explained(engine: Engine, scenario: Scenario, found: Exploration) -> Exploration:
    """Ask the model for the reasons that an engine does not know, if the sequences disagree there too."""
    told, model = found.counterexample, model_of(engine)
    if told is None or told.why or model is None or found.verdict is not Verdict.VIOLATED:
        return found
    sessions = on_sandboxes(model, scenario.registrations, scenario.operators)
    same = tell(sessions, told.expected_sequence, told.actual_sequence)
    if same is None or same.flaw is not told.flaw:
        return found
    reasons = _why(model.space(scenario.registrations, scenario.operators), told)
    return replace(found, counterexample=replace(told, why=reasons))


def replayed(engine: Engine, scenario: Scenario, saved: Replay) -> Exploration:
    """Run the two sequences of a saved counterexample again."""
    started = perf_counter()
    expected, actual = resolve(saved, scenario)
    sessions = on_sandboxes(engine, scenario.registrations, scenario.operators)
    told = tell(sessions, expected, actual)
    if told is not None and isinstance(engine, Forkable) and told.flaw is not Flaw.CRASH:
        space = engine.space(scenario.registrations, scenario.operators)
        told = replace(told, why=_why(space, told))
    sequences = {expected, actual}
    if told is None:
        verdict = Verdict.NO_VIOLATION_FOUND
        notes = [f"{format_sequence(expected)} and {format_sequence(actual)} lead to the same"]
    else:
        verdict = Verdict.CRASHED if told.flaw is Flaw.CRASH else Verdict.VIOLATED
        notes = []
    sets = len({active for sequence in sequences for active in _sets(sequence)})
    return Exploration(
        verdict=verdict,
        walk="replay",
        registrations=len(scenario.registrations),
        sets=sets,
        states=sets,
        edges=sum(map(len, sequences)),
        orders=len(sequences),
        counterexample=told,
        notes=tuple(notes),
        elapsed_s=perf_counter() - started,
        seed=saved.seed,
    )


def _why(space: StateSpace[Any], told: Counterexample) -> tuple[str, ...]:
    if told.flaw in (Flaw.ASYMMETRY, Flaw.RELEASE):
        return ()
    last = 1 if told.flaw is Flaw.OUTCOME else 0
    states = []
    for sequence in (told.expected_sequence, told.actual_sequence):
        session = StateSession(space)
        for _ in run(session, sequence[: len(sequence) - last]):
            pass
        states.append(session.state)
    return space.why(*states)


def _sets(sequence: StepSequence) -> set[frozenset[int]]:
    active: frozenset[int] = frozenset()
    reached = {active}
    for step in sequence:
        active = active - {~step} if step < 0 else active | {step}
        reached.add(active)
    return reached
