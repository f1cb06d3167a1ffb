"""The console that every view for a terminal is drawn on.

Texts of a user go through `plain`: a claim cannot colour the terminal or move its cursor, and `[red]` is just text.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from dispatchlab.escape import printable


class _PlainTextConsole(Console):
    """A console that spells out control characters in texts, but not its own."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Return the segments of a drawing."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield segment._replace(text=printable(segment.text))


def console(stream: TextIO, *, color: bool = True, forced: bool = False) -> Console:
    """Return a console on a stream; without a terminal it has no colours and no box characters.

    Args:
        stream: the stream for the output.
        color: whether it may colour.
        forced: treat the stream as a terminal.
    """
    made = _PlainTextConsole(
        file=stream,
        force_terminal=forced or stream.isatty(),
        color_system="standard" if forced and not stream.isatty() else "auto",
        no_color=not color,
        highlight=False,
        emoji=False,
        markup=False,
    )
    if made.is_dumb_terminal:  # rich takes every such terminal for one of 80 columns
        made.width, made.height = shutil.get_terminal_size()
    return made


def plain(text: str, style: str = "") -> Text:
    """Return a user's text with control characters spelled out."""
    return Text(printable(text), style=style)
