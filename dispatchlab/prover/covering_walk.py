"""Covering walk: take every edge at least once on an engine that cannot be forked, each pass in a new sandbox.

The hidden state of the engine cannot be read, so this walk proves nothing: see Note [Why passes are random].
"""

# Note [Why passes are random]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A walk that forks nothing can still try every edge of the graph of sets in one go, n times 2 to the n steps, since
# every set is entered as often as it is left. Which walk matters: one that goes deep and undoes its last step always
# releases the newest registration, and misses whatever needs another release. A random walk comes to each set with
# many histories. So: from here, any edge that this pass has not tried; if there is none, the shortest way to a set that
# has one. No edge is taken for granted before it was walked, and the pass ends at the first disagreement. What one pass
# misses the next one may find, with other numbers and a fresh sandbox, compared against all that earlier passes saw.

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from dispatchlab.prover.chains import Chains, later_masks
from dispatchlab.prover.driver import Run, Steps, Walk
from dispatchlab.prover.prng import SplitMix64

DEFAULT_PASSES: Final = 8


class CoveringWalk(Walk):
    """Take every reachable edge in each of several passes.

    Args:
        count: the number of registrations.
        passes: the number of times to take every edge.
        seed: the seed of all passes; a printed seed repeats the walk.
        order: chains of registrations that are only registered in this order; releases are free.
    """

    name = "covering"
    seed: int
    passes: int

    def __init__(self, count: int, *, passes: int = DEFAULT_PASSES, seed: int = 0, order: Chains = ()) -> None:
        self.count = count
        self.order = order
        self.seed = seed
        self.passes = 0  # that were begun
        self._wanted = passes
        self._tried = self._steps = 0
        self._full = (1 << count) - 1
        self._later = list(enumerate(later_masks(count, order))) if order else []

    def runs(self) -> Iterator[Run]:
        """Return one run for each pass."""
        random = SplitMix64(self.seed)
        for _ in range(self._wanted):
            self.passes += 1
            yield Run(self._pass(random.split(), _Seen({}, {})), is_long=True)

    def coverage(self, *, found: bool) -> list[str]:
        """Return a sentence with the number of tried edges, and of steps."""
        if found or not self._tried:
            return []
        passes = "pass" if self.passes == 1 else "passes"
        return [
            f"{self._tried:,} edges tried in {self._steps:,} steps of {self.passes} {passes}, each in a fresh sandbox"
        ]

    def _pass(self, random: SplitMix64, seen: _Seen) -> Steps:
        """Toggle registrations until every reachable edge was tried."""
        below, untried, stuck = random.below, seen.untried, seen.stuck
        mask = 0
        way: list[int] = []
        while True:
            left = untried.get(mask)
            if left is None:
                left = untried[mask] = self._edges(mask)
            if way:
                index = way.pop()
            elif left:
                for _ in range(below(left.bit_count())):
                    left &= left - 1
                index = (left & -left).bit_length() - 1
            else:
                way = self._way(mask, seen)
                if not way:
                    return
                index = way.pop()
            bit = 1 << index
            if untried[mask] & bit:
                untried[mask] ^= bit
                self._tried += 1
            self._steps += 1
            if (yield ~index if mask & bit else index):
                mask ^= bit
            else:
                stuck[mask] = stuck.get(mask, 0) | bit

    def _edges(self, mask: int) -> int:
        """Return the registrations that may be toggled in a set."""
        edges = self._full
        for index, later in self._later:
            if later & mask and not mask >> index & 1:
                edges ^= 1 << index
        return edges

    def _way(self, start: int, seen: _Seen) -> list[int]:
        """Return the shortest path over known edges to a set with an untried edge; the last toggle comes first."""
        untried, stuck = seen.untried, seen.stuck
        back: dict[int, tuple[int, int]] = {}
        ring = [start]
        while ring:
            further: list[int] = []
            for mask in ring:
                edges = self._edges(mask) & ~stuck.get(mask, 0)
                while edges:
                    bit = edges & -edges
                    edges ^= bit
                    target = mask ^ bit
                    if target == start or target in back:
                        continue
                    back[target] = mask, bit.bit_length() - 1
                    if untried[target]:
                        return _unwound(back, start, target)
                    further.append(target)
            ring = further
        return []


class _Seen(NamedTuple):
    """The knowledge of a pass about the visited sets.

    Args:
        untried: for each set, the registrations that were not toggled there yet.
        stuck: for each set, the registrations that were refused there.
    """

    untried: dict[int, int]
    stuck: dict[int, int]


def _unwound(back: dict[int, tuple[int, int]], start: int, end: int) -> list[int]:
    way = []
    while end != start:
        end, index = back[end]
        way.append(index)
    return way
