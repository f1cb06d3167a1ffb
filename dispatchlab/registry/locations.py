"""Source locations that move alike from version to version, so that a bundle has each of them once.

A place is the number of a source and a line. What is at one place in one registry, and at one place in every other
registry that has it, shares a location: a number for which each registry has a source and a line, in two columns.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import TypeAlias

from dispatchlab.registry.file_format import NONE

Place: TypeAlias = tuple[int, int]
"""The number of a source, and a line."""

Places: TypeAlias = tuple[Place | None, ...]
"""The place of one thing in every registry; None where it is not there."""


class Locations:
    """The locations of a bundle.

    Args:
        origins: for each thing that is somewhere, its places.
    """

    def __init__(self, origins: Mapping[Hashable, Sequence[Place | None]]) -> None:
        merged = _merged({*map(tuple, origins.values())})
        self._ordered = sorted(set(merged.values()), key=_by_newest)
        numbers = {found: number for number, found in enumerate(self._ordered)}
        self._numbers = {part: numbers[merged[tuple(places)]] for part, places in origins.items()}

    def __len__(self) -> int:
        return len(self._ordered)

    def number(self, part: Hashable) -> int:
        """The location of a thing."""
        return self._numbers[part]

    def columns(self, at: int) -> bytes:
        """The sources and the lines in one registry, each as the difference from the one before."""
        sources, lines = [], []
        source = line = previous_source = previous_line = 0
        for places in self._ordered:
            source, line = places[at] or (source, line)  # where the registry has none, it costs the least to stay
            sources.append(source - previous_source)
            lines.append(line - previous_line)
            previous_source, previous_line = source, line
        return struct.pack(f"<{2 * len(self)}i", *sources, *lines)


def read_columns(plain: bytes) -> tuple[Sequence[int], Sequence[int]]:
    """The source and the line of every location, of the bytes that `Locations.columns` wrote."""
    count = len(plain) // 8
    numbers = struct.unpack(f"<{2 * count}i", plain)
    return tuple(accumulate(numbers[:count])), tuple(accumulate(numbers[count:]))


def _by_newest(places: Places) -> tuple[Place, list[Place]]:
    return next(place for place in places if place is not None), [place or (NONE, NONE) for place in places]


def _merged(found: Iterable[Places]) -> dict[Places, Places]:
    """For each, one that agrees with it wherever both are there; as few different ones as a greedy search finds."""
    ordered = sorted(found, key=lambda places: (places.count(None), _by_newest(places)))
    groups: list[list[Place | None]] = []
    group_of: dict[Places, int] = {}
    having: defaultdict[tuple[int, Place], list[int]] = defaultdict(list)
    for places in ordered:
        there = [(at, place) for at, place in enumerate(places) if place is not None]
        group = next(
            (one for one in having[there[0]] if all(groups[one][at] in (None, place) for at, place in there)), None
        )
        if group is None:
            group = len(groups)
            groups.append([None] * len(places))
        for at, place in there:
            if groups[group][at] is None:
                groups[group][at] = place
                having[at, place].append(group)
        group_of[places] = group
    return {places: tuple(groups[group]) for places, group in group_of.items()}
