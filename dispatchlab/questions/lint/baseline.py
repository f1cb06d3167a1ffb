"""Baselines: files with the findings that a project accepts for now."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from dispatchlab.errors import DispatchLabError
from dispatchlab.escape import json_document
from dispatchlab.files import FileKind, OtherFileError, ReadError, content_of, json_value, read_file
from dispatchlab.questions.lint.rule import Identity

VERSION = 2
MAX_BYTES = 8 * 2**20
"""Larger files are refused unread; a baseline of 10,000 findings has two."""


class BaselineError(DispatchLabError):
    """A file is not a baseline.

    Args:
        path: the file.
        reason: a clause about the content and what to do.
    """

    path: str
    reason: str

    template = "{path}: {reason}"


def load_baseline(path: str) -> frozenset[Identity]:
    """Return the identities of the findings that a file accepts.

    Raises:
        BaselineError: it cannot be read, or is not a baseline.
        OtherFileError: it is another file of dispatchlab.
    """
    content = content_of(path)
    if content is not None and content.kind is not FileKind.BASELINE:
        raise OtherFileError(path, content, (FileKind.BASELINE,))
    try:
        value = json_value(read_file(path, limit=MAX_BYTES, what="baselines"), path)
        if (
            not isinstance(value, dict)
            or value.get("version") != VERSION
            or not isinstance(value.get("findings"), list)
        ):
            raise BaselineError(path, f"expected version {VERSION} and a list of findings; {_AGAIN}")
        return frozenset(map(_identity, value["findings"]))
    except OSError as error:
        raise BaselineError(path, f"it cannot be read: {error.strerror or error}; {_AGAIN}") from None
    except ReadError as error:
        where = f" on line {error.line}, column {error.column}" if error.line else ""
        raise BaselineError(path, f"{error.reason}{where}; {_AGAIN}") from None
    except ValueError as error:
        raise BaselineError(path, str(error)) from None


_AGAIN = "write it with --write-baseline"


def _identity(row: object) -> Identity:
    if isinstance(row, dict):
        texts, files = [row.get(name) for name in ("code", "operator", "key")], row.get("files")
        if isinstance(files, list) and all(isinstance(text, str) for text in (*texts, *files)):
            return Identity(str(texts[0]), str(texts[1]), str(texts[2]), tuple(files))
    raise ValueError(f"expected a code, an operator, a key and files but found {row!r:.80}")


def baseline_text(identities: Iterable[Identity]) -> str:
    """Return the text of a baseline for these findings: one line for each finding, sorted."""
    inside = ",".join(f"\n  {json_document(asdict(identity))}" for identity in sorted(identities))
    return f'{{"version": {VERSION}, "findings": [{inside}\n]}}\n'
