"""Blocks as Markdown for pull requests on GitHub: a heading for each part, and its plain text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from dispatchlab.escape import printable
from dispatchlab.views import blocks as b
from dispatchlab.views.text import text_of

_MOST_ROWS = 200
"""How many rows of a part are shown: a pull request takes 65,536 characters."""


def markdown_document(document: b.Document) -> str:
    """Write a document as Markdown."""
    title = f"## dispatchlab {document.command}: {_escaped(document.title)}"
    return "\n\n".join((title, *_parts(document.blocks))) + "\n"


def markdown_of(blocks: Iterable[b.Block]) -> str:
    """Write blocks as Markdown, without a title."""
    return "\n\n".join(_parts(blocks)) + "\n"


def _parts(blocks: Iterable[b.Block]) -> Iterator[str]:
    """Return the blocks before the first section, then each section."""
    lead: list[b.Block] = []
    for block in blocks:
        if not isinstance(block, b.Section):
            lead.append(block)
            continue
        if lead:
            yield _fenced(lead)
            lead = []
        yield f"### {_escaped(block.title)}"
        yield _fenced(block.blocks)
    if lead:
        yield _fenced(lead)


def _fenced(blocks: Iterable[b.Block]) -> str:
    """Return the text of blocks, in a fence that is longer than any in it."""
    rows = text_of(blocks).rstrip().split("\n")
    more = [f"... and {len(rows) - _MOST_ROWS:,} more lines"] * (len(rows) > _MOST_ROWS)
    text = "\n".join((*rows[:_MOST_ROWS], *more))
    fence = "`" * (1 + max((len(found) for found in re.findall(r"`{3,}", text)), default=2))
    return f"{fence}\n{text}\n{fence}"


_SPECIAL = re.compile(r"[\\`*\[\]<|~$]|(?<!\w)_|_(?!\w)")
_AT_THE_END = re.compile(r"(\s)(#+\s*)$")
_AT_THE_START = re.compile(r"^(\s*[0-9]*)([-+=#.)](?=[\s=#-])|>)")
_ENTITIES = str.maketrans({"&": "&amp;", "@": "&#64;"})


def _escaped(text: str) -> str:
    """Return a text with the special characters of Markdown and HTML escaped."""
    one_line = " ".join(printable(text).split("\n"))
    escaped = _SPECIAL.sub(r"\\\g<0>", one_line).translate(_ENTITIES)
    return _AT_THE_START.sub(r"\1\\\2", _AT_THE_END.sub(r"\1\\\2", escaped))
