"""`dispatchlab dump` of a registry: one operator, those that match a glob, a listing, or counts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dispatchlab.commands.output import Format, chosen_format, out
from dispatchlab.commands.registry_sources import recorded_from
from dispatchlab.commands.sources import AmbiguousOperatorError, UnknownOperatorError, table_rows
from dispatchlab.registry.bundled import DEFAULT
from dispatchlab.registry.find import find_names, is_glob
from dispatchlab.registry.model import name_of

if TYPE_CHECKING:
    from dispatchlab.registry.model import Recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryDumpRequest:
    """What was asked for; each field is an option of the command.

    Args:
        operator: a name, a name without overload, or a glob; None for all, which needs one of the listings.
        source: `live`, the name of a bundled registry, or a file.
        listing: list the operators, a line each, instead of showing them.
        dangling: list those without a def.
        overridden: list those with a kernel that took the place of another, and both of these.
        counts: show how many kernels each key has instead.
        keys: the rows of the tables that are shown; in a listing, operators with a kernel of their own at one of them.
    """

    operator: str | None = None
    source: str = DEFAULT
    semantics: str | None = None
    keys: tuple[str, ...] = ()
    listing: bool = False
    dangling: bool = False
    overridden: bool = False
    counts: bool = False
    imports: tuple[str, ...] = ()
    format: Format | None = None
    color: bool = True


def dump_registry(request: RegistryDumpRequest) -> int:
    """Show operators of a registry, list them, or count.

    Returns:
        The exit code, 0.

    Raises:
        DispatchLabError: the source, the operator or a key cannot be used.
    """
    recorded = recorded_from(request.source, imports=request.imports)
    if request.counts or request.listing or request.dangling or request.overridden or request.operator is None:
        from dispatchlab.commands.registry_list import list_registry

        return list_registry(request, recorded)
    rows = table_rows(request.keys)
    names = _names(request.operator, recorded, request.source)
    _show(request, recorded, names, rows)
    return 0


def _names(asked: str, recorded: Recorded, source: str) -> tuple[str, ...]:
    names = find_names(recorded.names, asked)
    if not names:
        raise UnknownOperatorError(asked, tuple(recorded.names), source)
    if len(names) > 1 and not is_glob(asked):
        raise AmbiguousOperatorError(asked, names)
    return names


def _show(request: RegistryDumpRequest, recorded: Recorded, names: Sequence[str], rows: Sequence[str]) -> None:
    from dispatchlab.commands.registry_bench import bench

    semantics = request.semantics or "strict"
    replayed = bench(recorded, semantics=semantics, operators=names)
    dispatcher = replayed.dispatcher
    match chosen_format(request.format):
        case "text":
            from dispatchlab.render.text import only_rows

            out("\n".join(f"{dispatcher.dump(name)}\n{only_rows(dispatcher.dump_table(name), rows)}" for name in names))
        case "json":
            from dispatchlab.render.json_view import dump_json

            views = [(name, dispatcher.explain(name)) for name in names]
            seen = [(dispatcher.snapshot(name_of(name)), view) for name, view in views if view is not None]
            out(dump_json(seen, scenario=request.source, engine="lab", semantics=semantics, word=(), keys=rows))
        case "rich":
            from dispatchlab.render.rich_view import console, print_operator

            terminal = console(sys.stdout, color=request.color)
            with terminal.capture() as captured:
                for name in names:
                    view = dispatcher.explain(name)
                    assert view is not None
                    print_operator(terminal, view, keys=rows)
            out(captured.get())
