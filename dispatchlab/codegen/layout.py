"""Lines of Python as a formatter would leave them: at most 120 characters, calls and lists broken one item a line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

WIDTH = 120
INDENT = "    "


def bracketed(
    head: str, items: Sequence[str], tail: str, *, indent: int = 0, loose: bool = False, single: bool = False
) -> Iterator[str]:
    """`head item, item tail` on one line, or the items on one line of their own, or one a line.

    Args:
        head: up to and with the opening bracket.
        items: what stands between commas.
        tail: the closing bracket and what follows.
        indent: how deep the line is.
        loose: the brackets are those of a tuple, which keeps a comma behind its only item.
        single: the brackets hold one item and never get a comma.
    """
    start = INDENT * indent
    comma = "," if loose and len(items) == 1 else ""
    line = f"{start}{head}{', '.join(items)}{comma}{tail}"
    if len(line) <= WIDTH:
        yield line
        return
    yield f"{start}{head}"
    inner = f"{start}{INDENT}{', '.join(items)}{comma}"
    if len(inner) <= WIDTH or single:
        yield inner
    else:
        for item in items:
            yield f"{start}{INDENT}{item},"
    yield f"{start}{tail}"


def indented(lines: Iterable[str], depth: int = 1) -> Iterator[str]:
    """The lines, `depth` steps further in."""
    for line in lines:
        yield f"{INDENT * depth}{line}" if line else ""


def long_text(text: str, *, indent: int, tail: str = "") -> Iterator[str]:
    """The text as a literal, or as several that Python puts together where it is too long for a line."""
    room = WIDTH - len(INDENT) * indent - 2
    pieces = []
    if len(text_literal(text)) + len(INDENT) * indent + len(tail) <= WIDTH:
        pieces, text = [text], ""
    while text:
        end = len(text) if len(text) <= room - len(tail) else text.rfind(" ", 0, room) + 1 or room
        pieces.append(text[:end])
        text = text[end:]
    for piece in pieces:
        yield f"{INDENT * indent}{text_literal(piece)}{tail if piece is pieces[-1] else ''}"


def text_literal(text: str) -> str:
    """The text as a Python literal, in double quotes unless it has some itself."""
    quoted = repr(text)
    if quoted.startswith('"') or '"' in text:
        return quoted
    return f'"{quoted[1:-1]}"'
