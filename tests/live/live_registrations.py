"""Short forms of registrations for the tests of the live engine."""

from __future__ import annotations

from dispatchlab.model.keys import DispatchKey as K
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Def, Impl, Kernel, KernelForm
from dispatchlab.model.schema_parser import parse_inferred, parse_schema

FOO = OperatorName("test", "foo")
ONE = parse_inferred("(Tensor _0) -> Tensor _0")
BOXED = Kernel(KernelForm.BOXED)
FALLTHROUGH = Kernel(KernelForm.FALLTHROUGH)
BY_REFERENCE = Kernel(KernelForm.UNBOXED, ONE, "at::Tensor (at::Tensor const&)")
BY_VALUE = Kernel(KernelForm.UNBOXED, ONE, "at::Tensor (at::Tensor)")


def define(text: str = "test::foo(Tensor x) -> Tensor", debug: str = "def") -> Def:
    return Def(parse_schema(text), debug=debug)


def impl(key: K | None, debug: str, kernel: Kernel = BOXED) -> Impl:
    return Impl(FOO, key, kernel, debug)
