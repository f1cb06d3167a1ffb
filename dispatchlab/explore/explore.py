"""Does the order of these registrations matter? The one entry point: chooses a walk by what the engine can do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from dispatchlab.explore.all_orders import explore_orders
from dispatchlab.explore.compare_sequences import tell
from dispatchlab.explore.conclude import check_determinism
from dispatchlab.explore.covering_walk import DEFAULT_PASSES, explore_covering_walk
from dispatchlab.explore.limits import Progress, Watch, count_orders
from dispatchlab.explore.partition import explore_forkable
from dispatchlab.explore.protocol import Engine, Forkable, StateSpace
from dispatchlab.explore.random_walk import DEFAULT_SAMPLES, explore_sample
from dispatchlab.explore.result import Counterexample, Exploration, Flaw, Verdict
from dispatchlab.explore.run_sequence import Sessions, StateSession, on_sandboxes, on_states, run
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Registration
from dispatchlab.model.sequence import StepSequence

WalkName: TypeAlias = Literal["graph", "orders", "sample"]


def explore(
    engine: Engine,
    registrations: Sequence[Registration],
    operators: Sequence[OperatorName],
    *,
    walk: WalkName = "graph",
    order: Sequence[int] = (),
    max_states: int | None = None,
    timeout_s: float | None = None,
    passes: int = DEFAULT_PASSES,
    samples: int = DEFAULT_SAMPLES,
    seed: int = 0,
    factored: bool = True,
    cancelled: Callable[[], bool] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Exploration:
    """Find out whether the order of registrations matters on an engine.

    Args:
        engine: the engine.
        registrations: what is registered and released.
        operators: what is observed.
        walk: `graph` visits every state of a `Forkable` engine and takes a covering walk on any other; `orders` runs
            every order of registration and release; `sample` takes random walks.
        order: registrations that are registered in this order only; releases are free.
        max_states: stop there; None is no bound.
        timeout_s: stop after so many seconds; None is no bound.
        passes: how many times to take every edge of an engine that is not `Forkable`.
        samples: how many random walks to take.
        seed: of everything that is chosen at random.
        factored: whether independent parts may be explored apart.
        cancelled: asked about ten times a second whether to stop.
        progress: told about ten times a second how far it has come.

    Returns:
        The verdict, what it stands for, and a counterexample when there is one, verified from scratch.

    Raises:
        Interrupted: by Ctrl-C, with what was covered.
    """
    watch = Watch(max_states=max_states, timeout_s=timeout_s, cancelled=cancelled, progress=progress)
    count = len(registrations)
    fresh = on_sandboxes(engine, registrations, operators)
    if walk == "graph" and isinstance(engine, Forkable):
        found = explore_forkable(
            engine, registrations, operators, order=order, seed=seed, watch=watch, factored=factored
        )
        return _verified(found, fresh)

    unsure = check_determinism(fresh, fresh, count, seed=seed, order=order)
    if unsure is not None:
        verdict = Verdict.CRASHED if unsure.flaw is Flaw.CRASH else Verdict.NONDETERMINISTIC
        name = "covering" if walk == "graph" else walk
        orders = count_orders(count, order)
        steps = len(unsure.actual_sequence)
        return Exploration(verdict, name, count, 0, 0, steps, orders, counterexample=unsure, elapsed_s=watch.elapsed_s)
    if walk == "orders":
        return explore_orders(fresh, count, order=order, watch=watch)
    if walk == "graph":
        return explore_covering_walk(fresh, count, passes=passes, seed=seed, order=order, watch=watch)
    if not isinstance(engine, Forkable):
        return explore_sample(fresh, count, samples=samples, seed=seed, order=order, watch=watch)
    space = engine.space(registrations, operators)
    found = explore_sample(on_states(space), count, samples=samples, seed=seed, order=order, watch=watch)
    return _verified(_explained(found, space), fresh)


def _verified(found: Exploration, fresh: Sessions) -> Exploration:
    """Run the counterexample of a state space in fresh sandboxes, and say so when it does not show there."""
    told = found.counterexample
    if (
        told is None
        or found.verdict is not Verdict.VIOLATED
        or tell(fresh, told.expected_sequence, told.actual_sequence)
    ):
        return found
    return replace(found, notes=(*found.notes, "the counterexample does not show in a fresh sandbox of this engine"))


def _explained(found: Exploration, space: StateSpace[Any]) -> Exploration:
    """Add what the engine knows of the reasons."""
    told = found.counterexample
    if told is None or told.why or found.verdict is not Verdict.VIOLATED or told.flaw is Flaw.ASYMMETRY:
        return found
    last = 1 if told.flaw is Flaw.OUTCOME else 0
    states = [
        _state(space, sequence[: len(sequence) - last]) for sequence in (told.expected_sequence, told.actual_sequence)
    ]
    explained: Counterexample = replace(told, why=space.why(*states))
    return replace(found, counterexample=explained)


def _state(space: StateSpace[Any], sequence: StepSequence) -> Any:
    session = StateSession(space)
    for _ in run(session, sequence):
        pass
    return session.state
