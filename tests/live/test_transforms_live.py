"""Transforms against the running PyTorch; tests/deep has more of the generated programs and every key."""

from __future__ import annotations

from typing import Any

import pytest

from tests.live.transform_comparison import compared, compared_keys

torch: Any = pytest.importorskip("torch", reason="compares with the installed PyTorch, and there is none")


def test_generated_programs_under_transforms_do_what_torchs_do() -> None:
    found = compared(torch, range(120))
    assert found["equal"] >= 60
    assert found["equal error"] <= 40
    assert found.total() == 120


def test_kernels_of_a_custom_operator_see_the_keys_that_torchs_see() -> None:
    given = [
        ("(Tensor x) -> Tensor", keys)
        for keys in (("CPU", "AutogradCPU"), ("CPU", "FuncTorchBatched"), ("CPU", "Functionalize"))
    ]
    assert compared_keys(torch, given, "seen_sample") == (3 * 49, 28)
