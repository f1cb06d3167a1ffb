"""Reports and operators for a terminal, with rich. Shows what render/text.py shows.

Texts of a user go through `plain`: a claim cannot colour the terminal or move its cursor, and `[red]` is just text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import zip_longest
from typing import TextIO

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.panel import Panel
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from dispatchlab.analysis.report import Report
from dispatchlab.escape import printable
from dispatchlab.explore.result import Counterexample, Verdict
from dispatchlab.model.keys import PER_BACKEND_FUNCTIONALITIES, RUNTIME_KEYS
from dispatchlab.model.operator_view import OUTRANKED, Beaten, OperatorView, TableRow
from dispatchlab.model.sequence import StepSequence
from dispatchlab.render.formatting import seconds
from dispatchlab.render.text import FLAWS, conflict_text, counts, never_accepted_text, reasons, replayed_text, step_text

_FAMILIES = tuple(
    tuple(str(key) for key in RUNTIME_KEYS if key.functionality is functionality)
    for functionality in PER_BACKEND_FUNCTIONALITIES
)
_FAMILY_OF = {key: family for family in _FAMILIES for key in family}


def families(keys: Sequence[str]) -> list[str]:
    """Keys in few sequences, a line each: `SparseCPU ... SparseMeta`, `CPU ... Meta but CUDA`, `FPGA Vulkan Metal`.

    Args:
        keys: names of runtime keys, in the order of a table.
    """
    return list(_lines(keys))


def _lines(keys: Sequence[str]) -> Iterator[str]:
    named = frozenset(keys)
    done: set[str] = set()
    single: list[str] = []
    for key in keys:
        if key in done:
            continue
        family = _FAMILY_OF.get(key, ())
        missing = [other for other in family if other not in named]
        if 2 * len(missing) >= len(family):
            single.append(key)
            continue
        if single:
            yield " ".join(single)
            single = []
        done.update(family)
        yield f"{family[0]} ... {family[-1]}" + (f" but {' '.join(missing)}" if missing else "")
    if single:
        yield " ".join(single)


_STYLES = {
    Verdict.ORDER_INDEPENDENT: "green",
    Verdict.NO_VIOLATION_FOUND: "cyan",
    Verdict.ORDER_DEPENDENT: "red",
    Verdict.INCOMPLETE: "yellow",
    Verdict.NONDETERMINISTIC: "magenta",
    Verdict.CRASHED: "magenta",
}
_DIFF_STYLES = {"---": "bold", "+++": "bold", "@@ ": "cyan"}
_FIRST_STYLES = {"-": "green", "+": "red"}
"""A diff leads from what is expected to what is there: what is there is the defect, and red."""
_HELD_BACK = "yellow"


class _PlainTextConsole(Console):
    """A console that draws control characters in texts spelled out; those that it makes itself stay."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """The segments of what is drawn."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield segment._replace(text=printable(segment.text))


def console(stream: TextIO, *, color: bool = True, forced: bool = False) -> Console:
    """A console on a stream. Where the stream is not a terminal it neither colours nor draws with box characters.

    Args:
        stream: where it prints.
        color: whether it may colour.
        forced: take the stream for a terminal, whatever it is.
    """
    return _PlainTextConsole(
        file=stream,
        force_terminal=forced or stream.isatty(),
        color_system="standard" if forced and not stream.isatty() else "auto",
        no_color=not color,
        highlight=False,
        emoji=False,
        markup=False,
    )


def print_report(console: Console, report: Report) -> None:
    """Print a report, which ends in its panel."""
    counterexample = report.exploration.counterexample
    if counterexample is not None:
        console.print(_sequences(console, counterexample, report.registrations))
        if counterexample.diff:
            console.print(_diff(counterexample.diff))
        console.print(_why(counterexample))
    console.print(_panel(console, report))


def print_operator(console: Console, view: OperatorView, *, keys: Collection[str] = ()) -> None:
    """Print an operator: what it is, its kernels, and its table with the reasons.

    Args:
        console: where to.
        view: the operator.
        keys: the rows of the table that are shown; all of them when there are none.
    """
    console.print(_head(view))
    if view.kernels:
        console.print(_kernels(console, view))
    rows = [row for row in view.table if not keys or row.key in keys]
    if rows:
        console.print(_table(console, rows))
    for violation in view.violations:
        console.print(plain(f"invariant broken: {violation}", "bold red"))


def plain(text: str, style: str = "") -> Text:
    """A user's text as it is, with control characters spelled out."""
    return Text(printable(text), style=style)


# -- permute


def _panel(console: Console, report: Report) -> Panel:
    found = report.exploration
    style = _STYLES[found.verdict]
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    expected = Text(f"{report.expected}, ")
    expected.append(
        "as expected" if report.as_expected else "NOT as expected", "green" if report.as_expected else "red"
    )
    grid.add_row("verdict", Text(str(found.verdict), f"bold {style}"))
    grid.add_row("expected", expected)
    for title, number in counts(found):
        grid.add_row(title, number)
    grid.add_row("registrations", f"{found.registrations:,}")
    if found.counterexample is None or found.conflicts:
        conflicts = [conflict_text(conflict, found) for conflict in found.conflicts]
        grid.add_row("conflicts", plain("\n".join(conflicts) or "none"))
    if found.verdict in (Verdict.ORDER_INDEPENDENT, Verdict.NO_VIOLATION_FOUND):
        never = never_accepted_text(found, report.registrations)
        grid.add_row("never accepted", plain("\n".join(never) or "none", _HELD_BACK if never else ""))
    if found.replayed:
        grid.add_row("replayed", replayed_text(found))
    for note in found.notes:
        grid.add_row("note", plain(note))
    grid.add_row("engine", f"{report.engine}, {report.semantics}")
    grid.add_row("walk", f"{found.walk}, {seconds(found.elapsed_s)}")
    return Panel(
        Group(plain(report.claim, "italic"), Text(), grid),
        title=plain(report.scenario),
        border_style=style,
        box=_box(console, box.ROUNDED),
    )


def _sequences(console: Console, counterexample: Counterexample, registrations: Sequence[str]) -> Table:
    table = Table(
        title=f"{counterexample.flaw}: {FLAWS[counterexample.flaw]}",
        box=_box(console, box.SIMPLE_HEAD),
        expand=True,
        title_style="bold red",
    )
    if counterexample.actual_sequence == counterexample.expected_sequence:
        table.add_column("sequence", overflow="fold")
        for step in _steps(counterexample.actual_sequence, registrations):
            table.add_row(step)
        return table
    table.add_column("expected", overflow="fold", ratio=1)
    table.add_column("actual", overflow="fold", ratio=1)
    sides = (
        _steps(counterexample.expected_sequence, registrations),
        _steps(counterexample.actual_sequence, registrations),
    )
    for one, other in zip_longest(*sides, fillvalue=Text()):
        table.add_row(one, other)
    return table


def _steps(sequence: StepSequence, registrations: Sequence[str]) -> list[Text]:
    if not sequence:
        return [Text("(nothing)", "dim")]
    return [plain(step_text(step, registrations), "red" if step < 0 else "") for step in sequence]


def _diff(diff: str) -> Text:
    lines = [plain(line, _DIFF_STYLES.get(line[:3], _FIRST_STYLES.get(line[:1], ""))) for line in diff.splitlines()]
    return Text("\n").join(lines)


def _why(counterexample: Counterexample) -> Text:
    return Text("\n").join([Text(), *(plain(f"why: {reason}", "bold") for reason in reasons(counterexample))])


# -- dump


def _head(view: OperatorView) -> Group:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("schema", plain(view.schema) if view.schema is not None else Text("(none)", _HELD_BACK))
    if view.debug is not None:
        grid.add_row("debug", plain(view.debug))
    if view.alias_kind is not None:
        grid.add_row("alias analysis", plain(view.alias_kind))
    if view.tags:
        grid.add_row("tags", plain(", ".join(view.tags)))
    return Group(plain(view.name, "bold"), grid)


def _kernels(console: Console, view: OperatorView) -> Table:
    table = Table(title="kernels", title_justify="left", box=_box(console, box.SIMPLE_HEAD))
    for title in ("key", "kernel", "inferred schema", "flags"):
        table.add_column(title, overflow="fold")
    for kernel in view.kernels:
        key = Text(f"{kernel.key} (alias)" if kernel.is_alias else kernel.key)
        if not kernel.active:
            key.append(" inactive", _HELD_BACK)
        style = "" if kernel.active else "dim"
        table.add_row(
            key, plain(kernel.debug, style), plain(kernel.inferred or "(none)", style), " ".join(kernel.flags)
        )
    return table


def _table(console: Console, rows: Sequence[TableRow]) -> Table:
    table = Table(title="table", title_justify="left", box=_box(console, box.SIMPLE_HEAD))
    table.add_column("keys", overflow="fold", ratio=2)
    table.add_column("kernel, reason, and what lost to it", overflow="fold", ratio=3)
    for keys, row in _alike(rows):
        table.add_row(Text("\n".join(families(keys))), _row(row, keys))
    return table


def _row(row: TableRow, keys: Sequence[str]) -> Text:
    cell = Text()
    if row.text:
        cell.append_text(plain(row.debug, "bold")).append(f" [{row.reason}]")
    else:
        cell.append("(nothing)", "dim")
    if row.source and row.source not in keys:
        cell.append(f" at {row.source}")
    if row.fallthrough:
        cell.append(", calls fall through", _HELD_BACK)
    if row.stale is not None:
        cell.append_text(plain(f"\nSTALE, calls use: {row.stale}", "bold red"))
    for one in row.beaten:
        cell.append_text(plain(f"\ninstead of {_beaten_text(one)}", "dim"))
    return cell


def _alike(rows: Sequence[TableRow]) -> Iterator[tuple[list[str], TableRow]]:
    """The rows that say the same, with their keys; in the order of their first key."""
    groups: dict[tuple[object, ...], tuple[list[str], TableRow]] = {}
    for row in rows:
        same = (row.text, row.source if row.source != row.key else None, row.beaten, row.stale)
        groups.setdefault(same, ([], row))[0].append(row.key)
    return iter(groups.values())


def _beaten_text(beaten: Beaten) -> str:
    why = "" if beaten.why == OUTRANKED else f", since {beaten.why}"
    return f"{beaten.debug} [{beaten.reason}] at {beaten.source}{why}"


def _box(console: Console, usual: box.Box) -> box.Box:
    """Box characters are for terminals; a pipe gets ASCII."""
    return usual if console.is_terminal else box.ASCII
