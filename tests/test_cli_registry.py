"""The commands about all of a registry, from their options to their exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dispatchlab import certify
from dispatchlab.errors import DispatchLabError
from tests.command_line import run

SCENARIOS = Path(__file__).parent.parent / "scenarios" / "lint"


def test_coverage_without_a_source_is_that_of_the_bundled_registry() -> None:
    result = run("coverage", "--key", "PrivateUse1", "--list", "ambiguous", "--format", "text")
    assert result.exit_code == 0
    assert result.stdout.startswith(
        "PrivateUse1 in torch-2.13-cpu: 3,598 operators\n  way        operators  part    what runs\n  direct     19 "
    )


def test_dump_of_a_row_of_cuda_is_of_the_build_that_has_its_kernels() -> None:
    result = run("dump", "aten::mm", "--key", "CUDA", "--format", "text")
    assert "/RegisterCUDA_0.cpp:" in result.stdout.partition("\n\n")[2]
    listed = run("dump", "aten::mm", "--key", "CUDA", "--list", "--format", "text")
    assert listed.stdout.startswith("aten::mm")


def test_coverage_counts_the_operators_of_a_scenario() -> None:
    result = run("coverage", str(SCENARIOS / "dl008_found.yaml"), "--key", "MTIA", "--format", "json")
    assert json.loads(result.stdout)["counts"] == {
        "direct": 1,
        "composite": 0,
        "fallback": 0,
        "ambiguous": 0,
        "missing": 0,
    }


def test_certify_shows_its_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dispatchlab.commands.output._FIRST_LINE_S", 0.0)
    result = run("permute", "--operator", "_quantized::conv3d_relu")
    assert result.exit_code == 0
    assert "torch-2.13-cpu: " in result.stderr
    assert "torch-2.13-cpu under torch-2.13: 1 operator\norder-independent: 1\n" in result.stdout


def test_lint_prints_sarif_and_ends_with_1() -> None:
    result = run("check", str(SCENARIOS / "dl001_found.yaml"), "--select", "dl001", "--format", "sarif")
    assert result.exit_code == 1
    (findings,) = json.loads(result.stdout)["runs"]
    assert [one["ruleId"] for one in findings["results"]] == ["DL001"]


def test_lint_explains_a_rule_without_a_source() -> None:
    result = run("rule", "order-matters")
    assert result.exit_code == 0
    assert result.stdout.startswith("# DL009: order-matters\n")


def test_certify_of_nothing_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "refused.yaml"
    file.write_text("{claim: Nothing is left., registrations: [{def: foo, kernel: unboxed}]}")
    with pytest.raises(DispatchLabError, match="has no operator to certify: nothing was selected, or everything in it"):
        certify(file)


def test_certify_names_what_it_can_certify() -> None:
    assert "name strict or a PyTorch" in run("permute", "--semantics", "pr35061").stderr
    unknown = run("permute", "torch-2.13", "--semantics", "torch-2.99")
    assert (unknown.exit_code, "did you mean torch-2." in unknown.stderr) == (2, True)
