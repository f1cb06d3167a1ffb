"""Texts of a user on their way out: escaped for a terminal, JSON, Python source and a shell.

A file name, a debug text or an operator can contain any character. This module has one function for each destination,
and all output goes through the function of its destination.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO

_NOT_PLAIN = re.compile(r"[^\n -~]")


def printable(text: str) -> str:
    """Return the text with every control character but the line feed spelled out: `\\x1b[31m`."""
    return _NOT_PLAIN.sub(_spelled_out, text)


def one_line(text: str) -> str:
    """Return the text with line feeds spelled out, too: for a comment, which ends with its line."""
    return printable(text).replace("\n", "\\n")


def _spelled_out(found: re.Match[str]) -> str:
    character = found[0]
    return character if character.isprintable() else character.encode("unicode_escape").decode()


class _PrintableStream:
    """A text stream that spells out control characters and leaves the rest to the stream beneath."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the printable form of the text."""
        self._stream.write(printable(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write some lines."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def output_of_imports() -> Iterator[None]:
    """Send output inside of the block to standard error, with control characters spelled out."""
    stream: Any = None if sys.stderr is None else _PrintableStream(sys.stderr)
    with redirect_stdout(stream), redirect_stderr(stream):
        yield


def json_document(value: object, *, indent: int | None = None) -> str:
    """Return the value as JSON in ASCII, which is valid in every encoding and has no control character.

    Args:
        value: a value for `json.dumps`.
        indent: the indentation of fields on separate lines; None for one line.
    """
    import json  # costs start-up, and the help needs none

    return json.dumps(value, indent=indent).replace("\x7f", "\\u007f")
