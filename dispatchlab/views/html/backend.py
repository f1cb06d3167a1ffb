"""Blocks as HTML: a report as a whole document, or a fragment."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import sha256
from itertools import compress
from pathlib import Path
from typing import assert_never

from dispatchlab._version import __version__
from dispatchlab.views import blocks as b
from dispatchlab.views.html.elements import Child, Html, breakable, element, joined, trusted
from dispatchlab.views.source_locations import short_debug
from dispatchlab.views.text import rows_of, value_text

_HERE = Path(__file__).parent


def html_page(document: b.Document) -> str:
    """Write a document as an HTML page."""
    css, script = _file("page.css"), _file("page.js")
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(css)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="generator", content=f"dispatchlab {__version__}"),
        element("link", rel="icon", href="data:,"),
        element("title", f"{document.title} \u2013 dispatchlab {document.command}"),
        element("style", trusted(css)),
    )
    sections = [block for block in document.blocks if isinstance(block, b.Section)]
    links = (element("li", element("a", section.title, href=f"#{anchor(section)}")) for section in sections)
    body = element(
        "body",
        element("a", "Skip to the findings", class_="skip", href="#findings"),
        element(
            "header",
            element("p", f"dispatchlab {document.command}", class_="command"),
            element("h1", document.title),
            html_of(block for block in document.blocks if not isinstance(block, b.Section)),
        ),
        element("nav", element("ul", links), aria_label="Parts of this report") if len(sections) > 1 else None,
        element("main", map(_section, sections), id="findings"),
        element("footer", element("p", f"Written by dispatchlab {__version__}.")),
        element("script", trusted(script)),
    )
    return f"<!DOCTYPE html>\n{element('html', chr(10), head, chr(10), body, lang='en')}\n"


def anchor(section: b.Section) -> str:
    """Return the target of a link to a section."""
    return section.anchor or re.sub(r"[^a-z0-9]+", "-", section.title.lower()).strip("-")


def _section(section: b.Section) -> Html:
    body = element("h2", section.title), html_of(section.blocks)
    return joined(("\n", element("section", body, id=anchor(section))))


@cache
def _file(name: str) -> str:
    text = (_HERE / name).read_text(encoding="utf-8")
    assert "</" not in text
    return text


def _digest(text: str) -> str:
    """Return the digest of a text for the content security policy."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


_CLASSES: dict[b.Mood, str] = {
    "good": "good",
    "bad": "bad",
    "warn": "warn",
    "quiet": "quiet",
    "emphasis": "claim",
}
_DIFF_KINDS = {"-": "removed", "+": "added", "@": "place"}
_LONG = 44  # characters
_LONG_FACT = 24


def html_of(blocks: Iterable[b.Block], *, most: int | None = None) -> Html:
    """Return blocks as a fragment.

    Args:
        blocks: the blocks to show.
        most: the largest number of rows in a table; None for all.
    """
    return joined(_runs(blocks, most))


def _runs(blocks: Iterable[b.Block], most: int | None) -> Iterator[Html]:
    """Return each block; lines that are arranged by indentation have one width, and stay together."""
    lines: list[b.Block] = []
    for block in blocks:
        if isinstance(block, b.Line) and (block.indent or block.label):
            lines.append(block)
            continue
        if lines:
            yield _arranged(lines)
            lines = []
        yield _block(block, most)
    if lines:
        yield _arranged(lines)


def _arranged(blocks: Iterable[b.Block]) -> Html:
    return element("pre", "\n".join(rows_of(blocks)), tabindex=0)


def _block(block: b.Block, most: int | None) -> Html:
    match block:
        case b.Line():
            return element("p", inline(block.content), class_=_CLASSES.get(block.mood)) if block.content else Html()
        case b.Section():
            return joined((element("h3", block.title), html_of(block.blocks, most=most)))
        case b.Verdict():
            return element("p", _mark(block.text, block.mood), inline(block.beside))
        case b.Facts():
            is_long = any(len(value_text(value)) > _LONG_FACT for _, value in block.pairs)
            pairs = (
                element("div", element("dt", title), element("dd", one if isinstance(one, int) else inline(one)))
                for title, one in block.pairs
            )
            return element("dl", pairs, class_="summary" if is_long else "facts")
        case b.Table():
            return _table(block, most)
        case b.Folded():
            return _folded(block, most)
        case b.Items():
            return element("ul", (element("li", inline(item)) for item in block.items))
        case b.Code():
            return element("pre", block.text, tabindex=0)
        case b.Difference():
            return element("pre", _diff_rows(block.diff), tabindex=0, aria_label="What differs")
        case b.Sides():
            sides = (_side(side, block.marked) for side in block.sides)
            return element("div", sides, class_="sides") if len(block.sides) > 1 else joined(sides)
        case _:
            assert_never(block)


def _side(side: b.Side, marked: int | None) -> Html:
    """Return a sequence with a mark at the step from which the other one differs."""
    steps = [element("li", step.text, class_="parts" if at == marked else None) for at, step in enumerate(side.steps)]
    shown = element("ol", steps, class_="steps") if steps else element("p", "(nothing)", class_="quiet")
    title = f"{side.title[:1].upper()}{side.title[1:]}"
    return element("div", element("p", element("b", title)), shown)


def _diff_rows(diff: str) -> Iterator[Child]:
    for row in diff.splitlines():
        kind = "place" if row.startswith(("---", "+++")) else _DIFF_KINDS.get(row[:1])
        yield element("span", row, class_=kind) if kind else row
        yield "\n"


def _folded(block: b.Folded, most: int | None) -> Html:
    """Return a part that a click, or a link to its anchor, opens."""
    body = element("div", html_of(block.blocks, most=most), class_="inside", id=block.anchor or None)
    return element("details", element("summary", inline(block.title)), body, open=block.is_open)


def _table(table: b.Table, most: int | None) -> Html:
    """Return a table that scripts sort and filter, without empty columns, or a sentence if it has no rows."""
    if not table.rows:
        return element("p", f"{table.caption}: none.", class_="quiet")
    filled = [any(row[at] not in ("", b.Cell("")) for row in table.rows) for at in range(len(table.heads))]
    more = 0 if most is None else max(0, len(table.rows) - most)
    return element(
        "div",
        element(
            "table",
            element("caption", f"{table.caption} ({len(table.rows):,})") if table.caption else None,
            element(
                "thead", element("tr", (element("th", head, scope="col") for head in compress(table.heads, filled)))
            )
            if any(table.heads)
            else None,
            element(
                "tbody",
                (_row(tuple(compress(row, filled)), at in table.marked) for at, row in enumerate(table.rows[:most])),
            ),
            class_="data",
        ),
        element("p", f"and {more:,} more") if more else None,
        class_="table",
        role="region",
        tabindex=0,
        aria_label=table.caption or "Table",
    )


def _row(row: b.Row, marked: bool) -> Html:  # noqa: FBT001  one of two looks
    first, *others = (_cell(cell if isinstance(cell, b.Cell) else b.Cell(cell)) for cell in row)
    name = element("th", first[0], scope="row", **first[1])
    cells = (element("td", content, **attributes) for content, attributes in others)
    return joined(("\n", element("tr", name, cells, class_="marked" if marked else None)))


def _cell(cell: b.Cell) -> tuple[Child, dict[str, str | int | None]]:
    """Return the content of a cell and its attributes: long names may be broken, and sentences get a wide column."""
    kind, sort = cell.kind, cell.sort
    match cell.content:
        case int(number):
            content: Child = number
            kind, sort = kind or "number", number if sort is None else sort
        case b.Stack(lines):
            content = [element("div", inline(line, cell=kind)) for line in lines]
        case b.Folded():
            content = _folded(cell.content, None)
        case str(text) | b.Span(text, mood="", kind="source", href=""):
            text = text if isinstance(cell.content, str) else short_debug(text)
            is_long = len(text) > _LONG
            content = breakable(text) if is_long or "/" in text else text
            wide: dict[str, b.CellKind] = {"name": "code", "": "prose"}
            kind = wide.get(kind, kind) if is_long else kind
        case _:
            content = inline(cell.content, cell=kind)
    return content, {"class_": kind or None, "data_value": sort}


def inline(content: b.Inline, *, cell: b.CellKind | None = None) -> Html:
    """Return inline text as HTML.

    Args:
        content: the text.
        cell: the kind of its cell, which may be code; None outside of a cell.
    """
    match content:
        case str():
            return joined(content) if cell in (None, "number") else breakable(content)
        case b.Meter():
            return element(
                "meter",
                min=0,
                max=content.whole,
                value=content.part,
                aria_label=content.label,
                class_=content.mood if content.mood in ("bad", "warn") else None,
            )
        case b.Span(kind="mark"):
            return _mark(content.text, content.mood)
        case b.Span():
            return _span(content, cell)
        case _:
            return joined(inline(piece, cell=cell) for piece in content)


def _span(span: b.Span, cell: b.CellKind | None) -> Html:
    text = short_debug(span.text) if span.kind == "source" else span.text
    shown = joined(text) if cell is None and span.kind == "words" else breakable(text)
    if span.kind != "words" and cell not in ("name", "code"):
        shown = element("code", shown)
    if span.href:
        shown = element("a", shown, href=span.href)
    if span.mood == "strong":
        return element("b", shown)
    kind = _CLASSES.get(span.mood)
    return element("span", shown, class_=kind) if kind else shown


def _mark(text: str, mood: b.Mood) -> Html:
    return element("span", text, class_=f"verdict {mood if mood in ('good', 'bad', 'warn') else ''}".rstrip())
