"""Run sequences on sandboxes and on states that are values, and replay a sequence step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from dispatchlab.errors import DispatchLabError, RegistrationError
from dispatchlab.model.kernel_identity import distinguished
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Registration
from dispatchlab.model.sequence import StepSequence, format_sequence
from dispatchlab.model.snapshot import Refusal, Snapshot, Violation
from dispatchlab.prover.protocol import Engine, Handle, Sandbox, StateSpace

Look: TypeAlias = tuple[tuple[Snapshot, ...], tuple[Violation, ...]]
"""What is observed of all operators, and the invariants that do not hold."""


class SequenceError(DispatchLabError):
    """A sequence cannot be run on this engine: it releases what is not registered, or registers what is.

    Args:
        sequence: the sequence.
        at: which step of it, from 0.
        trouble: what is wrong with that step.
    """

    sequence: StepSequence
    at: int
    trouble: str

    def __str__(self) -> str:
        before = f"after {format_sequence(self.sequence[: self.at])}" if self.at else "at the start"
        return f"step {format_sequence(self.sequence[self.at : self.at + 1])} cannot be run: {before}, {self.trouble}"


class Session(Protocol):
    """One fresh dispatcher and the registrations of a scenario, by number."""

    def register(self, index: int, /) -> Refusal | None:
        """Register; why it was refused, or None."""

    def release(self, index: int, /) -> Refusal | None:
        """Release; why that failed, or None."""

    def look(self) -> Look:
        """All operators under observation and the invariants that do not hold."""


Sessions: TypeAlias = Callable[[], AbstractContextManager[Session]]


class SandboxSession:
    """A session in a sandbox; keeps the handles."""

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
        """Register; why it was refused, or None."""
        try:
            self._handles[index] = self._sandbox.register(self._registrations[index])
        except RegistrationError as error:
            return Refusal.of(error)
        return None

    def release(self, index: int, /) -> Refusal | None:
        """Release; why that failed, or None."""
        handle = self._handles[index]
        if handle is not None:
            try:
                handle.release()
            except RegistrationError as error:
                return Refusal.of(error)
            self._handles[index] = None
        return None

    def look(self) -> Look:
        """All operators under observation and the invariants that do not hold."""
        snapshot, violations = self._sandbox.snapshot, self._sandbox.violations
        seen: list[Snapshot] = []
        broken: list[Violation] = []
        for operator in self._operators:
            seen.append(snapshot(operator))
            broken += violations(operator)
        return tuple(seen), tuple(broken)


class StateSession:
    """A session on a state space; forgets the states that it leaves."""

    __slots__ = ("_space", "_state")

    def __init__(self, space: StateSpace[Any]) -> None:
        self._space = space
        self._state: Any = space.empty()

    @property
    def state(self) -> Any:
        """Where the session is."""
        return self._state

    def register(self, index: int, /) -> Refusal | None:
        """Register; why it was refused, or None."""
        self._state, refusal = self._space.register(self._state, index)
        return refusal

    def release(self, index: int, /) -> Refusal | None:
        """Release; why that failed, or None."""
        try:
            self._state = self._space.release(self._state, index)
        except RegistrationError as error:
            return Refusal.of(error)
        return None

    def look(self) -> Look:
        """All operators under observation and the invariants that do not hold."""
        return self._space.observe(self._state), self._space.violations(self._state)


def on_sandboxes(engine: Engine, registrations: Sequence[Registration], operators: Sequence[OperatorName]) -> Sessions:
    """Sessions in fresh sandboxes of an engine; kernels that share a debug text get marks, see `distinguished`."""
    registrations = distinguished(registrations)

    @contextmanager
    def open_session() -> Iterator[Session]:
        with engine.sandbox() as sandbox:
            yield SandboxSession(sandbox, registrations, operators)

    return open_session


def on_states(space: StateSpace[Any]) -> Sessions:
    """Sessions on a state space."""

    @contextmanager
    def open_session() -> Iterator[Session]:
        yield StateSession(space)

    return open_session


class _Kept:
    """A step that a session has taken, the state that it led to, and what was seen there once it was looked at."""

    __slots__ = ("look", "refusal", "state", "step")

    def __init__(self, step: int | None, state: Any, refusal: Refusal | None) -> None:
        self.step, self.state, self.refusal = step, state, refusal
        self.look: Look | None = None


class _PrefixSession(StateSession):
    """A session that takes the steps which it has in common with the session before it from there."""

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
    """Sessions on a state space, for sequences in an order in which they share beginnings, which are run once."""
    kept = [_Kept(None, space.empty(), None)]

    @contextmanager
    def open_session() -> Iterator[Session]:
        yield _PrefixSession(space, kept)

    return open_session


@dataclass(frozen=True, slots=True)
class Replayed:
    """One step of a sequence that was run.

    Args:
        step: the step; None for the look before the first one.
        refusal: why it was refused, or why the release failed; None when all went well.
        snapshots: what was seen afterwards, one for each operator under observation.
        violations: the invariants that did not hold afterwards.
    """

    step: int | None
    refusal: Refusal | None
    snapshots: tuple[Snapshot, ...]
    violations: tuple[Violation, ...]


def replay(
    engine: Engine, registrations: Sequence[Registration], operators: Sequence[OperatorName], sequence: StepSequence
) -> tuple[Replayed, ...]:
    """Run a sequence in a fresh sandbox and look after every step.

    Returns:
        One element more than the sequence has steps, since the first is the look before it; fewer when a release
        failed.

    Raises:
        SequenceError: a step releases what was refused or registers what is registered.
        EngineCrashed: the sandbox died.
    """
    done: list[Replayed] = []
    with on_sandboxes(engine, registrations, operators)() as session:
        done.append(Replayed(None, None, *session.look()))
        for step, refusal in run(session, sequence):
            done.append(Replayed(step, refusal, *session.look()))
    return tuple(done)


def run(session: Session, sequence: StepSequence) -> Iterator[tuple[int, Refusal | None]]:
    """Run the steps of a sequence one at a time; ends early when a release fails.

    Raises:
        SequenceError: a step releases what was refused or registers what is registered.
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
