"""Explore whether the order of registrations matters: choose a walk for the engine, and run it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, assert_never

from dispatchlab.model.kernel_identity import distinguished
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Registration
from dispatchlab.prover.chains import Chains, Module, count_orders
from dispatchlab.prover.driver import explore_walk
from dispatchlab.prover.limits import DEFAULT_WALK, Progress, WalkOptions, Watch
from dispatchlab.prover.partition import explore_forkable
from dispatchlab.prover.protocol import Engine, Forkable, StateSpace
from dispatchlab.prover.result import Exploration, Flaw, Verdict
from dispatchlab.prover.run_sequence import (
    Sessions,
    check_determinism,
    compare_sequences,
    on_prefixes,
    on_sandboxes,
    on_states,
    reasons_of,
)


def explore(
    engine: Engine,
    registrations: Sequence[Registration],
    operators: Sequence[OperatorName],
    options: WalkOptions = DEFAULT_WALK,
    *,
    order: Chains = (),
    modules: Sequence[Module] = (),
    cancelled: Callable[[], bool] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Exploration:
    """Explore whether the order of registrations matters on an engine.

    Args:
        engine: the engine.
        registrations: the registrations to make and release.
        operators: the observed operators.
        options: the walk and its bounds.
        order: chains of registrations that are only registered in this order; releases are free.
        modules: registrations that come as a whole, see `explore_modules`; then nothing is released.
        cancelled: a function that returns whether to stop; it is called about ten times a second.
        progress: a function that gets the progress about ten times a second.

    Returns:
        The verdict, its scope, and a counterexample if there is one, verified from scratch.

    Raises:
        Interrupted: Ctrl-C; the error has the results so far.
    """
    if modules:
        from dispatchlab.prover.modules import explore_modules

        about = engine, registrations, operators, modules, options
        return explore_modules(*about, order=order, cancelled=cancelled, progress=progress)
    watch, walk, seed = Watch(options, cancelled=cancelled, progress=progress), options.walk, options.seed
    registrations = distinguished(registrations)
    count = len(registrations)
    fresh = on_sandboxes(engine, registrations, operators)
    if walk in ("auto", "graph") and isinstance(engine, Forkable):
        reduced = walk == "auto"
        result = explore_forkable(
            engine, registrations, operators, order=order, seed=seed, watch=watch, reduced=reduced
        )
        return _verified(result, fresh)

    unsure = check_determinism(fresh, fresh, count, seed=seed, order=order)
    if unsure is not None:
        verdict = Verdict.CRASHED if unsure.flaw is Flaw.CRASH else Verdict.NONDETERMINISTIC
        name = "covering" if walk in ("auto", "graph") else walk
        orders = count_orders(count, order)
        steps = len(unsure.actual_sequence)
        return Exploration(verdict, name, count, 0, 0, steps, orders, counterexample=unsure, elapsed_s=watch.elapsed_s)
    match walk:
        case "orders":
            from dispatchlab.prover.all_orders import AllOrders

            every = AllOrders(count, order=order)
            if not isinstance(engine, Forkable):
                return explore_walk(every, fresh, watch=watch)
            space = engine.space(registrations, operators)
            result = _verified(_explained(explore_walk(every, on_prefixes(space), watch=watch), space), fresh)
            proved = result.verdict is Verdict.NO_VIOLATION_FOUND
            return replace(result, verdict=Verdict.ORDER_INDEPENDENT) if proved else result
        case "auto" | "graph":
            from dispatchlab.prover.covering_walk import DEFAULT_PASSES, CoveringWalk

            passes = options.passes or DEFAULT_PASSES
            covering = CoveringWalk(count, passes=passes, seed=seed, order=order)
            return explore_walk(covering, fresh, watch=watch)
        case "sample":
            from dispatchlab.prover.random_walk import DEFAULT_SAMPLES, RandomWalks

            samples = options.samples or DEFAULT_SAMPLES
            sampled = RandomWalks(count, samples=samples, seed=seed, order=order)
        case _:
            assert_never(walk)
    if not isinstance(engine, Forkable):
        return explore_walk(sampled, fresh, watch=watch)
    space = engine.space(registrations, operators)
    return _verified(_explained(explore_walk(sampled, on_states(space), watch=watch), space), fresh)


def _verified(result: Exploration, fresh: Sessions) -> Exploration:
    """Run the counterexample of a state space in new sandboxes, and say if they do not show it."""
    example = result.counterexample
    if example is None or result.verdict is not Verdict.ORDER_DEPENDENT:
        return result
    if compare_sequences(fresh, example.expected_sequence, example.actual_sequence):
        return result
    return replace(result, notes=(*result.notes, "the counterexample does not show in a fresh sandbox of this engine"))


def _explained(result: Exploration, space: StateSpace[Any]) -> Exploration:
    """Add the engine's reasons."""
    example = result.counterexample
    if example is None or example.why or result.verdict is not Verdict.ORDER_DEPENDENT:
        return result
    return replace(result, counterexample=replace(example, why=reasons_of(space, example)))
