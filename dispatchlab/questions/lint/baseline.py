"""Baselines: the findings that a project has accepted for now, in a file that a review can read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict

from dispatchlab.files import FileKind, load_rows, rows_text
from dispatchlab.questions.lint.rule import Finding, Identity, LintReport

VERSION = 2


def load_baseline(path: str) -> frozenset[Identity]:
    """The identities of the findings that a file accepts.

    Raises:
        BaselineError: it cannot be read, or is none.
        OtherFileError: it is another file of dispatchlab.
    """
    write, again = "write it with --write-baseline", "write it again with --write-baseline"
    return load_rows(path, FileKind.BASELINE, VERSION, "findings", _identity, write=write, again=again)


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
    return rows_text(VERSION, "findings", [asdict(identity) for identity in identities])
