"""The workflow that `init` writes: its steps in order, in a copy, on a package that is right and on one that is not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

ROOT = Path(__file__).parent.parent.parent
RIGHT = """\
import torch

@torch.library.custom_op("shop::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2

@double.register_fake
def _(x):
    return torch.empty_like(x)

double.register_autograd(lambda ctx, gradient: gradient * 2)
"""
WRONG = """

library = torch.library.Library("shop", "FRAGMENT")
library.impl("halve", lambda x: x / 2, "CPU")
"""


@pytest.mark.parametrize("configuration", ["", "\n[tool.pytest.ini_options]\naddopts = '-q'  # of pytest\n"])
def test_the_steps_report_what_is_wrong_and_the_tests_run_after_a_finding(tmp_path: Path, configuration: str) -> None:
    here = tmp_path / "here"
    (here / "shop").mkdir(parents=True)
    (here / "shop" / "__init__.py").write_text(RIGHT)
    (here / "pyproject.toml").write_text(f'[project]\nname = "shop"  # the shop\n{configuration}')
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, module in (("dispatchlab", "dispatchlab"), ("pytest", "pytest -p dispatchlab_pytest")):
        (folder / name).write_text(f'#!/bin/sh\nexec {sys.executable} -m {module} "$@"\n')
        (folder / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{folder}:/usr/bin:/bin",
        "PYTHONPATH": f"{ROOT}:.",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    made = subprocess.run(
        ["dispatchlab", "init", "--ci", "github"],
        cwd=here,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    right = run_steps(here, tmp_path / "right", environment, "")
    assert [code for code, _ in right] == [0, 0], right
    assert "shop: nothing found" in right[0][1]
    (check, reported), (tests, shown) = run_steps(here, tmp_path / "wrong", environment, WRONG)
    assert (check, tests) == (1, 1), reported + shown
    assert "::error file=shop/__init__.py" in reported or "::warning file=shop/__init__.py" in reported, reported
    assert "1 failed" in shown, shown
    for text in (reported, shown):
        assert "dispatchlab record shop -o dispatch-scenarios/shop.yaml" in text, text


def run_steps(here: Path, there: Path, environment: dict[str, str], more: str) -> list[tuple[int, str]]:
    """Run the steps that are commands in a copy of a checkout, as a runner does; those that install are left out."""
    shutil.copytree(here, there)
    with (there / "shop" / "__init__.py").open("a") as file:
        file.write(more)
    workflow = yaml.safe_load((there / ".github" / "workflows" / "dispatchlab.yml").read_text())
    assert workflow["permissions"] == {"contents": "read"}
    done, failed = list[tuple[int, str]](), False
    for step in workflow["jobs"]["dispatchlab"]["steps"]:
        command = step.get("run", "pip install")
        if command.startswith("pip install") or (failed and step.get("if") != "always()"):
            continue
        result = subprocess.run(
            ["bash", "-e", "-c", command], cwd=there, env=environment, capture_output=True, text=True, check=False
        )
        done.append((result.returncode, result.stdout + result.stderr))
        failed = failed or result.returncode != 0
    return done
