"""The long tests of tests/test_cli_registry.py, which the quick tier leaves out."""

from __future__ import annotations

import json

import pytest

from tests.command_line import run
from tests.test_cli_registry import SCENARIOS


def test_coverage_of_cuda_is_that_of_the_build_that_has_its_kernels() -> None:
    result = run("coverage", "--key", "CUDA", "--format", "text")
    assert result.exit_code == 0
    assert result.stdout.startswith("CUDA in torch-2.13: 3,599 operators\n")
    assert int(result.stdout.partition("\n  direct ")[2].split()[0].replace(",", "")) > 1000


@pytest.mark.parametrize(
    ("source", "key"), [("torch-2.13-cpu", "CUDA"), ("torch-2.13-cpu", "MPS"), ("torch-2.13", "XPU")]
)
def test_coverage_of_a_backend_whose_kernels_are_elsewhere_says_first_that_it_is_incomplete(
    source: str, key: str
) -> None:
    for format in ("text", "rich"):
        result = run("coverage", source, "--key", key, "--format", format)
        first = "".join(result.stdout.splitlines()[:3])
        assert f"the table is incomplete for {key}: {source} is of PyTorch 2.13.0+c" in first
        assert result.exit_code == 3
    found = json.loads(run("coverage", source, "--key", key, "--format", "json").stdout)
    assert found["no_answer"].startswith(f"the table is incomplete for {key}: ")
    assert found["no_answer"].endswith("; it has only the kernels for all backends")
    answered = run("coverage", "--key", "PrivateUse1", "--format", "json")
    assert (answered.exit_code, json.loads(answered.stdout)["no_answer"]) == (0, "")


@pytest.mark.parametrize(("name", "code"), [("dl009_found", 1), ("dl009_not_found", 0)])
def test_certify_ends_with_the_code_of_its_verdict(name: str, code: int) -> None:
    result = run("permute", str(SCENARIOS / f"{name}.yaml"), "--semantics", "torch-2.13", "--operator", "*")
    assert result.exit_code == code
    assert ("order-independent: 0\n" if code else "order-independent: 1\n") in result.stdout
