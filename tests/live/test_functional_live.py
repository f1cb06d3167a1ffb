"""The operators of several results against the running PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dispatchlab import tensor
from dispatchlab.lab import AutogradError, Lab

torch: Any = pytest.importorskip("torch", reason="compares with the installed PyTorch, and there is none")


@pytest.fixture(scope="module")
def lab() -> Lab:
    return Lab()


def _both(lab: Lab, name: str, array: Any, *args: Any, **kwargs: Any) -> tuple[list[Any], list[Any]]:
    base, _, overload = name.partition(".")
    theirs = getattr(getattr(torch.ops.aten, base), overload or "default")
    ours = lab(name)(tensor(array), *args, **kwargs)
    expected = theirs(torch.from_numpy(np.array(array)), *args, **kwargs)
    return [one.numpy() for one in ours], [one.numpy() for one in expected]


def test_unique_elements_are_torchs(lab: Lab) -> None:
    choose = np.random.default_rng(0)
    for shape in ((7,), (3, 4), (0,), ()):
        for inverse in (False, True):
            for counts in (False, True):
                array = choose.integers(0, 4, size=shape).astype(np.float64)
                ours, theirs = _both(lab, "_unique2", array, True, inverse, counts)  # noqa: FBT003
                for our, their in zip(ours, theirs, strict=True):
                    assert our.shape == their.shape, (shape, inverse, counts)
                    assert our.dtype == their.dtype
                    assert np.array_equal(our, their)


def test_unique_slices_are_torchs(lab: Lab) -> None:
    choose = np.random.default_rng(0)
    for dim in (0, 1, -1):
        array = choose.integers(0, 2, size=(3, 4)).astype(np.float64)
        ours, theirs = _both(lab, "unique_dim", array, dim, True, True, True)  # noqa: FBT003
        for our, their in zip(ours, theirs, strict=True):
            assert our.shape == their.shape
            assert np.array_equal(our, their)


def test_a_gradient_through_them_is_refused(lab: Lab) -> None:
    found, *_ = lab("_unique2")(tensor([1.0, 2.0], requires_grad=True))
    with pytest.raises(AutogradError, match="no formula"):
        lab.backward(lab.sum(found))
