"""Reports and operators as JSON for programs. A field is never renamed or dropped within a version.

A report (`permute --format json`, one object on one line for each scenario):

    version           see JSON_VERSION
    scenario          path of the file, as it was given
    claim             its sentence
    engine            lab | torch
    semantics         strict | torch-2.13 | pr35061 | ...
    verdict           order-independent | no violation found | order-dependent | incomplete | nondeterministic
                      | engine crashed
    expected          order-independent | order-dependent | refused
    as_expected       true | false
    exit_code         what this scenario alone would end with
    walk              graph | orders | sample | covering | program | replay
    registrations     how many there are
    registration_texts  what each of them is, in the order of the file
    layers            the layers that the verdict is about: cxx, python
    unexplored        how many registrations of Python there are besides that were not explored
    overwritten       how many of these a later one has taken the place of
    sets, states, edges  how many were reached; edges are the registrations and releases that were tried
    orders            how many orders this stands for, as a string of digits
    components        how many independent parts there are
    classes           how many of these were different up to renaming
    conflicts         [{members, kind, message, asymmetric}]: registrations that exclude one another
    never_accepted    the registrations that were accepted nowhere, by number
    imports           of a record null or {ran, of, findings: [{what, expected, actual, before, after, sites, certain}],
                      open}: the orders of imports that were run; of is 0 where they are too many to count
    standing          what the verdict stands on, sentences
    properties        [{text, standing, tested, sequence, note}]: holds | no violation found | violated | never tested
                      | incomplete; sequence is null or one that violates it
    counterexample    null, or {kind, expected_sequence, actual_sequence, diff, why}; sequences as "+0 +1 -0"
    notes             sentences
    replayed          how many random sequences ran in fresh sandboxes after a proof, and showed what its states show
    reductions        by what less was walked than every state: any of partition, patterns, neighbourhoods
    neighbourhoods    how many neighbourhoods were explored; sets, states and edges add up theirs then
    seed, passes        null where they do not apply
    modules           how many modules register, where the orders are those of their imports; else null
    elapsed_s         seconds
    snapshots         with --snapshots: {names, keys, moments, sequences, chosen, registering, releasing, is_cut}; a
                      moment is {number, registered, orders, ways: [{source, step, refused}], look: {operators,
                      violations}, same_as}, and a sequence that passes moments {sequence, numbers}

Beside the operators of `dump --format json`:

    packet            null, or for a name of several overloads {name, overloads: [{name, schema, torchscript}], unknown}

An operator (`dump --format json`, in `operators`):

    name, exists      the name; false when nothing is registered for it, and all that follows is empty
    schema, debug, alias_kind   null while there is no def
    tags              sorted
    dump, table_text, slots_text   as an engine prints them; slots_text is null where it cannot be read
    kernels           [{key, is_alias, active, debug, inferred, flags, location}]
    table             [{key, text, debug, reason, fallthrough, source, beaten, stale}]; beaten: [{source, debug,
                      reason, why}]; reason: null for a slot that should hold nothing; stale: what the slot holds
                      instead, null when it holds what it should
    violations        [{rule, detail, keys}]
    python            what Python registers besides, see python_layer_json; null where it is not recorded, and
                      with --layer cxx
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
from dispatchlab.questions.order.properties import PropertyResult
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
        "properties": report.properties,
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
def _(value: PropertyResult) -> dict[str, object]:
    return fields_of(value, sequence=None if value.sequence is None else format_sequence(value.sequence))


@as_json.register
def _(value: Moment) -> dict[str, object]:
    operators, violations = value.look
    seen = [{"name": str(each.operator), **fields_of(each, without=("operator",))} for each in operators]
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
