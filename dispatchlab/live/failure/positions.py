"""A line of a file of the user, with its text."""

from __future__ import annotations

import linecache
import os

from dispatchlab.model.failure import Position


def position_of(file: str, line: int, function: str) -> Position:
    """Return a position with the text of its line, and the shortest path."""
    shown = os.path.relpath(file) if os.path.isabs(file) and os.path.exists(file) else file
    shown = file if shown.startswith("..") else shown
    return Position(shown, line, function, linecache.getline(file, line).strip())
