"""Shorten a counterexample: try all short sequences of few registrations, then leave out steps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from time import perf_counter
from typing import Final

from dispatchlab.model.sequence import StepSequence
from dispatchlab.prover.chains import Chains, keeping, later_masks
from dispatchlab.prover.checker import Observations, Pair
from dispatchlab.prover.protocol import EngineCrashed
from dispatchlab.prover.result import Counterexample, Flaw
from dispatchlab.prover.run_sequence import SequenceError, Sessions, compare_sequences, run

STEPS: Final = 200_000
SECONDS: Final = 30.0
_SHORT: Final = 64  # sequences that need no tricks, both together
_FEW: Final = 6  # so few registrations that all pairs are soon tried
_LONGEST: Final = {1: 4, 2: 6, 3: 6, 4: 6}  # by the number of registrations, how long sequences get


class _BudgetSpent(Exception):
    """The budget of steps or time is spent."""


def shrink(
    sessions: Sessions,
    count: int,
    example: Counterexample,
    *,
    order: Chains = (),
    steps: int = STEPS,
) -> Counterexample:
    """Return the shortest pair of sequences that disagrees, searched with a limited number of steps.

    Args:
        sessions: new sessions for the sequences.
        count: the number of registrations.
        example: the counterexample to shorten.
        order: chains of registrations that are only registered in this order.
        steps: the number of steps that may be run; then the shortest pair so far is returned.
    """
    return _Shrink(sessions, count, order, steps).run(example)


class _Shrink:
    def __init__(self, sessions: Sessions, count: int, order: Chains, steps: int) -> None:
        self.sessions = sessions
        self.order = order
        self.later = later_masks(count, order)
        self.left = steps
        self.deadline = perf_counter() + SECONDS

    def run(self, example: Counterexample) -> Counterexample:
        crash = example.flaw is Flaw.CRASH
        try:
            for size in _LONGEST:
                if size == 2:
                    example = self._without_the_past(example)
                    if len(example.registrations) > _FEW:
                        example = self._without_bystanders(example)
                    if len(example.actual_sequence) <= _SHORT:
                        example = self._without_detours(example)
                longest = min(_LONGEST[size], len(example.expected_sequence) + len(example.actual_sequence))
                for support in combinations(example.registrations, size):
                    short = self._search(support, longest)
                    if short is not None and (short.flaw is Flaw.CRASH) == crash:
                        return short
            example = self._without_detours(self._without_bystanders(example))
        except _BudgetSpent:
            pass
        return example

    def _search(self, support: Sequence[int], longest: int) -> Counterexample | None:
        """Run all sequences over a few registrations, shorter ones first, each in a new session."""
        observations = Observations()
        sequences: list[tuple[StepSequence, int]] = [((), 0)]
        alone: Pair | None = None
        for _ in range(longest):
            longer: list[tuple[StepSequence, int]] = []
            for sequence, mask in sequences:
                for index in support:
                    registers = not mask >> index & 1
                    if registers and self.later[index] & mask:
                        continue
                    extended = (*sequence, index if registers else ~index)
                    after, pair = self._run(observations, extended, mask)
                    if pair is not None and pair[0] != pair[1]:
                        return self._compare(pair)
                    alone = alone or pair
                    longer.append((extended, after))
            if alone is not None:
                return self._compare(alone)
            sequences = longer
        return None

    def _run(self, observations: Observations, sequence: StepSequence, mask: int) -> tuple[int, Pair | None]:
        """Run a sequence whose last step starts in the set `mask`; return the set after it, and the disagreement."""
        self._spend(len(sequence))
        *before, last = sequence
        try:
            with self.sessions() as session:
                if not observations.sets:
                    observations.observation(0, session.look(), (), 0)
                for step in before:
                    if step >= 0:
                        session.register(step)
                    else:
                        session.release(~step)
                if last < 0:
                    if session.release(~last) is not None:
                        return mask, (sequence, sequence)
                    mask &= ~(1 << ~last)
                else:
                    refusal = session.register(last)
                    pair = observations.outcome(mask, last, refusal, sequence, len(sequence))
                    if pair is not None:
                        return mask, pair
                    if refusal is None:
                        mask |= 1 << last
                return mask, observations.observation(mask, session.look(), sequence, len(sequence))
        except EngineCrashed:
            return mask, (sequence, sequence)

    def _without_the_past(self, example: Counterexample) -> Counterexample:
        """Go directly to the set before the last few steps of a long sequence, then run these steps."""
        if len(example.actual_sequence) + len(example.expected_sequence) <= _SHORT:
            return example
        sets = self._sets(example.actual_sequence)
        straight = example.expected_sequence
        if example.expected_sequence != example.actual_sequence:
            on_the_way = self._sets(example.expected_sequence)
            asks = example.flaw in (Flaw.OUTCOME, Flaw.ASYMMETRY)
            straight = (*self._direct(on_the_way[-2]), straight[-1]) if asks else self._direct(on_the_way[-1])
        kept = 1
        while kept < len(example.actual_sequence):
            sequence = (*self._direct(sets[-1 - kept]), *example.actual_sequence[-kept:])
            shorter = self._still(example, (sequence if straight == example.actual_sequence else straight, sequence))
            if shorter is not None:
                return shorter
            kept *= 2
        return example

    def _without_bystanders(self, example: Counterexample) -> Counterexample:
        """Leave out one registration after another from both sequences, as long as they disagree."""
        for index in example.registrations:
            pair = _without(example.expected_sequence, index), _without(example.actual_sequence, index)
            example = self._still(example, pair) or example
        return example

    def _without_detours(self, example: Counterexample) -> Counterexample:
        """Leave out pairs of successive toggles of one registration from the sequence at fault."""
        at = 0
        while at < len(example.actual_sequence):
            sequence = example.actual_sequence
            repeated = next((i for i in range(at + 1, len(sequence)) if sequence[i] == ~sequence[at]), None)
            if repeated is not None:
                sequence = (*sequence[:at], *sequence[at + 1 : repeated], *sequence[repeated + 1 :])
                shorter = self._still(
                    example,
                    (
                        sequence if example.expected_sequence == example.actual_sequence else example.expected_sequence,
                        sequence,
                    ),
                )
                if shorter is not None:
                    example, at = shorter, 0
                    continue
            at += 1
        return example

    def _still(self, example: Counterexample, pair: Pair) -> Counterexample | None:
        """Return how a pair disagrees, if it crashes exactly when the found pair does; else None."""
        try:
            again = self._compare(pair)
        except SequenceError:
            return None
        return again if again is not None and (again.flaw is Flaw.CRASH) == (example.flaw is Flaw.CRASH) else None

    def _sets(self, sequence: StepSequence) -> list[int]:
        """Return the active set before the sequence and after each step, as bit masks."""
        self._spend(len(sequence))
        sets = [0]
        try:
            with self.sessions() as session:
                for step, refusal in run(session, sequence):
                    if refusal is not None:
                        sets.append(sets[-1])
                    elif step < 0:
                        sets.append(sets[-1] & ~(1 << ~step))
                    else:
                        sets.append(sets[-1] | 1 << step)
        except EngineCrashed:
            sets.append(sets[-1])
        return sets

    def _direct(self, mask: int) -> StepSequence:
        """Return the registrations of a set in ascending order, except those with their own order."""
        return tuple(keeping((index for index in range(mask.bit_length()) if mask >> index & 1), self.order))

    def _compare(self, pair: Pair) -> Counterexample | None:
        self._spend(len(pair[0]) + len(pair[1]))
        return compare_sequences(self.sessions, *pair)

    def _spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0 or perf_counter() >= self.deadline:
            raise _BudgetSpent


def _without(sequence: StepSequence, index: int) -> StepSequence:
    return tuple(step for step in sequence if step not in (index, ~index))
