"""The output of values in notebooks: a fragment with its own styles, for light and dark pages, without scripts."""

from __future__ import annotations

from collections.abc import Iterable

from dispatchlab.views.blocks import Block, Section
from dispatchlab.views.html.backend import html_of
from dispatchlab.views.html.elements import element, trusted

_MOST_ROWS = 20
_STYLE = """\
.dispatchlab { font-size: 0.95em; line-height: 1.45 }
.dispatchlab table { border-collapse: collapse; margin: 0.5em 0; font-size: 0.95em }
.dispatchlab caption { text-align: left; opacity: 0.85; padding: 0.2em 0 }
.dispatchlab th, .dispatchlab td { text-align: left; vertical-align: top; padding: 0.2em 1em 0.2em 0.3em;
  border-bottom: 1px solid rgba(128, 128, 128, 0.35); background: none }
.dispatchlab tbody th { font-weight: normal }
.dispatchlab .name, .dispatchlab .code, .dispatchlab code { font-family: monospace; background: none }
.dispatchlab .number { text-align: right }
.dispatchlab .verdict { font-weight: bold; border: 2px solid currentColor; border-radius: 0.4em; padding: 0 0.5em }
.dispatchlab ol { margin: 0.3em 0; padding-left: 2.2em }
.dispatchlab details { margin: 0.3em 0 }
.dispatchlab dl div { display: flex; flex-direction: row-reverse; justify-content: flex-end; gap: 0.6em }
.dispatchlab .sides { display: flex; flex-wrap: wrap; gap: 0 2em }
.dispatchlab dd { margin: 0; min-width: 3em }
"""


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
