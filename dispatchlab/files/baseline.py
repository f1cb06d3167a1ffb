"""Baselines: what a project accepts for now, a row of JSON each, in a file that a review can read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from dispatchlab.errors import DispatchLabError
from dispatchlab.escape import json_document
from dispatchlab.files.bounded_read import ReadError, json_value, read_file
from dispatchlab.files.file_kinds import FileKind, OtherFileError, content_of

MAX_BYTES = 8 * 2**20
"""Larger files are refused unread; a baseline of 10,000 findings has two."""

T = TypeVar("T")


class BaselineError(DispatchLabError):
    """A file is not a baseline.

    Args:
        path: the file.
        reason: a clause that says what was found and what to do.
    """

    path: str
    reason: str

    template = "{path}: {reason}"


def load_rows(
    path: str, kind: FileKind, version: int, of: str, row: Callable[[object], T], *, write: str, again: str
) -> frozenset[T]:
    """What a baseline accepts.

    Args:
        path: the file.
        kind: the kind that it has to be of.
        version: that of its format.
        of: the field with the rows.
        row: reads a row; raises ValueError with what was expected, a clause.
        write: what to do where there is no such file.
        again: what to do where it is damaged.

    Raises:
        BaselineError: it cannot be read, or is none.
        OtherFileError: it is another file of dispatchlab.
    """
    content = content_of(path)
    if content is not None and content.kind is not kind:
        raise OtherFileError(path, content, (kind,))
    try:
        value = json_value(read_file(path, limit=MAX_BYTES, what="baselines"), path)
        if not isinstance(value, dict) or value.get("version") != version or not isinstance(value.get(of), list):
            raise BaselineError(path, f"expected version {version} and a list of {of}; {again}")
        return frozenset(map(row, value[of]))
    except OSError as error:
        raise BaselineError(path, f"it cannot be read: {error.strerror or error}; {write}") from None
    except ReadError as error:
        where = f" on line {error.line}, column {error.column}" if error.line else ""
        raise BaselineError(path, f"{error.reason}{where}; {again}") from None
    except ValueError as error:
        raise BaselineError(path, str(error)) from None


def rows_text(version: int, of: str, rows: Sequence[Mapping[str, object]]) -> str:
    """The file with these rows, one a line; the same for equal rows."""
    inside = ",".join(f"\n  {json_document(row)}" for row in rows)
    return f'{{"version": {version}, "{of}": [{inside}\n]}}\n'
