"""Find out whether the order of registrations matters: choose a walk by what the engine can do, and take it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Literal, TypeAlias, assert_never

from dispatchlab.explore.all_orders import AllOrders
from dispatchlab.explore.compare_sequences import check_determinism, compare_sequences
from dispatchlab.explore.covering_walk import DEFAULT_PASSES, CoveringWalk
from dispatchlab.explore.driver import Observed, explore_parts, explore_walk, observe_part
from dispatchlab.explore.limits import Progress, Watch, count_orders
from dispatchlab.explore.partition import explore_forkable
from dispatchlab.explore.protocol import Engine, Forkable, StateSpace
from dispatchlab.explore.random_walk import DEFAULT_SAMPLES, Covered, RandomWalks, Share
from dispatchlab.explore.replay_proof import replay_proof
from dispatchlab.explore.result import Exploration, Flaw, Verdict
from dispatchlab.explore.run_sequence import Sessions, StateSession, on_sandboxes, on_states, run
from dispatchlab.explore.walk_log import WalkLog
from dispatchlab.model.kernel_identity import distinguished
from dispatchlab.model.lifetimes import Lifetimes
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Registration
from dispatchlab.model.sequence import StepSequence

WalkName: TypeAlias = Literal["auto", "graph", "orders", "sample"]


TakenShare: TypeAlias = tuple[Covered, Observed]
TakeShares: TypeAlias = Callable[[Iterator[Share], Callable[[], None]], Iterator[TakenShare]]
"""Takes shares of random walks anywhere and gives what they found in their order; calls its second argument about ten
times a second meanwhile.
"""

_SHARE: Final = 50


def explore(
    engine: Engine,
    registrations: Sequence[Registration],
    operators: Sequence[OperatorName],
    *,
    walk: WalkName = "auto",
    order: Sequence[int] = (),
    max_states: int | None = None,
    timeout_s: float | None = None,
    max_memory: int | None = None,
    passes: int = DEFAULT_PASSES,
    samples: int = DEFAULT_SAMPLES,
    seed: int = 0,
    cancelled: Callable[[], bool] | None = None,
    progress: Callable[[Progress], None] | None = None,
    log: WalkLog | None = None,
    shares: TakeShares | None = None,
) -> Exploration:
    """Find out whether the order of registrations matters on an engine.

    Args:
        engine: the engine.
        registrations: what is registered and released.
        operators: what is observed.
        walk: `auto` proves what it can by the strongest reduction that applies, on a `Forkable` engine; `graph` visits
            every state of it; both take a covering walk on any other engine. `orders` runs every order of registration
            and release; `sample` takes random walks.
        order: registrations that are registered in this order only; releases are free.
        max_states: stop there; None is no bound.
        timeout_s: stop after so many seconds; None is no bound.
        max_memory: stop when so many bytes of memory are used for it; None is no bound.
        passes: how many times to take every edge of an engine that is not `Forkable`.
        samples: how many random walks to take.
        seed: of everything that is chosen at random.
        cancelled: called about ten times a second to ask whether to stop.
        progress: called about ten times a second with how far it has come.
        log: what graph walks have done in an earlier run; they go on from there.
        shares: takes shares of random walks elsewhere; None takes them here. Every way finds the same.

    Returns:
        The verdict, what it stands for, and a counterexample when there is one, verified from scratch.

    Raises:
        Interrupted: by Ctrl-C, with what was covered.
    """
    watch = Watch(
        max_states=max_states,
        timeout_s=timeout_s,
        max_memory=max_memory,
        cancelled=cancelled,
        progress=progress,
        log=log,
    )
    registrations = distinguished(registrations)
    count, lifetimes = len(registrations), Lifetimes.of(registrations)
    fresh = on_sandboxes(engine, registrations, operators)
    if walk in ("auto", "graph") and isinstance(engine, Forkable):
        found = explore_forkable(
            engine, registrations, operators, order=order, seed=seed, watch=watch, reduced=walk == "auto"
        )
        return replay_proof(
            _verified(found, fresh),
            lambda: engine.space(registrations, operators),
            fresh,
            order=order,
            seed=seed,
            watch=watch,
        )

    unsure = check_determinism(fresh, fresh, count, seed=seed, order=order)
    if unsure is not None:
        verdict = Verdict.CRASHED if unsure.flaw is Flaw.CRASH else Verdict.NONDETERMINISTIC
        name = "covering" if walk in ("auto", "graph") else walk
        orders = count_orders(count, order)
        steps = len(unsure.actual_sequence)
        return Exploration(verdict, name, count, 0, 0, steps, orders, counterexample=unsure, elapsed_s=watch.elapsed_s)
    match walk:
        case "orders":
            return explore_walk(AllOrders(count, order=order, lifetimes=lifetimes), fresh, watch=watch)
        case "auto" | "graph":
            covering = CoveringWalk(count, passes=passes, seed=seed, order=order, lifetimes=lifetimes)
            return explore_walk(covering, fresh, watch=watch)
        case "sample":
            sampled = RandomWalks(count, samples=samples, seed=seed, order=order, lifetimes=lifetimes)
        case _:
            assert_never(walk)
    if not isinstance(engine, Forkable):
        return explore_walk(sampled, fresh, watch=watch)
    space = engine.space(registrations, operators)
    if shares is None:
        found = explore_walk(sampled, on_states(space), watch=watch)
    else:
        found = explore_parts(sampled, on_states(space), partial(_shares_taken, sampled, shares), watch=watch)
    return _verified(_explained(found, space), fresh)


def _shares_taken(walk: RandomWalks, take: TakeShares, tick: Callable[[], None]) -> Generator[Observed, None, None]:
    for covered, observed in take(walk.shares(_SHARE), tick):
        walk.add(covered)
        yield observed


def take_share(
    engine: Forkable,
    registrations: Sequence[Registration],
    operators: Sequence[OperatorName],
    share: Share,
    *,
    order: Sequence[int] = (),
    timeout_s: float | None = None,
    max_memory: int | None = None,
) -> TakenShare:
    """Take a share of the random walks of `explore`, for `shares`; the arguments are as there."""
    registrations = distinguished(registrations)
    walk = RandomWalks(len(registrations), order=order, lifetimes=Lifetimes.of(registrations)).share(share)
    watch = Watch(timeout_s=timeout_s, max_memory=max_memory)
    observed = observe_part(walk, on_states(engine.space(registrations, operators)), watch=watch)
    return walk.covered, observed


def _verified(found: Exploration, fresh: Sessions) -> Exploration:
    """Run the counterexample of a state space in fresh sandboxes, and say so when it does not show there."""
    example = found.counterexample
    if example is None or found.verdict is not Verdict.ORDER_DEPENDENT:
        return found
    if compare_sequences(fresh, example.expected_sequence, example.actual_sequence):
        return found
    return replace(found, notes=(*found.notes, "the counterexample does not show in a fresh sandbox of this engine"))


def _explained(found: Exploration, space: StateSpace[Any]) -> Exploration:
    """Add what the engine knows of the reasons."""
    example = found.counterexample
    if example is None or example.why or found.verdict is not Verdict.ORDER_DEPENDENT or example.flaw is Flaw.ASYMMETRY:
        return found
    last = 1 if example.flaw is Flaw.OUTCOME else 0
    sequences = example.expected_sequence, example.actual_sequence
    states = [_state(space, sequence[: len(sequence) - last]) for sequence in sequences]
    return replace(found, counterexample=replace(example, why=space.why(*states)))


def _state(space: StateSpace[Any], sequence: StepSequence) -> Any:
    session = StateSession(space)
    for _ in run(session, sequence):
        pass
    return session.state
