"""Operators across versions as text, as JSON and for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dispatchlab.analysis.across_versions import History, KeyHistory, OperatorHistory, ranges
from dispatchlab.escape import printable
from dispatchlab.render.as_json import json_text

if TYPE_CHECKING:
    from rich.console import Console


def across_text(found: Sequence[OperatorHistory]) -> str:
    """Each operator, with a row for each stretch of versions that agree."""
    return "\n".join("".join(f"{line}\n" for line in _lines(one)) for one in found)


def _lines(one: OperatorHistory) -> Iterator[str]:
    yield printable(_title(one))
    for name, rows in _sections(one):
        yield f"{name}:"
        width = max(len(versions) for _, versions, _ in rows)
        previous = ""
        for keys, versions, content in rows:
            if keys and keys != previous:
                yield f"  {keys}"
            previous = keys
            yield f"  {'  ' if keys else ''}{versions:<{width}}  {printable(content)}"


def print_across(console: Console, found: Sequence[OperatorHistory]) -> None:
    """Print each operator, with a row for each stretch of versions that agree."""
    from dispatchlab.render.key_names import key_names
    from dispatchlab.render.page import Page, commas
    from dispatchlab.render.styles import KERNEL, TITLE

    page = Page(console)
    for number, one in enumerate(found):
        if number:
            page.blank()
        page.line(_title(one), TITLE)
        for name, rows in _sections(one):
            page.title(name)
            width = max(len(versions) for _, versions, _ in rows) + 2
            previous = ""
            for keys, versions, content in rows:
                if keys and keys != previous:
                    page.flow(commas(key_names(keys.split(", ")), KERNEL), indent=4, first=page.margin(2))
                previous = keys
                page.field(versions, page.words(content), width=width, indent=4 if keys else 2)


def across_json(found: Sequence[OperatorHistory]) -> str:
    """All of it; `version` says which fields there are."""
    value = [
        {
            "operator": one.operator,
            "present": one.present,
            "schema": _eras(one.schema),
            "alias": _eras(one.alias),
            "tags": [
                {"versions": era.versions, "content": era.content.split(", ") if era.content else []}
                for era in one.tags
            ],
            "kernels": _keys(one.kernels),
            "slots": _keys(one.slots),
        }
        for one in found
    ]
    versions = found[0].versions if found else ()
    return json_text({"versions": versions, "operators": value}, indent=1)


def _eras(history: History) -> list[dict[str, object]]:
    return [era._asdict() for era in history]


def _keys(histories: Sequence[KeyHistory]) -> list[dict[str, object]]:
    return [{"keys": each.keys, "eras": _eras(each.eras)} for each in histories]


def _title(one: OperatorHistory) -> str:
    return f"{one.operator}: in PyTorch {_versions(one.present, one)}, of {one.versions[0]} to {one.versions[-1]}"


def _sections(one: OperatorHistory) -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    """The sections that have a row: the keys of each row, its versions, and what is there."""
    for name, history in (("schema", one.schema), ("alias analysis kind", one.alias), ("tags", one.tags)):
        rows = [("", versions, content) for versions, content in _rows(history, one)]
        if any(content != _NOTHING for _, _, content in rows):
            yield name, rows
    for name, histories in (("kernels", one.kernels), ("slots", one.slots)):
        rows = [(", ".join(each.keys), *row) for each in histories for row in _rows(each.eras, one)]
        if rows:
            yield name, rows


_NOTHING = "none"


def _rows(history: History, one: OperatorHistory) -> Iterator[tuple[str, str]]:
    for era in history:
        versions = [version for version in era.versions if version in one.present]
        if versions:
            yield _versions(versions, one), _NOTHING if era.content is None else era.content


def _versions(some: Sequence[str], one: OperatorHistory) -> str:
    return ", ".join(first if first == last else f"{first} to {last}" for first, last in ranges(some, one.versions))
