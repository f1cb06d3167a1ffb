"""Workflows, the action and templates are valid by the schemas of GitHub."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dispatchlab.adopt.first_files import workflow

REASON = "checks files with check-jsonschema, which is not installed: pip install check-jsonschema"
pytest.importorskip("check_jsonschema", reason=REASON)

ROOT = Path(__file__).parents[2]
FILES = {
    "github-workflows": [".github/workflows/test.yml", ".github/workflows/release.yml", ".github/workflows/site.yml"],
    "github-actions": ["action.yml"],
    "github-issue-config": [".github/ISSUE_TEMPLATE/config.yml"],
    "github-issue-forms": [".github/ISSUE_TEMPLATE/wrong_result.yml", ".github/ISSUE_TEMPLATE/feature.yml"],
    "citation-file-format": ["CITATION.cff"],
}


def check(schema: str, *files: Path) -> subprocess.CompletedProcess[str]:
    """Check files by a schema that check-jsonschema brings."""
    return subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *map(str, files)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("schema", FILES)
def test_a_file_is_valid(schema: str) -> None:
    result = check(schema, *(ROOT / name for name in FILES[schema]))
    assert (result.returncode, result.stdout.startswith("ok")) == (0, True), result.stdout


def test_every_file_of_github_is_checked() -> None:
    found = {path.relative_to(ROOT).as_posix() for path in (ROOT / ".github").rglob("*.yml")}
    assert found == {name for names in FILES.values() for name in names if name.startswith(".github")}


@pytest.mark.parametrize("module", ["my_package", None])
def test_the_workflow_that_init_writes_is_valid(module: str | None, tmp_path: Path) -> None:
    path = tmp_path / "dispatchlab.yml"
    path.write_text(workflow("tests/dispatch-scenarios", "tests/dispatch-scenarios/my_package.yaml", module))
    assert check("github-workflows", path).returncode == 0
    path.write_text(path.read_text().replace("runs-on:", "run-on:"))
    assert check("github-workflows", path).returncode == 1
