"""The checker: compare results of steps and observations by the rules P0 to P4.

`check_outcome`, `check_observation` and `check_release` are the rules, as functions of values. `Observations` finds the
pairs of sequences that break a rule during a walk that cannot keep states.
"""

# Note [What is checked]
# ~~~~~~~~~~~~~~~~~~~~~~
# A(w) is the set of registrations in force after the sequence w.
#   P0  What is observed after w is a function F of A(w) alone, and every invariant holds.
#   P1  Whether `+i` is accepted, and the kind and facts of its error, is a function R of (A, i).
#   P2  Whether `+i` is accepted, and the kind of its error, depends on A + {i} alone: not on who came last.
#   P3  A refused `+i` leaves nothing behind that P0 or P1 could see, now or later.
#   P4  `-i` always succeeds, and leaves nothing behind that P0 or P1 could see, now or later.
# Facts of an error that depend on what came last are no violation of P2: a message may name what was there first.

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from difflib import unified_diff
from typing import TypeAlias

from dispatchlab.errors import ErrorKind
from dispatchlab.model.sequence import StepSequence
from dispatchlab.model.snapshot import TABLES, Refusal, Snapshot, Violation
from dispatchlab.prover.protocol import Look
from dispatchlab.prover.result import Conflict, Counterexample, Flaw

Pair: TypeAlias = tuple[StepSequence, StepSequence]
"""The sequence that sets what is expected, and the one that leads elsewhere."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of the last step of a sequence, a registration.

    Args:
        sequence: the sequence.
        refusal: why the last step was refused; None if it was accepted.
    """

    sequence: StepSequence
    refusal: Refusal | None


@dataclass(frozen=True, slots=True)
class Observation:
    """The observation after a sequence.

    Args:
        sequence: the sequence.
        look: the observation.
        any_refused: whether a step of the sequence was refused.
        last_refused: whether its last step was refused.
    """

    sequence: StepSequence
    look: Look
    any_refused: bool
    last_refused: bool


def outcomes_agree(one: Refusal | None, other: Refusal | None, *, same_step: bool) -> bool:
    """Compare outcomes: by P1 for the same registration in the same set, by P2 for two that complete the same set."""
    if one is None or other is None:
        return one is other
    return one.kind == other.kind and (not same_step or one.facts == other.facts)


def check_outcome(expected: Outcome, actual: Outcome) -> Counterexample | None:
    """Check P1 and P2 for two sequences that complete the same set with a registration."""
    one, other = expected.sequence[-1], actual.sequence[-1]
    if outcomes_agree(expected.refusal, actual.refusal, same_step=one == other):
        return None
    diff = outcome_difference(outcome_text(one, expected.refusal), outcome_text(other, actual.refusal))
    flaw = Flaw.OUTCOME if one == other else Flaw.ASYMMETRY
    return Counterexample(flaw, expected.sequence, actual.sequence, diff)


def check_observation(expected: Observation, actual: Observation) -> Counterexample | None:
    """Check P0 for two sequences that lead to the same set, and say whether a residue (P3, P4) is the cause.

    The expected sequence is the one that satisfies the invariants. If neither does, the set itself is wrong.
    """
    if expected.look[1] and not actual.look[1]:
        expected, actual = actual, expected
    if expected.look == actual.look and not actual.look[1]:
        return None
    snapshots, broken = actual.look
    if expected.sequence == actual.sequence or expected.look[1]:
        diff = difference(snapshots, snapshots, actual_broken=broken)
        return Counterexample(Flaw.INVARIANT, actual.sequence, actual.sequence, diff)
    diff = difference(expected.look[0], snapshots, expected_broken=expected.look[1], actual_broken=broken)
    return Counterexample(_flaw(expected, actual), expected.sequence, actual.sequence, diff)


def check_release(sequence: StepSequence, step: int, refusal: Refusal | None) -> Counterexample | None:
    """Check P4 for the release `step` of a sequence."""
    if refusal is None:
        return None
    diff = outcome_difference(outcome_text(step, None), outcome_text(step, refusal))
    return Counterexample(Flaw.RELEASE, sequence, sequence, diff)


def _flaw(expected: Observation, actual: Observation) -> Flaw:
    """Return why two sequences that should lead to the same state differ: look at the last step, then at all steps."""
    if actual.last_refused:
        return Flaw.RESIDUE
    if any(step < 0 for observed in (expected, actual) for step in observed.sequence):
        return Flaw.UNDO
    return Flaw.RESIDUE if expected.any_refused or actual.any_refused else Flaw.NON_COMMUTING


class Observations:
    """The observations so far, by active set.

    A sequence is given as a list of steps and its length, so a long walk needs no copies. A pair was observed during a
    longer walk: run both sequences from scratch before you report the pair.
    """

    def __init__(self) -> None:
        self.accepted = 0  # all registrations that were ever accepted, as a bit mask
        self.refused: dict[int, dict[int, Refusal]] = {}  # by set, who was refused when coming last to it, and how
        self.asymmetric: set[int] = set()  # the sets whose refusals say other facts when another member comes last
        self._looks: dict[int, tuple[Look, Sequence[int], int]] = {}
        self._outcomes: dict[tuple[int, int], tuple[Refusal | None, Sequence[int], int]] = {}
        self._last: dict[int, tuple[Refusal | None, Sequence[int], int]] = {}

    @property
    def sets(self) -> int:
        """The number of observed active sets."""
        return len(self._looks)

    def has(self, mask: int) -> bool:
        """Return whether an active set was observed."""
        return mask in self._looks

    def forget(self) -> None:
        """Forget earlier observations; keep the refusals."""
        self._looks.clear()
        self._outcomes.clear()
        self._last.clear()

    def outcome(self, mask: int, index: int, refusal: Refusal | None, steps: Sequence[int], length: int) -> Pair | None:
        """Note the outcome of `+index` in the set `mask`.

        Returns:
            If they disagree: the sequence with the expected outcome, and this one, which ends with `+index`.
        """
        known = self._outcomes.get((mask, index))
        if known is not None:
            if known[0] is refusal or outcomes_agree(known[0], refusal, same_step=True):
                return None
            return _pair(known[1], known[2], steps, length)
        self._outcomes[mask, index] = refusal, steps, length
        whole = mask | 1 << index
        last = self._last.get(whole)
        if last is None:
            self._last[whole] = refusal, steps, length
        elif last[0] is not refusal:
            if not outcomes_agree(last[0], refusal, same_step=False):
                return _pair(last[1], last[2], steps, length)
            if last[0] != refusal:
                self.asymmetric.add(whole)
        if refusal is None:
            self.accepted |= 1 << index
        else:
            self.refused.setdefault(whole, {})[index] = refusal
        return None

    def observation(self, mask: int, look: Look, steps: Sequence[int], length: int) -> Pair | None:
        """Note the observation in the set `mask`.

        Returns:
            If the observation differs or an invariant fails: the sequence with the expected observation, and this
            one. Both are the same if an invariant fails at the first observation of a set.
        """
        known = self._looks.get(mask)
        if known is None:
            self._looks[mask] = look, steps, length
            return _pair(steps, length, steps, length) if look[1] else None
        if look[1]:
            return _pair(known[1], known[2], steps, length)
        if known[0] == look:
            return None
        if known[0][1]:
            return _pair(steps, length, known[1], known[2])
        return _pair(known[1], known[2], steps, length)


def _pair(expected: Sequence[int], expected_length: int, actual: Sequence[int], actual_length: int) -> Pair:
    return tuple(expected[:expected_length]), tuple(actual[:actual_length])


def minimal_conflicts(
    refused: Mapping[int, Mapping[int, Refusal]], asymmetric: Set[int], numbers: Sequence[int]
) -> tuple[Conflict, ...]:
    """Return the smallest sets in which the last registration was refused.

    A set with a refusal because of a missing def does not hide a set of registrations that exclude each other.

    Args:
        refused: for each active set as a bit mask, the refusals of its last registrations.
        asymmetric: sets whose refusals have other facts if another member comes last.
        numbers: the numbers of the registrations in the result.
    """
    minimal: dict[int, bool] = {}  # with whether a def is wanting
    for mask in sorted(refused, key=lambda mask: (mask.bit_count(), mask)):
        wants_def = all(one.kind is ErrorKind.NO_SUCH_SCHEMA for one in refused[mask].values())
        if not any(smaller & mask == smaller and (wants_def or not wants) for smaller, wants in minimal.items()):
            minimal[mask] = wants_def
    conflicts = []
    for mask in minimal:
        refusal = refused[mask][max(refused[mask])]
        members = tuple(numbers[index] for index in range(mask.bit_length()) if mask >> index & 1)
        conflicts.append(Conflict(members, refusal.kind.value, refusal.message, mask in asymmetric))
    return tuple(conflicts)


def difference(
    expected: Sequence[Snapshot],
    actual: Sequence[Snapshot],
    *,
    expected_broken: Sequence[Violation] = (),
    actual_broken: Sequence[Violation] = (),
) -> str:
    """Return the sections of two observations that differ; empty without a difference.

    Args:
        expected: one snapshot for each operator under observation.
        actual: the snapshots of the same operators after the other sequence.
        expected_broken: the invariants that do not hold in `expected`.
        actual_broken: the invariants that do not hold in `actual`.
    """
    parts: list[str] = []
    for before, after in zip(expected, actual, strict=True):
        if before == after:
            continue
        for (title, old), (_, new) in zip(before.sections(), after.sections(), strict=True):
            # The rows of a table show their key, so that those around them would only be in the way.
            parts += _section(f"{before.operator}, {title}", old, new, context=0 if title in TABLES else 3)
    parts += _section("invariants", _invariants(expected_broken), _invariants(actual_broken))
    return "".join(parts)


def outcome_difference(expected: str, actual: str) -> str:
    """Return the diff of two texts of `outcome_text`; empty if they are equal."""
    return "".join(_section("outcome", expected, actual))


def outcome_text(step: int, refusal: Refusal | None) -> str:
    """Return the result of a step as lines that can be compared."""
    if refusal is None:
        return f"{'-' if step < 0 else '+'}{~step if step < 0 else step} accepted\n"
    facts = "".join(f"  {name}: {value}\n" for name, value in refusal.facts)
    verb = f"-{~step} failed" if step < 0 else f"+{step} refused"
    return f"{verb}: {refusal.kind}\n{refusal.message}\n{facts}"


def _invariants(broken: Sequence[Violation]) -> str:
    return "".join(f"{violation}\n" for violation in broken) or "all hold\n"


def _section(title: str, old: str, new: str, *, context: int = 3) -> Iterator[str]:
    titles = f"expected: {title}", f"actual: {title}"
    lines = unified_diff(old.splitlines(), new.splitlines(), *titles, lineterm="", n=context)
    return (f"{line}\n" for line in lines)


def diff_sections(diff: str) -> Iterator[tuple[str, list[str]]]:
    """Return the sections of a diff with their titles; a diff of outcomes is one section."""
    title, rows = "what differs", list[str]()
    for row in diff.splitlines():
        if row.startswith("--- "):
            if rows:
                yield title, rows
            title, rows = row[4:].removeprefix("expected: "), []
        elif not row.startswith(("+++ ", "@@ ")):
            rows.append(row)
    if rows:
        yield title, rows
