"""`dispatchlab dump`: an operator of a scenario, a registry or the installed PyTorch; listings and counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import click

from dispatchlab.commands.options import (
    OPERATOR,
    ROW,
    SOURCE,
    allow_import_option,
    engine_option,
    format_option,
    import_option,
    refuse,
    semantics_option,
)
from dispatchlab.commands.output import Format, note, show
from dispatchlab.errors import DispatchLabError

if TYPE_CHECKING:
    from rich.console import Console

    from dispatchlab.analysis.engines import EngineName
    from dispatchlab.analysis.inspect_operators import Inspection
    from dispatchlab.model.python_layer import PythonLayer
    from dispatchlab.model.python_view import PythonRow
    from dispatchlab.model.snapshot import Snapshot

Layer: TypeAlias = Literal["cxx", "python", "all"]


class DumpOptionsError(DispatchLabError):
    """Options of one kind of source were given with another."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message


@click.command()
@click.argument("operator", metavar="OP", required=False, type=OPERATOR)
@click.option(
    "--from",
    "source",
    metavar="SOURCE",
    type=SOURCE,
    help="Read a scenario, a recorded registry, or a bundled one by its name. Default: that of the "
    "installed PyTorch, or the newest.",
)
@click.option(
    "--after",
    metavar="SEQUENCE",
    help="Run these steps before dumping, for example '+0 +2 -0'. Default: register all, in the order of the file.",
)
@engine_option("Engine to dump.")
@semantics_option
@click.option(
    "--key",
    "keys",
    metavar="KEY",
    multiple=True,
    type=ROW,
    help="Show only this row of the table, and what Python registers at this key; may be repeated.",
)
@click.option("--list", "listing", is_flag=True, help="List the operators of a registry, one a line.")
@click.option("--dangling", is_flag=True, help="List the operators of a registry that have no def.")
@click.option("--overridden", is_flag=True, help="List the kernels of a registry that override another.")
@click.option("--counts", is_flag=True, help="Show how many kernels a registry has at each key.")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="On a terminal, also show every row of the table with what lost to it, and shorten nothing.",
)
@click.option(
    "--layer",
    type=click.Choice(["cxx", "python", "all"]),
    default="all",
    show_default=True,
    help="Show what C++ dispatches by, what Python registers beside it, or both. With --counts: count these.",
)
@click.option("--across", is_flag=True, help="Show the operator in every bundled version of PyTorch, 2.4 to 2.15.")
@import_option()
@format_option
@allow_import_option
@click.pass_context
def dump(
    context: click.Context,
    /,
    *,
    operator: str | None,
    source: str | None,
    after: str | None,
    engine: EngineName,
    semantics: str | None,
    keys: tuple[str, ...],
    listing: bool,
    dangling: bool,
    overridden: bool,
    counts: bool,
    everything: bool,
    layer: Layer,
    across: bool,
    imports: tuple[str, ...],
    format: Format | None,
    allow_import: bool,
) -> None:
    """Show the kernels of an operator, its dispatch table with the reason for each row, and what Python registers.

    OP is a name (test::foo.out), a name without overload when that is unique, or a glob ('test::*'). Without
    --from, the bundled registry of the installed PyTorch answers, which is not imported, or else the newest; standard
    error says which. With --engine torch, the installed PyTorch answers itself.

    A refused registration of a scenario is reported on standard error; the remaining steps still run, and the exit code
    stays 0.

    --format text prints the dump, an empty line, the computed table, and, after another empty line, what Python has
    registered for the operator: kernels of the Python dispatcher, decompositions, meta functions, fake-tensor rules,
    sharding rules of DTensor, lowerings of Inductor and more, each with its line, what it takes the place of, and when
    it applies. --layer python shows that alone.

    --across compares the registries of the public wheels: versions in which a schema, the tags, the kernels at a key or
    the kernel of a slot are the same share a row. Source locations do not count.

    \b
    Examples:
      dispatchlab dump aten::add.Tensor
      dispatchlab dump 'aten::add*' --list --key Meta
      dispatchlab dump test::foo --from scenario.yaml
      dispatchlab dump foo --from scenario.yaml --after '+0 +1 -0' --semantics torch-2.13
      dispatchlab dump 'test::*' --from scenario.yaml --key CPU --key AutogradCPU --format text
      dispatchlab dump aten::add.Tensor --engine torch --import my_package
      dispatchlab dump aten::add.Tensor --across --key CUDA
      dispatchlab dump higher_order::cond --layer python
      dispatchlab dump --counts --layer python --from torch-2.13
    """
    from dispatchlab.analysis.sources import LIVE, is_registry_source, table_rows

    listings = {"--list": listing, "--dangling": dangling, "--overridden": overridden, "--counts": counts}
    asked = next((option for option, on in listings.items() if on), None)
    if listing and counts:
        raise DumpOptionsError("--list shows operators and --counts shows keys: leave one of the two out")
    if counts and layer == "python":
        refuse(context, _OF_OPERATORS, "is for operators: leave out --layer python, or --counts")
        if operator is not None:
            raise DumpOptionsError("--counts --layer python counts everything that Python registers: name no operator")
        _count_python(source, engine, imports, format)
        return
    if asked is not None:
        refuse(
            context,
            ("after", "semantics", "allow_import", "everything", "across", "layer"),
            f"is for the table of an operator: leave {asked} out",
        )
        if engine == "torch" and source not in (None, LIVE):
            raise DumpOptionsError(
                f"{source} is a recording, which --engine torch cannot run: leave one of the two out"
            )
        if source is not None and not is_registry_source(source):
            raise DumpOptionsError(f"{asked} is for registries, and {source} is a scenario: name an operator")
        reason = ""
        if source is None:
            source, reason = (LIVE, "") if engine == "torch" else _default(keys)
        listed = {"dangling": dangling, "overridden": overridden, "counts": counts}
        _list(source, reason, operator or "*", keys, imports, format, **listed)
        return
    if across:
        refuse(context, _ONE_VERSION, "is for one version: leave --across out")
    if operator is None:
        raise DumpOptionsError(
            "no operator was named: name one, or a glob such as 'aten::add*', or list them all with --list"
        )
    if across:
        _across(operator, table_rows(keys), format)
        return
    if source is None or is_registry_source(source):
        refuse(context, ("allow_import",), "is for the functions that a scenario names: name one with --from SCENARIO")
    from dispatchlab.analysis.inspect_operators import inspect_operators

    reason = ""
    if source is None and engine == "lab":
        source, reason = _default(keys)
    found = inspect_operators(
        operator,
        source=source,
        after=after,
        engine=engine,
        semantics=semantics,
        imports=imports,
        allow_import=allow_import,
        python=layer != "cxx",
        report=note,
    )
    if reason:
        note(f"note: {reason}")
    if layer == "python" and found.python is None:
        note(f"note: {found.source} has no record of what Python registers: --layer python shows nothing of it")
    rows = table_rows(keys, privateuse1=found.privateuse1)
    _show(found, source, engine, rows, format, layer, everything=everything)


def _default(keys: tuple[str, ...]) -> tuple[str, str]:
    """The registry that answers when none is named, and why it does."""
    from dispatchlab.registry.builds import default_registry  # costs start-up, and a named source needs none

    return default_registry(keys)


_ONE_VERSION = ("source", "after", "engine", "semantics", "imports", "allow_import", "everything", "layer")
_OF_OPERATORS = ("after", "semantics", "keys", "dangling", "overridden", "allow_import", "everything", "across")


def _count_python(source: str | None, engine: EngineName, imports: tuple[str, ...], format: Format | None) -> None:
    from dispatchlab.analysis.sources import LIVE, recorded_from
    from dispatchlab.registry.file import python_layer_of
    from dispatchlab.render.python_layer import layer_text
    from dispatchlab.render.python_layer_json import layer_json

    reason = ""
    if engine == "torch" and source is None:
        source = LIVE
    if source is None:
        source, reason = _default(())
    layer: PythonLayer | None
    if source == LIVE:
        from dispatchlab.live.registry import live_python_layer

        layer = live_python_layer(imports)
    else:
        layer = python_layer_of(recorded_from(source, imports=imports, report=note))
    if layer is None:
        raise DumpOptionsError(f"{source} has no record of what Python registers: record it again with record --all")
    if reason:
        note(f"note: {reason}")
    show(
        format,
        text=lambda: layer_text(layer),
        json=lambda: layer_json(layer, source=source),
        rich=lambda console: _print_layer(console, layer),
    )


def _print_layer(console: Console, layer: PythonLayer) -> None:
    from dispatchlab.render.page import Page
    from dispatchlab.render.python_layer import print_layer

    print_layer(Page(console), layer)


def _across(operator: str, rows: tuple[str, ...], format: Format | None) -> None:
    from dispatchlab.analysis.across_versions import operators_across
    from dispatchlab.model.keys import parse_key
    from dispatchlab.render.across_versions import across_json, across_text, print_across

    found = operators_across(operator, tuple(map(parse_key, rows)))
    show(
        format,
        text=lambda: across_text(found),
        json=lambda: across_json(found),
        rich=lambda console: print_across(console, found),
    )


def _list(
    source: str,
    reason: str,
    operator: str,
    keys: tuple[str, ...],
    imports: tuple[str, ...],
    format: Format | None,
    *,
    dangling: bool,
    overridden: bool,
    counts: bool,
) -> None:
    from dispatchlab.analysis.sources import find_listed, named_key, recorded_from
    from dispatchlab.registry.find import key_counts
    from dispatchlab.render.registry import counts_json, counts_text, operators_json, operators_text

    recorded = recorded_from(source, imports=imports, report=note)
    at = tuple(named_key(key, recorded.privateuse1) for key in keys)
    found = find_listed(recorded, operator, source=source, keys=at, dangling=dangling, overridden=overridden)
    if reason:
        note(f"note: {reason}")
    if counts:
        counted = [count for count in key_counts(recorded, found) if not at or count.key in at]
        show(format, text=lambda: counts_text(counted), json=lambda: counts_json(counted, recorded, source=source))
        return
    show(
        format,
        text=lambda: operators_text(found, keys=at, overridden=overridden),
        json=lambda: operators_json(found, recorded, source=source, keys=at),
    )
    if not found:
        note(f"no operator of {source} matches")


def _show(
    found: Inspection,
    source: str | None,
    engine: EngineName,
    rows: tuple[str, ...],
    format: Format | None,
    layer: Layer,
    *,
    everything: bool,
) -> None:
    from dispatchlab.render.operator_text import refused_step_text

    for step, registration, refusal in found.refused:
        note(refused_step_text(step, registration, refusal))
    for warning in found.warnings:
        note(f"note: {warning}")
    parts = [
        _Part(
            snapshot,
            tuple(row for row in found.python_rows(snapshot.operator) if not rows or row.registration.key in rows),
        )
        for snapshot in found.snapshots
    ]
    for snapshot, python in parts:
        if not snapshot.exists and not python:
            from dispatchlab.model.sequence import format_sequence
            from dispatchlab.model.snapshot import NOTHING_REGISTERED

            note(f"{NOTHING_REGISTERED} {snapshot.operator} after {format_sequence(found.sequence)}")
    if layer == "python" and found.python is not None:
        for snapshot, python in parts:
            if not python:
                note(f"note: Python registers nothing for {snapshot.operator}")
    if layer == "python" and engine == "torch" and found.python is not None and found.python.not_imported:
        modules = ", ".join(found.python.not_imported)
        note(f"note: nothing has imported {modules}, so nothing of it is shown: name it with --import")
    shown = [part for part in parts if part.snapshot.exists or part.python]
    show(
        format,
        text=lambda: "\n".join(_text(part, rows, layer) for part in shown),
        json=lambda: _json(found, source, engine, rows),
        rich=lambda console: _print(console, found, shown, rows, layer, everything=everything),
    )


class _Part(NamedTuple):
    """An operator as the dispatcher has it, and what Python registers for it."""

    snapshot: Snapshot
    python: tuple[PythonRow, ...]


def _text(part: _Part, rows: tuple[str, ...], layer: Layer) -> str:
    from dispatchlab.render.operator_text import operator_text

    texts = []
    if layer != "python" and part.snapshot.exists:
        texts.append(operator_text(part.snapshot, keys=rows))
    if part.python:
        from dispatchlab.render.python_layer import python_text

        texts.append(python_text(part.python))
    return "\n".join(texts)


def _json(found: Inspection, source: str | None, engine: EngineName, rows: tuple[str, ...]) -> str:
    from dispatchlab.render.json_view import dump_json

    if found.python is not None:
        from dispatchlab.render import python_layer_json  # registers how its values become JSON

        del python_layer_json
    return dump_json(
        [(snapshot, found.view(snapshot.operator)) for snapshot in found.snapshots],
        scenario=source if engine == "torch" else found.source,
        engine=engine,
        semantics=found.semantics,
        sequence=found.sequence,
        refused=[(max(step, ~step), refusal.message) for step, _, refusal in found.refused],
        keys=rows,
        python=None if found.python is None else found.python_rows,
    )


def _print(
    console: Console,
    found: Inspection,
    shown: Sequence[_Part],
    rows: tuple[str, ...],
    layer: Layer,
    *,
    everything: bool,
) -> None:
    from dispatchlab.render.rich_operator import print_operator

    for number, (snapshot, python) in enumerate(shown):
        if number:
            console.print()
        if snapshot.exists and layer != "python":
            print_operator(console, found.view(snapshot.operator), keys=rows, everything=everything, torch=found.build)
        if python:
            from dispatchlab.render.page import Page
            from dispatchlab.render.python_layer import print_python

            page = Page(console, torch=found.build, whole=everything)
            print_python(page, python, name=None if snapshot.exists and layer != "python" else str(snapshot.operator))
