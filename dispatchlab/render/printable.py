"""Texts of a user in a form that cannot move a cursor, colour a terminal or break a file."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with every control character but the line feed spelled out: `\\x1b[31m`."""
    return "".join(c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)
