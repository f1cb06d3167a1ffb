"""The long tests of tests/test_sarif.py, which the quick tier leaves out."""

from __future__ import annotations

from tests.json_schema import errors
from tests.test_sarif import CODES, SCENARIOS, report_of, schema


def test_what_is_printed_is_valid_by_the_schema() -> None:
    sources = sorted(SCENARIOS.glob("*_found.yaml"))
    value = report_of(*sources)
    assert errors(value, schema()) == []
    results = [result for run in value["runs"] for result in run["results"]]
    assert {result["ruleId"] for result in results} == {*CODES} - {"DL007"}
    assert {result["level"] for result in results} == {"error", "warning", "note"}
    assert all("physicalLocation" in result["locations"][0] for result in results)
