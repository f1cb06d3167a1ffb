"""`dispatchlab dump`: an operator of a scenario, a registry or the installed PyTorch; listings and counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import click

from dispatchlab._gc_pause import collector_paused
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
    versions_after,
)
from dispatchlab.commands.output import Format, note, show, show_view
from dispatchlab.errors import DispatchLabError

if TYPE_CHECKING:
    from rich.console import Console

    from dispatchlab.model.python_layer import PythonLayer, PythonRegistration
    from dispatchlab.model.snapshot import Snapshot
    from dispatchlab.questions.dump.inspect_operators import Inspection
    from dispatchlab.sources.engines import EngineName

Layer: TypeAlias = Literal["cxx", "python", "all"]


class DumpOptionsError(DispatchLabError):
    """Options of one kind of source were given with another."""

    message: str

    template = "{message}"


class DumpOptions(NamedTuple):
    """What was asked, as the command line has it; the options of `dump` say what each is."""

    operator: str | None
    source: str | None
    after: str | None
    engine: EngineName
    semantics: str | None
    keys: tuple[str, ...]
    listing: bool
    dangling: bool
    overridden: bool
    counts: bool
    everything: bool
    layer: Layer
    across: bool
    imports: tuple[str, ...]
    format: Format | None
    allow_import: bool
    register: str | None

    @property
    def listing_option(self) -> str | None:
        """The option that asks for a listing or for counts, instead of the table of an operator."""
        options = {
            "--list": self.listing,
            "--dangling": self.dangling,
            "--overridden": self.overridden,
            "--counts": self.counts,
        }
        return next((option for option, on in options.items() if on), None)


class _OfEveryVersion(click.Command):
    """A command whose `--across` takes no versions, unlike that of `explain`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments."""
        for version in versions_after(args):
            raise click.UsageError(f"--across shows every version: leave {version} out.", ctx)
        return super().parse_args(ctx, args)


@click.command(cls=_OfEveryVersion)
@click.argument("operator", metavar="OP", required=False, type=OPERATOR)
@click.option(
    "--from",
    "source",
    metavar="SOURCE",
    type=SOURCE,
    help="Read a scenario, a recorded registry, a bundled one by its name, `live`, or a package. Default: the bundled "
    "registry of the installed PyTorch, or the newest.",
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
@click.option("--across", is_flag=True, help="Show the operator in every bundled version of PyTorch, from 2.4 on.")
@click.option(
    "--register",
    metavar="KEYS",
    help="Show the table of an operator with a kernel at each of these keys, as PyTorch's PythonDispatcher does.",
)
@import_option()
@format_option
@allow_import_option
@click.pass_context
def dump(context: click.Context, /, **values: Any) -> None:
    """Show the kernels of an operator, its dispatch table with the reason for each row, and what Python registers.

    OP is a name (test::foo.out), a glob ('test::*'), or a name without overload. Where it has several, dump also shows
    them in the order in which a call of torch.ops.test.foo tries them. Without --from, the bundled registry of the
    installed PyTorch answers, which is not imported, or else the newest; standard error says which. With --engine
    torch, the installed PyTorch answers itself.

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
      dispatchlab dump --register 'CPU, XLA, CompositeImplicitAutograd'
    """
    options = DumpOptions(**values)
    if options.listing and options.counts:
        raise DumpOptionsError("--list shows operators and --counts shows keys: leave one of the two out")
    if options.register is not None:
        _register(context, options, options.register)
    elif options.counts and options.layer == "python":
        _count_python(context, options)
    elif options.listing_option is not None:
        _list(context, options, options.listing_option)
    elif options.across:
        _across(context, options)
    else:
        _dump_operators(context, options)


def _register(context: click.Context, options: DumpOptions, keys: str) -> None:
    """Show the table that kernels at some keys give an operator."""
    from dispatchlab.questions.dump.registered_keys import keys_view, register_keys
    from dispatchlab.sources.find_sources import table_rows

    refuse(context, _OF_SOURCES, "is for operators that there are: leave it out, or --register")
    if options.operator is not None:
        raise DumpOptionsError("--register shows the table of an operator of its own: name none")
    semantics, reason = options.semantics, ""
    if semantics is None and options.engine == "lab":
        from dispatchlab.model.installed_torch import resolved_semantics
        from dispatchlab.model.profile import TORCH

        semantics = resolved_semantics(TORCH)
        reason = f"{semantics} answers, the model of the installed PyTorch, or else the newest"
    rows = table_rows(options.keys)
    found = register_keys(keys, engine=options.engine, semantics=semantics, rows=rows, imports=options.imports)
    _note_default(reason)
    show_view(options.format, keys_view(found))


_OF_SOURCES = (
    *("source", "after", "listing", "dangling", "overridden", "counts", "everything", "layer", "across"),
    "allow_import",
)


def _count_python(context: click.Context, options: DumpOptions) -> None:
    """Count what Python registers, by registry."""
    from dispatchlab.questions.dump.python_layer_blocks import layer_view
    from dispatchlab.records.file import python_layer_of
    from dispatchlab.sources.find_sources import LIVE, recorded_from

    refuse(context, _OF_OPERATORS, "is for operators: leave out --layer python, or --counts")
    if options.operator is not None:
        raise DumpOptionsError("--counts --layer python counts everything that Python registers: name no operator")
    source, reason = _recorded_source(options)
    layer: PythonLayer | None
    if source == LIVE:
        from dispatchlab.pytorch.registry import live_python_layer

        layer = live_python_layer(options.imports)
    else:
        layer = python_layer_of(recorded_from(source, imports=options.imports, report=note))
    if layer is None:
        raise DumpOptionsError(f"{source} has no record of what Python registers: record it again with record --all")
    _note_default(reason)
    show_view(options.format, layer_view(layer, source=source))


_OF_OPERATORS = ("after", "semantics", "keys", "dangling", "overridden", "allow_import", "everything", "across")


def _list(context: click.Context, options: DumpOptions, asked: str) -> None:
    """List operators of a registry, or count its kernels, as the option `asked` has it."""
    from dispatchlab.questions.dump.listing_blocks import Listing, counts_view, listing_view
    from dispatchlab.records.find import key_counts
    from dispatchlab.sources.find_sources import LIVE, find_listed, is_registry_source, named_key, recorded_from

    refuse(context, _OF_A_TABLE, f"is for the table of an operator: leave {asked} out")
    if options.engine == "torch" and options.source not in (None, LIVE):
        raise DumpOptionsError(
            f"{options.source} is a recording, which --engine torch cannot run: leave one of the two out"
        )
    if options.source is not None and not is_registry_source(options.source):
        raise DumpOptionsError(f"{asked} is for registries, and {options.source} is a scenario: name an operator")
    source, reason = _recorded_source(options)
    recorded = recorded_from(source, imports=options.imports, report=note)
    keys = tuple(named_key(key, recorded.privateuse1) for key in options.keys)
    operators = find_listed(
        recorded,
        options.operator or "*",
        source=source,
        keys=keys,
        dangling=options.dangling,
        overridden=options.overridden,
    )
    _note_default(reason)
    if options.counts:
        counts = [count for count in key_counts(recorded, operators) if not keys or count.key in keys]
        show_view(options.format, counts_view(counts, torch=recorded.torch, source=source))
        return
    show_view(options.format, listing_view(Listing(source, recorded.torch, tuple(operators), keys, options.overridden)))
    if not operators:
        note(f"no operator of {source} matches")


_OF_A_TABLE = ("after", "semantics", "allow_import", "everything", "across", "layer")


def _across(context: click.Context, options: DumpOptions) -> None:
    """Show an operator in every bundled version of PyTorch."""
    from dispatchlab.model.keys import parse_key
    from dispatchlab.questions.dump.across_versions import across_view, operators_across
    from dispatchlab.sources.find_sources import table_rows

    refuse(context, _OF_ONE_VERSION, "is for one version: leave --across out")
    operators = operators_across(_operator(options), tuple(map(parse_key, table_rows(options.keys))))
    show_view(options.format, across_view(operators))


_OF_ONE_VERSION = ("source", "after", "engine", "semantics", "imports", "allow_import", "everything", "layer")


@collector_paused()  # which would look at the operators that are kept again and again
def _dump_operators(context: click.Context, options: DumpOptions) -> None:
    """Show operators: their kernels, their tables, and what Python registers."""
    from dispatchlab.questions.dump.inspect_operators import InspectOptions, inspect_operators
    from dispatchlab.sources.find_sources import is_registry_source, table_rows

    operator, source, reason = _operator(options), options.source, ""
    if source is None or is_registry_source(source):
        refuse(context, ("allow_import",), "is for the functions that a scenario names: name one with --from SCENARIO")
    if source is None and options.engine == "lab":
        source, reason = _default(options.keys)
    how = InspectOptions(
        engine=options.engine,
        semantics=options.semantics,
        imports=options.imports,
        allow_import=options.allow_import,
        python=options.layer != "cxx",
        packets=True,
        report=note,
    )
    inspection = inspect_operators(operator, source=source, after=options.after, options=how)
    _note_default(reason)
    packet = inspection.packet
    if packet is not None and packet.overloads:  # with the table of the one that the name alone means, if there is one
        alone = tuple(one for one in inspection.snapshots if one.exists and str(one.operator) == packet.name)
        inspection = inspection._replace(snapshots=alone)
    if options.layer == "python" and inspection.python is None:
        note(f"note: {inspection.source} has no record of what Python registers: --layer python shows nothing of it")
    rows = table_rows(options.keys, privateuse1=inspection.privateuse1)
    options = options._replace(source=source, keys=rows)
    parts = [
        _Part(
            snapshot,
            tuple(row for row in inspection.python_rows(snapshot) if not rows or row.key in rows),
        )
        for snapshot in inspection.snapshots
    ]
    _note_what_is_missing(inspection, parts, options)
    parts = [part for part in parts if part.snapshot.exists or part.python]
    show(
        options.format,
        text=lambda: "\n".join((*(_text(part, options) for part in parts), *_packet_texts(inspection))),
        json=lambda: _json(inspection, options),
        rich=lambda console: _print(console, inspection, parts, options),
    )


def _operator(options: DumpOptions) -> str:
    if options.operator is None:
        raise DumpOptionsError(
            "no operator was named: name one, or a glob such as 'aten::add*', or list them all with --list"
        )
    return options.operator


def _recorded_source(options: DumpOptions) -> tuple[str, str]:
    """The registry that answers, and why it does when none was named."""
    from dispatchlab.sources.find_sources import LIVE

    if options.source is not None:
        return options.source, ""
    return (LIVE, "") if options.engine == "torch" else _default(options.keys)


def _default(keys: tuple[str, ...]) -> tuple[str, str]:
    """The registry that answers when none is named, and why it does."""
    from dispatchlab.records.builds import default_registry  # costs start-up, and a named source needs none

    return default_registry(keys)


def _note_default(reason: str) -> None:
    if reason:
        note(f"note: {reason}")


class _Part(NamedTuple):
    """An operator as the dispatcher has it, and what Python registers for it."""

    snapshot: Snapshot
    python: tuple[PythonRegistration, ...]


def _note_what_is_missing(inspection: Inspection, parts: Sequence[_Part], options: DumpOptions) -> None:
    """Report steps that were refused, and what there is nothing of."""
    from dispatchlab.questions.dump.operator_text import refused_step_text

    for step, registration, refusal in inspection.refused:
        note(refused_step_text(step, registration, refusal))
    for warning in inspection.warnings:
        note(f"note: {warning}")
    for snapshot, python in parts:
        if not snapshot.exists and not python:
            from dispatchlab.model.sequence import format_sequence
            from dispatchlab.model.snapshot import NOTHING_REGISTERED

            note(f"{NOTHING_REGISTERED} {snapshot.operator} after {format_sequence(inspection.sequence)}")
    if options.layer != "python" or inspection.python is None:
        return
    for snapshot, python in parts:
        if not python:
            note(f"note: Python registers nothing for {snapshot.operator}")
    if options.engine == "torch" and inspection.python.not_imported:
        modules = ", ".join(inspection.python.not_imported)
        note(f"note: nothing has imported {modules}, so nothing of it is shown: name it with --import")


def _text(part: _Part, options: DumpOptions) -> str:
    from dispatchlab.questions.dump.operator_text import operator_text, python_text

    texts = []
    if options.layer != "python" and part.snapshot.exists:
        texts.append(operator_text(part.snapshot, keys=options.keys))
    if part.python:
        texts.append(python_text(part.python))
    return "\n".join(texts)


def _packet_texts(inspection: Inspection) -> list[str]:
    """The overloads that a call tries, where a name of several was asked for."""
    if inspection.packet is None or not inspection.packet.overloads:
        return []
    from dispatchlab.questions.dump.operator_blocks import packet_lines
    from dispatchlab.views.text import text_of

    return [text_of(packet_lines(inspection.packet))]


def _json(inspection: Inspection, options: DumpOptions) -> str:
    from dispatchlab.model.sequence import format_sequence
    from dispatchlab.questions.dump import python_layer_blocks  # registers how its values become JSON
    from dispatchlab.questions.dump.operator_blocks import operator_json
    from dispatchlab.views.as_json import json_text

    del python_layer_blocks
    has_python = inspection.python is not None
    operators = [
        {
            **operator_json(snapshot, inspection.view(snapshot.operator), options.keys),
            "python": inspection.python_rows(snapshot) if has_python else None,
        }
        for snapshot in inspection.snapshots
    ]
    return json_text(
        {
            "scenario": options.source if options.engine == "torch" else inspection.source,
            "engine": options.engine,
            "semantics": inspection.semantics,
            "sequence": format_sequence(inspection.sequence),
            "refused": [
                {"registration": max(step, ~step), "message": refusal.message}
                for step, _, refusal in inspection.refused
            ],
            "operators": operators,
            "packet": inspection.packet,
        }
    )


def _print(console: Console, inspection: Inspection, parts: Sequence[_Part], options: DumpOptions) -> None:
    from dispatchlab.questions.dump.operator_blocks import operator_blocks, packet_lines
    from dispatchlab.questions.dump.python_layer_blocks import python_screen
    from dispatchlab.views.blocks import Block, Line
    from dispatchlab.views.terminal import draw

    def blocks() -> Iterator[Block]:
        for number, (snapshot, python) in enumerate(parts):
            with_table = snapshot.exists and options.layer != "python"
            if number:
                yield Line()
            if with_table:
                view = inspection.view(snapshot.operator)
                yield from operator_blocks(view, keys=options.keys, everything=options.everything)
            if python:
                yield from python_screen(python, name=None if with_table else str(snapshot.operator))
        if inspection.packet is not None and inspection.packet.overloads:
            yield from (*([Line()] if parts else []), *packet_lines(inspection.packet))

    draw(console, blocks(), torch=inspection.build, whole=options.everything)
