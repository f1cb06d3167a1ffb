"""The frames of a call for a terminal, coloured by what they are part of."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.text import Text

from dispatchlab.analysis.walk_calls import Walk
from dispatchlab.codegen.cpp_frames import Layer
from dispatchlab.render.page import Page
from dispatchlab.render.styles import AUTOGRAD, COMPOSITE, FALLBACK, KERNEL, QUIET, TITLE, WARNING
from dispatchlab.render.walk import ending, heading, place

_STYLES: Mapping[Layer, str] = {
    Layer.BINDING: TITLE,
    Layer.API: TITLE,
    Layer.DISPATCHER: QUIET,
    Layer.AUTOGRAD: AUTOGRAD,
    Layer.VIEWS_AND_WRITES: AUTOGRAD,
    Layer.BACKEND_SELECT: COMPOSITE,
    Layer.TRACER: AUTOGRAD,
    Layer.FUNCTIONALIZE: COMPOSITE,
    Layer.OTHER: FALLBACK,
}


def print_walk(console: Console, walk: Walk) -> None:
    """Print a line for each frame, the innermost first; those that the compiler inlines are dim."""
    page = Page(console)
    first, *rest = heading(walk)
    page.line(first, TITLE)
    for more in rest:
        page.line(more, QUIET)
    page.blank()
    numbers = len(str(len(walk.frames)))
    layers = max((len(str(frame.layer)) for frame in walk.frames), default=0)
    for number, frame in walk.numbered:
        style = QUIET if frame.inlined else _STYLES.get(frame.layer, KERNEL)
        line = Text(f"#{number:<{numbers}}  ", QUIET)
        line.append(f"{frame.layer!s:<{layers}}  ", style)
        line.append(frame.function, style)
        line.append(f"{' [inlined]' if frame.inlined else ''}  {place(frame)}", QUIET)
        page.exact(line)
    page.blank()
    page.line(ending(walk), "italic" if walk.explained.explanation.known else WARNING)
