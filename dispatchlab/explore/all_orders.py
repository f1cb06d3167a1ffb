"""Run every order of registration with every order of release, as upstream's harness does: n! times n! sequences.

Kept to check the graph against. It never interleaves and never registers again, so it misses what needs that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations

from dispatchlab.explore.conclude import conclude, crashed, result
from dispatchlab.explore.limits import Interrupted, Watch
from dispatchlab.explore.observation_table import Ledger, Pair
from dispatchlab.explore.protocol import EngineCrashed
from dispatchlab.explore.result import Counterexample, Exploration, Verdict
from dispatchlab.explore.run_sequence import Session, Sessions


def explore_orders(
    sessions: Sessions, count: int, *, order: Sequence[int] = (), watch: Watch | None = None
) -> Exploration:
    """Run all sequences, each in a fresh session, look after every step, and stop at the first that disagrees.

    Args:
        sessions: where to run them.
        count: how many registrations there are.
        order: registrations that are registered in this order only; releases are free.
        watch: bounds and progress; `max_states` bounds the sets.

    Returns:
        `NO_VIOLATION_FOUND`, `VIOLATED`, `INCOMPLETE`, `NONDETERMINISTIC` or `CRASHED`.

    Raises:
        Interrupted: by Ctrl-C, with what was covered.
    """
    walk = _Orders(sessions, count, order, watch or Watch())
    try:
        return walk.run()
    except MemoryError:
        return walk.put(Verdict.INCOMPLETE, notes=["stopped because the memory was used up"])
    except KeyboardInterrupt:
        raise Interrupted(walk.put(Verdict.INCOMPLETE, notes=["interrupted"])) from None


class _Orders:
    def __init__(self, sessions: Sessions, count: int, order: Sequence[int], watch: Watch) -> None:
        self.sessions = sessions
        self.count = count
        self.order = order
        self.watch = watch
        self.ledger = Ledger()
        self.sequences = 0
        self.steps = 0

    def run(self) -> Exploration:
        for registered in _keeping(self.count, self.order):
            releases: Iterator[tuple[int, ...]] = iter(())
            released: tuple[int, ...] | None = None
            first = True
            while first or (released := next(releases, None)) is not None:
                reason = self.watch.stop(self.ledger.sets, self.ledger.sets, self.steps)
                if reason is not None:
                    return self.put(Verdict.INCOMPLETE, notes=[reason, f"{self.sequences:,} sequences were run"])
                steps: list[int] = []
                try:
                    with self.sessions() as session:
                        accepted, pair = self._register(session, registered, steps)
                        if first:
                            releases, first = permutations(accepted), False
                            released = next(releases)
                        pair = pair or self._release(session, accepted, released or (), steps)
                except EngineCrashed as crash:
                    verdict, found = crashed(self.sessions, self.count, tuple(steps), crash, order=self.order)
                    return self.put(verdict, found)
                self.sequences += 1
                self.steps += len(steps)
                if pair is not None:
                    verdict, found = conclude(self.sessions, self.count, pair, order=self.order)
                    return self.put(verdict, found)
        return self.put(Verdict.NO_VIOLATION_FOUND, notes=[f"{self.sequences:,} sequences were run"])

    def put(self, verdict: Verdict, found: Counterexample | None = None, *, notes: Sequence[str] = ()) -> Exploration:
        return result(
            "orders",
            self.count,
            self.ledger.covered(),
            self.watch,
            order=self.order,
            steps=self.steps,
            verdict=verdict,
            found=found,
            notes=notes,
        )

    def _register(
        self, session: Session, registered: Sequence[int], steps: list[int]
    ) -> tuple[tuple[int, ...], Pair | None]:
        """Register all, in this order; who was accepted, ascending, and the sequences that disagree."""
        mask = 0
        pair = self.ledger.seen(0, session.look(), steps, 0)
        for index in registered:
            if pair is not None:
                break
            steps.append(index)
            refusal = session.register(index)
            pair = self.ledger.answer(mask, index, refusal, steps, len(steps))
            if refusal is None:
                mask |= 1 << index
            pair = pair or self.ledger.seen(mask, session.look(), steps, len(steps))
        return tuple(index for index in range(self.count) if mask >> index & 1), pair

    def _release(
        self, session: Session, accepted: Sequence[int], released: Sequence[int], steps: list[int]
    ) -> Pair | None:
        mask = sum(1 << index for index in accepted)
        for index in released:
            steps.append(~index)
            if session.release(index) is not None:
                return tuple(steps), tuple(steps)
            mask ^= 1 << index
            pair = self.ledger.seen(mask, session.look(), steps, len(steps))
            if pair is not None:
                return pair
        return None


def _keeping(count: int, order: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The permutations that keep `order`, without going through those that do not."""

    def extend(done: tuple[int, ...], at: int) -> Iterator[tuple[int, ...]]:
        if len(done) == count:
            yield done
            return
        for index in range(count):
            if index in done:
                continue
            if index not in ordered:
                yield from extend((*done, index), at)
            elif order[at] == index:
                yield from extend((*done, index), at + 1)

    ordered = frozenset(order)
    yield from extend((), 0)
