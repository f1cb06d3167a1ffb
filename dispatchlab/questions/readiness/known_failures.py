"""A baseline of readiness: the cells that are known to fail, in a file that a review can read."""

from __future__ import annotations

from collections.abc import Collection

from dispatchlab.files.baseline import load_rows, rows_text
from dispatchlab.files.file_kinds import FileKind
from dispatchlab.questions.readiness.operator_readiness import Answer, Aspect, Failure, Readiness

VERSION = 1


def load_known_failures(path: str) -> frozenset[Failure]:
    """The failures that a file accepts.

    Raises:
        BaselineError: it cannot be read, or is none.
        OtherFileError: it is another file of dispatchlab.
    """
    write = f"write it with: dispatchlab readiness PACKAGE --write-baseline {path}"

    def failure(row: object) -> Failure:
        if isinstance(row, dict):
            operator, column = row.get("operator"), row.get("column")
            if isinstance(operator, str) and column in tuple(Aspect):
                return operator, Aspect(column)
        raise ValueError(f"expected an operator and a column but found {row!r:.80}; {write}")

    return load_rows(path, FileKind.KNOWN_FAILURES, VERSION, "failures", failure, write=write, again=write)


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
        {"operator": operator, "column": column, "reason": now.get((operator, column), "not judged")}
        for operator, column in sorted(failures)
    ]
    return rows_text(VERSION, "failures", rows)
