"""Run sequences on sandboxes and on states that are values, and compare the results of two sequences.

This module makes every reported counterexample: two sequences in new sessions, which the checker compares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from dispatchlab.errors import DispatchLabError, RegistrationError
from dispatchlab.model.kernel_identity import distinguished
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Registration
from dispatchlab.model.sequence import StepSequence, format_sequence
from dispatchlab.model.snapshot import Refusal, Snapshot, Violation
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
from dispatchlab.prover.protocol import Engine, EngineCrashed, Handle, Look, Sandbox, StateSpace
from dispatchlab.prover.result import Counterexample, Flaw

if TYPE_CHECKING:
    from dispatchlab.prover.prng import SplitMix64


class SequenceError(DispatchLabError):
    """A sequence cannot be run on this engine: it releases an inactive registration, or registers one twice.

    Args:
        sequence: the sequence.
        at: the number of the step, from 0.
        trouble: why this step cannot be run.
    """

    sequence: StepSequence
    at: int
    trouble: str

    def __str__(self) -> str:
        before = f"after {format_sequence(self.sequence[: self.at])}" if self.at else "at the start"
        return f"step {format_sequence(self.sequence[self.at : self.at + 1])} cannot be run: {before}, {self.trouble}"


class Session(Protocol):
    """A new dispatcher and the registrations of a scenario, by number."""

    def register(self, index: int, /) -> Refusal | None:
        """Register; return why it was refused, or None."""

    def release(self, index: int, /) -> Refusal | None:
        """Release; return why the release failed, or None."""

    def look(self) -> Look:
        """Return the observed operators and the invariants that do not hold."""


Sessions: TypeAlias = Callable[[], AbstractContextManager[Session]]


class SandboxSession:
    """A session in a sandbox, which keeps the handles."""

    __slots__ = ("_handles", "_operators", "_registrations", "_sandbox")

    def __init__(
        self,
        sandbox: Sandbox,
        registrations: Sequence[Registration],
        operators: Sequence[OperatorName],
    ) -> None:
        self._sandbox = sandbox
        self._registrations = registrations
        self._operators = operators
        self._handles: list[Handle | None] = [None] * len(registrations)

    def register(self, index: int, /) -> Refusal | None:
        """Register; return why it was refused, or None."""
        try:
            self._handles[index] = self._sandbox.register(self._registrations[index])
        except RegistrationError as error:
            return Refusal.of(error)
        return None

    def release(self, index: int, /) -> Refusal | None:
        """Release; return why the release failed, or None."""
        handle = self._handles[index]
        if handle is not None:
            try:
                handle.release()
            except RegistrationError as error:
                return Refusal.of(error)
            self._handles[index] = None
        return None

    def look(self) -> Look:
        """Return the observed operators and the invariants that do not hold."""
        snapshot, violations = self._sandbox.snapshot, self._sandbox.violations
        seen: list[Snapshot] = []
        broken: list[Violation] = []
        for operator in self._operators:
            seen.append(snapshot(operator))
            broken += violations(operator)
        return tuple(seen), tuple(broken)


class StateSession:
    """A session on a state space, which keeps only the present state."""

    __slots__ = ("_space", "_state")

    def __init__(self, space: StateSpace[Any]) -> None:
        self._space = space
        self._state: Any = space.empty()

    @property
    def state(self) -> Any:
        """The current state of the session."""
        return self._state

    def register(self, index: int, /) -> Refusal | None:
        """Register; return why it was refused, or None."""
        self._state, refusal = self._space.register(self._state, index)
        return refusal

    def release(self, index: int, /) -> Refusal | None:
        """Release; return why the release failed, or None."""
        try:
            self._state = self._space.release(self._state, index)
        except RegistrationError as error:
            return Refusal.of(error)
        return None

    def look(self) -> Look:
        """Return the observed operators and the invariants that do not hold."""
        return self._space.observe(self._state), self._space.violations(self._state)


def on_sandboxes(engine: Engine, registrations: Sequence[Registration], operators: Sequence[OperatorName]) -> Sessions:
    """Return sessions in new sandboxes; kernels with equal debug texts get marks, see `distinguished`."""
    registrations = distinguished(registrations)

    @contextmanager
    def open_session() -> Iterator[Session]:
        with engine.sandbox() as sandbox:
            yield SandboxSession(sandbox, registrations, operators)

    return open_session


def on_states(space: StateSpace[Any]) -> Sessions:
    """Return sessions on a state space."""

    @contextmanager
    def open_session() -> Iterator[Session]:
        yield StateSession(space)

    return open_session


class _Kept:
    """A step of a session, the state after it, and the observation there, if it was observed."""

    __slots__ = ("look", "refusal", "state", "step")

    def __init__(self, step: int | None, state: Any, refusal: Refusal | None) -> None:
        self.step, self.state, self.refusal = step, state, refusal
        self.look: Look | None = None


class _PrefixSession(StateSession):
    """A session that reuses the common steps of the session before it."""

    __slots__ = ("_at", "_kept")

    def __init__(self, space: StateSpace[Any], kept: list[_Kept]) -> None:
        self._space, self._kept, self._at = space, kept, 0

    @property
    def state(self) -> Any:
        return self._kept[self._at].state

    def register(self, index: int, /) -> Refusal | None:
        return self._take(index)

    def release(self, index: int, /) -> Refusal | None:
        return self._take(~index)

    def _take(self, step: int) -> Refusal | None:
        kept, self._at = self._kept, self._at + 1
        if self._at < len(kept):
            known = kept[self._at]
            if known.step == step:
                return known.refusal
            del kept[self._at :]
        self._state = kept[-1].state
        refusal = super().release(~step) if step < 0 else super().register(step)
        kept.append(_Kept(step, self._state, refusal))
        return refusal

    def look(self) -> Look:
        known = self._kept[self._at]
        if known.look is None:
            self._state = known.state
            known.look = super().look()
        return known.look


def on_prefixes(space: StateSpace[Any]) -> Sessions:
    """Return sessions on a state space; common beginnings of following sequences run only once."""
    kept = [_Kept(None, space.empty(), None)]

    @contextmanager
    def open_session() -> Iterator[Session]:
        yield _PrefixSession(space, kept)

    return open_session


def run(session: Session, sequence: StepSequence) -> Iterator[tuple[int, Refusal | None]]:
    """Run the steps of a sequence one by one; end early if a release fails.

    Raises:
        SequenceError: a step releases a refused registration, or registers an active one.
    """
    active = 0
    for at, step in enumerate(sequence):
        index = ~step if step < 0 else step
        if bool(active >> index & 1) is not (step < 0):
            raise SequenceError(sequence, at, f"{index} is {'not ' if step < 0 else 'already '}registered")
        if step < 0:
            refusal = session.release(index)
            active &= ~(1 << index)
        else:
            refusal = session.register(index)
            if refusal is None:
                active |= 1 << index
        yield step, refusal
        if step < 0 and refusal is not None:
            return


_LOOKED_AT_EVERY_STEP: Final = 32


@dataclass(frozen=True, slots=True)
class _End:
    """The end of a sequence: the last step with the active sets before and after it, and the observation."""

    step: int | None
    before: frozenset[int]
    after: frozenset[int]
    refusal: Refusal | None
    observed: Observation

    @property
    def completes(self) -> frozenset[int] | None:
        """The set after the last step, if this is a registration."""
        return None if self.step is None or self.step < 0 else self.before | {self.step}


def compare_sequences(sessions: Sessions, expected: StepSequence, actual: StepSequence) -> Counterexample | None:
    """Return how two sequences disagree when run from scratch; None if they agree.

    Args:
        sessions: the sessions to run them in; only the end of each sequence is observed.
        expected: the sequence with the expected result. If only this one breaks an invariant, the two are swapped in
            the counterexample.
        actual: the other sequence; pass the same sequence to check it alone.

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
    """Return the reasons of a space for the disagreement of two sequences, from the states where they differ."""
    if example.flaw in (Flaw.ASYMMETRY, Flaw.RELEASE):
        return ()
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
    """Return a random sequence of all registrations, then all releases; registrations keep `order`."""
    registered, released = list(range(count)), list(range(count))
    random.shuffle(registered)
    random.shuffle(released)
    return (*keeping(registered, order), *(~index for index in released))


def check_determinism(
    first: Sessions, second: Sessions, count: int, *, seed: int, order: Chains = ()
) -> Counterexample | None:
    """Run one sequence twice and compare every outcome and observation.

    Args:
        first: the sessions of the first run.
        second: the sessions of the second run.
        count: the number of registrations; if there are many, only the middle and the end are observed.
        seed: the seed of the sequence.
        order: chains of registrations that are only registered in this order.

    Returns:
        The sequence and the difference, or the sequence that ended the engine (`Flaw.CRASH`), or None without either.
    """
    from dispatchlab.prover.prng import SplitMix64

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
    """Return the outcome of every step, without releases of refused registrations; `steps` gets the executed steps."""
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
