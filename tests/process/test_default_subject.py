"""The commands that name an operator find the package of the checkout, also without settings and without `--from`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

ROOT = Path(__file__).parent.parent.parent
PACKAGE = """\
import torch

@torch.library.custom_op("shop::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2

library = torch.library.Library("shop", "FRAGMENT")
library.define("area(Tensor box) -> Tensor")
library.impl("area", lambda box: box.sum(), "CPU")
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("checkout")
    (root / "shop").mkdir()
    (root / "shop" / "__init__.py").write_text(PACKAGE)
    (root / "pyproject.toml").write_text('[project]\nname = "shop"\n')
    return root


def run(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dispatchlab", *arguments],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["explain", "shop::area", "cuda"],
            'shop::area has no kernel for CUDA, so the call fails; register one with lib.impl("area", kernel, "CUDA")',
        ),
        (["explain", "shop::double", "cuda"], "shop::double(Tensor x) -> Tensor"),
        (["explain", "shop::area", "--mode", "vmap"], "shop::area(float32[3, 4]) under vmap: gives (float32[2])"),
        (["dump", "shop::area"], "name: shop::area"),
        (["dump", "shop::*", "--list"], "shop::area"),
        (["coverage", "--operator", "shop::area"], "PrivateUse1 in PyTorch"),
        (["permute", "--operator", "shop::area"], "shop under torch-"),
    ],
)
def test_an_operator_of_the_checkout_is_found_without_a_source(checkout: Path, arguments: list[str], line: str) -> None:
    result = run(checkout, *arguments)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(line), result.stdout
    assert "note: about shop, the package of this checkout\n" in result.stderr


def test_a_record_is_of_the_package_of_the_checkout_and_a_comparison_finds_it(checkout: Path) -> None:
    assert "def: area(Tensor box) -> Tensor" in run(checkout, "record").stdout
    assert "added: shop 1\n" in run(checkout, "diff", "live", "shop", "--operator", "shop::area").stdout


def test_an_operator_of_pytorch_needs_no_import_of_the_package(checkout: Path) -> None:
    result = run(checkout, "explain", "aten::relu")
    assert "the package of this checkout" not in result.stderr
    assert result.stderr.startswith("note: torch-"), result.stderr


def test_an_operator_that_only_python_knows_needs_no_import_of_the_package(checkout: Path) -> None:
    ended = run(checkout, "dump", "higher_order::cond")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("rules of higher-order operators, ")
    assert "shop" not in ended.stderr


def test_without_a_package_a_wrong_name_is_a_sentence(tmp_path: Path) -> None:
    result = run(tmp_path, "explain", "shop::area")
    assert (result.returncode, result.stdout) == (2, "")
    assert "there is no operator shop::area in torch-" in result.stderr
