"""The hooks, as pre-commit installs and runs them from a repository; and the configuration of this one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pre_commit", reason="runs hooks with pre-commit, which is not installed: pip install pre-commit")

ROOT = Path(__file__).parents[2]
GOOD = "claim: One def commutes with itself.\nregistrations:\n  - def: foo() -> ()\n"
BAD = GOOD.replace("registrations:", "expect: order-dependent\nregistrations:")


def pre_commit(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pre-commit in a folder, with a home that lives as long as the test."""
    return subprocess.run(
        [sys.executable, "-m", "pre_commit", *arguments],
        cwd=folder,
        env={**os.environ, "PRE_COMMIT_HOME": str(folder.parent / "home"), "PRE_COMMIT_COLOR": "never"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def test_the_configurations_are_valid() -> None:
    assert pre_commit(ROOT, "validate-config").returncode == 0
    assert pre_commit(ROOT, "validate-manifest").returncode == 0


def test_a_hook_is_installed_from_the_repository_and_run(tmp_path: Path) -> None:
    if subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, check=False).returncode:
        pytest.skip("this is no clone: pre-commit installs hooks from a repository")
    project = tmp_path / "project"
    (project / "scenarios").mkdir(parents=True)
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    repository = tmp_path / "dispatchlab"
    subprocess.run(["git", "clone", "-q", "--no-tags", str(ROOT), str(repository)], check=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=repository, capture_output=True, text=True, check=True)
    (project / ".pre-commit-config.yaml").write_text(
        f"repos:\n  - repo: {repository}\n    rev: {head.stdout.strip()}\n    hooks:\n      - id: dispatchlab-permute\n"
    )
    for name, text in {"scenarios/good.yaml": GOOD, "scenarios/bad.yaml": BAD, "other.yaml": "a: b\n"}.items():
        (project / name).write_text(text)
    subprocess.run(["git", "add", "-A"], cwd=project, check=True)
    ends = {}
    for name in ("scenarios/good.yaml", "scenarios/bad.yaml", "other.yaml"):
        result = pre_commit(project, "run", "--files", name)
        ends[name] = result.returncode, "Skipped" in result.stdout
        assert "InstallationError" not in result.stdout
    assert ends == {"scenarios/good.yaml": (0, False), "scenarios/bad.yaml": (1, False), "other.yaml": (0, True)}
