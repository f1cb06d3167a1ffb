"""Rules: each finds what its page says and leaves the near miss alone; selection, baselines, SARIF."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from dispatchlab.lint.baseline import BaselineError, load_baseline
from dispatchlab.lint.rule import LintReport, Rule
from dispatchlab.lint.rules import RULES, UnknownRuleError, selected
from dispatchlab.lint.run import lint_source
from dispatchlab.registry.file import open_bundled
from dispatchlab.render.lint import lint_text, sarif
from tests.command_line import run

ROOT = Path(__file__).parent.parent
SCENARIOS = ROOT / "scenarios" / "lint"
CODES = [rule.code for rule in RULES]


def lint(
    source: Path | str,
    *,
    select: tuple[str, ...] = (),
    against: Path | str | None = None,
    operators: tuple[str, ...] = (),
    accepted: frozenset[tuple[str, str, str]] = frozenset(),
) -> LintReport:
    return lint_source(
        str(source),
        selected(select, ()),
        operators=operators,
        against=None if against is None else str(against),
        accepted=accepted,
    )


def scenario(code: str, name: str) -> Path:
    return SCENARIOS / f"{code.lower()}_{name}.yaml"


def against(code: str) -> Path | None:
    """What a rule that compares two moments compares with."""
    return scenario(code, "not_found") if code == "DL007" else None


def test_codes_run_from_1_without_gaps() -> None:
    assert [f"DL{number:03}" for number in range(1, len(RULES) + 1)] == CODES
    assert len({rule.name for rule in RULES}) == len(RULES) == 9


@pytest.mark.parametrize("code", CODES)
def test_each_rule_finds_its_scenario_and_not_the_near_miss(code: str) -> None:
    found = lint(scenario(code, "found"), select=(code,), against=against(code))
    (finding,) = found.findings
    assert (finding.code, finding.operator.startswith("test::scale")) == (code, True)
    assert finding.owners
    near = lint(scenario(code, "not_found"), select=(code,), against=against(code))
    assert near.checked == (code,)
    assert near.findings == ()


@pytest.mark.parametrize("rule", RULES, ids=CODES)
def test_the_scenarios_are_the_examples_of_the_pages(rule: Rule) -> None:
    for name, text in (("found", rule.bad), ("not_found", rule.good)):
        example = [line for line in text.strip().splitlines() if not line.startswith("#")]
        lines = scenario(rule.code, name).read_text(encoding="utf-8").splitlines()
        assert lines[0].startswith("claim: ")
        assert [
            line for line in lines[1:] if not line.startswith(("keys:", "expect:", "semantics: strict", "#"))
        ] == example


def test_each_rule_has_its_page() -> None:
    for rule in RULES:
        path = ROOT / "docs" / "lint" / f"{rule.code}.md"
        if os.environ.get("EXPECTTEST_ACCEPT"):
            path.write_text(rule.page(), encoding="utf-8", newline="\n")
        assert path.read_text(encoding="utf-8") == rule.page()
    assert sorted(path.stem for path in (ROOT / "docs" / "lint").glob("*.md")) == CODES


def test_every_scenario_belongs_to_a_rule() -> None:
    names = {path.stem for path in SCENARIOS.glob("*.yaml")}
    assert names == {f"{code.lower()}_{which}" for code in CODES for which in ("found", "not_found")}


def test_findings_of_the_earlier_source_are_left_out(tmp_path: Path) -> None:
    before = tmp_path / "before.yaml"
    before.write_text(scenario("DL002", "found").read_text(encoding="utf-8"), encoding="utf-8")
    after = tmp_path / "after.yaml"
    after.write_text(f"{before.read_text(encoding='utf-8')}  - impl: lost\n    dispatch: CPU\n", encoding="utf-8")
    report = lint(after, against=before)
    assert [finding.identity for finding in report.findings] == [("DL001", "test::lost", "")]
    assert report.known == 2
    changed = tmp_path / "changed.yaml"
    text = before.read_text(encoding="utf-8")
    changed.write_text(f"{text}  - impl: scale\n    dispatch: CUDA\n    debug: third.py:1\n", encoding="utf-8")
    report = lint(changed, against=before, select=("DL002", "DL006"))
    assert report.findings == ()
    assert report.known == 2


def test_a_dangling_kernel_is_reported_with_the_operator_of_the_nearest_namespace(tmp_path: Path) -> None:
    path = tmp_path / "quanto.yaml"
    path.write_text(
        "claim: x\nregistrations:\n  - def: quanto::qbytes_mm(Tensor x) -> Tensor\n"
        "  - def: other::qbytes_mm(Tensor x) -> Tensor\n"
        "  - impl: quanto_py::qbytes_mm\n    dispatch: MPS\n    debug: mps.py:3\n",
        encoding="utf-8",
    )
    (finding,) = lint(path, select=("dangling-impl",)).findings
    assert finding.operator == "quanto_py::qbytes_mm"
    assert finding.message.endswith(
        "(MPS from mps.py:3) and no def, so nobody can call it; did you mean quanto::qbytes_mm?"
    )


def test_rules_are_selected_by_code_or_name() -> None:
    assert [rule.code for rule in selected(("DL002,dl004", "dangling-impl"))] == ["DL001", "DL002", "DL004"]
    assert [rule.code for rule in selected((), ("DL006", "order-matters"))] == [
        code for code in CODES if code not in ("DL006", "DL009")
    ]


def test_an_unknown_rule_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(UnknownRuleError, match="did you mean dangling-impl"):
        selected(("dangling",))


def test_only_the_operators_that_are_asked_for_are_looked_at() -> None:
    report = lint("torch-2.13", operators=("aten::floor",))
    assert report.operators == 1
    assert {finding.operator for finding in report.findings} == {"aten::floor"}


def test_a_baseline_accepts_what_it_names_and_lists_what_is_gone(tmp_path: Path) -> None:
    path, source = tmp_path / "accepted.json", str(scenario("DL002", "found"))
    result = run("lint", source, "--write-baseline", str(path))
    assert (result.exit_code, "accepts 2 findings" in result.stderr) == (0, True)
    accepted = load_baseline(str(path))
    assert accepted == {("DL002", "test::scale", "CPU"), ("DL006", "test::scale", "CPU")}
    result = run("lint", source, "--baseline", str(path))
    assert (result.exit_code, "2 more are accepted by the baseline" in result.stdout) == (0, True)
    result = run("lint", str(scenario("DL001", "found")), "--baseline", str(path))
    assert result.exit_code == 1
    assert "2 of the baseline are not found any more: DL002 test::scale CPU, DL006" in result.stdout


def test_writing_a_baseline_again_drops_what_is_gone(tmp_path: Path) -> None:
    path = str(tmp_path / "accepted.json")
    for source in (scenario("DL002", "found"), scenario("DL001", "found")):
        older = ["--baseline", path] if Path(path).exists() else []
        assert run("lint", str(source), *older, "--write-baseline", path).exit_code == 0
    assert load_baseline(path) == {("DL001", "test::scales", "")}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "it cannot be read"),
        ("{", "it is not JSON"),
        ("[]", "expected version 1"),
        ('{"version": 2, "findings": []}', "expected version 1"),
        ('{"version": 1, "findings": [{"code": "DL001"}]}', "expected a code, an operator and a key"),
    ],
)
def test_a_file_that_is_no_baseline_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "baseline.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(BaselineError, match=message):
        load_baseline(str(path))


def test_sarif_has_rules_locations_and_fingerprints() -> None:
    value = json.loads(sarif([lint(scenario("DL002", "found"))]))
    assert value["version"] == "2.1.0"
    (run,) = value["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == CODES
    assert [result["ruleId"] for result in run["results"]] == ["DL002", "DL006"]
    first = run["results"][0]
    assert rules[first["ruleIndex"]]["id"] == "DL002"
    assert first["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "second_package/cpu.py"},
        "region": {"startLine": 9},
    }
    assert first["relatedLocations"][0]["physicalLocation"]["region"] == {"startLine": 7}
    assert first["partialFingerprints"] == {"dispatchlab/v1": "DL002/test::scale/CPU"}
    for rule in rules:
        assert re.fullmatch("[A-Z][A-Za-z]+", rule["name"])


def test_the_text_ends_with_the_counts() -> None:
    text = lint_text(lint(scenario("DL008", "found"), select=("DL008",)))
    assert text.startswith("test::scale: DL008 MTIA: the kernel from my_package/mtia.py:5 does not suppress")
    assert re.search(r"\n\n\S+dl008_found.yaml: 1 finding in 1 operator\n  DL008 composite-not-suppressed: 1\n\Z", text)


def test_a_baseline_that_cannot_be_written_ends_the_command_with_2(tmp_path: Path) -> None:
    source = str(scenario("DL002", "found"))
    result = run("lint", source, "--write-baseline", str(tmp_path / "no" / "folder"))
    assert (result.exit_code, "folder could not be written: No such file" in result.stderr) == (2, True)


def test_the_command_ends_with_1_when_it_finds_something() -> None:
    bad, good = str(scenario("DL004", "found")), str(scenario("DL001", "not_found"))
    result = run("lint", bad, good, "--select", "DL004", "--format", "json")
    assert result.exit_code == 1
    value = json.loads(result.stdout)
    assert [len(one["findings"]) for one in value["sources"]] == [1, 0]
    assert value["sources"][0]["findings"][0]["rule"] == "disabled-composite"
    result = run("lint", good, "--select", "DL001", "--format", "rich")
    assert (result.exit_code, "0 findings" in result.stdout) == (0, True)


def test_a_rule_explains_itself() -> None:
    assert run("lint", "--explain", "dl003").stdout == next(rule for rule in RULES if rule.code == "DL003").page()


def test_messages_name_owners_that_are_in_the_registry() -> None:
    recorded = open_bundled()
    seen = 0
    for finding in lint("torch-2.13", select=("DL002", "DL006")).findings[::20]:
        operator = recorded.operator(finding.operator)
        assert operator is not None
        assert {*finding.owners} <= {kernel.debug for kernel in operator.kernels}
        seen += 1
    assert seen == 42
