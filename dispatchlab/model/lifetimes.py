"""Lifetimes: which registrations no step of a sequence releases, and with what they end."""

# Note [What is never released]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# PyTorch has no way to take back what Python keeps beside the dispatch tables. So there is no step `-i` of a
# `PythonImpl`: once it is made it is in force, in every sequence. What is kept under an `OpOverload` ends all the same
# when that operator is defined no more: it is of an operator that is gone, and applies to nothing that comes after.
# So the release of a def takes the entries of its operator from the active set; they may be registered again when the
# operator is defined anew.

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol, runtime_checkable

from dispatchlab.model.registration import Registration


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """How registrations end, by their numbers. See Note [What is never released].

    Args:
        permanent: those that no step releases, as a bit mask.
        ends: for a registration, those that end when it is released, as a bit mask.
    """

    permanent: int = 0
    ends: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(cls, registrations: Sequence[Registration]) -> Lifetimes:
        """Those of some registrations."""
        return EVERYTHING_IS_RELEASED

    def after_release(self, mask: int, index: int) -> int:
        """The active set after the release of `index`."""
        return mask & ~(1 << index | self.ends.get(index, 0))

    def is_permanent(self, index: int) -> bool:
        """Whether no step releases a registration."""
        return bool(self.permanent >> index & 1)

    def released(self, indices: Iterable[int]) -> list[int]:
        """Those of some registrations that a step can release, in their order."""
        return [index for index in indices if not self.permanent >> index & 1]

    def permanent_last(self, indices: Iterable[int]) -> list[int]:
        """The same with those last that no step releases, since they may need one of the others."""
        return sorted(indices, key=self.is_permanent)


EVERYTHING_IS_RELEASED = Lifetimes()


@runtime_checkable
class HasLifetimes(Protocol):
    """A state space or a session with registrations that no step releases; without it every one can be released."""

    def lifetimes(self) -> Lifetimes:
        """How its registrations end."""


def lifetimes_in(where: object) -> Lifetimes:
    """How the registrations of a state space or a session end."""
    return where.lifetimes() if isinstance(where, HasLifetimes) else EVERYTHING_IS_RELEASED
