"""Run two sequences from scratch and compare what they lead to, or one sequence twice.

Every counterexample that is reported was made here: two sequences in fresh sessions, judged by the checker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from dispatchlab.model.sequence import StepSequence
from dispatchlab.model.snapshot import Refusal
from dispatchlab.prover.chains import Chains, keeping
from dispatchlab.prover.checker import (
    Observation,
    Outcome,
    check_observation,
    check_outcome,
    check_release,
    difference,
    outcome_difference,
    outcome_text,
)
from dispatchlab.prover.prng import SplitMix64
from dispatchlab.prover.protocol import EngineCrashed, StateSpace
from dispatchlab.prover.result import Counterexample, Flaw
from dispatchlab.prover.run_sequence import Look, Session, Sessions, StateSession, run

_LOOKED_AT_EVERY_STEP: Final = 32


@dataclass(frozen=True, slots=True)
class _End:
    """Where a sequence ends: the last step that was run with the active sets before and after it, and what was seen."""

    step: int | None
    before: frozenset[int]
    after: frozenset[int]
    refusal: Refusal | None
    observed: Observation

    @property
    def completes(self) -> frozenset[int] | None:
        """The set that the last step asks for, when it is a registration."""
        return None if self.step is None or self.step < 0 else self.before | {self.step}


def compare_sequences(sessions: Sessions, expected: StepSequence, actual: StepSequence) -> Counterexample | None:
    """How two sequences disagree when they are run from scratch; None when they agree.

    Args:
        sessions: where to run them; nothing but the end of each sequence is looked at.
        expected: the sequence that sets what is expected. The two change places in the counterexample when it breaks an
            invariant and `actual` does not.
        actual: the other one; the same sequence to ask whether it is at fault by itself.

    Raises:
        SequenceError: a sequence cannot be run.
    """
    try:
        actual_end = _end(sessions, actual)
        expected_end = actual_end if expected == actual else _end(sessions, expected)
    except EngineCrashed as crash:
        return Counterexample(Flaw.CRASH, actual, actual, "", (crash.text,))
    example: Counterexample | None = None
    if actual_end.step is not None and actual_end.step < 0:
        example = check_release(actual, actual_end.step, actual_end.refusal)
    elif expected_end.completes is not None and expected_end.completes == actual_end.completes:
        example = check_outcome(Outcome(expected, expected_end.refusal), Outcome(actual, actual_end.refusal))
    if example is None and expected_end.after == actual_end.after:
        example = check_observation(expected_end.observed, actual_end.observed)
    return example


def reasons_of(space: StateSpace[Any], example: Counterexample) -> tuple[str, ...]:
    """What a space knows of why two sequences disagree, from the states where they do."""
    last = 1 if example.flaw is Flaw.OUTCOME else 0
    states = []
    for sequence in (example.expected_sequence, example.actual_sequence):
        session = StateSession(space)
        for _ in run(session, sequence[: len(sequence) - last]):
            pass
        states.append(session.state)
    return space.why(*states)


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
        observed = Observation(sequence, session.look(), any_refused, last_refused=refusal is not None)
        return _End(last, before, after, refusal, observed)


def full_sequence(count: int, random: SplitMix64, *, order: Chains = ()) -> StepSequence:
    """A random sequence that registers everything, then releases what can be; registrations keep `order`."""
    registered, released = list(range(count)), list(range(count))
    random.shuffle(registered)
    random.shuffle(released)
    return (*keeping(registered, order), *(~index for index in released))


def check_determinism(
    first: Sessions, second: Sessions, count: int, *, seed: int, order: Chains = ()
) -> Counterexample | None:
    """Run one sequence twice and compare every outcome and what is seen.

    Args:
        first: where to run it first.
        second: where to run it again.
        count: how many registrations there are; when there are many, only the turn and the end are looked at.
        seed: of the sequence.
        order: chains of registrations that are registered in this order only.

    Returns:
        The sequence and the difference, or the sequence that ended the engine (`Flaw.CRASH`), or None when all is well.
    """
    steps: list[int] = []
    try:
        with first() as session:
            sequence = full_sequence(count, SplitMix64(seed), order=order)
            end = len(sequence) - 1
            looks = frozenset(range(end + 1) if count <= _LOOKED_AT_EVERY_STEP else (count - 1, end))
            once = _record(session, sequence, looks, steps)
        with second() as session:
            twice = _record(session, sequence, looks, steps)
    except EngineCrashed as crash:
        return Counterexample(Flaw.CRASH, tuple(steps), tuple(steps), "", (crash.text,))
    ran: list[int] = []
    for (step, refusal, look), (_, refusal_again, look_again) in zip(once, twice, strict=False):
        ran.append(step)
        diff = outcome_difference(outcome_text(step, refusal), outcome_text(step, refusal_again))
        if not diff and look is not None and look_again is not None:
            diff = difference(look[0], look_again[0], expected_broken=look[1], actual_broken=look_again[1])
        if diff:
            return Counterexample(Flaw.NONDETERMINISTIC, tuple(ran), tuple(ran), diff)
    return None


def _record(
    session: Session, sequence: StepSequence, looks: frozenset[int], steps: list[int]
) -> list[tuple[int, Refusal | None, Look | None]]:
    """What came of every step, without the releases of what was refused; `steps` is left at the steps that were run."""
    steps.clear()
    record: list[tuple[int, Refusal | None, Look | None]] = []
    refused: set[int] = set()
    for place, step in enumerate(sequence):
        if step < 0 and ~step in refused:
            continue
        steps.append(step)
        refusal = session.release(~step) if step < 0 else session.register(step)
        if step >= 0 and refusal is not None:
            refused.add(step)
        record.append((step, refusal, session.look() if place in looks else None))
    return record
