"""`dispatchlab dump`: an operator of a scenario, a registry or the installed PyTorch; listings and counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

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
    from dispatchlab.model.snapshot import Snapshot


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
    help="Show only this row of the table; may be repeated.",
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
    across: bool,
    imports: tuple[str, ...],
    format: Format | None,
    allow_import: bool,
) -> None:
    """Show the kernels of an operator, and its dispatch table with the reason for each row.

    OP is a name (test::foo.out), a name without overload when that is unique, or a glob ('test::*'). Without
    --from, the bundled registry of the installed PyTorch answers, which is not imported, or else the newest; standard
    error says which. With --engine torch, the installed PyTorch answers itself.

    A refused registration of a scenario is reported on standard error; the remaining steps still run, and the exit code
    stays 0.

    --format text prints the dump, an empty line, and the computed table.

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
    """
    from dispatchlab.analysis.sources import LIVE, is_registry_source, table_rows

    listings = {"--list": listing, "--dangling": dangling, "--overridden": overridden, "--counts": counts}
    asked = next((option for option, on in listings.items() if on), None)
    if listing and counts:
        raise DumpOptionsError("--list shows operators and --counts shows keys: leave one of the two out")
    if asked is not None:
        refuse(
            context,
            ("after", "semantics", "allow_import", "everything", "across"),
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
        report=note,
    )
    if reason:
        note(f"note: {reason}")
    rows = table_rows(keys, privateuse1=found.privateuse1)
    _show(found, source, engine, rows, format, everything=everything)


def _default(keys: tuple[str, ...]) -> tuple[str, str]:
    """The registry that answers when none is named, and why it does."""
    from dispatchlab.registry.builds import default_registry  # costs start-up, and a named source needs none

    return default_registry(keys)


_ONE_VERSION = ("source", "after", "engine", "semantics", "imports", "allow_import", "everything")


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
    *,
    everything: bool,
) -> None:
    from dispatchlab.render.operator_text import operator_text, refused_step_text

    for step, registration, refusal in found.refused:
        note(refused_step_text(step, registration, refusal))
    for warning in found.warnings:
        note(f"note: {warning}")
    for snapshot in found.snapshots:
        if not snapshot.exists:
            from dispatchlab.model.sequence import format_sequence
            from dispatchlab.model.snapshot import NOTHING_REGISTERED

            note(f"{NOTHING_REGISTERED} {snapshot.operator} after {format_sequence(found.sequence)}")
    shown = [snapshot for snapshot in found.snapshots if snapshot.exists]
    show(
        format,
        text=lambda: "\n".join(operator_text(snapshot, keys=rows) for snapshot in shown),
        json=lambda: _json(found, source, engine, rows),
        rich=lambda console: _print(console, found, shown, rows, everything=everything),
    )


def _json(found: Inspection, source: str | None, engine: EngineName, rows: tuple[str, ...]) -> str:
    from dispatchlab.render.json_view import dump_json

    return dump_json(
        [(snapshot, found.view(snapshot.operator)) for snapshot in found.snapshots],
        scenario=source if engine == "torch" else found.source,
        engine=engine,
        semantics=found.semantics,
        sequence=found.sequence,
        refused=[(max(step, ~step), refusal.message) for step, _, refusal in found.refused],
        keys=rows,
    )


def _print(
    console: Console, found: Inspection, shown: Sequence[Snapshot], rows: tuple[str, ...], *, everything: bool
) -> None:
    from dispatchlab.render.rich_operator import print_operator

    for number, snapshot in enumerate(shown):
        if number:
            console.print()
        print_operator(console, found.view(snapshot.operator), keys=rows, everything=everything, torch=found.build)
