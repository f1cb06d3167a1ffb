"""What every walk on sandboxes does at its end: verify what it found, shorten it, and put the result together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dispatchlab.explore.graph import minimal_conflicts
from dispatchlab.explore.ledger import Covered, Pair
from dispatchlab.explore.limits import Watch, count_orders
from dispatchlab.explore.protocol import EngineCrashed
from dispatchlab.explore.result import Counterexample, Exploration, Flaw, Verdict
from dispatchlab.explore.session import Sessions, WordError
from dispatchlab.explore.shrink import shrink
from dispatchlab.explore.telling import tell
from dispatchlab.model.words import Word


def conclude(sessions: Sessions, count: int, pair: Pair, *, order: Sequence[int]) -> tuple[Verdict, Counterexample]:
    """Verify that two words disagree when they are run from scratch, and make them short.

    Returns:
        `VIOLATED`, or `NOT_DETERMINISTIC` when they agree this time or one of them cannot be run, or `CRASHED` when one
        of them ends the engine.
    """
    why: tuple[str, ...] = ("the words disagreed in a walk and agree when they are run from scratch",)
    try:
        found = tell(sessions, *pair) or tell(sessions, pair[1], pair[1])
    except WordError as error:
        found, why = None, (f"a word of a walk cannot be run from scratch: {error}",)
    if found is None:
        return Verdict.NOT_DETERMINISTIC, Counterexample(Flaw.CHANCE, *pair, "", why)
    return _shortened(sessions, count, found, order)


def crashed(
    sessions: Sessions, count: int, word: Word, crash: EngineCrashed, *, order: Sequence[int]
) -> tuple[Verdict, Counterexample]:
    """Make the word that ended the engine short."""
    return _shortened(sessions, count, Counterexample(Flaw.CRASH, word, word, "", (crash.text,)), order)


def _shortened(
    sessions: Sessions, count: int, found: Counterexample, order: Sequence[int]
) -> tuple[Verdict, Counterexample]:
    trouble = None
    try:
        found = shrink(sessions, count, found, order=order)
    except KeyboardInterrupt:
        trouble = "shortening was interrupted"
    except WordError as error:
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
    laps: int | None = None,
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
        laps=laps,
    )
