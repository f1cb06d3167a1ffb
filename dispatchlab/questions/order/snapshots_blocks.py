"""Snapshots at every step as blocks: each with what its step changed, and the orders that lead there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from dispatchlab.model.sequence import format_sequence
from dispatchlab.questions.order.report_text import step_text
from dispatchlab.questions.order.snapshots import Moment, Passed, Row, Snapshots, Way, rows_between
from dispatchlab.views.blocks import (
    Block,
    Cell,
    Difference,
    Folded,
    Inline,
    Line,
    Mood,
    Section,
    Span,
    Table,
    between,
    quiet,
    source,
    strong,
)
from dispatchlab.views.formatting import counted, key_names, readable

_MOODS: dict[str, Mood] = {"+": "good", "-": "bad", " ": "quiet"}


def snapshot_lines(found: Snapshots) -> Iterator[Block]:
    """The snapshots as plain text: every line of each, `+` and `-` before what its first step changed."""
    yield Line(f"snapshots: {_summary(found)}")
    yield from (Line(f"{title}: {_path(passed)}") for title, passed in _chosen(found))
    for moment in found.moments:
        yield Line()
        yield Line(f"snapshot {moment.number}: {_registered(moment, None)}{_orders(moment)}")
        first, *others = _ways(moment)
        yield from _way_lines(first, found)
        if moment.same_as is not None:
            yield Line(f"  what is seen is what snapshot {moment.same_as} shows")
        for row in _rows(moment, first, found):
            yield Line(f"{row.mark} {f'{row.key}: ' if row.key else ''}{row.text}".rstrip())
        for way in others:
            yield from _way_lines(way, found)
            for row in _grouped(_changes(moment, way, found)):
                yield Line(f"{row.mark} {f'{row.key}: ' if row.key else ''}{row.text}".rstrip())


def snapshot_screen(found: Snapshots) -> Iterator[Block]:
    """The snapshots for a terminal: what is new is green, what is gone red; keys with one kernel share a line."""
    lines = [Line(_summary(found))]
    lines += [Line(_path(passed), label=quiet(title), width=len(title) + 2) for title, passed in _chosen(found)]
    yield Section("snapshots at every step", tuple(lines))
    for moment in found.moments:
        yield Section(f"snapshot {moment.number}: {_registered(moment, found)}", tuple(_on_screen(moment, found)))


def snapshot_sections(found: Snapshots, anchor: str) -> Iterator[Section]:
    """The snapshots for a page: those of all states, and the orders that pass them.

    Args:
        found: the snapshots.
        anchor: what links to them begin with.
    """
    body: list[Block] = [Line(f"{_summary(found)[:1].upper()}{_summary(found)[1:]}."), *_how_to_read(found)]
    for moment in found.moments:
        title = (strong(f"{moment.number}: {_registered(moment, found)}"), quiet(_orders(moment)))
        body.append(Folded(title, tuple(_on_page(moment, found, anchor)), anchor=f"{anchor}-snapshot-{moment.number}"))
    tables = ((found.chosen, "Sequences"), (found.registering, "Orders of registration"))
    for some, head in (*tables, (found.releasing, "Orders of release")):
        if some:
            rows = tuple(_path_row(passed, anchor) for passed in some)
            table = Table(head, ("steps", "snapshots that they pass"), rows)
            body.append(Folded(f"{head}: {len(some):,}{' of more' if found.is_cut else ''}", (table,)))
    yield Section("Snapshots at every step", tuple(body), f"{anchor}-snapshots")


# -- one snapshot


def _on_screen(moment: Moment, found: Snapshots) -> Iterator[Block]:
    first, *others = _ways(moment)
    if _orders(moment):
        yield Line(_orders(moment).removeprefix(", "), "quiet", indent=2)
    yield from _screen_way(first, found)
    if moment.same_as is not None:
        yield Line(f"shows what snapshot {moment.same_as} shows", "quiet", indent=2)
    else:
        yield from map(_screen_row, _grouped(_rows(moment, first, found)))
    for way in others:
        yield from _screen_way(way, found)
        yield from map(_screen_row, _grouped(_changes(moment, way, found)))


def _screen_way(way: Way | None, found: Snapshots) -> Iterator[Line]:
    for text in _way_texts(way, found):
        yield Line(text, "warn" if way is not None and way.refused else "strong", indent=2)


def _screen_row(row: Row) -> Line:
    mood = _MOODS[row.mark]
    content: Inline = (f"{row.key}: ", source(row.text, mood)) if row.key else row.text
    return Line(content, mood, indent=2, label=Span(f"{row.mark} ", mood), width=2) if row.text else Line()


def _on_page(moment: Moment, found: Snapshots, anchor: str) -> Iterator[Block]:
    first, *others = _ways(moment)
    for number, way in enumerate([first, *others]):
        if way is not None:
            refused = f", refused: {way.refused}" if way.refused else ""
            about: Inline = (step_text(way.step, found.registrations), " from ", _link(way.source, anchor), refused)
            yield Line(about, "warn" if way.refused else "")
        rows = _grouped(_changes(moment, way, found) if number else _rows(moment, way, found))
        if moment.same_as is not None and not number:
            yield Line(("What is seen is what ", _link(moment.same_as, anchor), " shows."), "quiet")
        elif rows:
            shown = (f"{row.mark} {f'{row.key}: ' if row.key else ''}{row.text}" for row in rows)
            yield Difference("\n".join(shown), is_step=True)
        elif not (way is not None and way.refused):
            yield Line("Nothing that is seen changes.", "quiet")


def _ways(moment: Moment) -> list[Way | None]:
    """The steps that lead to a snapshot; those that were refused and changed nothing last."""
    ways = sorted(moment.ways, key=lambda way: (way.source == moment.number, way.step < 0))
    is_reached = bool(ways) and ways[0].source != moment.number
    return [*ways] if is_reached else [None, *ways]


def _rows(moment: Moment, way: Way | None, found: Snapshots) -> list[Row]:
    """All that is seen in a snapshot, with what a step changed."""
    before = None if way is None else found.moments[way.source].look
    return rows_between(before, moment.look, found.keys)


def _changes(moment: Moment, way: Way | None, found: Snapshots) -> list[Row]:
    return [row for row in _rows(moment, way, found) if row.mark != " "]


def _grouped(rows: Sequence[Row]) -> list[Row]:
    """The same with one row for keys that hold the same, where they follow one another in a table."""
    made: list[Row] = []
    for in_table, some in groupby(rows, key=lambda row: bool(row.key)):
        if not in_table:
            made += some
            continue
        alike: dict[tuple[str, str], list[str]] = {}
        for row in some:
            alike.setdefault((row.mark, row.text), []).append(row.key)
        made += (Row(mark, text, ", ".join(key_names(keys))) for (mark, text), keys in alike.items())
    return made


# -- words


def _summary(found: Snapshots) -> str:
    shown = counted(len(found.moments), "snapshot")
    if found.chosen:
        return f"{shown}, after every step of {counted(len(found.chosen), 'sequence')}"
    orders = "1 order" if found.sequences == 1 else f"{readable(found.sequences)} orders"
    return f"{shown}, after every step of {orders} of registration and release"


def _how_to_read(found: Snapshots) -> Iterator[Line]:
    if not found.chosen:
        text = "A sequence is an order of registration, then an order of release from the snapshot that it ends in."
        yield Line(f"{text} A release leads back where its registration came from, unless it is listed.", "quiet")


def _registered(moment: Moment, found: Snapshots | None) -> str:
    if not moment.registered:
        return "nothing is registered"
    names = [str(index) if found is None else f"{index} {found.names[index]}" for index in moment.registered]
    return f"{', '.join(names)} {'is' if len(moment.registered) == 1 else 'are'} registered"


def _orders(moment: Moment) -> str:
    if moment.orders is None or not moment.registered:
        return ""
    if not moment.orders:
        return ", no order of registration alone leads here"
    return f", {counted(moment.orders, 'order')} lead{'s' if moment.orders == 1 else ''} here"


def _way_lines(way: Way | None, found: Snapshots) -> Iterator[Line]:
    yield from map(Line, _way_texts(way, found))


def _way_texts(way: Way | None, found: Snapshots) -> Iterator[str]:
    if way is not None:
        refused = f", refused: {way.refused}" if way.refused else ""
        yield f"{step_text(way.step, found.registrations)}, from snapshot {way.source}{refused}"


def _chosen(found: Snapshots) -> Iterator[tuple[str, Passed]]:
    return (("sequence", passed) for passed in found.chosen)


def _path(passed: Passed) -> str:
    return f"{format_sequence(passed.sequence)} passes snapshots {', '.join(map(str, passed.numbers))}"


def _path_row(passed: Passed, anchor: str) -> tuple[Cell, Cell]:
    links = between([_link(number, anchor, "") for number in passed.numbers], " ")
    return Cell(format_sequence(passed.sequence), "name"), Cell(links)


def _link(number: int, anchor: str, what: str = "snapshot ") -> Span:
    return Span(f"{what}{number}", href=f"#{anchor}-snapshot-{number}")
