"""The C++ signature that a schema gives, as upstream prints it."""

from __future__ import annotations

import pytest

from dispatchlab.model.cpp_signature import cpp_signature, is_symint_schema
from dispatchlab.model.schema_parser import parse_inferred, parse_schema


@pytest.mark.parametrize(
    ("schema", "signature"),
    [
        ("(Tensor _0) -> Tensor _0", "at::Tensor (at::Tensor const&)"),
        ("() -> ()", "void ()"),
        ("(Tensor _0) -> (Tensor _0, int _1)", "std::tuple<at::Tensor, long> (at::Tensor const&)"),
        ("(int _0, float _1, bool _2) -> float _0", "double (long, double, bool)"),
        ("(SymInt _0, SymInt[] _1) -> SymInt _0", "c10::SymInt (c10::SymInt, c10::ArrayRef<c10::SymInt>)"),
        ("(int[]? _0, SymInt[]? _1) -> ()", "void (c10::OptionalArrayRef<long>, c10::OptionalArrayRef<c10::SymInt>)"),
        ("(float[]? _0, int? _1) -> ()", "void (std::optional<c10::ArrayRef<double> >, std::optional<long>)"),
        ("(Tensor? _0, Tensor[] _1) -> ()", "void (std::optional<at::Tensor> const&, c10::ArrayRef<at::Tensor>)"),
        ("(Tensor?[] _0) -> ()", "void (c10::List<std::optional<at::Tensor> > const&)"),
        ("(Scalar _0, Scalar? _1) -> Scalar _0", "c10::Scalar (c10::Scalar const&, std::optional<c10::Scalar> const&)"),
        ("(bool[3] _0, bool[] _1) -> ()", "void (std::array<bool, 3ul>, c10::ArrayRef<bool>)"),
        ("(str _0) -> ()", "void (std::basic_string_view<char, std::char_traits<char> >)"),
        ("(Device? _0, Layout _1) -> ()", "void (std::optional<c10::Device>, c10::Layout)"),
        ("() -> Tensor[] _0", "std::vector<at::Tensor, std::allocator<at::Tensor> > ()"),
        ("(Generator? _0) -> ()", "void (std::optional<at::Generator>)"),
        ("(Dict(int, Tensor) _0) -> ()", "void (c10::Dict<long, at::Tensor>)"),
        ("((int, Tensor) _0) -> ()", "void (std::tuple<long, at::Tensor>)"),
    ],
)
def test_an_inferred_schema_has_this_signature(schema: str, signature: str) -> None:
    assert cpp_signature(parse_inferred(schema)) == signature


def test_what_is_written_to_is_a_reference() -> None:
    schema = parse_schema("add_.out(Tensor(a!) self, Tensor other, *, Tensor(b!) out) -> (Tensor(a!), Tensor(b!))")
    expected = "std::tuple<at::Tensor&, at::Tensor&> (at::Tensor&, at::Tensor const&, at::Tensor&)"
    assert cpp_signature(schema) == expected
    assert cpp_signature(parse_schema("f(Tensor(a) self) -> Tensor(a)")) == "at::Tensor (at::Tensor const&)"


def test_a_symint_kernel_takes_symints() -> None:
    takes = ["SymInt", "SymInt?", "SymInt[]", "SymInt[]?", "SymInt[2]"]
    takes_not = ["int", "SymInt?[]", "(SymInt, int)", "Dict(int, SymInt)", "SymBool"]
    assert [is_symint_schema(parse_inferred(f"(Tensor _0, {type_} _1) -> ()")) for type_ in takes] == [True] * 5
    assert [is_symint_schema(parse_inferred(f"(Tensor _0, {type_} _1) -> ()")) for type_ in takes_not] == [False] * 5
    assert not is_symint_schema(parse_inferred("(Tensor _0) -> SymInt _0"))
