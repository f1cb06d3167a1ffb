"""The long tests of tests/test_codegen_registrations.py, which the quick tier leaves out."""

from __future__ import annotations

from tests import test_codegen_registrations
from tests.test_codegen_registrations import codegen

file = test_codegen_registrations.file
with_derivatives = test_codegen_registrations.with_derivatives


def test_a_registry_that_has_something_else_ends_with_1(with_derivatives: str) -> None:
    result = codegen(with_derivatives, "--registrations", "--only", "flipud", "--against", "torch-2.13")
    assert result.exit_code == 0, result.output
    assert "equal in torch-2.13: 1 defs, 2 kernels" in result.output
    # normal_ has kernels of sparse and nested tensors there, which this file does not give it
    other = codegen(with_derivatives, "--registrations", "--only", "normal_", "--against", "torch-2.13")
    assert other.exit_code == 1
    assert "aten::normal_ at SparseCsrCPU\n    generated: nothing\n    recorded:  (Tensor _0, float _1" in other.output
