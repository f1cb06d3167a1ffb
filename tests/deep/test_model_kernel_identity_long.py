"""The long tests of tests/test_model_kernel_identity.py, which the quick tier leaves out."""

from __future__ import annotations

import os.path

import pytest

from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.registration import Impl, Kernel, KernelForm
from dispatchlab.prover.result import Verdict
from tests.engine_shorthand import FOO, TYPED
from tests.test_model_kernel_identity import ALIASES, NAMEABLE, _boxed, _verdict


@pytest.mark.parametrize("key", [None, *NAMEABLE[::24], *ALIASES], ids=str)
@pytest.mark.parametrize("semantics", ["strict", "torch-2.13"])
def test_every_pair_of_kernels_with_equal_texts_at_one_key_is_order_dependent(
    semantics: str, key: DispatchKey | None
) -> None:

    kernels = (
        Kernel(),
        TYPED,
        Kernel(KernelForm.FALLTHROUGH),
        _boxed(os.path.join),
        _boxed(os.path.split),
        Kernel(reference="os.path:join"),
    )
    pairs = [(one, other) for at, one in enumerate(kernels) for other in kernels[at:]]
    differ = [
        pair
        for pair in pairs
        if _verdict(*(Impl(FOO, key, kernel, "fn") for kernel in pair), semantics=semantics) is Verdict.ORDER_DEPENDENT
    ]
    same = [(kernels[2],) * 2, (kernels[3],) * 2, (kernels[4],) * 2, (kernels[5],) * 2]
    assert differ == [pair for pair in pairs if pair not in same]
