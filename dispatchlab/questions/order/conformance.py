"""Conformance: compare the live engine with its model, step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from dispatchlab.engine.semantics import SEMANTICS
from dispatchlab.errors import RequestError
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Registration
from dispatchlab.model.sequence import format_sequence
from dispatchlab.prover.chains import Chains
from dispatchlab.prover.limits import Interrupted, Progress, WalkOptions
from dispatchlab.prover.protocol import Engine
from dispatchlab.prover.result import Expectation, Exploration, Verdict, judge
from dispatchlab.questions.order.report import Report
from dispatchlab.scenario.scenario import Scenario

PASSES = 2
"""How many passes the two go together when nothing else is asked for."""


def check_model(engine: Engine) -> None:
    """Check that an engine has a model.

    Raises:
        RequestError: the engine is the lab engine, or the semantics are unknown.
    """
    if engine.name == "lab":
        raise RequestError("--conform compares the live engine with its model: use it with --engine torch")
    if engine.semantics not in SEMANTICS:
        raise RequestError(f"--conform: there is no model of {engine.semantics}; there are {', '.join(SEMANTICS)}")


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
    """Run the walk in the process of the engine, and return the result."""
    from dispatchlab.engine.lab_engine import LabEngine
    from dispatchlab.prover.lockstep import lockstep

    return lockstep(LabEngine(model), engine, registrations, operators, options, order=order, progress=progress)


def sentence(found: Exploration) -> str:
    """Return the result of a comparison, for a reader."""
    covered = f" ({found.notes[-1]})" if found.notes else ""
    if found.verdict is Verdict.NO_VIOLATION_FOUND:
        return f"the engine and its model agree{covered}"
    if found.counterexample is None:
        return f"the engine and its model agree as far as they went together: {'; '.join(found.notes)}"
    sequence, why = format_sequence(found.counterexample.actual_sequence), "; ".join(found.counterexample.why)
    if found.verdict is Verdict.ORDER_DEPENDENT:
        return f"the engine and its model differ after {sequence}: {why}\n{found.counterexample.diff.rstrip()}"
    return f"the engine and its model could not be compared: {found.verdict} at {sequence}: {why}"


def conforming(
    report: Report,
    engine: Engine,
    scenario: Scenario,
    options: WalkOptions,
    progress: Callable[[Progress], None] | None,
) -> tuple[Report, bool]:
    """Compare an engine with its model and note the result; after a difference, the verdict is not as expected.

    Returns:
        The report, and whether Ctrl-C ended the comparison.
    """
    from dispatchlab.live.worker.engine import LiveEngine

    assert isinstance(engine, LiveEngine)
    try:
        walk = WalkOptions(seed=options.seed, passes=options.passes or PASSES, timeout_s=options.timeout_s)
        about = scenario.registrations, scenario.operators, engine.semantics, walk
        together = engine.walk(f"{__name__}:beside_its_model", *about, order=scenario.order, progress=progress)
    except Interrupted as error:
        return report.noted(sentence(error.exploration)), True
    report = report.noted(sentence(together))
    if together.verdict is Verdict.NO_VIOLATION_FOUND:
        return report, False
    _, code = judge(together.verdict, Expectation.ORDER_INDEPENDENT, conflicts=0, require_proof=False)
    return replace(report, as_expected=False, exit_code=max(code, report.exit_code)), False
