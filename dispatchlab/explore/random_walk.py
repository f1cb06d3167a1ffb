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

from collections.abc import Sequence
from math import ceil, factorial, log
from typing import Final

from dispatchlab.explore.conclude import conclude, crashed, result
from dispatchlab.explore.limits import Interrupted, Watch
from dispatchlab.explore.observation_table import Covered, Ledger, Pair
from dispatchlab.explore.prng import SplitMix64
from dispatchlab.explore.protocol import EngineCrashed
from dispatchlab.explore.result import Counterexample, Exploration, Verdict
from dispatchlab.explore.run_sequence import Sessions
from dispatchlab.model.sequence import StepSequence
from dispatchlab.model.snapshot import Refusal

DEFAULT_SAMPLES: Final = 1_000
_DENSITIES: Final = (15, 50, 85)
_REFUSALS_ASKED_AGAIN: Final = 4


def sequences_needed(depth: int, ordered: int, *, doubt: float = 0.05) -> int:
    """How many random walks find a flaw with a confidence of 1 - `doubt`; an estimate and not a proof.

    Args:
        depth: how many registrations have to be active, inactive or in order for the flaw to show.
        ordered: how many of them have to be in one certain order.
        doubt: the chance to miss it.
    """
    return ceil((1 << depth) * factorial(ordered) * log(1 / doubt))


def explore_sample(
    sessions: Sessions,
    count: int,
    *,
    samples: int = DEFAULT_SAMPLES,
    seed: int = 0,
    order: Sequence[int] = (),
    watch: Watch | None = None,
) -> Exploration:
    """Take `samples` random walks.

    Args:
        sessions: where to run sequences, each from scratch.
        count: how many registrations there are.
        samples: how many random walks.
        seed: of them all; a printed seed replays.
        order: registrations that are registered in this order only; releases are free.
        watch: bounds and progress.

    Returns:
        `NO_VIOLATION_FOUND` with its coverage, `VIOLATED`, `INCOMPLETE`, `NONDETERMINISTIC` or `CRASHED`.

    Raises:
        Interrupted: by Ctrl-C, with what was covered.
    """
    trip = _RandomWalks(sessions, count, order, SplitMix64(seed))
    watch = watch or Watch()

    def put(verdict: Verdict, found: Counterexample | None = None, notes: Sequence[str] = ()) -> Exploration:
        return result(
            "sample",
            count,
            trip.covered(),
            watch,
            order=order,
            steps=trip.steps,
            verdict=verdict,
            found=found,
            notes=[*notes, *trip.coverage(found=found is not None)],
            seed=seed,
        )

    try:
        for _ in range(samples):
            reason = watch.stop(len(trip.sets), len(trip.sets), trip.steps)
            if reason is not None:
                return put(Verdict.INCOMPLETE, notes=[reason])
            try:
                pair = trip.one()
            except EngineCrashed as crash:
                return put(*crashed(sessions, count, tuple(trip.running), crash, order=order))
            if pair is not None:
                return put(*conclude(sessions, count, pair, order=order))
    except MemoryError:
        return put(Verdict.INCOMPLETE, notes=["stopped because the memory was used up"])
    except KeyboardInterrupt:
        raise Interrupted(put(Verdict.INCOMPLETE, notes=["interrupted"])) from None
    return put(Verdict.NO_VIOLATION_FOUND)


class _RandomWalks:
    def __init__(self, sessions: Sessions, count: int, order: Sequence[int], random: SplitMix64) -> None:
        self.sessions = sessions
        self.count = count
        self.order = tuple(order)
        self.random = random
        self.sets: set[int] = set()
        self.neighbours: set[tuple[int, int]] = set()
        self.refused: dict[int, dict[int, Refusal]] = {}
        self.asymmetric: set[int] = set()
        self.accepted = 0
        self.sequences = 0
        self.steps = 0
        self.running: list[int] = []

    def one(self) -> Pair | None:
        """Take one random walk; the sequences that disagree."""
        ledger = Ledger()
        sequence, mask, asked, pair = self._run(ledger, self._plan())
        self.sequences += 1
        self.sets.add(mask)
        for base, index in asked[:_REFUSALS_ASKED_AGAIN]:
            if pair is None:
                *_, pair = self._run(ledger, (*self._direct(base), index))
        if pair is not None:
            return pair
        _, end, refused, pair = self._run(ledger, self._direct(mask))
        if pair is None and end != mask:
            base, index = refused[0]
            others = [other for other in range(self.count) if (mask & ~base) >> other & 1 and other != index]
            *_, pair = self._run(ledger, (*sequence, *(~other for other in others), ~index, index))
        for whole, row in ledger.refused.items():
            self.refused.setdefault(whole, {}).update(row)
        self.asymmetric |= ledger.asymmetric
        return pair

    def covered(self) -> Covered:
        return Covered(len(self.sets), self.accepted, self.refused, self.asymmetric)

    def coverage(self, *, found: bool) -> list[str]:
        """How much was done, and what that is worth when nothing was found."""
        both = sum(1 for one, other in self.neighbours if one < other and (other, one) in self.neighbours)
        depth = 0
        while sequences_needed(depth + 1, 2) <= self.sequences:
            depth += 1
        notes = [
            f"{self.sequences:,} random walks came to {len(self.sets):,} distinct sets; {both:,} of "
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
        if self.refused:
            notes.append("the conflicts are the smallest that were met, there may be smaller ones")
        return notes

    def _run(self, ledger: Ledger, plan: Sequence[int]) -> tuple[StepSequence, int, list[tuple[int, int]], Pair | None]:
        """Run a plan from scratch, without the releases of what was refused.

        Returns:
            The sequence that was run, the set it came to, the refusals met, and the sequences that disagree.
        """
        self.running = steps = []
        refused: list[tuple[int, int]] = []
        mask = 0
        pair: Pair | None = None
        with self.sessions() as session:
            for step in plan:
                if step < 0:
                    if not mask >> ~step & 1:
                        continue
                    steps.append(step)
                    if session.release(~step) is not None:
                        pair = tuple(steps), tuple(steps)
                        break
                    mask ^= 1 << ~step
                    continue
                if steps and steps[-1] >= 0:
                    self.neighbours.add((steps[-1], step))
                steps.append(step)
                refusal = session.register(step)
                pair = ledger.answer(mask, step, refusal, steps, len(steps))
                if pair is not None:
                    break
                if refusal is None:
                    mask |= 1 << step
                    self.accepted |= mask
                else:
                    refused.append((mask, step))
            self.steps += len(steps)
            if pair is None:
                pair = ledger.seen(mask, session.look(), steps, len(steps))
        return tuple(steps), mask, refused, pair

    def _plan(self) -> list[int]:
        """All of a set and some extras at random, and the release of each extra somewhere after it."""
        random = self.random
        density = _DENSITIES[random.below(len(_DENSITIES))]
        members = {index for index in range(self.count) if random.chance(density)}
        extras = [index for index in range(self.count) if index not in members and random.chance(50)]
        plan = [*sorted(members), *extras]
        random.shuffle(plan)
        plan = self._keeping(plan)
        for index in extras:
            after = plan.index(index) + 1
            plan.insert(after + random.below(len(plan) - after + 1), ~index)
        return plan

    def _direct(self, mask: int) -> list[int]:
        return self._keeping([index for index in range(self.count) if mask >> index & 1])

    def _keeping(self, indices: list[int]) -> list[int]:
        """The same, with those that have an order in that order."""
        ordered = iter([index for index in self.order if index in indices])
        return [next(ordered) if index in self.order else index for index in indices]
