"""The pseudo-random numbers of this project: SplitMix64, which never changes, so a printed seed always repeats a run.

Python promises no stable sequence for `random.shuffle` or `randrange` across versions, but this module does. A change
of these numbers is a breaking change. Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
2014.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import TypeVar

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15

T = TypeVar("T")


class SplitMix64:
    """A generator of 64-bit numbers; equal seeds give equal sequences on every machine."""

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    @property
    def state(self) -> int:
        """The seed of a generator that continues from this point."""
        return self._state

    def next(self) -> int:
        """Return the next number, from 0 to 2**64 - 1."""
        self._state = z = (self._state + _GOLDEN) & _MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)

    def below(self, bound: int) -> int:
        """Return a number from 0 to `bound` - 1; `bound` is far below 2**64, so the bias is negligible."""
        return (self.next() * bound) >> 64

    def chance(self, percent: int) -> bool:
        """Return True with this probability in percent."""
        return self.below(100) < percent

    def shuffle(self, items: MutableSequence[T]) -> None:
        """Put `items` into a random order, in place (Fisher and Yates, from the end)."""
        for last in range(len(items) - 1, 0, -1):
            other = self.below(last + 1)
            items[last], items[other] = items[other], items[last]

    def split(self) -> SplitMix64:
        """Return a new generator, seeded from this one."""
        return SplitMix64(self.next())
