"""A result in all its formats: JSON is made from its value, all other formats from one document of blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from dispatchlab.views.as_json import json_text
from dispatchlab.views.blocks import Block, Document, Line, Span, Verdict, strong

if TYPE_CHECKING:
    from rich.console import Console

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class View(Generic[_Result]):
    """The way to show a result. See views/blocks.py.

    Args:
        value: the result.
        lines: makes the blocks of plain text if this text is a contract; default: text shows the document.
        document: makes the document; without it there is no HTML, and other formats show the lines.
        indent: the indentation of the fields in JSON; None for one line.
        torch: the version of the PyTorch that source locations are of; empty when that is not known.
        whole: shorten nothing.
    """

    value: _Result
    lines: Callable[[_Result], Iterable[Block]] | None = None
    document: Callable[[_Result], Document] | None = None
    indent: int | None = None
    torch: str = ""
    whole: bool = False

    def text(self) -> str:
        """Write the result as plain text."""
        from dispatchlab.views.text import text_of

        return text_of(self._blocks() if self.lines is None else self.lines(self.value), whole=self.whole)

    def json(self) -> str:
        """Write the result as JSON."""
        return json_text(self.value, indent=self.indent)

    def draw(self, console: Console) -> None:
        """Print the result on a terminal."""
        from dispatchlab.views.terminal import draw

        draw(console, self._blocks(), torch=self.torch, whole=self.whole)

    def markdown(self) -> str:
        """Write the result as Markdown, for a pull request."""
        from dispatchlab.views.markdown import markdown_document, markdown_of

        return markdown_of(self._blocks()) if self.document is None else markdown_document(self.document(self.value))

    def html(self) -> str:
        """Write the result as an HTML page."""
        from dispatchlab.views.html.backend import html_page

        assert self.document is not None
        return html_page(self.document(self.value))

    def notebook(self) -> str:
        """Write the result as a fragment that a notebook shows."""
        from dispatchlab.views.html.notebook import notebook_html

        if self.document is None:
            return notebook_html("", self._blocks())
        document = self.document(self.value)
        return notebook_html(document.title, document.blocks)

    def _blocks(self) -> tuple[Block, ...]:
        """Return the document with its title and the verdict on the same line; without a title, the lines."""
        if self.document is None:
            assert self.lines is not None
            return tuple(self.lines(self.value))
        document = self.document(self.value)
        match document.blocks:
            case (Verdict(text, mood, beside), *others):
                return (Line((strong(document.title), ": ", Span(text, mood), beside)), *others)
            case blocks:
                return (Line(document.title, "strong"), *blocks) if document.title else blocks
