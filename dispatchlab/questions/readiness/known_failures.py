"""A baseline of readiness: the cells that are known to fail, in a file that a review can read."""

from __future__ import annotations

from collections.abc import Collection

from dispatchlab.errors import DispatchLabError
from dispatchlab.escape import json_document
from dispatchlab.files.bounded_read import ReadError, json_value, read_file
from dispatchlab.files.file_kinds import FileKind, OtherFileError, content_of
from dispatchlab.questions.readiness.operator_readiness import Answer, Aspect, Failure, Readiness

VERSION = 1
_MAX_BYTES = 16 * 2**20


class KnownFailuresError(DispatchLabError):
    """A file is no baseline of readiness."""

    path: str
    reason: str

    template = "{path}: {reason}; write it with: dispatchlab readiness PACKAGE --write-baseline {path}"


def load_known_failures(path: str) -> frozenset[Failure]:
    """The failures that a file accepts.

    Raises:
        KnownFailuresError: it cannot be read, or is none.
        OtherFileError: it is another file of dispatchlab.
    """
    found = content_of(path)
    if found is not None and found.kind is not FileKind.KNOWN_FAILURES:
        raise OtherFileError(path, found, (FileKind.KNOWN_FAILURES,))
    try:
        value = json_value(read_file(path, limit=_MAX_BYTES, what="baselines"), path)
    except OSError as error:
        raise KnownFailuresError(path, f"it cannot be read: {error.strerror or error}") from None
    except ReadError as error:
        raise KnownFailuresError(path, error.reason) from None
    if not isinstance(value, dict) or value.get("version") != VERSION or not isinstance(value.get("failures"), list):
        raise KnownFailuresError(path, f"expected version {VERSION} and a list of failures")
    return frozenset(_failure(path, row) for row in value["failures"])


def _failure(path: str, row: object) -> Failure:
    if isinstance(row, dict):
        operator, column = row.get("operator"), row.get("column")
        if isinstance(operator, str) and column in tuple(Aspect):
            return operator, Aspect(column)
    raise KnownFailuresError(path, f"expected an operator and a column but found {row!r:.80}")


def known_failures_text(found: Readiness, known: Collection[Failure] = ()) -> str:
    """The file that accepts what fails now: a line for each, sorted.

    Known failures of operators and columns that are not judged this time are kept.

    Args:
        found: what was judged.
        known: the failures of an older file.
    """
    now = {
        (row.operator, cell.aspect): cell.reason for row in found.rows for cell in row.cells if cell.answer is Answer.NO
    }
    judged = {
        (row.operator, cell.aspect) for row in found.rows for cell in row.cells if cell.answer is not Answer.UNKNOWN
    }
    failures = {one for one in now if one[1] in found.required} | {
        one for one in known if one not in judged or one in now
    }
    rows = [
        json_document({"operator": operator, "column": column, "reason": now.get((operator, column), "not judged")})
        for operator, column in sorted(failures)
    ]
    return (
        f'{{"version": {VERSION}, "failures": ['
        + "".join(f"\n  {row}{',' * (at < len(rows) - 1)}" for at, row in enumerate(rows))
        + "\n]}\n"
    )
