"""Baselines: the findings that a project has accepted for now, in a file that a review can read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict

from dispatchlab.errors import DispatchLabError
from dispatchlab.escape import json_document
from dispatchlab.files import FileKind, OtherFileError, ReadError, content_of, json_value, read_file
from dispatchlab.questions.lint.rule import Finding, Identity, LintReport

VERSION = 2
MAX_BYTES = 8 * 2**20
"""Larger files are refused unread; a baseline of 10,000 findings has two."""


class BaselineError(DispatchLabError):
    """A file is not a baseline.

    Args:
        path: the file.
        reason: a clause that says what was found and what to do.
    """

    path: str
    reason: str

    template = "{path}: {reason}"


def load_baseline(path: str) -> frozenset[Identity]:
    """The identities of the findings that a file accepts.

    Raises:
        BaselineError: it cannot be read, or is none.
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


def renewed_baseline(reports: Sequence[LintReport], accepted: Collection[Identity]) -> tuple[str, int]:
    """The file that accepts what was found now and what is still found of an older baseline, and how many that is.

    Args:
        reports: what was found, by source.
        accepted: the identities that the older baseline accepts.
    """
    findings = [finding for report in reports for finding in report.findings]
    outdated = set.intersection(*({*report.outdated} for report in reports))
    kept = [one for one in accepted if one not in outdated]
    return baseline_text(findings, kept), len({*kept, *(one.identity for one in findings)})


def baseline_text(findings: Iterable[Finding], kept: Collection[Identity] = ()) -> str:
    """The file that accepts these findings: one to a line, sorted, the same for equal findings."""
    identities = sorted({finding.identity for finding in findings} | set(kept))
    inside = ",".join(f"\n  {json_document(asdict(identity))}" for identity in identities)
    return f'{{"version": {VERSION}, "findings": [{inside}\n]}}\n'
