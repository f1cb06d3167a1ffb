"""Findings of lint as SARIF 2.1.0, which forges and editors read.

Format: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

from dispatchlab._version import __version__
from dispatchlab.questions.lint.checkout import Checkout
from dispatchlab.questions.lint.rule import Finding, Kind, Level, LintReport
from dispatchlab.questions.lint.rules import RULES
from dispatchlab.registries.debug_text import is_absolute, sites_in
from dispatchlab.views.as_json import plain_json_text
from dispatchlab.views.formatting import first_of

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {Level.ERROR: "error", Level.WARNING: "warning", Level.INFORMATION: "note"}
_ROOT, _ELSEWHERE = "%SRCROOT%", "PACKAGES"
_SHOWN = 5
_RELATED = 10

# Note [Locations of findings]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# GitHub refuses a result without a physical location, and shows one whose path is not in the repository without its
# source. So a path is that of the file in the checkout, relative to %SRCROOT%, wherever there is one; the path of a
# file of another package is relative to PACKAGES, whose folder only the machine knows that ran it. A finding whose
# registrations name no file is placed in the file that was linted, in a file of the package that was imported, or
# in the one that declares the project: the first of these that the checkout has.
#
# Findings of one rule with one cause at one line are one result: 59 registrations of a loop are one annotation.


def sarif(
    reports: Sequence[LintReport],
    checkout: Checkout,
    *,
    imports: Sequence[str] = (),
    rules: Sequence[Kind] = RULES,
) -> str:
    """Return one run for each source, with every rule and each finding's origin.

    Args:
        reports: the findings by source.
        checkout: the checkout of relative paths.
        imports: the packages that were imported.
        rules: the kinds of the findings.
    """
    runs = [_run(report, checkout, imports, rules) for report in reports]
    return plain_json_text({"$schema": _SCHEMA, "version": "2.1.0", "runs": runs}, indent=1)


def _run(report: LintReport, checkout: Checkout, imports: Sequence[str], rules: Sequence[Kind]) -> dict[str, object]:
    driver = {"name": "dispatchlab", "version": __version__, "rules": [_rule(rule) for rule in rules]}
    indices = {rule.code: at for at, rule in enumerate(rules)}
    otherwise = _otherwise(report, checkout, imports)
    name = "/".join(("dispatchlab", checkout.find(report.source) or Path(report.source).name, *imports))
    return {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"{name}/"},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {
            _ROOT: {"uri": f"{checkout.root.as_uri()}/", "description": {"text": "The root of the checkout."}},
            _ELSEWHERE: {"description": {"text": "The folder in which packages are installed."}},
        },
        "results": [_result(group, otherwise, checkout, indices) for group in _by_line(report)],
    }


def _rule(rule: Kind) -> dict[str, object]:
    return {
        "id": rule.code,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": rule.what},
        "fullDescription": {"text": rule.why},
        "help": {"text": f"{rule.fix}\n\nWhat it cannot know: {rule.unknown}", "markdown": rule.page},
        "defaultConfiguration": {"level": _LEVELS[rule.level]},
    }


def _by_line(report: LintReport) -> Iterator[list[Finding]]:
    """Return the findings that become one result, the most harmful first. See Note [Locations of findings]."""
    for group in report.groups:
        ordered = sorted(group.findings, key=lambda finding: (_line(finding), finding.identity))
        for line, found in groupby(ordered, key=_line):
            together = list(found)
            yield from [together] if line else [[each] for each in together]


def _line(finding: Finding) -> tuple[tuple[str, int], ...]:
    return tuple(site for debug in finding.owners[:1] for site in sites_in(debug))[:1]


def _result(
    findings: Sequence[Finding],
    otherwise: dict[str, object] | None,
    checkout: Checkout,
    indices: Mapping[str, int],
) -> dict[str, object]:
    first = findings[0]
    about = f"{_name(first)}: " if first.operator else ""
    names = [{"fullyQualifiedName": _name(finding), "kind": "function"} for finding in findings]
    places = list(dict.fromkeys(site for finding in findings for debug in finding.owners for site in sites_in(debug)))
    physical = [_place(path, line, checkout) for path, line in places]
    location: dict[str, object] = {"logicalLocations": names}
    if physical or otherwise is not None:
        location["physicalLocation"] = physical[0] if physical else otherwise
    fix = f"\n\nTo fix it: {first.fix}" if first.fix else ""
    others = [finding.operator for finding in findings[1:]]
    more = f". The same line does so to {first_of(others, _SHOWN)}" if others else ""
    identity = first.identity  # what stays the same when lines move
    result: dict[str, object] = {
        "ruleId": first.code,
        "ruleIndex": indices[first.code],
        "level": _LEVELS[first.level],
        "message": {"text": f"{about}{first.message}{more}{fix}"},
        "locations": [location],
        "partialFingerprints": {
            "dispatchlab/v2": "/".join((identity.code, identity.operator, identity.key, *identity.files))
        },
    }
    if physical[1:]:
        result["relatedLocations"] = [
            {"id": number, "physicalLocation": place} for number, place in enumerate(physical[1 : _RELATED + 1], 1)
        ]
    return result


def _name(finding: Finding) -> str:
    return finding.operator if finding.key is None else f"{finding.operator} {finding.key}"


def _place(path: str, line: int, checkout: Checkout) -> dict[str, object]:
    found = checkout.find(path)
    if found is not None:
        return {"artifactLocation": _artifact(found), "region": {"startLine": line}}
    path = path.replace("\\", "/")
    if is_absolute(path):
        whole = path if path.startswith("/") else f"/{path}"
        return {"artifactLocation": {"uri": f"file://{quote(whole)}"}, "region": {"startLine": line}}
    return {"artifactLocation": {"uri": quote(path), "uriBaseId": _ELSEWHERE}, "region": {"startLine": line}}


def _artifact(path: str) -> dict[str, object]:
    return {"uri": quote(path), "uriBaseId": _ROOT}


def _otherwise(report: LintReport, checkout: Checkout, imports: Sequence[str]) -> dict[str, object] | None:
    """Return the location of a finding that names no file. See Note [Locations of findings]."""
    packages = [f"{'/'.join(parts)}{end}" for name in imports for parts in (name.split("."),) for end in _MODULE]
    for path in (report.source, *imports, *packages, *_PROJECT):
        found = checkout.find(path)
        if found is not None:
            return {"artifactLocation": _artifact(found), "region": {"startLine": 1}}
    return None


_MODULE = ("/__init__.py", ".py")
_PROJECT = ("pyproject.toml", "setup.py", "setup.cfg", "README.md")
