"""Conformance: hold the live engine to its model step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Registration
from dispatchlab.model.sequence import format_sequence
from dispatchlab.prover.chains import Chains
from dispatchlab.prover.limits import Progress
from dispatchlab.prover.protocol import Engine
from dispatchlab.prover.result import Exploration, Verdict
from dispatchlab.prover.walk_options import DEFAULT_WALK, WalkOptions
from dispatchlab.scenario.scenario import Scenario

PASSES = 2
"""How many passes the two go together when nothing else is asked for."""


@runtime_checkable
class WalksElsewhere(Protocol):
    """An engine that runs walks in the process that it lives in."""

    def walk(
        self,
        function: str,
        registrations: Sequence[Registration],
        operators: Sequence[OperatorName],
        *arguments: object,
        order: Chains = (),
        progress: Callable[[Progress], None] | None = None,
    ) -> Exploration:
        """Call a walk there."""


def conform(
    engine: Engine,
    model: str,
    scenario: Scenario,
    options: WalkOptions = DEFAULT_WALK,
    *,
    progress: Callable[[Progress], None] | None = None,
) -> Exploration:
    """Walk an engine and the lab engine side by side until they differ.

    Args:
        engine: the engine.
        model: the semantics of the lab engine that it should behave as.
        scenario: the registrations and what is observed.
        options: the seed and number of passes, and the bound on their time; others have no effect.
        progress: is called about ten times a second with how far it has come.

    Returns:
        As `prover.lockstep.lockstep`.

    Raises:
        Interrupted: by Ctrl-C, with what was covered.
    """
    options = WalkOptions(seed=options.seed, passes=options.passes or PASSES, timeout_s=options.timeout_s)
    about = scenario.registrations, scenario.operators, model, options
    if isinstance(engine, WalksElsewhere):
        return engine.walk(f"{__name__}:beside_its_model", *about, order=scenario.order, progress=progress)
    return beside_its_model(engine, *about, order=scenario.order, progress=progress)


def beside_its_model(
    engine: Engine,
    registrations: Sequence[Registration],
    operators: Sequence[OperatorName],
    model: str,
    options: WalkOptions,
    *,
    order: Chains,
    progress: Callable[[Progress], None] | None,
) -> Exploration:
    """The walk itself, run where the engine is."""
    from dispatchlab.engine.lab_engine import LabEngine
    from dispatchlab.prover.lockstep import lockstep

    return lockstep(LabEngine(model), engine, registrations, operators, options, order=order, progress=progress)


def sentence(found: Exploration) -> str:
    """The result of a comparison, for a reader."""
    covered = f" ({found.notes[-1]})" if found.notes else ""
    if found.verdict is Verdict.NO_VIOLATION_FOUND:
        return f"the engine and its model agree{covered}"
    if found.counterexample is None:
        return f"the engine and its model agree as far as they went together: {'; '.join(found.notes)}"
    sequence, why = format_sequence(found.counterexample.actual_sequence), "; ".join(found.counterexample.why)
    if found.verdict is Verdict.ORDER_DEPENDENT:
        return f"the engine and its model differ after {sequence}: {why}\n{found.counterexample.diff.rstrip()}"
    return f"the engine and its model could not be compared: {found.verdict} at {sequence}: {why}"
