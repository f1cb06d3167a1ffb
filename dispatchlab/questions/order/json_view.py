"""Reports and operators as JSON for programs, an object on one line each.

docs/json.md has the fields of the JSON; none is ever renamed or dropped within a version.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from dispatchlab.model.operator_view import OperatorView
from dispatchlab.model.packet import Packet
from dispatchlab.model.python_view import PythonRow
from dispatchlab.model.sequence import StepSequence, format_sequence
from dispatchlab.model.snapshot import Snapshot, Violation
from dispatchlab.prover.result import Counterexample
from dispatchlab.questions.dump.operator_text import only_rows
from dispatchlab.questions.order.report import Report
from dispatchlab.questions.order.snapshots import Moment, Passed, Snapshots, Way
from dispatchlab.views.as_json import as_json, fields_of, json_text
from dispatchlab.views.formatting import digits


@as_json.register
def _(report: Report) -> dict[str, object]:
    found = report.exploration
    head = {
        "scenario": report.scenario,
        "claim": report.claim,
        "engine": report.engine,
        "semantics": report.semantics,
        "verdict": found.verdict,
        "expected": report.expected,
        "as_expected": report.as_expected,
        "exit_code": report.exit_code,
        "walk": found.walk,
        "registrations": found.registrations,
        "registration_texts": report.registrations,
        "layers": report.layers,
        "unexplored": report.unexplored,
        "overwritten": report.overwritten,
        "imports": report.imports,
        "standing": report.standing,
    }
    values = {name: as_json(value) for name, value in head.items()}
    return values | fields_of(found, without=head, orders=digits(found.orders))


@dataclass(frozen=True, slots=True)
class ReportWithSnapshots:
    """A report, and the snapshots after each step."""

    report: Report
    snapshots: Snapshots


@as_json.register
def _(value: ReportWithSnapshots) -> dict[str, object]:
    report = as_json(value.report)
    assert isinstance(report, dict)
    return {**report, "snapshots": fields_of(value.snapshots, without=("registrations",))}


@as_json.register
def _(value: Moment) -> dict[str, object]:
    operators, violations = value.look
    seen = [{"name": str(operator.operator), **fields_of(operator, without=("operator",))} for operator in operators]
    broken = [{"operator": str(each.operator), **fields_of(each, without=("operator",))} for each in violations]
    return fields_of(value, look={"operators": seen, "violations": broken})


@as_json.register
def _(value: Way) -> dict[str, object]:
    return {"source": value.source, "step": format_sequence((value.step,)), "refused": value.refused}


@as_json.register
def _(value: Passed) -> dict[str, object]:
    return {"sequence": format_sequence(value.sequence), "numbers": list(value.numbers)}


def dump_json(
    operators: Sequence[tuple[Snapshot, OperatorView]],
    *,
    scenario: str | None,
    engine: str,
    semantics: str,
    sequence: StepSequence,
    refused: Sequence[tuple[int, str]] = (),
    keys: Collection[str] = (),
    python: Callable[[Snapshot], Sequence[PythonRow]] | None = None,
    packet: Packet | None = None,
) -> str:
    """Operators as one object on one line.

    Args:
        operators: each as it is seen, and with its reasons.
        scenario: the file that the registrations come from, if there is one.
        engine: the engine.
        semantics: its semantics.
        sequence: what was registered and released before looking.
        refused: the registrations that were refused on the way, with the reasons.
        keys: the rows of the tables that are shown; all of them when there are none.
        python: what Python registers for an operator; None when that is not known.
        packet: the overloads of a name of several that was asked for, as a call tries them.
    """
    return json_text(
        {
            "scenario": scenario,
            "engine": engine,
            "semantics": semantics,
            "sequence": format_sequence(sequence),
            "refused": [{"registration": index, "message": message} for index, message in refused],
            "operators": [
                {
                    **_operator(*operator, keys=keys),
                    "python": None if python is None else python(operator[0]),
                }
                for operator in operators
            ],
            "packet": packet,
        }
    )


def _operator(snapshot: Snapshot, view: OperatorView, *, keys: Collection[str]) -> dict[str, object]:
    slots = snapshot.slots
    return {
        "name": view.name,
        "exists": snapshot.exists,
        "schema": view.schema,
        "debug": view.debug,
        "alias_kind": view.alias_kind,
        "tags": view.tags,
        "dump": snapshot.dump,
        "table_text": only_rows(snapshot.table, keys),
        "slots_text": None if slots is None else only_rows(slots, keys),
        "kernels": view.kernels,
        "table": [row for row in view.table if not keys or row.key in keys],
        "violations": view.violations,
    }


@as_json.register
def _(value: Counterexample) -> dict[str, object]:
    expected, actual = map(format_sequence, (value.expected_sequence, value.actual_sequence))
    return {
        "kind": value.flaw,
        **fields_of(value, without=("flaw",), expected_sequence=expected, actual_sequence=actual),
    }


@as_json.register
def _(value: Violation) -> dict[str, object]:
    return fields_of(value, without=("operator",))
