"""What was observed so far, by active set: finds two sequences that disagree as soon as there are two.

This is how walks that cannot read the state of an engine check the rules of Note [What is checked].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TypeAlias

from dispatchlab.explore.run_sequence import Look
from dispatchlab.model.sequence import StepSequence
from dispatchlab.model.snapshot import Refusal

Pair: TypeAlias = tuple[StepSequence, StepSequence]


@dataclass(frozen=True, slots=True)
class Covered:
    """What a walk came by.

    Args:
        sets: how many active sets.
        accepted: all registrations that were ever active, as a bit mask.
        refused: by set, who was refused when coming last to it, and how.
        asymmetric: the sets whose refusals tell other facts when another member comes last.
    """

    sets: int
    accepted: int
    refused: Mapping[int, Mapping[int, Refusal]]
    asymmetric: Set[int]


class Ledger:
    """Sequences are given as a list of steps and how many of them count, so that a long walk costs no copies."""

    def __init__(self) -> None:
        self.refused: dict[int, dict[int, Refusal]] = {}
        self.asymmetric: set[int] = set()
        self._seen: dict[int, tuple[Look, Sequence[int], int]] = {}
        self._answers: dict[tuple[int, int], tuple[Refusal | None, Sequence[int], int]] = {}
        self._last: dict[int, tuple[Refusal | None, Sequence[int], int]] = {}

    @property
    def sets(self) -> int:
        """How many active sets were seen."""
        return len(self._seen)

    def covered(self) -> Covered:
        """What was come by so far."""
        accepted = 0
        for mask in self._seen:
            accepted |= mask
        return Covered(self.sets, accepted, self.refused, self.asymmetric)

    def answer(self, mask: int, index: int, refusal: Refusal | None, steps: Sequence[int], length: int) -> Pair | None:
        """Note what `+index` came to in the set `mask`.

        Returns:
            The sequence that set what is expected and the sequence just run, which ends with `+index`, when they
            disagree.
        """
        known = self._answers.get((mask, index))
        if known is not None:
            earlier = known[0]
            if earlier is refusal or _same_answer(earlier, refusal):
                return None
            return _pair(known[1], known[2], steps, length)
        self._answers[mask, index] = refusal, steps, length
        whole = mask | 1 << index
        last = self._last.get(whole)
        if last is None:
            self._last[whole] = refusal, steps, length
        elif last[0] is not refusal:
            if last[0] is None or refusal is None or last[0].kind != refusal.kind:
                return _pair(last[1], last[2], steps, length)
            if last[0] != refusal:
                self.asymmetric.add(whole)
        if refusal is not None:
            self.refused.setdefault(whole, {})[index] = refusal
        return None

    def seen(self, mask: int, look: Look, steps: Sequence[int], length: int) -> Pair | None:
        """Note what was seen in the set `mask`.

        Returns:
            The sequence that set what is expected and the sequence just run, when what is seen differs or an invariant
            fails. The two are the same when an invariant fails in a set that was never seen before.
        """
        known = self._seen.get(mask)
        if known is None:
            self._seen[mask] = look, steps, length
            return _pair(steps, length, steps, length) if look[1] else None
        if look[1]:
            return _pair(known[1], known[2], steps, length)
        if known[0] == look:
            return None
        if known[0][1]:
            return _pair(steps, length, known[1], known[2])
        return _pair(known[1], known[2], steps, length)


def _same_answer(one: Refusal | None, other: Refusal | None) -> bool:
    return one is not None and other is not None and one.kind == other.kind and one.facts == other.facts


def _pair(expected: Sequence[int], expected_length: int, actual: Sequence[int], actual_length: int) -> Pair:
    return tuple(expected[:expected_length]), tuple(actual[:actual_length])
