"""Drive two engines side by side, stop at the first step after which they differ, and find the shortest such sequence.

This is the differential test of a model and a real dispatcher: it does not ask whether the order matters, but whether
two engines agree after every step. It uses the walk and the shortening of the explorer.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from dispatchlab.model.kernel_identity import distinguished
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Registration
from dispatchlab.model.sequence import StepSequence, format_sequence
from dispatchlab.model.snapshot import Refusal, Snapshot, Violation
from dispatchlab.prover.chains import Chains, count_edges
from dispatchlab.prover.checker import difference, outcome_difference, outcome_text
from dispatchlab.prover.covering_walk import CoveringWalk
from dispatchlab.prover.driver import explore_walk
from dispatchlab.prover.limits import DEFAULT_WALK, Progress, WalkOptions, Watch
from dispatchlab.prover.protocol import Engine, Look
from dispatchlab.prover.result import Exploration, Verdict
from dispatchlab.prover.run_sequence import SandboxSession, Session, Sessions

# Note [Two engines as one session]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# The explorer compares what sequences lead to. Here, sequences may lead where they like, as long as both engines go
# there. So the pair is one session that looks the same after every sequence, but for an invariant, "the engines agree",
# which does not hold after the first step that they answer or show differently; from there on it stays broken. A
# registration that both refuse counts as registered, so that the refusal is no finding of the explorer, and releasing
# it does nothing. Such steps are left out of the sequence that is reported.

DISAGREE = "the engines disagree"


class _Pair:
    """Two sessions that take every step together."""

    def __init__(self, expected: Session, actual: Session, operators: Sequence[OperatorName]) -> None:
        self._expected, self._actual, self._operators = expected, actual, operators
        self._refused: set[int] = set()
        self.sequence: list[int] = []
        self.diff = ""
        self.what = ""

    def register(self, index: int, /) -> Refusal | None:
        """Register on both; this step itself is never refused."""
        self.sequence.append(index)
        expected, actual = self._expected.register(index), self._actual.register(index)
        self._compare_outcomes(index, expected, actual)
        if expected is not None or actual is not None:
            self._refused.add(index)
        return None

    def release(self, index: int, /) -> Refusal | None:
        """Release on both."""
        if index in self._refused:
            self._refused.remove(index)
            return None
        self.sequence.append(~index)
        self._compare_outcomes(~index, self._expected.release(index), self._actual.release(index))
        return None

    def look(self) -> Look:
        """Return no snapshots, and a broken invariant if the two engines have disagreed."""
        if not self.diff:
            self._compare_looks(self._expected.look()[0], self._actual.look()[0])
        alike = tuple(Snapshot(operator, "", "") for operator in self._operators)
        if not self.diff:
            return alike, ()
        return alike, (Violation(self._operators[0], DISAGREE, self.what),)

    def _compare_outcomes(self, step: int, expected: Refusal | None, actual: Refusal | None) -> None:
        if self.diff or (expected and expected.kind) == (actual and actual.kind):
            return
        self.what = f"in the outcome of {format_sequence((step,))}"
        self.diff = outcome_difference(outcome_text(step, expected), outcome_text(step, actual))

    def _compare_looks(self, expected: Sequence[Snapshot], actual: Sequence[Snapshot]) -> None:
        pairs = [_comparable(one, other) for one, other in zip(expected, actual, strict=True)]
        for one, other in pairs:
            for (title, before), (_, after) in zip(one.sections(), other.sections(), strict=True):
                if before != after:
                    self.what = f"in {title} of {one.operator}"
                    self.diff = difference([one for one, _ in pairs], [other for _, other in pairs])
                    return


def _comparable(one: Snapshot, other: Snapshot) -> tuple[Snapshot, Snapshot]:
    """Return both snapshots without slots if one of them has no slots."""
    if one.slots is None or other.slots is None:
        return replace(one, slots=None), replace(other, slots=None)
    return one, other


def lockstep(
    expected: Engine,
    actual: Engine,
    registrations: Sequence[Registration],
    operators: Sequence[OperatorName],
    options: WalkOptions = DEFAULT_WALK,
    *,
    order: Chains = (),
    progress: Callable[[Progress], None] | None = None,
) -> Exploration:
    """Explore whether two engines agree after every step of random passes.

    Compare the outcome of each step (accepted, or the kind of its refusal) and whole snapshots; slots are compared if
    both engines show them.

    The other arguments are those of `explore`.

    Args:
        expected: the engine with the expected behaviour.
        actual: the engine to compare.
        operators: the observed operators, at least one.
        options: the bounds, the seed, and the number of passes; default: one.

    Returns:
        `NO_VIOLATION_FOUND` if they agree everywhere; `ORDER_DEPENDENT` with the shortest sequence after which they
        differ (the same on both sides), a diff from `expected` to `actual`, and its place; `INCOMPLETE` or
        `CRASHED`.

    Raises:
        Interrupted: Ctrl-C; the error has the results so far.
    """
    last: list[_Pair] = []
    registrations = distinguished(registrations)

    @contextmanager
    def open_pair() -> Iterator[Session]:
        with expected.sandbox() as one, actual.sandbox() as other:
            pair = _Pair(
                SandboxSession(one, registrations, operators),
                SandboxSession(other, registrations, operators),
                operators,
            )
            last[:] = [pair]
            yield pair

    count, passes = len(registrations), options.passes or 1
    watch = Watch(options, progress=progress, total_edges=passes * count_edges(count, order))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an override is reported once where it is registered, not at every step
        exploration = explore_walk(
            CoveringWalk(count, passes=passes, seed=options.seed, order=order),
            open_pair,
            watch=watch,
        )
        disagreement = exploration.counterexample
        exploration = replace(exploration, walk="lockstep", conflicts=(), never_accepted=())
        if disagreement is None or exploration.verdict is not Verdict.ORDER_DEPENDENT:
            return exploration
        pair = _replayed(open_pair, disagreement.actual_sequence, last)
        sequence, why = tuple(pair.sequence), (f"{expected.semantics} and {actual.semantics} differ {pair.what}",)
        again = replace(disagreement, expected_sequence=sequence, actual_sequence=sequence, diff=pair.diff, why=why)
        return replace(exploration, counterexample=again)


def _replayed(open_pair: Sessions, sequence: StepSequence, last: list[_Pair]) -> _Pair:
    with open_pair() as pair:
        pair.look()
        for step in sequence:
            if step < 0:
                pair.release(~step)
            else:
                pair.register(step)
            pair.look()
    return last[0]
