"""Chains of registrations, each registered only in its order; all chains are a partial order. Releases are free.

The registrations of a module run together; modules.py walks modules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from heapq import heapify, heappop, heappush
from itertools import pairwise
from math import factorial, prod
from typing import Final, NamedTuple, TypeAlias

Chains: TypeAlias = Sequence[Sequence[int]]
"""As `normal` gives them: no registration is in two chains, or every two that are in order are a chain."""


class Module(NamedTuple):
    """A module.

    Args:
        name: its full name, `package.module`.
        registrations: the numbers of its registrations, in program order.
    """

    name: str
    registrations: tuple[int, ...]


_MOST_COUNTED: Final = 20_000  # sets of registrations that orders begin with


def normal(chains: Iterable[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Return chains from which registrations can be removed: the rest of each chain still has the right order.

    >>> normal([[0, 1], [0, 2]]), normal([[0, 1], [1, 2], [0, 3]])
    (((0, 1), (0, 2)), ((0, 1), (0, 2), (0, 3), (1, 2)))

    Raises:
        ValueError: the chains have a cycle; the arguments are its registrations.
    """
    given = tuple(tuple(chain) for chain in chains if len(chain) > 1)
    if _are_disjoint(given):
        return given
    following: dict[int, set[int]] = {}
    for chain in given:
        for index, other in pairwise(chain):
            following.setdefault(index, set()).add(other)
    later: dict[int, frozenset[int]] = {}

    def find(index: int, way: tuple[int, ...]) -> frozenset[int]:
        if index in way:
            raise ValueError(*way[way.index(index) :], index)
        if index not in later:
            found = {*following.get(index, ())}
            for other in following.get(index, ()):
                found |= find(other, (*way, index))
            later[index] = frozenset(found)
        return later[index]

    pairs = tuple((index, other) for index in sorted(following) for other in sorted(find(index, ())))
    paths = shortest(pairs)
    return paths if _are_disjoint(paths) else pairs


def shortest(order: Chains) -> tuple[tuple[int, ...], ...]:
    """Return the same order as few chains without repetition.

    >>> shortest([(0, 1), (0, 2), (0, 3), (1, 2)])
    ((0, 1, 2), (0, 3))
    """
    if _are_disjoint(order):
        return tuple(map(tuple, order))
    pairs = {(index, other) for index, other in order}
    said = {(index, last) for index, other in pairs for again, last in pairs if again == other}
    left = sorted(pairs - said)
    paths = []
    while left:
        path = [*left.pop(0)]
        while following := next((pair for pair in left if pair[0] == path[-1]), None):
            left.remove(following)
            path.append(following[1])
        paths.append(tuple(path))
    return tuple(paths)


def _are_disjoint(order: Chains) -> bool:
    members = [index for chain in order for index in chain]
    return len(members) == len({*members})


def later_masks(count: int, order: Chains) -> list[int]:
    """Return, for each registration, the registrations that must not be active when it is registered, as a bit mask."""
    masks = [0] * count
    for chain in order:
        later = 0
        for index in reversed(chain):
            masks[index] |= later
            later |= 1 << index
    return masks


def keeping(indices: Iterable[int], order: Chains) -> list[int]:
    """Return the registrations in an allowed order, each as early as possible."""
    given = list(indices)
    if not order:
        return given
    place = {index: at for at, index in enumerate(given)}
    following: dict[int, list[int]] = {}
    waits = dict.fromkeys(given, 0)
    for chain in order:
        for index, other in pairwise([index for index in chain if index in place]):
            following.setdefault(index, []).append(other)
            waits[other] += 1
    ready = [place[index] for index in given if not waits[index]]
    heapify(ready)
    kept: list[int] = []
    while ready:
        index = given[heappop(ready)]
        kept.append(index)
        for other in following.get(index, ()):
            waits[other] -= 1
            if not waits[other]:
                heappush(ready, place[other])
    return kept


class ChainsWithin:
    """Computes the chains among some of the registrations; this is fast for few registrations.

    Args:
        order: all chains.
    """

    def __init__(self, order: Chains) -> None:
        self._places: dict[int, list[tuple[int, int]]] = {}
        for number, chain in enumerate(order):
            for at, index in enumerate(chain):
                self._places.setdefault(index, []).append((number, at))

    def among(self, indices: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Return the chains, renumbered by position among these registrations."""
        found: dict[int, list[tuple[int, int]]] = {}
        for local, index in enumerate(indices):
            for number, at in self._places.get(index, ()):
                found.setdefault(number, []).append((at, local))
        chains = ([local for _, local in sorted(found[number])] for number in sorted(found))
        return tuple(tuple(chain) for chain in chains if len(chain) > 1)


def count_registration_orders(count: int, order: Chains) -> int:
    """Return the number of orders that keep the chains; a lower bound for overlapping chains with very many orders."""
    if _are_disjoint(order):
        return factorial(count) // prod(factorial(len(chain)) for chain in order)
    some = sorted({index for chain in order for index in chain})
    earlier = earlier_masks(len(some), ChainsWithin(order).among(some))
    whole = (1 << len(some)) - 1

    @cache
    def ways(done: int) -> int:
        if ways.cache_info().currsize > _MOST_COUNTED:
            return 1
        return (
            sum(
                ways(done | 1 << index)
                for index, before in enumerate(earlier)
                if not done >> index & 1 and not before & ~done
            )
            if done != whole
            else 1
        )

    return ways(0) * factorial(count) // factorial(len(some))


def earlier_masks(count: int, order: Chains) -> list[int]:
    """Return, for each registration, the earlier registrations as a bit mask."""
    return later_masks(count, [chain[::-1] for chain in order])


def count_orders(count: int, order: Chains = ()) -> int:
    """Return the number of orders: registration orders that keep the chains, times release orders."""
    return count_registration_orders(count, order) * factorial(count)


def count_edges(count: int, order: Chains = ()) -> int:
    """Return the number of edges of the graph if nothing is refused; without chains, *n* times 2 to the *n*."""
    if not order:
        return count << count
    releases = (count << count) >> 1
    return releases + sum(1 << count - 1 - later.bit_count() for later in later_masks(count, order))
