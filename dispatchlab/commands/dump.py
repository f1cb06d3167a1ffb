"""`dispatchlab dump`: an operator of a scenario, a registry or the installed PyTorch, and listings."""

from __future__ import annotations

from typing import Any

import click

from dispatchlab.commands.help import Command
from dispatchlab.commands.options import (
    OPERATOR,
    ROW,
    after_option,
    allow_import_option,
    engine_option,
    format_option,
    from_option,
    named_subject,
    semantics_option,
)
from dispatchlab.commands.output import Format, chosen_format, note, out_paged, show_view


@click.command(cls=Command)
@click.argument("operator", metavar="OP", required=False, type=OPERATOR)
@from_option
@after_option
@engine_option("Engine to dump.")
@semantics_option
@click.option(
    "--key",
    "keys",
    metavar="KEY",
    multiple=True,
    type=ROW,
    help="Show only this row of the table, with what its slot holds if it is stale, and what Python registers at this "
    "key; may be repeated.",
)
@click.option("--list", "listed", is_flag=True, help="List the operators of a registry, one on each line.")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="On a terminal, also show every row of the table with the kernels that lost, and shorten nothing.",
)
@click.option(
    "--layer",
    type=click.Choice(["cxx", "python", "all"]),
    default="all",
    show_default=True,
    help="Show the registrations of the dispatcher (cxx), those of Python, or both.",
)
@format_option()
@allow_import_option
def dump(
    *,
    operator: str | None,
    source: str | None,
    after: str | None,
    listed: bool,
    format: Format | None,
    **options: Any,
) -> None:
    """Show the kernels and the dispatch table of an operator, and what Python registers for it.

    OP is a name, a name without overload, or a glob such as 'aten::add*'. --format text prints the dump and the
    table as PyTorch does, with shorter paths, and then what Python registers. A recorded registry does not contain the
    order in which PyTorch registered. So dump computes the table by the rules of that PyTorch, and shows no stale slot.
    With --semantics torch-2.6, dump registers everything in the order of the file; then a slot may be stale.

    \b
    Examples:
      dispatchlab dump aten::add.Tensor
      dispatchlab dump aten::add.Tensor --key CUDA --from torch-2.6
      dispatchlab dump test::foo --from scenario.yaml --after '+0 +2 -0'
      dispatchlab dump 'aten::*' --list --key MPS
      dispatchlab dump my::op --from my_package
    """
    source, imports = named_subject(source, [operator] if operator else ())
    changed = any(options[name] for name in ("semantics", "keys", "everything", "allow_import"))
    is_plain = not (imports or listed or after or changed)
    if is_plain and operator is not None and options["engine"] == "lab" and chosen_format(format) == "text":
        from dispatchlab.questions.dump.recorded_text import bundled_text  # which needs no engine, and so is quick

        text = bundled_text(operator, source, layer=options["layer"], report=note)
        if text is not None:
            out_paged(text)
            return
    from dispatchlab.questions.dump.show_operators import DumpOptions, listing, operators

    asked = DumpOptions(operator, source, imports, **options)
    show_view(format, listing(asked, report=note) if listed else operators(asked, after=after, report=note))
