"""Operators across versions as blocks and as JSON: a row for each stretch of versions that agree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dispatchlab.questions.dump.across_versions import History, KeyHistory, OperatorHistory, ranges
from dispatchlab.views.as_json import as_json
from dispatchlab.views.blocks import Block, Line, Section, Span
from dispatchlab.views.formatting import key_names
from dispatchlab.views.view import View


def across_view(found: Sequence[OperatorHistory]) -> View[object]:
    """How operators are shown across versions."""
    value = {"versions": found[0].versions if found else (), "operators": found}
    return View(value, lines=lambda _: _lines(found), screen=lambda _: _screen(found), indent=1)


@as_json.register
def _(value: OperatorHistory) -> object:
    return as_json(
        {
            "operator": value.operator,
            "present": value.present,
            "schema": _eras(value.schema),
            "alias": _eras(value.alias),
            "tags": [
                {"versions": era.versions, "content": era.content.split(", ") if era.content else []}
                for era in value.tags
            ],
            "kernels": _keys(value.kernels),
            "slots": _keys(value.slots),
        }
    )


def _eras(history: History) -> list[dict[str, object]]:
    return [era._asdict() for era in history]


def _keys(histories: Sequence[KeyHistory]) -> list[dict[str, object]]:
    return [{"keys": each.keys, "eras": _eras(each.eras)} for each in histories]


def _lines(found: Sequence[OperatorHistory]) -> Iterator[Block]:
    for number, one in enumerate(found):
        if number:
            yield Line()
        yield Line(_title(one))
        for name, rows in _sections(one):
            yield Line(f"{name}:")
            width = max(len(versions) for _, versions, _ in rows) + 2
            previous = ""
            for keys, versions, content in rows:
                if keys and keys != previous:
                    yield Line(keys, indent=2)
                previous = keys
                yield Line(content, indent=4 if keys else 2, label=versions, width=width)


def _screen(found: Sequence[OperatorHistory]) -> Iterator[Block]:
    """The same with a title for each part, and keys in few phrases."""
    for number, one in enumerate(found):
        if number:
            yield Line()
        yield Line(_title(one), "strong")
        for name, rows in _sections(one):
            width = max(len(versions) for _, versions, _ in rows) + 2
            lines: list[Line] = []
            previous = ""
            for keys, versions, content in rows:
                if keys and keys != previous:
                    lines.append(Line(Span(", ".join(key_names(keys.split(", "))), "kernel"), indent=2))
                previous = keys
                lines.append(Line(content, indent=4 if keys else 2, label=Span(versions, "quiet"), width=width))
            yield Section(name, tuple(lines))


def _title(one: OperatorHistory) -> str:
    return (
        f"{one.operator}: in PyTorch {_versions(one.present, one)} (bundled: {one.versions[0]} to {one.versions[-1]})"
    )


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
