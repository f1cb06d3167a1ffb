"""The cells of readiness that runs on inputs decide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import assert_never

from dispatchlab.model.operator_runs import Outcome, Run
from dispatchlab.questions.readiness.operator_readiness import RUN_ONLY, Answer, Aspect, Cell, Readiness, Row

Runs = Mapping[str, Mapping[str, Run]]
"""Operator -> column -> what a run shows."""


def with_runs(found: Readiness, runs: Runs) -> Readiness:
    """The same with the cells that runs decide; what was not run stays as it was."""
    return replace(found, rows=tuple(_row(row, runs.get(row.operator, {})) for row in found.rows))


def _row(row: Row, runs: Mapping[str, Run]) -> Row:
    return replace(row, cells=tuple(decided(cell, runs.get(str(cell.aspect))) for cell in row.cells))


def decided(cell: Cell, run: Run | None) -> Cell:
    """A cell after a run. A gap that a run confirms keeps its reason, and what is not run says why.

    What is not needed is left alone, unless a schema says so and a run refutes it.
    """
    if run is None or (cell.answer is Answer.NOT_NEEDED and cell.aspect is not Aspect.FUNCTIONALIZE):
        return cell
    match run.outcome:
        case Outcome.NOT_DECIDED if cell.answer in (Answer.NO, Answer.NOT_NEEDED):
            return cell
        case Outcome.NOT_DECIDED:
            before = "" if cell.aspect in RUN_ONLY else f"{cell.reason}; "
            return replace(cell, reason=f"{before}no run decides it: {run.how}")
        case Outcome.WORKS if cell.answer is Answer.NOT_NEEDED:
            return cell
        case Outcome.WORKS:
            return Cell(cell.aspect, Answer.YES, run.how, by_run=True)
        case Outcome.NOT_NEEDED:
            return Cell(cell.aspect, Answer.NOT_NEEDED, run.how, by_run=True)
        case Outcome.FAILS if cell.answer is Answer.NO:
            return replace(cell, by_run=True)
        case Outcome.FAILS:
            before = f"; it has {cell.reason}" if cell.answer is Answer.REGISTERED else ""
            return replace(cell, answer=Answer.NO, reason=f"{run.how}{before}", by_run=True)
    assert_never(run.outcome)
