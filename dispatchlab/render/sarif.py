"""Findings as SARIF 2.1.0, which code-scanning services and editors read.

Format: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from dispatchlab import __version__
from dispatchlab.lint.finding import Finding, LintReport
from dispatchlab.lint.rule import Rule
from dispatchlab.lint.rules import RULES

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_PLACE = re.compile(r"(?:registered at )?(?P<path>[^\s:][^:\n]*\.\w+):(?P<line>[1-9]\d*)")
_INDEX = {rule.code: at for at, rule in enumerate(RULES)}


def sarif(reports: Sequence[LintReport]) -> str:
    """One run for each source, with every rule and where each finding comes from, as far as its debug text tells."""
    value = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [_run(report) for report in reports]}
    return f"{json.dumps(value, indent=1)}\n"


def _run(report: LintReport) -> dict[str, object]:
    driver = {"name": "dispatchlab", "version": __version__, "rules": [_rule(rule) for rule in RULES]}
    return {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"dispatchlab/{report.source}"},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding) for finding in report.findings],
    }


def _rule(rule: Rule) -> dict[str, object]:
    return {
        "id": rule.code,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": rule.what},
        "fullDescription": {"text": rule.why},
        "help": {"text": rule.mend, "markdown": rule.page()},
        "defaultConfiguration": {"level": "warning"},
    }


def _result(finding: Finding) -> dict[str, object]:
    key = "" if finding.key is None else f" {finding.key}"
    location: dict[str, object] = {
        "logicalLocations": [{"fullyQualifiedName": f"{finding.operator}{key}", "kind": "function"}]
    }
    places = [place for debug in finding.owners if (place := _place(debug)) is not None]
    if places:
        location["physicalLocation"] = places[0]
    result: dict[str, object] = {
        "ruleId": finding.code,
        "ruleIndex": _INDEX[finding.code],
        "level": "warning",
        "message": {"text": f"{finding.operator}{key}: {finding.message}"},
        "locations": [location],
        "partialFingerprints": {"dispatchlab/v1": "/".join(finding.identity)},
    }
    if places[1:]:
        result["relatedLocations"] = [
            {"id": number, "physicalLocation": place} for number, place in enumerate(places[1:], 1)
        ]
    return result


def _place(debug: str) -> dict[str, object] | None:
    found = _PLACE.fullmatch(debug)
    if found is None:
        return None
    uri = found["path"].replace("\\", "/").replace(" ", "%20")
    return {
        "artifactLocation": {"uri": f"file://{uri}" if uri.startswith("/") else uri},
        "region": {"startLine": int(found["line"])},
    }
