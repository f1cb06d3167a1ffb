"""Run every order of registration with every order of release, as PyTorch's test harness does: n! times n! sequences.

This walk merges no states, so tests compare the graph walk with it. If states can be kept, sequences run on them, and a
common beginning runs only once. A complete walk is a proof for these sequences. They never interleave and never
register again, so the walk misses differences that need such sequences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations

from dispatchlab.prover.chains import Chains, earlier_masks
from dispatchlab.prover.driver import Run, Steps, Walk


class AllOrders(Walk):
    """All registration orders with all release orders of the accepted registrations.

    Args:
        count: the number of registrations.
        order: chains of registrations that are only registered in this order; releases are free.
    """

    name = "orders"

    def __init__(self, count: int, *, order: Chains = ()) -> None:
        self.count = count
        self.order = order
        self._run = 0

    def runs(self) -> Iterator[Run]:
        """Return one run for each sequence; the first run of each order shows which registrations are accepted."""
        for registered in orders_keeping(self.count, self.order):
            accepted: list[int] = []
            yield Run(_ascending(registered, accepted))
            others = permutations(accepted)
            next(others)
            for released in others:
                yield Run(_fixed(registered, released))

    def ended(self, run: Run) -> None:
        """Count a run."""
        self._run += 1

    def coverage(self, *, found: bool) -> list[str]:
        """Return a sentence with the number of sequences that were run."""
        return [] if found else [f"{self._run:,} sequences were run"]


def _ascending(registered: Sequence[int], accepted: list[int]) -> Steps:
    """Register in an order, then release the accepted registrations in ascending order."""
    for index in registered:
        if (yield index):
            accepted.append(index)
    accepted.sort()
    for index in accepted:
        yield ~index


def _fixed(registered: Sequence[int], released: Sequence[int]) -> Steps:
    for index in registered:
        yield index
    for index in released:
        yield ~index


def orders_keeping(count: int, order: Chains) -> Iterator[tuple[int, ...]]:
    """Return the permutations that keep `order`, without trying other permutations."""
    earlier = earlier_masks(count, order)
    done: list[int] = []
    mask = 0
    choices = [iter(range(count))]  # for each place, what is left to try
    while choices:
        if len(done) == len(choices):
            mask ^= 1 << done.pop()
        index = next((one for one in choices[-1] if not mask >> one & 1 and not earlier[one] & ~mask), None)
        if index is None:
            choices.pop()
            continue
        done.append(index)
        mask |= 1 << index
        if len(done) == count:
            yield tuple(done)
        else:
            choices.append(iter(range(count)))
