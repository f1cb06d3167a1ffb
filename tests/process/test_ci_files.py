"""What is given to a user's CI runs: the guide, the hooks of pre-commit, and the steps of the GitHub action."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import shown_commands
from tests.shown_commands import bash

pytest.importorskip("torch", reason="imports a package that registers operators, and there is no PyTorch")

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "ci.md"
_BLOCK = re.compile(r"<!-- run(?:: (\d+))? -->\n```bash\n(.*?)```\n", re.DOTALL)
PACKAGE = """\
import torch

library = torch.library.Library("my_package", "DEF")
library.define("twice(Tensor x) -> Tensor")
library.impl("twice", lambda x: x + x, "CPU")
library.impl("thrice", lambda x: x + x + x, "CPU")
"""


GOOD = """\
claim: A composite kernel and its def commute.
registrations:
  - def: foo(Tensor x) -> Tensor
  - {impl: foo, dispatch: CompositeImplicitAutograd, debug: fn_math}
"""
BAD = """\
claim: A kernel without a def does not commute with anything.
expect: order-dependent
registrations:
  - {impl: foo, dispatch: CPU, debug: fn_cpu}
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The checkout of a package that registers an operator, and a kernel that dangles."""
    root = tmp_path / "checkout"
    (root / "my_package").mkdir(parents=True)
    (root / "my_package" / "__init__.py").write_text(PACKAGE)
    (root / "pyproject.toml").write_text('[project]\nname = "my-package"\nversion = "1"\n')
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    return root


@pytest.fixture
def environment(tmp_path: Path, checkout: Path) -> dict[str, str]:
    """An environment in which the commands are this code, and the package is installed."""
    return shown_commands.environment(tmp_path / "bin", checkout)


def test_the_commands_of_the_guide_end_as_it_says(checkout: Path, environment: dict[str, str]) -> None:
    blocks = _BLOCK.findall(GUIDE.read_text(encoding="utf-8"))
    assert len(blocks) == GUIDE.read_text(encoding="utf-8").count("```bash") == 7
    ends = []
    for code, script in blocks:
        result = bash(script, checkout, environment)
        assert "Traceback" not in result.stderr
        ends.append((script.splitlines()[0], result.returncode, int(code or 0), result.stderr[-600:]))
    assert [end for end in ends if end[1] != end[2]] == []
    assert (checkout / "tests" / "dispatch-scenarios" / "expect" / "my_package.txt").exists()
    assert "</html>" in (checkout / "scenarios.html").read_text(encoding="utf-8")
    assert json.loads((checkout / "dispatchlab.sarif").read_text())["version"] == "2.1.0"


# -- the hooks of pre-commit


def hooks() -> list[dict[str, Any]]:
    """The hooks that are offered to users."""
    return list(yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")))


@pytest.mark.parametrize("hook", hooks(), ids=lambda hook: str(hook["id"]))
def test_a_hook_passes_on_good_scenarios_and_fails_on_bad_ones(
    hook: dict[str, Any], tmp_path: Path, environment: dict[str, str]
) -> None:
    for name, text in {"bad": BAD, "good": GOOD}.items():
        target = tmp_path / "scenarios" / f"{name}.yaml"
        target.parent.mkdir(exist_ok=True)
        target.write_text(text)
    files = [path for path in sorted(tmp_path.rglob("*.yaml")) if re.search(hook["files"], path.as_posix())]
    assert [path.stem for path in files] == ["bad", "good"]
    ends = {path.stem: bash(f'{hook["entry"]} "{path}"', tmp_path, environment).returncode for path in files}
    assert ends == {"bad": 1, "good": 0}


# -- the GitHub action


def action() -> dict[str, Any]:
    """The action."""
    return dict(yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8")))


def evaluated(text: str, inputs: dict[str, str], outputs: dict[str, str]) -> str:
    """An expression of a step, as the runner evaluates it."""
    values = {f"inputs.{name}": value for name, value in inputs.items()}
    values |= {f"steps.check.outputs.{name}": value for name, value in outputs.items()}
    return re.sub(r"\$\{\{ (.*?) \}\}", lambda match: values[match[1]], text)


@pytest.mark.parametrize(("arguments", "ends"), [("", 1), ("--fail-on order", 0)])
def test_the_steps_of_the_action_run_as_written(
    checkout: Path, environment: dict[str, str], tmp_path: Path, arguments: str, ends: int
) -> None:
    defaults = {name: str(each.get("default", "")) for name, each in action()["inputs"].items()}
    inputs = {**defaults, "module": "my_package", "arguments": arguments, "package": "pip"}
    written = tmp_path / "outputs"
    codes = {}
    for step in action()["runs"]["steps"]:
        if "run" not in step:
            continue
        lines = written.read_text().splitlines() if written.exists() else []
        outputs = dict(line.split("=", 1) for line in lines)
        variables = {name: evaluated(text, inputs, outputs) for name, text in step["env"].items()}
        assert "${{" not in step["run"], "an input in a script can be a command: it belongs into env"
        result = bash(step["run"], checkout, {**environment, **variables, "GITHUB_OUTPUT": str(written)})
        codes[step["name"]] = result.returncode
    assert codes == {"Install": 0, "Check": 0, "Result": ends}
    assert json.loads((checkout / "dispatchlab.sarif").read_text())["version"] == "2.1.0"


def test_the_action_fails_when_check_cannot_run(checkout: Path, environment: dict[str, str]) -> None:
    (step,) = (step for step in action()["runs"]["steps"] if step["name"] == "Check")
    variables = {"MODULE": "not_there", "ARGUMENTS": "", "SARIF": "x.sarif", "GITHUB_OUTPUT": str(checkout / "out")}
    assert bash(step["run"], checkout, {**environment, **variables}).returncode == 2
