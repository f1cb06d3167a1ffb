"""A result with all formats that it can be shown in: JSON of its value, everything else of blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from dispatchlab.views.as_json import json_text
from dispatchlab.views.blocks import Block, Page

if TYPE_CHECKING:
    from rich.console import Console

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class View(Generic[_Result]):
    """How a result is shown. See views/blocks.py.

    Args:
        value: the result.
        lines: makes the blocks of plain text.
        screen: makes those of a terminal; the same when left out.
        page: makes those of HTML and Markdown; when left out there is no HTML, and Markdown is what a terminal shows.
        indent: how far the fields of its JSON are indented; None for one line.
        torch: the version of the PyTorch that source locations are of; empty when that is not known.
        whole: shorten nothing on a terminal.
        width: where lines of plain text are wrapped; None for nowhere.
    """

    value: _Result
    lines: Callable[[_Result], Iterable[Block]]
    screen: Callable[[_Result], Iterable[Block]] | None = None
    page: Callable[[_Result], Page] | None = None
    indent: int | None = None
    torch: str = ""
    whole: bool = False
    width: int | None = None

    def text(self) -> str:
        """The result as plain text."""
        from dispatchlab.views.text import text_of

        return text_of(self.lines(self.value), width=self.width)

    def json(self) -> str:
        """The result as JSON."""
        return json_text(self.value, indent=self.indent)

    def draw(self, console: Console) -> None:
        """Print the result on a terminal."""
        from dispatchlab.views.terminal import draw

        draw(console, self._screen(), torch=self.torch, whole=self.whole)

    def markdown(self) -> str:
        """The result as Markdown, for a pull request."""
        from dispatchlab.views.markdown import markdown_of, markdown_page

        return markdown_of(self._screen()) if self.page is None else markdown_page(self.page(self.value))

    def html(self) -> str:
        """The result as a document of its own."""
        from dispatchlab.views.html.backend import html_page

        assert self.page is not None
        return html_page(self.page(self.value))

    def _screen(self) -> Iterable[Block]:
        return (self.screen or self.lines)(self.value)
