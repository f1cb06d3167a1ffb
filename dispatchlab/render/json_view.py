"""Reports and operators as JSON for programs. A field is never renamed or dropped within a version.

A report (`permute --format json`, one object on one line for each scenario):

    version           1
    scenario          path of the file, as it was given
    claim             its sentence
    engine            lab | torch
    semantics         strict | torch-2.13 | pr35061 | ...
    verdict           proved | no violation found | violated | incomplete | nondeterministic | engine crashed
    expected          commutes | order-matters | refused
    as_expected       true | false
    exit_code         what this scenario alone would end with
    walk              graph | orders | sample | covering | replay
    registrations     how many there are
    registration_texts  what each of them is, in the order of the file
    sets, states, edges  how many were reached; edges are the registrations and releases that were tried
    orders            how many orders this stands for, as a string of digits
    components        how many independent parts were explored apart
    classes           how many of these were different up to renaming
    conflicts         [{members, kind, message, asymmetric}]: registrations that exclude one another
    never_accepted    the registrations that were accepted nowhere, by number
    counterexample    null, or {kind, expected_sequence, actual_sequence, diff, why}; sequences as "+0 +1 -0"
    notes             sentences
    seed, passes        null where they do not apply
    elapsed_s         seconds

An operator (`dump --format json`, in `operators`):

    name, exists      the name; false when nothing is registered for it, and all that follows is empty
    schema, debug, alias_kind   null while there is no def
    tags              sorted
    dump, table_text, slots_text   as an engine prints them; slots_text is null where it cannot be read
    kernels           [{key, is_alias, active, debug, inferred, flags, location}]
    table             [{key, text, debug, reason, fallthrough, source, beaten, stale}]; beaten: [{source, debug,
                      reason, why}]; stale: what the slot holds instead, null when it holds what it should
    violations        [{rule, detail, keys}]
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

from dispatchlab.analysis.report import Report
from dispatchlab.explore.result import Counterexample
from dispatchlab.model.operator_view import OperatorView
from dispatchlab.model.sequence import StepSequence, format_sequence
from dispatchlab.model.snapshot import Snapshot
from dispatchlab.render.formatting import JSON_VERSION, digits
from dispatchlab.render.text import only_rows


def report_json(report: Report) -> str:
    """A report as one object on one line."""
    found = report.exploration
    return _line(
        {
            "version": JSON_VERSION,
            "scenario": report.scenario,
            "claim": report.claim,
            "engine": report.engine,
            "semantics": report.semantics,
            "verdict": str(found.verdict),
            "expected": str(report.expected),
            "as_expected": report.as_expected,
            "exit_code": report.exit_code,
            "walk": found.walk,
            "registrations": found.registrations,
            "registration_texts": list(report.registrations),
            "sets": found.sets,
            "states": found.states,
            "edges": found.edges,
            "orders": digits(found.orders),
            "components": found.components,
            "classes": found.classes,
            "conflicts": [
                {
                    "members": list(conflict.members),
                    "kind": conflict.kind,
                    "message": conflict.message,
                    "asymmetric": conflict.asymmetric,
                }
                for conflict in found.conflicts
            ],
            "never_accepted": list(found.never_accepted),
            "counterexample": None if found.counterexample is None else _counterexample(found.counterexample),
            "notes": list(found.notes),
            "seed": found.seed,
            "passes": found.passes,
            "elapsed_s": found.elapsed_s,
        }
    )


def dump_json(
    operators: Sequence[tuple[Snapshot, OperatorView]],
    *,
    scenario: str | None,
    engine: str,
    semantics: str,
    sequence: StepSequence,
    refused: Sequence[tuple[int, str]] = (),
    keys: Collection[str] = (),
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
    """
    return _line(
        {
            "version": JSON_VERSION,
            "scenario": scenario,
            "engine": engine,
            "semantics": semantics,
            "sequence": format_sequence(sequence),
            "refused": [{"registration": index, "message": message} for index, message in refused],
            "operators": [_operator(*operator, keys=keys) for operator in operators],
        }
    )


def _counterexample(told: Counterexample) -> dict[str, object]:
    return {
        "kind": str(told.flaw),
        "expected_sequence": format_sequence(told.expected_sequence),
        "actual_sequence": format_sequence(told.actual_sequence),
        "diff": told.diff,
        "why": list(told.why),
    }


def _operator(snapshot: Snapshot, view: OperatorView, *, keys: Collection[str]) -> dict[str, object]:
    slots = snapshot.slots
    return {
        "name": str(snapshot.operator),
        "exists": snapshot.exists,
        "schema": view.schema,
        "debug": view.debug,
        "alias_kind": view.alias_kind,
        "tags": list(view.tags),
        "dump": snapshot.dump,
        "table_text": only_rows(snapshot.table, keys),
        "slots_text": None if slots is None else only_rows(slots, keys),
        "kernels": [
            {
                "key": kernel.key,
                "is_alias": kernel.is_alias,
                "active": kernel.active,
                "debug": kernel.debug,
                "inferred": kernel.inferred,
                "flags": list(kernel.flags),
                "location": None if kernel.location is None else str(kernel.location),
            }
            for kernel in view.kernels
        ],
        "table": [
            {
                "key": row.key,
                "text": row.text,
                "debug": row.debug,
                "reason": row.reason or "",
                "fallthrough": row.fallthrough,
                "source": row.source,
                "beaten": [
                    {"source": beaten.source, "debug": beaten.debug, "reason": beaten.reason, "why": beaten.why}
                    for beaten in row.beaten
                ],
                "stale": row.stale,
            }
            for row in view.table
            if not keys or row.key in keys
        ],
        "violations": [
            {"rule": violation.rule, "detail": violation.detail, "keys": list(violation.keys)}
            for violation in view.violations
        ],
    }


def _line(value: dict[str, object]) -> str:
    return json.dumps(value, ensure_ascii=False) + "\n"
