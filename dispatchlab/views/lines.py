"""Lines for a terminal: words and paths that are never broken, indents that hang, source locations as links.

rich wraps lines by itself, in the middle of a path where it must. Everything that a view shows is put into lines here
instead. See Note [What may be broken].
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment, Segments
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
    """Prints lines on a console, when it is flushed.

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
        self._printed: list[Text] = []
        self.width = min(console.width, _WIDEST)

    def blank(self) -> None:
        """Print an empty line."""
        self._print(Text())

    def bar(self, share: float, width: int) -> str:
        """A bar as long as its share of a width."""
        drawn = self._console.is_terminal and not self._ascii
        return ("\N{BOX DRAWINGS HEAVY HORIZONTAL}" if drawn else "#") * round(share * width)

    def _print(self, line: Text) -> None:
        if self._ascii:
            line.plain = line.plain.replace(ELLIPSIS, "~")  # as long, so that nothing moves
        self._printed.append(line)

    def flush(self) -> None:
        """Write what was printed so far: all of it at once, as a console takes long for a line."""
        if self._console.color_system is None:
            segments = [Segment("".join(f"{line.plain}\n" for line in self._printed))]
        else:
            segments = [segment for line in self._printed for segment in line.render(self._console, end="\n")]
        self._console.print(Segments(segments), soft_wrap=True, end="")
        self._printed = []

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
        made = [_Line(Text(" " * indent) if first is None else first)]
        for word in content:
            shown = word
            if not made[-1].fits(shown, most):
                if not self.whole:
                    shown = shortened(word, most - indent)
                    shown = made[-1].shortened(shown, most) if isinstance(word, _PathText) else shown
                if not (made[-1].is_blank or made[-1].fits(shown, most)):
                    made.append(_Line(Text(" " * indent)))
            made[-1].add(shown)
        return [text for line in made if (text := line.text()).plain]

    def source(self, debug: str, style: str = "") -> list[Text]:
        """The words of a debug text, its source locations short and as links."""
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
        self._plain, self._spans = "", list[Span]()
        self._width = 0
        self._put(first)

    @property
    def is_blank(self) -> bool:
        """Whether nothing stands on it."""
        return not self._plain.strip()

    def fits(self, word: Text, most: int) -> bool:
        """Whether there is room for a word."""
        return self._width + self._gap() + cell_len(word.plain) <= most

    def add(self, word: Text) -> None:
        """Add a word."""
        if self._gap():
            last = self._spans[-1] if self._spans else None
            if last is not None and last.end == len(self._plain) and last.style == word.style and not word.spans:
                self._spans[-1] = Span(last.start, last.end + 1, last.style)
            self._plain += " "
            self._width += 1
        self._put(word)

    def _put(self, word: Text) -> None:
        start = len(self._plain)
        self._plain += word.plain
        self._width += cell_len(word.plain)
        whole = [Span(0, len(word.plain), word.style)] if word.style else []
        for span in (*whole, *word.spans):
            last = self._spans[-1] if self._spans else None
            if last is not None and last.style == span.style and last.end == start + span.start:
                self._spans[-1] = Span(last.start, start + span.end, span.style)
            else:
                self._spans.append(Span(start + span.start, start + span.end, span.style))

    def shortened(self, path: Text, most: int) -> Text:
        """A path without some of its folders, where it fits on this line only so."""
        room = most - self._width - self._gap()
        least = len(path.plain.rpartition("/")[2]) + len(f"{ELLIPSIS}/")
        return shortened(path, room) if least <= room and not self.is_blank else path

    def _gap(self) -> int:
        return int(self._plain[-1:] not in ("", " "))

    def text(self) -> Text:
        """The line, neighbours of one style as one piece."""
        line = Text(self._plain, spans=self._spans)
        line.rstrip()
        return line


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
