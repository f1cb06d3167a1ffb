"""SARIF of lint: valid by the schema, with paths that a forge finds in the checkout, and stable when lines move.

`data/sarif-2.1.0-rtm.5.json.gz` is the JSON Schema of SARIF 2.1.0 as the npm package @microsoft/jest-sarif ships it
(Microsoft, MIT licence).
"""

from __future__ import annotations

import gzip
import json
import re
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from dispatchlab.questions.check.selection import selected
from dispatchlab.questions.lint.checkout import Checkout, checkout_of
from dispatchlab.questions.lint.rules import RULES
from dispatchlab.questions.lint.run import lint_source
from dispatchlab.questions.lint.sarif import sarif
from tests.command_line import run
from tests.json_schema import errors

ROOT = Path(__file__).parent.parent
SCENARIOS = ROOT / "scenarios" / "lint"
CODES = [rule.code for rule in RULES]

NAMES = """claim: x
registrations:
  - def: f(Tensor x) -> Tensor
    debug: my_package/ops.py:1
  - impl: f
    dispatch: CPU
    debug: registered at {path}:7{via}
"""


@cache
def schema() -> dict[str, Any]:
    path = Path(__file__).parent / "data" / "sarif-2.1.0-rtm.5.json.gz"
    found = json.loads(gzip.decompress(path.read_bytes()))
    assert isinstance(found, dict)
    return found


def report_of(
    *sources: Path | str, root: Path = ROOT, select: tuple[str, ...] = (), imports: tuple[str, ...] = ()
) -> Any:
    reports = [lint_source(str(source), selected(select)) for source in sources]
    return json.loads(sarif(reports, Checkout(root), imports=imports))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda run: run["results"][0].update(level="information"), "'information' is none of"),
        (lambda run: run["results"][0].pop("message"), "message is missing"),
        (lambda run: run.update(other=1), "other is not allowed"),
        (lambda run: run["tool"]["driver"].update(rules=[{}]), "id is missing"),
        (lambda run: run["originalUriBaseIds"]["%SRCROOT%"].update(uri="a b"), "is no uri"),
    ],
)
def test_what_is_not_sarif_is_not_valid(change: Any, error: str) -> None:
    value = report_of(SCENARIOS / "dl001_found.yaml")
    change(value["runs"][0])
    assert any(error in one for one in errors(value, schema()))


def test_rules_have_help_a_level_and_what_they_cannot_know() -> None:
    (run,) = report_of(SCENARIOS / "dl002_found.yaml")["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == CODES
    for rule, ours in zip(rules, RULES, strict=True):
        assert re.fullmatch("[A-Z][A-Za-z]+", rule["name"])
        assert rule["help"]["text"] == f"{ours.fix}\n\nWhat it cannot know: {ours.unknown}"
        assert rule["help"]["markdown"] == ours.page
    levels = {rule["id"]: rule["defaultConfiguration"]["level"] for rule in rules}
    assert (levels["DL007"], levels["DL006"], levels["DL010"]) == ("error", "warning", "note")
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]


@pytest.mark.parametrize("folder", ["", "src", "python", "packages/core/src"])
@pytest.mark.parametrize("installed", ["my_package/ops.py", "/opt/site-packages/my_package/ops.py"])
def test_paths_are_those_of_the_files_in_the_checkout(tmp_path: Path, folder: str, installed: str) -> None:
    (tmp_path / ".git").mkdir()
    file = tmp_path / folder / "my_package" / "ops.py"
    file.parent.mkdir(parents=True)
    file.write_text("")
    (tmp_path / "other_package").mkdir()
    (tmp_path / "other_package" / "ops.py").write_text("")
    source = tmp_path / "record.yaml"
    source.write_text(NAMES.format(path=installed, via=""))
    (run,) = report_of(source, root=checkout_of(file.parent).root, select=("DL006",))["runs"]
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert place["region"] == {"startLine": 7}
    assert place["artifactLocation"]["uriBaseId"] == "%SRCROOT%"
    root = run["originalUriBaseIds"]["%SRCROOT%"]["uri"]
    assert root == f"{tmp_path.resolve().as_uri()}/"
    found = Path(unquote(root.removeprefix("file://"))) / unquote(place["artifactLocation"]["uri"])
    assert found.resolve() == file.resolve()


def test_a_path_that_several_files_end_in_is_not_guessed(tmp_path: Path) -> None:
    for folder in ("one/my_package", "two/my_package"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "ops.py").write_text("")
    checkout = Checkout(tmp_path)
    assert checkout.find("my_package/ops.py") is None
    assert checkout.find("/build/one/my_package/ops.py") == "one/my_package/ops.py"
    assert checkout.find("elsewhere/ops.py") is None
    assert checkout.find(str(tmp_path / "two" / "my_package" / "ops.py")) == "two/my_package/ops.py"


def test_files_of_builds_and_environments_are_not_those_of_the_checkout(tmp_path: Path) -> None:
    for folder in ("build/lib/my_package", ".venv/my_package", "env/lib/my_package"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "ops.py").write_text("")
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    assert Checkout(tmp_path).find("my_package/ops.py") is None


def test_a_file_of_another_package_is_relative_to_where_packages_are(tmp_path: Path) -> None:
    source = tmp_path / "record.yaml"
    source.write_text(NAMES.format(path="their package/ops.py", via=""))
    (run,) = report_of(source, root=tmp_path, select=("DL006",))["runs"]
    place = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place == {"uri": "their%20package/ops.py", "uriBaseId": "PACKAGES"}
    assert "PACKAGES" in run["originalUriBaseIds"]


def test_a_finding_that_names_no_file_is_placed_in_what_was_linted(tmp_path: Path) -> None:
    source = tmp_path / "record.yaml"
    text = NAMES.format(path="x", via="").replace("registered at x:7", "fn")
    source.write_text(text)
    (run,) = report_of(source, root=tmp_path, select=("DL006",))["runs"]
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert place == {
        "artifactLocation": {"uri": "record.yaml", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 1},
    }
    elsewhere = tmp_path / "checkout"
    (elsewhere / "src" / "my_package").mkdir(parents=True)
    (elsewhere / "src" / "my_package" / "__init__.py").write_text("")
    (run,) = report_of(source, root=elsewhere, select=("DL006",), imports=("my_package",))["runs"]
    place = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place["uri"] == "src/my_package/__init__.py"


def test_the_callers_of_a_helper_are_related_locations(tmp_path: Path) -> None:
    source = tmp_path / "record.yaml"
    source.write_text(NAMES.format(path="my_package/ops.py", via=" via my_package/helper.py:250"))
    (run,) = report_of(source, root=tmp_path, select=("DL006",))["runs"]
    (result,) = run["results"]
    assert result["locations"][0]["physicalLocation"]["region"] == {"startLine": 7}
    assert [one["physicalLocation"]["region"]["startLine"] for one in result["relatedLocations"]] == [250]


def test_registrations_of_one_line_are_one_result(tmp_path: Path) -> None:
    source = tmp_path / "record.yaml"
    lines = [
        f"  - def: f{n}(Tensor x) -> Tensor\n  - impl: f{n}\n    dispatch: CPU\n    debug: my_package/ops.py:7\n"
        for n in range(59)
    ]
    source.write_text(f"claim: x\nregistrations:\n{''.join(lines)}")
    (run,) = report_of(source, root=tmp_path, select=("DL006",))["runs"]
    (result,) = run["results"]
    assert "The same line does so to test::f1, test::f10, " in result["message"]["text"]
    assert " and 53 more" in result["message"]["text"]
    assert len(result["locations"][0]["logicalLocations"]) == 59


def test_fingerprints_stay_when_lines_and_build_folders_move(tmp_path: Path) -> None:
    source, prints = tmp_path / "record.yaml", []
    for path in ("/build/1/my_package/ops.cpp:7", "/build/2/my_package/ops.cpp:70", "/build/2/my_package/other.cpp:70"):
        source.write_text(NAMES.format(path="x", via="").replace("x:7", path))
        (run,) = report_of(source, root=tmp_path, select=("DL006",))["runs"]
        prints.append(run["results"][0]["partialFingerprints"])
    assert prints[0] == prints[1] != prints[2]
    assert prints[0] == {"dispatchlab/v2": "DL006/test::f/CPU/my_package/ops.cpp"}


def test_the_command_takes_the_checkout_and_ends_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "src" / "my_package" / "cpu.py"
    file.parent.mkdir(parents=True)
    file.write_text("")
    source = str(SCENARIOS / "dl006_found.yaml")
    monkeypatch.chdir(tmp_path)
    result = run("check", source, "--select", "DL006", "--format", "sarif")
    assert result.exit_code == 1
    (first,) = json.loads(result.stdout)["runs"][0]["results"]
    assert first["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "src/my_package/cpu.py"
