"""Kernels made from `ufunc_inner_loop`, held to torch bit for bit on many generated calls."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from dispatchlab.codegen.runtime import pointwise_loops
from tests.effort import share
from tests.ufunc_calls import compare, vector_bytes


def test_many_calls_of_ufunc_groups_equal_torch_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pointwise_loops, "VECTOR_BYTES", vector_bytes())
    seen = compare(share(5000), seed=17)
    assert sum(seen[f"{name} returned"] for name in ("add.Tensor", "add_.Tensor", "add.out")) > share(5000)
    assert seen["ComplexHalf"] + seen["contraction"] < 60
