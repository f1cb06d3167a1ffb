"""Replay a sequence in a fresh sandbox, and look after every step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Registration
from dispatchlab.model.sequence import StepSequence
from dispatchlab.model.snapshot import Refusal, Snapshot, Violation
from dispatchlab.prover.protocol import Engine
from dispatchlab.prover.run_sequence import on_sandboxes, run


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
