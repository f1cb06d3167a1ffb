"""A package stands wherever a source does, and is found in the checkout around the folder, installed or not."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.live import forked
from tests.live.packages import COMMAND
from tests.scenario_texts import FIVE

pytest.importorskip("torch", reason="imports packages that register operators, and there is no PyTorch")

ROOT = Path(__file__).parents[2]
MILL = """\
import torch

library = torch.library.Library("mill", "DEF")
library.define("grind(Tensor x) -> Tensor")
library.impl("grind", lambda x: x, "CPU")
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout of packages that are not installed: one that registers, and one that raises."""
    root = tmp_path_factory.mktemp("checkout")
    (root / "pyproject.toml").write_text('[project]\nname = "mill"\nversion = "1"\n')
    for path, text in {
        "src/mill/__init__.py": MILL,
        "src/broken/__init__.py": "from broken import parts\n",
        "src/broken/parts.py": "import json\n\njson.loads('{')\n",
        "src/unbuilt/__init__.py": "\nfrom unbuilt import _C\n",
        "deep/er/five.yaml": FIVE,
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command with nothing on the path but this code."""
    return forked.run(COMMAND, *arguments, folder=folder, environment={**os.environ, "PYTHONPATH": str(ROOT)})


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("check mill --only lint", "warning DL006 no-meta-kernel mill::grind CPU"),
        ("coverage mill --key CPU --operator mill::*", "direct 1 100.0 %"),
        ("permute mill", "order-independent: 1"),
        ("dump mill::grind --from mill", "debug: registered at mill/__init__.py:4"),
        ("explain mill::grind --from mill", "runs: AutogradCPU -> CPU"),
        ("explain mill::grind --from mill cpu+grad", "x (Tensor), cpu requires_grad"),
        ("diff live mill", "mill::grind (Tensor x) -> Tensor CPU registered at mill/__init__.py:4"),
        ("record mill", "packages: [mill]"),
        ("permute five.yaml --package mill --engine torch", ", as expected"),
        ("check mill --orders", "mill: not asked: one module registers"),
        ("check mill", "registered 1 operator and 1 kernel"),
    ],
)
def test_a_package_of_the_checkout_is_named_where_a_source_stands(checkout: Path, line: str, shown: str) -> None:
    result = run(checkout / "deep" / "er", *line.split())
    assert result.returncode in (0, 1), result.stderr
    assert shown in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    "line", ["check {} --only lint", "record {}", "explain aten::relu --from {}", "check {}", "check {} --orders"]
)
@pytest.mark.parametrize(
    ("package", "at", "advice"),
    [
        ("broken", "broken/parts.py:3", ""),
        ("unbuilt", "unbuilt/__init__.py:2", "`pip install -e .` builds what it lacks"),
    ],
)
def test_an_import_that_fails_names_the_line_of_the_package(
    checkout: Path, line: str, package: str, at: str, advice: str
) -> None:
    result = run(checkout, *line.format(package).split())
    shown = result.stdout + result.stderr
    assert (result.returncode, "Traceback" in shown) == (2, False), shown
    assert f"raised at {checkout / 'src' / at}" in shown
    assert advice in shown
    assert "dispatchlab/" not in shown.replace(str(checkout), "")


@pytest.mark.parametrize("line", ["explain mill::grind --from mill.yaml", "check mill.yaml", "diff live mill.yaml"])
def test_a_file_that_is_not_there_is_no_module_of_the_package(checkout: Path, line: str) -> None:
    result = run(checkout, *line.split())
    said = "mill.yaml: there is no such file; to record a package in it: dispatchlab record PACKAGE -o mill.yaml"
    assert (result.returncode, said in result.stderr) == (2, True), result.stderr
    assert "import" not in result.stderr


def test_what_is_imported_into_the_second_of_two_cannot_be_the_first(checkout: Path) -> None:
    result = run(checkout, "diff", "mill", "live")
    assert (result.returncode, "write `diff live mill`" in result.stderr) == (2, True)
