"""Makes a counterexample short: tries all short words of few registrations, then leaves out what it can."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Final

from dispatchlab.explore.ledger import Ledger, Pair
from dispatchlab.explore.limits import later_masks
from dispatchlab.explore.protocol import EngineCrashed
from dispatchlab.explore.result import Counterexample, Flaw
from dispatchlab.explore.session import Sessions, WordError
from dispatchlab.explore.telling import tell
from dispatchlab.model.words import Word

STEPS: Final = 60_000
_LONGEST: Final = {1: 4, 2: 6, 3: 6, 4: 6}  # by the number of registrations, how long words get


class _BudgetSpent(Exception):
    """No steps are left."""


def shrink(
    sessions: Sessions, count: int, found: Counterexample, *, order: Sequence[int] = (), steps: int = STEPS
) -> Counterexample:
    """The shortest pair of words that disagrees, as far as it can be found with a number of steps.

    Args:
        sessions: where to run words, each from scratch.
        count: how many registrations there are.
        found: the counterexample to shorten.
        order: registrations that are registered in this order only.
        steps: how many steps may be run; `found`, as short as it then is, is given back when they are spent.
    """
    return _Shrink(sessions, count, order, steps).run(found)


class _Shrink:
    def __init__(self, sessions: Sessions, count: int, order: Sequence[int], steps: int) -> None:
        self.sessions = sessions
        self.later = later_masks(count, order)
        self.left = steps

    def run(self, found: Counterexample) -> Counterexample:
        crash = found.flaw is Flaw.CRASH
        try:
            for size in _LONGEST:
                if size == 3:
                    found = self._without_bystanders(found)
                members = sorted({_index(step) for word in (found.expected_word, found.actual_word) for step in word})
                longest = min(_LONGEST[size], len(found.expected_word) + len(found.actual_word))
                for support in combinations(members, size):
                    short = self._search(support, longest)
                    if short is not None and (short.flaw is Flaw.CRASH) == crash:
                        return short
        except _BudgetSpent:
            pass
        return found

    def _search(self, support: Sequence[int], longest: int) -> Counterexample | None:
        """All words over a few registrations, shorter ones first, each in a fresh session."""
        ledger = Ledger()
        words: list[tuple[Word, int]] = [((), 0)]
        alone: Pair | None = None
        for _ in range(longest):
            longer: list[tuple[Word, int]] = []
            for word, mask in words:
                for index in support:
                    registers = not mask >> index & 1
                    if registers and self.later[index] & mask:
                        continue
                    extended = (*word, index if registers else ~index)
                    after, pair = self._run(ledger, extended, mask)
                    if pair is not None and pair[0] != pair[1]:
                        return self._tell(pair)
                    alone = alone or pair
                    longer.append((extended, after))
            if alone is not None:
                return self._tell(alone)
            words = longer
        return None

    def _run(self, ledger: Ledger, word: Word, mask: int) -> tuple[int, Pair | None]:
        """Run a word whose last step starts in the set `mask`; the set after it, and the words that disagree."""
        self._spend(len(word))
        *before, last = word
        try:
            with self.sessions() as session:
                if not ledger.sets:
                    ledger.seen(0, session.look(), (), 0)
                for step in before:
                    if step >= 0:
                        session.register(step)
                    else:
                        session.release(~step)
                if last < 0:
                    if session.release(~last) is not None:
                        return mask, (word, word)
                    mask ^= 1 << ~last
                else:
                    refusal = session.register(last)
                    pair = ledger.answer(mask, last, refusal, word, len(word))
                    if pair is not None:
                        return mask, pair
                    if refusal is None:
                        mask |= 1 << last
                return mask, ledger.seen(mask, session.look(), word, len(word))
        except EngineCrashed:
            return mask, (word, word)

    def _without_bystanders(self, found: Counterexample) -> Counterexample:
        """Leave out one registration after the other, from both words, as long as they still disagree."""
        for index in sorted({_index(step) for word in (found.expected_word, found.actual_word) for step in word}):
            pair = _without(found.expected_word, index), _without(found.actual_word, index)
            self._spend(len(pair[0]) + len(pair[1]))
            try:
                smaller = tell(self.sessions, *pair)
            except WordError:
                continue
            if smaller is not None and (smaller.flaw is Flaw.CRASH) == (found.flaw is Flaw.CRASH):
                found = smaller
        return found

    def _tell(self, pair: Pair) -> Counterexample | None:
        self._spend(len(pair[0]) + len(pair[1]))
        return tell(self.sessions, *pair)

    def _spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise _BudgetSpent


def _index(step: int) -> int:
    return ~step if step < 0 else step


def _without(word: Word, index: int) -> Word:
    return tuple(step for step in word if _index(step) != index)
