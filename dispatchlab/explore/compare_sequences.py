"""Run two sequences from scratch and compare what they lead to; counterexamples are verified and made here."""

from __future__ import annotations

from dataclasses import dataclass

from dispatchlab.explore.difference import difference, outcome_difference, outcome_text
from dispatchlab.explore.graph_walk import classify
from dispatchlab.explore.protocol import EngineCrashed
from dispatchlab.explore.result import Counterexample, Flaw
from dispatchlab.explore.run_sequence import Look, Sessions, run
from dispatchlab.model.sequence import StepSequence
from dispatchlab.model.snapshot import Refusal


@dataclass(frozen=True, slots=True)
class _End:
    before: frozenset[int]
    after: frozenset[int]
    step: int | None
    refusal: Refusal | None
    any_refused: bool
    look: Look


def tell(sessions: Sessions, expected: StepSequence, actual: StepSequence) -> Counterexample | None:
    """How two sequences disagree when they are run from scratch; None when they agree.

    Args:
        sessions: where to run them; nothing but the end of each sequence is looked at.
        expected: the sequence that says what is expected. It is told as the other one when it breaks an invariant and
            `actual` does not.
        actual: the other one; the same sequence to ask whether it is at fault by itself.

    Raises:
        SequenceError: a sequence cannot be run.
    """
    try:
        other = _end(sessions, actual)
        one = other if expected == actual else _end(sessions, expected)
    except EngineCrashed as crash:
        return Counterexample(Flaw.CRASH, actual, actual, "", (crash.text,))
    if other.step is not None and other.step < 0 and other.refusal is not None:
        failed = outcome_difference(outcome_text(other.step, None), outcome_text(other.step, other.refusal))
        return Counterexample(Flaw.RELEASE, actual, actual, failed)
    return _outcomes(one, other, expected, actual) or _looks(one, other, expected, actual)


def _outcomes(one: _End, other: _End, expected: StepSequence, actual: StepSequence) -> Counterexample | None:
    if one.step is None or other.step is None or one.step < 0 or other.step < 0:
        return None
    if one.before | {one.step} != other.before | {other.step}:
        return None
    same_step = one.step == other.step
    if _answer(one.refusal, facts=same_step) == _answer(other.refusal, facts=same_step):
        return None
    diff = outcome_difference(outcome_text(one.step, one.refusal), outcome_text(other.step, other.refusal))
    return Counterexample(Flaw.OUTCOME if same_step else Flaw.ASYMMETRY, expected, actual, diff)


def _looks(one: _End, other: _End, expected: StepSequence, actual: StepSequence) -> Counterexample | None:
    if one.after != other.after:
        return None
    if one.look[1] and not other.look[1]:
        one, other, expected, actual = other, one, actual, expected
    if one.look == other.look and not other.look[1]:
        return None
    if expected == actual or (one.look[1] and other.look[1]):
        diff = difference(other.look[0], other.look[0], actual_broken=other.look[1])
        return Counterexample(Flaw.INVARIANT, actual, actual, diff)
    diff = difference(one.look[0], other.look[0], expected_broken=one.look[1], actual_broken=other.look[1])
    flaw = classify(
        (expected, actual),
        released=any(step < 0 for sequence in (expected, actual) for step in sequence),
        refused=one.any_refused or other.any_refused,
        last_refused=other.refusal is not None,
    )
    return Counterexample(flaw, expected, actual, diff)


def _answer(refusal: Refusal | None, *, facts: bool) -> object:
    return refusal and (refusal.kind, refusal.facts if facts else ())


def _end(sessions: Sessions, sequence: StepSequence) -> _End:
    before: frozenset[int] = frozenset()
    after: frozenset[int] = frozenset()
    last: int | None = None
    refusal: Refusal | None = None
    any_refused = False
    with sessions() as session:
        for step, refused in run(session, sequence):
            before, last, refusal = after, step, refused
            if refused is not None:
                any_refused = True
            elif step < 0:
                after = before - {~step}
            else:
                after = before | {step}
        return _End(before, after, last, refusal, any_refused, session.look())
