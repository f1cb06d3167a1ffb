"""Lines for a terminal: words and paths that are never broken, indents that hang, source locations as links.

rich wraps lines by itself, in the middle of a path where it must. Everything that a view shows is put into lines here
instead. See Note [What may be broken].
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.box import ROUNDED
from rich.cells import cell_len
from rich.console import Console, Group
from rich.panel import Panel
from rich.style import Style
from rich.text import Span, Text

from dispatchlab.escape import printable
from dispatchlab.views.source_locations import ELLIPSIS, Located, fitted, link_of, located
from dispatchlab.views.styles import QUIET, TITLE

_WIDEST = 160

# Note [What may be broken]
# ~~~~~~~~~~~~~~~~~~~~~~~~~
# A word is what stands between blanks: a key, a path with its line, a type with its argument. Lines end between words
# alone. A word that is longer than a line is shortened with `…`, a path by its folders first. With `whole`, as `--all`
# asks for, it is printed as it is, on a line of its own, and the terminal wraps it, so that it can still be copied.


class Page:
    """Prints lines on a console.

    Args:
        console: where to.
        torch: the version of the PyTorch whose source locations are shown, for links; empty when that is not known.
        whole: shorten nothing.
    """

    def __init__(self, console: Console, *, torch: str = "", whole: bool = False) -> None:
        self._console = console
        self._torch = torch
        self._links = console.is_terminal and console.file.isatty()
        self._ascii = console.options.ascii_only
        self.whole = whole
        self._frame: list[Text] | None = None
        self.width = min(console.width, _WIDEST)

    def blank(self) -> None:
        """Print an empty line."""
        self._print(Text())

    def bar(self, share: float, width: int) -> str:
        """A bar as long as its share of a width."""
        drawn = self._console.is_terminal and not self._ascii
        return ("\N{BOX DRAWINGS HEAVY HORIZONTAL}" if drawn else "#") * round(share * width)

    def exact(self, line: Text) -> None:
        """Print a line as it is."""
        self._print(line)

    @contextmanager
    def framed(self, style: str) -> Iterator[None]:
        """Draw a frame around what is printed inside; on a pipe there is none.

        Args:
            style: the colour of the frame.
        """
        if not self._console.is_terminal:
            yield
            return
        before, self.width, self._frame = self.width, self.width - 4, list[Text]()
        try:
            yield
        finally:
            lines, self.width, self._frame = self._frame, before, None
            frame = Panel(Group(*lines), border_style=style, box=ROUNDED, width=before)
            self._console.print(frame)

    def _print(self, line: Text) -> None:
        if self._ascii:
            line.plain = line.plain.replace(ELLIPSIS, "~")  # as long, so that nothing moves
        if self._frame is None:
            self._console.print(line, soft_wrap=True)
        else:
            self._frame.append(line)

    def title(self, text: str, style: str = TITLE) -> None:
        """Print the title of a part, an empty line before it."""
        self.blank()
        self.flow([Text(word, style) for word in printable(text).split()])

    def flow(self, content: Iterable[Text], *, indent: int = 0, first: Text | None = None) -> None:
        """Print words in lines, broken between words alone.

        Args:
            content: the words.
            indent: where lines begin.
            first: what stands before the words of the first line, in place of the indent.
        """
        for line in self.lines(content, indent=indent, first=first):
            self._print(line)

    def lines(
        self, content: Iterable[Text], *, indent: int = 0, first: Text | None = None, width: int | None = None
    ) -> list[Text]:
        """The lines that `flow` prints.

        Args:
            content: the words.
            indent: where lines begin.
            first: what stands before the words of the first line, in place of the indent.
            width: how wide they may be; as wide as the page when left out.
        """
        most = self.width if width is None else width
        indent = min(indent, max(most - 24, 2)) if indent >= most // 2 else indent
        made = [_Line(Text().append_text(Text(" " * indent) if first is None else first))]
        for word in content:
            shown = word if self.whole else shortened(word, most - indent)
            if isinstance(word, _PathText) and not self.whole:
                shown = made[-1].shortened(shown, most)
            if not made[-1].has_room(shown, most):
                made.append(_Line(Text(" " * indent)))
            made[-1].add(shown)
        return [text for line in made if (text := line.text()).plain]

    def source(self, debug: str, style: str = "") -> list[Text]:
        """The words of a debug text, its source locations short and as links.

        Args:
            debug: the debug text.
            style: the style of its words.
        """
        if not debug.strip():
            return [Text(word, QUIET) for word in ("(no", "debug", "text)")]
        return [self._source_word(piece, style) for piece in located(printable(debug))]

    def words(self, text: str, style: str = "") -> list[Text]:
        """The words of a sentence, those that are source locations short and as links.

        Args:
            text: the sentence, of a user or about one.
            style: the style of its words.
        """
        return [self._sentence_word(word, style) for word in _AT_A_PATH.sub("", printable(text)).split()]

    def _sentence_word(self, word: str, style: str) -> Text:
        core = word.strip(_AROUND)
        (piece, *more) = located(core) or (Located(core),)
        if more or not piece.path:
            return Text(word, style)
        before, after = word[: word.index(core)], word[word.index(core) + len(core) :]
        shown = self._source_word(piece, style)
        if not before + after:
            return shown
        return _PathText(before + shown.plain + after, shown.style)

    def _source_word(self, piece: Located, style: str) -> Text:
        address = link_of(piece, self._torch) if self._links else ""
        drawn = Style.parse(style)
        kind = _PathText if piece.path else Text
        return kind(piece.text, drawn + Style(link=address) if address else drawn)


class _PathText(Text):
    """A path, which gives up folders where it would not stand on a line."""


class _Line:
    """A line while it is filled. Words of one style are one piece, so that a terminal is given few colours."""

    def __init__(self, first: Text) -> None:
        self._line = first
        self._style: str | Style | None = None  # of the last piece; None where a word begins a piece

    def has_room(self, word: Text, most: int) -> bool:
        """Whether a word fits; where nothing stands there is always room."""
        plain = self._line.plain
        return not plain.strip() or cell_len(plain) + self._gap() + cell_len(word.plain) <= most

    def add(self, word: Text) -> None:
        """Add a word."""
        if self._gap():
            same = not word.spans and self._style == word.style
            self._line.append(" ", self._style if same else None)
        self._line.append_text(word) if word.spans else self._line.append(word.plain, word.style)
        self._style = None if word.spans else word.style

    def shortened(self, path: Text, most: int) -> Text:
        """A path without some of its folders, where it fits on this line only so."""
        room = most - cell_len(self._line.plain) - self._gap()
        least = len(path.plain.rpartition("/")[2]) + len(f"{ELLIPSIS}/")
        return shortened(path, room) if least <= room and self._line.plain.strip() else path

    def _gap(self) -> int:
        return int(bool(self._line.plain) and not self._line.plain.endswith(" "))

    def text(self) -> Text:
        """The line, neighbours of one style as one piece."""
        self._line.rstrip()
        joined: list[Span] = []
        for span in self._line.spans:
            if joined and joined[-1].style == span.style and joined[-1].end == span.start:
                joined[-1] = Span(joined[-1].start, span.end, span.style)
            else:
                joined.append(span)
        self._line.spans = joined
        return self._line


def shortened(word: Text, width: int) -> Text:
    """A word in at most `width` characters, its brackets and commas kept. See Note [What may be broken]."""
    if cell_len(word.plain) <= width:
        return word
    core = word.plain.strip(_AROUND)
    before, after = word.plain.split(core, 1) if core else (word.plain, "")
    short = Text(f"{before}{fitted(core, width - len(before) - len(after))}{after}", word.style)
    for span in word.spans:
        short.stylize(span.style)
    return short


_AROUND = "()[],;:"
_AT_A_PATH = re.compile(r"\bregistered at (?=\S*[^\s:]+\.\w+:[0-9])")
