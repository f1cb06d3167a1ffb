"""The output of values in notebooks: a fragment with its own styles, for light and dark pages, without scripts."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files

from dispatchlab.views.blocks import Block, Section
from dispatchlab.views.html.backend import html_of
from dispatchlab.views.html.elements import element, trusted

_MOST_ROWS = 20
_STYLE = files(__package__).joinpath("notebook.css").read_text(encoding="utf-8")


def notebook_html(title: str, blocks: Iterable[Block]) -> str:
    """Return blocks as a fragment: sections fold, with the first rows of their tables."""
    shown = tuple(blocks)
    parts = (
        element("details", element("summary", block.title), html_of(block.blocks, most=_MOST_ROWS))
        for block in shown
        if isinstance(block, Section)
    )
    lead = html_of((block for block in shown if not isinstance(block, Section)), most=_MOST_ROWS)
    style = element("style", trusted(_STYLE))
    return str(element("div", style, element("p", element("b", title)), lead, parts, class_="dispatchlab"))
