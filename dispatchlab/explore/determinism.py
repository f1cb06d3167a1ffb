"""Whether an engine gives the same result twice; asked before anything else is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dispatchlab.explore.difference import difference, outcome_difference, outcome_text
from dispatchlab.explore.prng import SplitMix64
from dispatchlab.explore.protocol import EngineCrashed, Refusal
from dispatchlab.explore.result import Counterexample, Flaw
from dispatchlab.explore.session import Look, Session, Sessions
from dispatchlab.model.words import Word

_LOOKED_AT_EVERY_STEP: Final = 32


def full_word(count: int, random: SplitMix64, *, order: Sequence[int] = ()) -> Word:
    """A random word that registers everything, then releases everything; registrations keep `order`."""
    registered, released = list(range(count)), list(range(count))
    random.shuffle(registered)
    random.shuffle(released)
    ordered = iter(order)
    members = frozenset(order)
    return (*(next(ordered) if index in members else index for index in registered), *(~index for index in released))


def check_determinism(
    first: Sessions, second: Sessions, count: int, *, seed: int, order: Sequence[int] = ()
) -> Counterexample | None:
    """Run one word twice and compare every outcome and what is seen.

    Args:
        first: where to run it first.
        second: where to run it again.
        count: how many registrations there are; when there are many, only the turn and the end are looked at.
        seed: of the word.
        order: registrations that are registered in this order only.

    Returns:
        The word and the difference, or the word that ended the engine (`Flaw.CRASH`), or None when all is well.
    """
    word = full_word(count, SplitMix64(seed), order=order)
    looks = frozenset(range(2 * count)) if count <= _LOOKED_AT_EVERY_STEP else frozenset({count - 1, 2 * count - 1})
    steps: list[int] = []
    try:
        with first() as session:
            once = _record(session, word, looks, steps)
        with second() as session:
            twice = _record(session, word, looks, steps)
    except EngineCrashed as crash:
        return Counterexample(Flaw.CRASH, tuple(steps), tuple(steps), "", (crash.text,))
    ran: list[int] = []
    for (step, refusal, look), (_, refusal_again, look_again) in zip(once, twice, strict=False):
        ran.append(step)
        diff = outcome_difference(outcome_text(step, refusal), outcome_text(step, refusal_again))
        if not diff and look is not None and look_again is not None:
            diff = difference(look[0], look_again[0], expected_broken=look[1], actual_broken=look_again[1])
        if diff:
            return Counterexample(Flaw.CHANCE, tuple(ran), tuple(ran), diff)
    return None


def _record(
    session: Session, word: Word, looks: frozenset[int], steps: list[int]
) -> list[tuple[int, Refusal | None, Look | None]]:
    """What came of every step, without the releases of what was refused; `steps` is left at the steps that were run."""
    steps.clear()
    record: list[tuple[int, Refusal | None, Look | None]] = []
    refused: set[int] = set()
    for at, step in enumerate(word):
        if step < 0 and ~step in refused:
            continue
        steps.append(step)
        refusal = session.release(~step) if step < 0 else session.register(step)
        if step >= 0 and refusal is not None:
            refused.add(step)
        record.append((step, refusal, session.look() if at in looks else None))
    return record
