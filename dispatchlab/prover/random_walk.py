"""Random walk: sampled steps where the state graph is too large."""

# Note [Random walks]
# ~~~~~~~~~~~~~~~~~~~
# A random walk hardly ever stands twice on the same set, so it has nothing to compare. Here, a walk chooses a set S and
# extras X, mixes all of +S, +X and -X at random so that the sequence ends at S, and compares that with S registered
# from scratch in ascending order. Both few and many members are tried (15, 50 and 85 in a hundred). Whatever was
# refused on the way is asked again after a direct way to the same set, and a direct way that is refused is compared
# with the release and return of its last member. This finds needles of a few active and a few inactive registrations,
# and state that sticks, but it proves nothing.

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, factorial, log
from typing import Final

from dispatchlab.prover.chains import Chains, keeping
from dispatchlab.prover.checker import Observations
from dispatchlab.prover.driver import Run, Steps, Walk
from dispatchlab.prover.prng import SplitMix64

DEFAULT_SAMPLES: Final = 1_000
_DENSITIES: Final = (15, 50, 85)
_REFUSALS_ASKED_AGAIN: Final = 4


def sequences_needed(depth: int, ordered: int) -> int:
    """Return the number of random walks that find a flaw with a confidence of 95 %; this is an estimate, not a proof.

    Args:
        depth: the number of registrations that must be active, inactive or in order to show the flaw.
        ordered: the number of these that must be in one certain order.
    """
    return ceil((1 << depth) * factorial(ordered) * log(1 / 0.05))


class RandomWalks(Walk):
    """Random walks, each compared with a direct sequence to its last active set.

    Args:
        count: the number of registrations.
        samples: the number of random walks.
        seed: the seed of all walks; a printed seed repeats them.
        order: chains of registrations that are only registered in this order; releases are free.
    """

    name = "sample"
    looks_at_every_step = False
    seed: int

    def __init__(self, count: int, *, samples: int = DEFAULT_SAMPLES, seed: int = 0, order: Chains = ()) -> None:
        self.count = count
        self.order = tuple(order)
        self.seed = seed
        self._samples = samples
        self._random = SplitMix64(seed)
        self._ends: set[int] = set()
        self._neighbours: set[tuple[int, int]] = set()
        self._walk = _Way()
        self._refused = False
        self._taken = 0

    def runs(self) -> Iterator[Run]:
        """Return a random walk, then the sequences to compare it with."""
        for _ in range(self._samples):
            walk = self._walk = _Way()
            yield Run(self._steps(walk, self._plan()))
            for base, index in walk.refused[:_REFUSALS_ASKED_AGAIN]:
                yield Run(self._steps(_Way(), [*self._direct(base), index]), continues=True)
            direct = _Way()
            yield Run(self._steps(direct, self._direct(walk.mask)), continues=True)
            if direct.mask != walk.mask:
                base, index = direct.refused[0]
                others = [other for other in range(self.count) if (walk.mask & ~base) >> other & 1 and other != index]
                back = [*walk.taken, *(~other for other in others), ~index, index]
                yield Run(self._steps(_Way(), back), continues=True)

    def ended(self, run: Run) -> None:
        """Count a random walk and note its last state."""
        if not run.continues:
            self._taken += 1
            self._ends.add(self._walk.mask)

    def sets(self, observations: Observations) -> int:
        """Return the number of active sets at the end of random walks."""
        return len(self._ends)

    def coverage(self, *, found: bool) -> list[str]:
        """Return sentences about the extent of the walk, and how much it shows without a counterexample."""
        both = sum(1 for first, second in self._neighbours if first < second and (second, first) in self._neighbours)
        depth = 0
        while sequences_needed(depth + 1, 2) <= self._taken:
            depth += 1
        notes = [
            f"{self._taken:,} random walks came to {len(self._ends):,} distinct sets; {both:,} of "
            f"{self.count * (self.count - 1) // 2:,} pairs were registered next to one another both ways"
        ]
        if found:
            return notes
        if depth >= 2:
            notes.append(
                f"an estimate, not a proof: a flaw that needs {depth} registrations active or absent, 2 of them in one "
                "order, would have shown with 95 % confidence "
                f"(N >= 2^d * r! * ln(1/0.05) = {sequences_needed(depth, 2):,})"
            )
        if self._refused:
            notes.append("these are the smallest conflicts that the walks met; smaller ones may exist")
        return notes

    def _steps(self, way: _Way, plan: Sequence[int]) -> Steps:
        """Return a plan without the releases of refused registrations."""
        for step in plan:
            if step < 0:
                if way.mask >> ~step & 1:
                    way.taken.append(step)
                    yield step
                    way.mask &= ~(1 << ~step)
                continue
            if way.taken and way.taken[-1] >= 0:
                self._neighbours.add((way.taken[-1], step))
            way.taken.append(step)
            if (yield step):
                way.mask |= 1 << step
            else:
                self._refused = True
                way.refused.append((way.mask, step))

    def _plan(self) -> list[int]:
        """Return a random order of all members of a set and some extras, each extra with a later release."""
        random = self._random
        density = _DENSITIES[random.below(len(_DENSITIES))]
        members = {index for index in range(self.count) if random.chance(density)}
        extras = [index for index in range(self.count) if index not in members and random.chance(50)]
        plan = [*sorted(members), *extras]
        random.shuffle(plan)
        plan = keeping(plan, self.order)
        for index in extras:
            after = plan.index(index) + 1
            plan.insert(after + random.below(len(plan) - after + 1), ~index)
        return plan

    def _direct(self, mask: int) -> list[int]:
        members = (index for index in range(self.count) if mask >> index & 1)
        return keeping(members, self.order)


class _Way:
    """The position in a plan: the steps taken, the set, and the refusals with the set in which they happened."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.mask = 0
        self.refused: list[tuple[int, int]] = []
