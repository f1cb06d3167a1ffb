"""Kernels made from `ufunc_inner_loop`, held to torch on many generated calls."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from tests.effort import share
from tests.ufunc_calls import compare


def test_many_calls_of_ufunc_groups_equal_torchs() -> None:
    seen = compare(share(5000), seed=17)
    assert sum(seen[f"{name} returned"] for name in ("add.Tensor", "add_.Tensor", "add.out")) > share(5000)
    assert seen["ComplexHalf"] < 60
