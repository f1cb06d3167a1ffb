"""Conclude a walk: verify what it found, shorten it, and put the result together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dispatchlab.explore.compare_sequences import tell
from dispatchlab.explore.difference import difference, outcome_difference, outcome_text
from dispatchlab.explore.graph_walk import minimal_conflicts
from dispatchlab.explore.limits import Watch, count_orders
from dispatchlab.explore.observation_table import Covered, Pair
from dispatchlab.explore.prng import SplitMix64
from dispatchlab.explore.protocol import EngineCrashed
from dispatchlab.explore.result import Counterexample, Exploration, Flaw, Verdict
from dispatchlab.explore.run_sequence import Look, SequenceError, Session, Sessions
from dispatchlab.explore.shrink import shrink
from dispatchlab.model.sequence import StepSequence
from dispatchlab.model.snapshot import Refusal

_LOOKED_AT_EVERY_STEP: Final = 32


def full_sequence(count: int, random: SplitMix64, *, order: Sequence[int] = ()) -> StepSequence:
    """A random sequence that registers everything, then releases everything; registrations keep `order`."""
    registered, released = list(range(count)), list(range(count))
    random.shuffle(registered)
    random.shuffle(released)
    ordered = iter(order)
    members = frozenset(order)
    return (*(next(ordered) if index in members else index for index in registered), *(~index for index in released))


def check_determinism(
    first: Sessions, second: Sessions, count: int, *, seed: int, order: Sequence[int] = ()
) -> Counterexample | None:
    """Run one sequence twice and compare every outcome and what is seen.

    Args:
        first: where to run it first.
        second: where to run it again.
        count: how many registrations there are; when there are many, only the turn and the end are looked at.
        seed: of the sequence.
        order: registrations that are registered in this order only.

    Returns:
        The sequence and the difference, or the sequence that ended the engine (`Flaw.CRASH`), or None when all is well.
    """
    sequence = full_sequence(count, SplitMix64(seed), order=order)
    looks = frozenset(range(2 * count)) if count <= _LOOKED_AT_EVERY_STEP else frozenset({count - 1, 2 * count - 1})
    steps: list[int] = []
    try:
        with first() as session:
            once = _record(session, sequence, looks, steps)
        with second() as session:
            twice = _record(session, sequence, looks, steps)
    except EngineCrashed as crash:
        return Counterexample(Flaw.CRASH, tuple(steps), tuple(steps), "", (crash.text,))
    ran: list[int] = []
    for (step, refusal, look), (_, refusal_again, look_again) in zip(once, twice, strict=False):
        ran.append(step)
        diff = outcome_difference(outcome_text(step, refusal), outcome_text(step, refusal_again))
        if not diff and look is not None and look_again is not None:
            diff = difference(look[0], look_again[0], expected_broken=look[1], actual_broken=look_again[1])
        if diff:
            return Counterexample(Flaw.NONDETERMINISTIC, tuple(ran), tuple(ran), diff)
    return None


def _record(
    session: Session, sequence: StepSequence, looks: frozenset[int], steps: list[int]
) -> list[tuple[int, Refusal | None, Look | None]]:
    """What came of every step, without the releases of what was refused; `steps` is left at the steps that were run."""
    steps.clear()
    record: list[tuple[int, Refusal | None, Look | None]] = []
    refused: set[int] = set()
    for at, step in enumerate(sequence):
        if step < 0 and ~step in refused:
            continue
        steps.append(step)
        refusal = session.release(~step) if step < 0 else session.register(step)
        if step >= 0 and refusal is not None:
            refused.add(step)
        record.append((step, refusal, session.look() if at in looks else None))
    return record


def conclude(sessions: Sessions, count: int, pair: Pair, *, order: Sequence[int]) -> tuple[Verdict, Counterexample]:
    """Verify that two sequences disagree when they are run from scratch, and make them short.

    Returns:
        `VIOLATED`, or `NONDETERMINISTIC` when they agree this time or one of them cannot be run, or `CRASHED` when one
        of them ends the engine.
    """
    why: tuple[str, ...] = ("the sequences disagreed in a walk and agree when they are run from scratch",)
    try:
        found = tell(sessions, *pair) or tell(sessions, pair[1], pair[1])
    except SequenceError as error:
        found, why = None, (f"a sequence of a walk cannot be run from scratch: {error}",)
    if found is None:
        return Verdict.NONDETERMINISTIC, Counterexample(Flaw.NONDETERMINISTIC, *pair, "", why)
    return _shortened(sessions, count, found, order)


def crashed(
    sessions: Sessions, count: int, sequence: StepSequence, crash: EngineCrashed, *, order: Sequence[int]
) -> tuple[Verdict, Counterexample]:
    """Make the sequence that ended the engine short."""
    return _shortened(sessions, count, Counterexample(Flaw.CRASH, sequence, sequence, "", (crash.text,)), order)


def _shortened(
    sessions: Sessions, count: int, found: Counterexample, order: Sequence[int]
) -> tuple[Verdict, Counterexample]:
    trouble = None
    try:
        found = shrink(sessions, count, found, order=order)
    except KeyboardInterrupt:
        trouble = "shortening was interrupted"
    except SequenceError as error:
        trouble = f"it could not be made shorter: {error}"
    if trouble is not None:
        found = replace(found, why=(*found.why, trouble))
    return (Verdict.CRASHED if found.flaw is Flaw.CRASH else Verdict.VIOLATED), found


def result(
    walk: str,
    count: int,
    covered: Covered,
    watch: Watch,
    *,
    order: Sequence[int],
    steps: int,
    verdict: Verdict,
    found: Counterexample | None = None,
    notes: Sequence[str] = (),
    seed: int | None = None,
    passes: int | None = None,
) -> Exploration:
    """The result of a walk that cannot read the engine's state."""
    done = verdict is Verdict.NO_VIOLATION_FOUND
    return Exploration(
        verdict=verdict,
        walk=walk,
        registrations=count,
        sets=covered.sets,
        states=covered.sets,
        edges=steps,
        orders=count_orders(count, order),
        conflicts=() if found is not None else minimal_conflicts(covered.refused, covered.asymmetric, range(count)),
        never_accepted=tuple(i for i in range(count) if done and not covered.accepted >> i & 1),
        counterexample=found,
        notes=tuple(notes),
        elapsed_s=watch.elapsed_s,
        seed=seed,
        passes=passes,
    )
