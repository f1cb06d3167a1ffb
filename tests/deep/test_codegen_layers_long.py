"""The long tests of tests/test_codegen_layers.py, which the quick tier leaves out."""

from __future__ import annotations

import pytest

from dispatchlab.call import tensor
from dispatchlab.codegen.kernels.lab import StructuredLayers


@pytest.mark.parametrize("name", ["add_.Tensor", "sin_", "clamp_", "cumsum_", "addmm_"])
def test_every_write_in_place_raises_the_version(name: str) -> None:
    lab = StructuredLayers()
    x = tensor([[1.0, 2.0], [3.0, 4.0]])
    rest = {"add_.Tensor": (x,), "clamp_": (0, 1), "cumsum_": (0,), "addmm_": (x, x)}.get(name, ())
    before = x.version
    lab(name)(x, *rest)
    assert x.version == before + 1
