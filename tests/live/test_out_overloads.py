"""The calls that coverage calls missing fail in PyTorch, on a device without kernels, at the overload that it names."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dispatchlab.registries.backend_coverage import Way
from tests.test_coverage import report

pytest.importorskip("torch")

_PROGRAM = """
import sys
import torch
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_setup_privateuseone_for_python_backend("bare")

class Bare(torch.Tensor):
    @staticmethod
    def __new__(cls, raw):
        return torch.Tensor._make_wrapper_subclass(cls, raw.shape, dtype=raw.dtype, device="bare:0")

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        with torch._C._DisableTorchDispatch():
            return func(*args, **(kwargs or {}))

library = torch.library.Library("aten", "IMPL")
library.impl("empty_strided", lambda size, stride, dtype=None, **_: Bare(torch.empty(size, dtype=dtype)), "PrivateUse1")
library.impl("empty.memory_format", lambda size, dtype=None, **_: Bare(torch.empty(size, dtype=dtype)), "PrivateUse1")
tensor = Bare(torch.rand(3, 3))
for name in sys.argv[1:]:
    try:
        getattr(torch.ops.aten, name)(tensor)
    except NotImplementedError as error:
        print(name, str(error).split("'")[1])
"""
_UNARY = "acos all any asin_ atan ceil cos digamma elu erf exp2 expm1 floor frac gelu gelu_ hardshrink hardsigmoid "
_MORE = "i0 leaky_relu lgamma_ log1p mish neg reciprocal round rsqrt sgn sigmoid silu sin softplus sqrt tan triu trunc"


def test_pytorch_names_the_overload_without_a_kernel() -> None:
    names = (_UNARY + _MORE).split()
    command = [sys.executable, "-c", _PROGRAM, *names]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    covered = report(operators=tuple(f"aten::{name}" for name in names)).coverage.operators
    said = {each.operator.removeprefix("aten::"): each.needs or each.operator for each in covered}
    assert {each.filled.way for each in covered} == {Way.MISSING}
    assert dict(line.split() for line in printed.splitlines()) == said
