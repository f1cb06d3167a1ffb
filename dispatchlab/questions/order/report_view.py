"""How a report is shown: its plain text, its JSON, and the document of everything else, made when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dispatchlab.model.sequence import format_sequence
from dispatchlab.prover.result import Counterexample
from dispatchlab.questions.order.report import Explored, Report, Seen
from dispatchlab.questions.order.report_text import report_lines
from dispatchlab.views.as_json import as_json, fields_of
from dispatchlab.views.blocks import Block, Code, Document, Line
from dispatchlab.views.formatting import digits
from dispatchlab.views.view import View

if TYPE_CHECKING:
    from dispatchlab.questions.order.snapshots import Snapshots


def report_view(
    report: Report,
    *,
    seen: Seen = (),
    snapshots: Snapshots | None = None,
    program: str = "",
    before: Sequence[Block] = (),
    torch: str = "",
) -> View[object]:
    """How a report is shown.

    Args:
        report: what was found.
        seen: operators after some sequence, each with a title that names it.
        snapshots: the snapshots after each step, where they are shown.
        program: a program that shows a violation; empty where there is none.
        before: what stands before it.
        torch: the version of the PyTorch that source locations are of; empty when that is not known.
    """
    explored = Explored(report, seen, snapshots=snapshots)
    code = (Line(), Line(f"# {_PROGRAM}"), Code(program)) if program else ()
    steps: tuple[Block, ...] = ()
    value: object = report
    if snapshots is not None:
        from dispatchlab.questions.order.snapshots_blocks import snapshot_lines

        steps = (Line(), *snapshot_lines(snapshots))
        found = as_json(report)
        assert isinstance(found, dict)
        value = {**found, "snapshots": snapshots}

    def document(_: object) -> Document:
        from dispatchlab.questions.order.blocks import permute_document

        return permute_document([explored], after=code)

    return View(
        value,
        lines=lambda _: (*before, *report_lines(report), *steps, *code),
        document=document,
        torch=torch,
    )


_PROGRAM = "A program that shows it wherever PyTorch is installed; --save FILE.py keeps it."


@as_json.register
def _(report: Report) -> dict[str, object]:
    found = report.exploration
    own = fields_of(report, without=("exploration", "registrations"), registration_texts=report.registrations)
    return own | fields_of(found, orders=digits(found.orders), standing=report.standing)


@as_json.register
def _(value: Counterexample) -> dict[str, object]:
    expected, actual = map(format_sequence, (value.expected_sequence, value.actual_sequence))
    return fields_of(value, expected_sequence=expected, actual_sequence=actual)
