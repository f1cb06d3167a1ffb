"""Snapshots at every step as blocks: each with the changes of its step, and the orders that lead to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from dispatchlab.questions.order.report_text import step_text
from dispatchlab.questions.order.snapshots import Moment, Row, Snapshots, Way, rows_between
from dispatchlab.views.blocks import Block, Difference, Folded, Line, quiet, strong
from dispatchlab.views.formatting import counted, key_names


def snapshot_lines(found: Snapshots) -> Iterator[Block]:
    """Return the snapshots as plain text, with `+` and `-` before the changes of the first step to each."""
    yield Line(f"snapshots: {_summary(found)}")
    for moment in found.moments:
        yield Line()
        yield Line(f"snapshot {moment.number}: {_registered(moment, None)}{_orders(moment)}")
        first, *others = _ways(moment)
        yield from map(Line, _way_texts(first, found))
        if moment.same_as is not None:
            yield Line(f"  what is seen is what snapshot {moment.same_as} shows")
        for row in _rows(moment, first, found):
            yield Line(f"{row.mark} {f'{row.key}: ' if row.key else ''}{row.text}".rstrip())
        for way in others:
            yield from map(Line, _way_texts(way, found))
            for row in grouped_rows(_changes(moment, way, found)):
                yield Line(f"{row.mark} {f'{row.key}: ' if row.key else ''}{row.text}".rstrip())


def snapshot_blocks(found: Snapshots) -> Iterator[Block]:
    """Return the snapshots with the changes of each step; keys with one kernel share a line."""
    yield Line(_summary(found))
    for moment in found.moments:
        title = (strong(f"{moment.number}: {_registered(moment, found)}"), quiet(_orders(moment)))
        yield Folded(title, tuple(_moment(moment, found)), is_open=True)


# -- one snapshot


def _moment(moment: Moment, found: Snapshots) -> Iterator[Block]:
    for number, way in enumerate(_ways(moment)):
        yield from (Line(text, "warn" if way and way.refused else "") for text in _way_texts(way, found))
        rows = grouped_rows(_changes(moment, way, found) if number else _rows(moment, way, found))
        if moment.same_as is not None and not number:
            yield Line(f"What is seen is what snapshot {moment.same_as} shows.", "quiet")
        elif rows:
            shown = (f"{row.mark} {f'{row.key}: ' if row.key else ''}{row.text}" for row in rows)
            yield Difference("\n".join(shown))


def _ways(moment: Moment) -> list[Way | None]:
    """Return the steps that lead to a snapshot; refused steps without a change come last."""
    ways = sorted(moment.ways, key=lambda way: (way.source == moment.number, way.step < 0))
    is_reached = bool(ways) and ways[0].source != moment.number
    return [*ways] if is_reached else [None, *ways]


def _rows(moment: Moment, way: Way | None, found: Snapshots) -> list[Row]:
    """Return all rows of a snapshot, with the changes of a step."""
    before = None if way is None else found.moments[way.source].look
    return rows_between(before, moment.look, found.keys)


def _changes(moment: Moment, way: Way | None, found: Snapshots) -> list[Row]:
    return [row for row in _rows(moment, way, found) if row.mark != " "]


def grouped_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the rows, with one row for neighbouring keys with the same content."""
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
    return f"{shown}, after every step of {counted(found.sequences, 'order')} of registration and release"


def _registered(moment: Moment, found: Snapshots | None) -> str:
    if not moment.registered:
        return "nothing is registered"
    names = [str(index) if found is None else f"{index} {found.names[index]}" for index in moment.registered]
    return f"{', '.join(names)} {'is' if len(moment.registered) == 1 else 'are'} registered"


def _orders(moment: Moment) -> str:
    if not moment.registered:
        return ""
    if not moment.orders:
        return ", no order of registration alone leads here"
    return f", {counted(moment.orders, 'order')} lead{'s' if moment.orders == 1 else ''} here"


def _way_texts(way: Way | None, found: Snapshots) -> Iterator[str]:
    if way is not None:
        refused = f", refused: {way.refused}" if way.refused else ""
        yield f"{step_text(way.step, found.registrations)}, from snapshot {way.source}{refused}"
