"""Leaked registrations on the running PyTorch are listed."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from dispatchlab.leaks import Watch  # noqa: E402  torch has to be there first


def test_leaked_kernels_operators_and_fallbacks_are_listed_and_released_ones_are_not() -> None:
    watch = Watch()
    library = torch.library.Library("dispatchlab_leaky", "DEF")
    library.define("op(Tensor x) -> Tensor")
    kernels = torch.library.Library("aten", "IMPL")
    kernels.impl("relu", lambda x: x, "PrivateUse1")
    fallbacks = torch.library.Library("_", "IMPL")
    fallbacks.fallback(torch.library.fallthrough_kernel, "PrivateUse2")
    lines = [line for leak in watch.leaks() for line in leak.lines]
    assert len(lines) == 3
    assert lines[0].startswith("fallback PrivateUse2: fallthrough registered at")
    assert lines[1].startswith("aten::relu: kernel PrivateUse1 came: registered at")
    assert lines[2] == "operator came: dispatchlab_leaky::op(Tensor x) -> Tensor with 0 kernels"
    for each in (library, kernels, fallbacks):
        each._destroy()
    assert watch.leaks() == ()
