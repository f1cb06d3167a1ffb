"""Blocks: the parts of a result, as values that every format shows.

A question makes one document of them, and a format is a backend of it. The module `blocks.py` of a question has one
function that returns a `View` (see views/view.py) of its result:

    def certification_view(found: Certification, *, torch: str = "") -> View[Certification]:
        return View(found, document=_document, indent=1, torch=torch)

A document begins with a verdict beside the title, then a short result, then a section for each part.
A table that is long says how many rows text and a terminal show, and a part that few ask for is `Folded`. `lines` gives
plain text apart from the document, where that text is a contract: golden files, dumps, tables.

The inline text of a block is a `str`, a `Span` or a tuple of these. Spans say what a text is, and a backend how that
looks: `name` for keys and operators, `code`, `source` for a debug text or a source location (short, and a link where
one is known), `mark` for an answer such as `yes`; a mood says what it is for the reader. Pieces of a tuple are joined
as they are, so blanks between them are written: `(strong(key), f" {what}: ", source(owner.debug))`.

JSON is not a format of blocks: `as_json` (views/as_json.py) makes it from the value itself.

The backends: views/text.py, views/terminal.py, views/html/backend.py, views/markdown.py. To add a format, write one,
call it in views/view.py, and name it in commands/output.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

from dispatchlab.model.dump_format import Provenance

Mood: TypeAlias = Literal[
    "", "good", "bad", "warn", "quiet", "strong", "emphasis", "kernel", "composite", "autograd", "fallback"
]
"""What a text is for its reader. A colour or a weight, which is never all that says it; the last four are roles of
kernels, which have a colour in every view for a terminal."""

REASON_MOODS: Mapping[Provenance, Mood] = {
    Provenance.KERNEL: "kernel",
    Provenance.DEFAULT_BACKEND: "composite",
    Provenance.NESTED: "composite",
    Provenance.MATH: "composite",
    Provenance.BATCHED: "composite",
    Provenance.CATCH_ALL: "composite",
    Provenance.AUTOGRAD: "autograd",
    Provenance.FALLBACK: "fallback",
    Provenance.AMBIGUOUS: "bad",
}
"""The mood of a reason: the same in every command."""


def key_mood(key: str) -> Mood:
    """Return the mood of a kernel that runs for no key, from the reason for which it would run."""
    if key.startswith("Composite"):
        return "composite"
    return "autograd" if key == "Autograd" else "kernel"


SpanKind: TypeAlias = Literal["words", "name", "code", "source", "mark", "fix"]
"""A `fix` is never broken into lines, so that it can be copied."""


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of inline text.

    Args:
        text: the text.
        mood: its meaning for the reader.
        kind: what it is.
        href: an address that it leads to; empty when there is none.
    """

    text: str
    mood: Mood = ""
    kind: SpanKind = "words"
    href: str = ""


@dataclass(frozen=True, slots=True)
class Meter:
    """A part of a whole as a bar; text and Markdown leave it out, so put a number beside it.

    Args:
        part: the size of the part.
        whole: the size of the whole.
        label: a description for readers who do not see it.
        mood: its colour.
    """

    part: int
    whole: int
    label: str
    mood: Mood = ""


Inline: TypeAlias = "str | Span | Meter | tuple[Inline, ...]"


strong = partial(Span, mood="strong")
quiet = partial(Span, mood="quiet")
good = partial(Span, mood="good")  # as it should be
bad = partial(Span, mood="bad")  # not as it should be
warn = partial(Span, mood="warn")  # asks for attention
name = partial(Span, kind="name")  # an operator, a key, a rule: not to be broken
code = partial(Span, kind="code")
source = partial(Span, kind="source")  # a debug text or a source location
mark = partial(Span, kind="mark")  # an answer in a word or two


# -- blocks


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text, or a paragraph of prose; without content an empty line.

    Args:
        content: its text.
        mood: the mood of what has none of its own.
        indent: its indentation.
        hang: the further indentation of wrapped lines; with a label, they begin below the content.
        label: the text before the content, in a separate column.
        width: how wide that column is.
    """

    content: Inline = ""
    mood: Mood = ""
    indent: int = 0
    hang: int = 2
    label: Inline = ""
    width: int = 0


@dataclass(frozen=True, slots=True)
class Section:
    """A part with a title, an empty line before it.

    Args:
        title: its title.
        blocks: its content.
        anchor: the end of a link to it: letters, digits and hyphens. Default: made from its title.
        mood: the mood of its title on a terminal.
    """

    title: str
    blocks: tuple[Block, ...] = ()
    anchor: str = ""
    mood: Mood = "strong"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A result in a few words.

    Args:
        text: the words.
        mood: its meaning for the reader.
        beside: the text beside it.
    """

    text: str
    mood: Mood
    beside: Inline = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """Titled facts: numbers and words, or sentences.

    Args:
        pairs: titles and their contents.
    """

    pairs: tuple[tuple[str, Inline | int], ...]


@dataclass(frozen=True, slots=True)
class Stack:
    """Several lines in a cell."""

    lines: tuple[Inline, ...]


CellKind: TypeAlias = Literal["name", "code", "number", "prose", ""]


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table.

    Args:
        content: its content.
        kind: `name` for what is not to be broken, `code` for a text of a program, `number`, `prose` for sentences;
            empty for a few words.
        sort: the sort key, if it differs from the content.
    """

    content: Inline | int | Stack | Folded
    kind: CellKind = ""
    sort: str | int | None = None


Row: TypeAlias = "tuple[Inline | int | Cell, ...]"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows with titled columns; a sentence if there are no rows.

    Args:
        caption: a description of its rows.
        heads: the titles of the columns; the first column names the row.
        rows: the cells of each row.
        marked: the numbers of the rows that ask for attention.
        most: the number of rows in text and on a terminal, except with --all; None for all.
    """

    caption: str
    heads: tuple[str, ...]
    rows: tuple[Row, ...]
    marked: frozenset[int] = frozenset()
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Folded:
    """A part that a page shows on request; text and a terminal show its title, and its content if it is open.

    Args:
        title: its title.
        blocks: its content.
        is_open: whether it is open at first.
        anchor: the end of a link that opens it; empty without one.
    """

    title: Inline
    blocks: tuple[Block, ...]
    is_open: bool = False
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    items: tuple[Inline, ...]


@dataclass(frozen=True, slots=True)
class Code:
    """A text of a program or of a dispatcher, unchanged."""

    text: str
    indent: int = 0


@dataclass(frozen=True, slots=True)
class Difference:
    """A unified diff.

    Args:
        diff: its lines.
        indent: their indentation.
    """

    diff: str
    indent: int = 0


@dataclass(frozen=True, slots=True)
class Side:
    """A sequence of steps.

    Args:
        title: its title.
        mood: its meaning for the reader.
        steps: its steps.
    """

    title: str
    mood: Mood
    steps: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Sides:
    """Sequences side by side, the expected one on the left.

    Args:
        sides: the sequences, one or two.
        marked: the number of the first step that differs; None for one sequence.
    """

    sides: tuple[Side, ...]
    marked: int | None = None


Block: TypeAlias = Line | Section | Verdict | Facts | Table | Folded | Items | Code | Difference | Sides


@dataclass(frozen=True, slots=True)
class Document:
    """A result as every format shows it.

    Args:
        command: the command that found it.
        title: its title.
        blocks: the result in short, then a section for each part, in the order in which a reader wants them.
    """

    command: str
    title: str
    blocks: tuple[Block, ...]


def part(
    title: str,
    heads: tuple[str, ...],
    rows: Iterable[Row],
    *,
    marked: Iterable[int] = (),
    most: int | None = None,
) -> tuple[Section, ...]:
    """Return a section with a table, or None if the table has no rows.

    Args:
        title: a description of its rows.
        heads: the titles of the columns.
        rows: the cells of each row.
        marked: the numbers of the rows that ask for attention.
        most: the number of rows in text and on a terminal, except with --all.
    """
    found = tuple(rows)
    table = Table("", heads, found, frozenset(marked), most)
    return (Section(f"{title} ({len(found):,})", (table,)),) if found else ()
