"""Covering walk: take every edge at least once on an engine that cannot be forked, each pass in a fresh sandbox.

Its hidden state cannot be read, so nothing is ever proved here: see Note [Why passes are random].
"""

# Note [Why passes are random]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~
# A walk that forks nothing can still try every edge of the graph of sets in one go, n times 2 to the n steps, since
# every set is entered as often as it is left. Which walk matters: one that goes deep and undoes its last step always
# releases the newest registration, and misses whatever needs another release. A random walk comes to each set with
# many histories. So: from here, any edge that this pass has not tried; if there is none, the shortest way to a set that
# has one. No edge is taken for granted before it was walked, and the pass ends at the first disagreement. What one pass
# misses the next one may find, with other numbers and a fresh sandbox, compared against all that earlier passes saw.

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dispatchlab.explore.conclude import conclude, crashed, result
from dispatchlab.explore.limits import Interrupted, Watch, count_edges, later_masks
from dispatchlab.explore.observation_table import Ledger, Pair
from dispatchlab.explore.prng import SplitMix64
from dispatchlab.explore.protocol import EngineCrashed
from dispatchlab.explore.result import Counterexample, Exploration, Verdict
from dispatchlab.explore.run_sequence import Session, Sessions

DEFAULT_PASSES: Final = 8


def explore_covering_walk(
    sessions: Sessions,
    count: int,
    *,
    passes: int = DEFAULT_PASSES,
    seed: int = 0,
    order: Sequence[int] = (),
    watch: Watch | None = None,
) -> Exploration:
    """Walk `passes` random passes, and shorten what they find.

    Args:
        sessions: fresh sandboxes.
        count: how many registrations there are.
        passes: how many times to try every edge.
        seed: of all the passes; a printed seed replays.
        order: registrations that are registered in this order only; releases are free.
        watch: bounds and progress.

    Returns:
        `NO_VIOLATION_FOUND` with its coverage, `VIOLATED`, `INCOMPLETE`, `NONDETERMINISTIC` or `CRASHED`.

    Raises:
        Interrupted: by Ctrl-C, with what was covered.
    """
    total = passes * count_edges(count, order)
    watch = watch or Watch(total_edges=total)
    random = SplitMix64(seed)
    ledger = Ledger()
    walked: list[_Pass] = []

    def put(verdict: Verdict, found: Counterexample | None = None, notes: Sequence[str] = ()) -> Exploration:
        return result(
            "covering",
            count,
            ledger.covered(),
            watch,
            order=order,
            steps=sum(len(walk.steps) for walk in walked),
            verdict=verdict,
            found=found,
            notes=notes,
            seed=seed,
            passes=len(walked),
        )

    try:
        for _ in range(passes):
            walk = _Pass(count, order, random.split(), ledger, watch, sum(len(walk.steps) for walk in walked))
            walked.append(walk)
            try:
                with sessions() as session:
                    pair = walk.walk(session)
            except EngineCrashed as crash:
                verdict, found = crashed(sessions, count, tuple(walk.steps), crash, order=order)
                return put(verdict, found)
            if pair is not None:
                verdict, found = conclude(sessions, count, pair, order=order)
                return put(verdict, found)
            if walk.stopped is not None:
                return put(Verdict.INCOMPLETE, notes=[walk.stopped, *_coverage(walked)])
    except MemoryError:
        return put(Verdict.INCOMPLETE, notes=["stopped because the memory was used up"])
    except KeyboardInterrupt:
        raise Interrupted(put(Verdict.INCOMPLETE, notes=["interrupted", *_coverage(walked)])) from None
    return put(Verdict.NO_VIOLATION_FOUND, notes=_coverage(walked))


class _Pass:
    """One walk through a fresh sandbox that tries every edge it can reach."""

    def __init__(
        self, count: int, order: Sequence[int], random: SplitMix64, ledger: Ledger, watch: Watch, before: int
    ) -> None:
        self.steps: list[int] = []
        self.stopped: str | None = None
        self.tried = 0
        self._before = before
        self._full = (1 << count) - 1
        self._later = list(enumerate(later_masks(count, order))) if order else []
        self._below = random.below
        self._ledger = ledger
        self._watch = watch
        self._untried: dict[int, int] = {}
        self._stuck: dict[int, int] = {}  # by set, the registrations that were refused there

    def walk(self, session: Session) -> Pair | None:
        """Walk until every edge that can be reached was tried, a bound is hit, or two sequences disagree."""
        steps, untried, ledger = self.steps, self._untried, self._ledger
        register, release, look = session.register, session.release, session.look
        seen, answer, below, stop = ledger.seen, ledger.answer, self._below, self._watch.stop
        pair = seen(0, look(), steps, 0)
        if pair is not None:
            return pair
        mask = 0
        way: list[int] = []
        untried[0] = self._edges(0)
        while True:
            reason = stop(ledger.sets, ledger.sets, self._before + len(steps))
            if reason is not None:
                self.stopped = reason
                return None
            left = untried[mask]
            if way:
                index = way.pop()
            elif left:
                for _ in range(below(left.bit_count())):
                    left &= left - 1
                index = (left & -left).bit_length() - 1
            else:
                way = self._way(mask)
                if not way:
                    return None
                index = way.pop()
            bit = 1 << index
            if untried[mask] & bit:
                untried[mask] ^= bit
                self.tried += 1
            if mask & bit:
                steps.append(~index)
                if release(index) is not None:
                    return tuple(steps), tuple(steps)
                mask ^= bit
            else:
                steps.append(index)
                refusal = register(index)
                pair = answer(mask, index, refusal, steps, len(steps))
                if pair is not None:
                    return pair
                if refusal is None:
                    mask |= bit
                else:
                    self._stuck[mask] = self._stuck.get(mask, 0) | bit
            pair = seen(mask, look(), steps, len(steps))
            if pair is not None:
                return pair
            if mask not in untried:
                untried[mask] = self._edges(mask)

    def _edges(self, mask: int) -> int:
        """The registrations that may be toggled in a set."""
        edges = self._full
        for index, later in self._later:
            if later & mask and not mask >> index & 1:
                edges ^= 1 << index
        return edges

    def _way(self, start: int) -> list[int]:
        """The shortest way over edges that were walked to a set with an edge that was not; last toggle first."""
        back: dict[int, tuple[int, int]] = {}
        ring = [start]
        while ring:
            further: list[int] = []
            for mask in ring:
                edges = self._edges(mask) & ~self._stuck.get(mask, 0)
                while edges:
                    bit = edges & -edges
                    edges ^= bit
                    target = mask ^ bit
                    if target == start or target in back:
                        continue
                    back[target] = mask, bit.bit_length() - 1
                    if self._untried[target]:
                        return _unwound(back, start, target)
                    further.append(target)
            ring = further
        return []


def _unwound(back: dict[int, tuple[int, int]], start: int, end: int) -> list[int]:
    way = []
    while end != start:
        end, index = back[end]
        way.append(index)
    return way


def _coverage(passes: Sequence[_Pass]) -> list[str]:
    steps, tried = sum(len(walk.steps) for walk in passes), sum(walk.tried for walk in passes)
    if not tried:
        return []
    many = "pass" if len(passes) == 1 else "passes"
    return [f"{tried:,} edges tried in {steps:,} steps of {len(passes)} {many}, each in a fresh sandbox"]
