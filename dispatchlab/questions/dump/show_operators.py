"""The output of `dump`: operators with their kernels and tables, or a listing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from dispatchlab._gc_pause import collector_paused
from dispatchlab.errors import DispatchLabError
from dispatchlab.model.sequence import format_sequence
from dispatchlab.model.snapshot import NOTHING_REGISTERED
from dispatchlab.questions.dump.inspect_operators import inspect_operators
from dispatchlab.questions.dump.inspect_scenario import Inspection, InspectOptions
from dispatchlab.questions.sources.engines import EngineName
from dispatchlab.questions.sources.find_sources import LIVE, is_registry_source, recorded_from, table_rows
from dispatchlab.views.blocks import Block, Code, Document, Line
from dispatchlab.views.view import View

if TYPE_CHECKING:
    from dispatchlab.model.python_layer import PythonRegistration
    from dispatchlab.model.snapshot import Snapshot

Layer: TypeAlias = Literal["cxx", "python", "all"]
Report: TypeAlias = Callable[[str], None]


class DumpOptionsError(DispatchLabError):
    """The options do not fit the kind of source."""

    message: str

    template = "{message}"


class DumpOptions(NamedTuple):
    """The options of `dump`; the command describes each."""

    operator: str | None = None
    source: str | None = None
    imports: tuple[str, ...] = ()
    engine: EngineName = "lab"
    semantics: str | None = None
    keys: tuple[str, ...] = ()
    everything: bool = False
    layer: Layer = "all"
    allow_import: bool = False

    @property
    def named_operator(self) -> str:
        """The operator, which the options must name."""
        if self.operator is None:
            raise DumpOptionsError(
                "no operator was named: name one, or a glob such as 'aten::add*', or list them all with --list"
            )
        return self.operator

    def with_source(self, report: Report) -> DumpOptions:
        """Return the options with a registry; if they name none, use the default registry and report its name."""
        if self.source is not None or self.engine == "torch":
            return self
        from dispatchlab.registries.builds import default_registry  # costs start-up, and a named source needs none

        source, reason = default_registry(self.keys)
        report(f"note: {reason}")
        return self._replace(source=source)


class _Part(NamedTuple):
    """An operator in the dispatcher, and Python's registrations for it."""

    snapshot: Snapshot
    python: tuple[PythonRegistration, ...]


@collector_paused()  # which would look at the operators that are kept again and again
def operators(asked: DumpOptions, *, after: str | None, report: Report) -> View[Any]:
    """Return operators: their kernels, their tables, and Python's registrations.

    Args:
        asked: the options.
        after: the steps of a scenario to run first; default: all its registrations.
        report: a function that gets a sentence about each missing part.

    Raises:
        DispatchLabError: there is no such operator, or the source, the engine or the steps cannot be used.
    """
    operator, asked = asked.named_operator, asked.with_source(report)
    how = InspectOptions(
        engine=asked.engine,
        semantics=asked.semantics,
        imports=asked.imports,
        allow_import=asked.allow_import,
        python=asked.layer != "cxx",
        packets=True,
        after=after,
        report=report,
    )
    inspection = inspect_operators(operator, source=asked.source, options=how)
    packet = inspection.packet
    if packet is not None and packet.overloads:  # with the table of the one that the name alone means, if there is one
        alone = tuple(one for one in inspection.snapshots if one.exists and str(one.operator) == packet.name)
        inspection = inspection._replace(snapshots=alone)
    asked = asked._replace(keys=table_rows(asked.keys, privateuse1=inspection.privateuse1))
    parts = []
    for snapshot in inspection.snapshots:
        rows = inspection.python_rows(snapshot)
        shown = tuple(row for row in rows if not asked.keys or row.key in asked.keys)
        parts.append(_Part(snapshot, shown))
    _report_what_is_missing(inspection, parts, asked, report)
    parts = [part for part in parts if part.snapshot.exists or part.python]
    return View(
        _value(inspection, asked),
        lines=lambda _: _lines(inspection, parts, asked),
        document=lambda _: Document("dump", "", tuple(_screen(inspection, parts, asked))),
        torch=inspection.build,
        whole=asked.everything,
    )


def _report_what_is_missing(inspection: Inspection, parts: list[_Part], asked: DumpOptions, report: Report) -> None:
    """Report refused steps, and parts without content."""
    from dispatchlab.questions.dump.operator_text import refused_step_text, stale_text

    for step, registration, refusal in inspection.refused:
        report(refused_step_text(step, registration, refusal))
    for warning in inspection.warnings:
        report(f"note: {warning}")
    for snapshot, python in parts:
        if asked.layer != "python" and snapshot.exists and (stale := stale_text(snapshot)):
            report(f"note: {stale}")
        if not snapshot.exists and not python:
            report(f"{NOTHING_REGISTERED} {snapshot.operator} after {format_sequence(inspection.sequence)}")
        elif asked.layer == "python" and not python:
            report(f"note: Python registers nothing for {snapshot.operator}")
    if asked.layer != "python":
        return
    if inspection.python is None:
        report(f"note: {inspection.source} has no record of what Python registers: --layer python shows nothing of it")
    elif asked.engine == "torch" and inspection.python.not_imported:
        modules = ", ".join(inspection.python.not_imported)
        report(f"note: nothing has imported {modules}, so nothing of it is shown: name it with --from")


def _lines(inspection: Inspection, parts: list[_Part], asked: DumpOptions) -> Iterator[Block]:
    """Return PyTorch's texts, then Python's registrations, and the overloads of a name with several overloads."""
    from dispatchlab.questions.dump.operator_text import operator_text, python_text, rows_text

    texts = []
    for snapshot, python in parts:
        if asked.layer != "python" and snapshot.exists:
            texts.append(rows_text(snapshot, asked.keys) if asked.keys else operator_text(snapshot))
        if python:
            texts.append(python_text(python))
    for number, text in enumerate(texts):
        if number:
            yield Line()
        yield Code(text)
    yield from _packet_lines(inspection, bool(texts), bool(asked.keys))


def _screen(inspection: Inspection, parts: list[_Part], asked: DumpOptions) -> Iterator[Block]:
    from dispatchlab.questions.dump.operator_blocks import operator_blocks
    from dispatchlab.questions.dump.python_layer_blocks import python_screen

    for number, (snapshot, python) in enumerate(parts):
        with_table = snapshot.exists and asked.layer != "python"
        if number:
            yield Line()
        if with_table:
            yield from operator_blocks(inspection.view(snapshot.operator), keys=asked.keys, everything=asked.everything)
        if python:
            yield from python_screen(python, name=None if with_table else str(snapshot.operator))
    yield from _packet_lines(inspection, bool(parts), bool(asked.keys))


def _packet_lines(inspection: Inspection, follows: bool, with_keys: bool) -> Iterator[Block]:  # noqa: FBT001  private
    """Return the overloads that a call of the name tries; nothing below the rows of some keys."""
    if inspection.packet is None or not inspection.packet.overloads or (follows and with_keys):
        return
    from dispatchlab.questions.dump.operator_blocks import packet_lines

    if follows:
        yield Line()
    yield from packet_lines(inspection.packet)


def _value(inspection: Inspection, asked: DumpOptions) -> dict[str, object]:
    from dispatchlab.questions.dump import python_layer_blocks  # registers how its values become JSON
    from dispatchlab.questions.dump.operator_blocks import operator_json

    del python_layer_blocks
    return {
        "scenario": asked.source if asked.engine == "torch" else inspection.source,
        "engine": asked.engine,
        "semantics": inspection.semantics,
        "sequence": format_sequence(inspection.sequence),
        "refused": [
            {"registration": max(step, ~step), "message": refusal.message} for step, _, refusal in inspection.refused
        ],
        "operators": [
            {
                **operator_json(snapshot, inspection.view(snapshot.operator), asked.keys),
                "python": None if inspection.python is None else inspection.python_rows(snapshot),
            }
            for snapshot in inspection.snapshots
        ],
        "packet": inspection.packet,
    }


def listing(asked: DumpOptions, *, report: Report) -> View[Any]:
    """Return the operators of a registry, with their active kernels at the given keys.

    Raises:
        DispatchLabError: there is no such operator or key, or the source cannot be used.
    """
    from dispatchlab.model.keys import parse_key
    from dispatchlab.questions.dump.listing_blocks import Listing, listing_view
    from dispatchlab.questions.sources.find_sources import find_listed

    asked = asked.with_source(report)
    source = asked.source or LIVE
    if asked.engine == "torch" and source != LIVE:
        raise DumpOptionsError(f"{source} is a recording, which --engine torch cannot run: leave one of the two out")
    if not is_registry_source(source):
        raise DumpOptionsError(f"--list works with registries, but {source} is a scenario: name an operator")
    recorded = recorded_from(source, imports=asked.imports, report=report)
    keys = tuple(parse_key(key, recorded.privateuse1) for key in asked.keys)
    operators = find_listed(recorded, asked.operator or "*", source=source, keys=keys)
    if not operators:
        report(f"no operator of {source} matches")
    return listing_view(Listing(source, recorded.torch, tuple(operators), keys))
