"""Formulas of derivatives.yaml as values."""

from __future__ import annotations

import pytest

from dispatchlab.codegen.read.formula import (
    Binary,
    Braces,
    Call,
    Choice,
    Expression,
    Index,
    Method,
    Name,
    Number,
    Text,
    Unary,
    parse_formula,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("grad", Name("grad")),
        ("::std::nullopt", Name("std::nullopt")),
        ("2.5e-3f", Number("2.5e-3f")),
        ("-grad", Unary("-", Name("grad"))),
        ("!*dtype", Unary("!", Unary("*", Name("dtype")))),
        ("a - b - c", Binary("-", Binary("-", Name("a"), Name("b")), Name("c"))),
        ("a + b * c", Binary("+", Name("a"), Binary("*", Name("b"), Name("c")))),
        ("a < b == c && d || e", Binary(
            "||",
            Binary("&&", Binary("==", Binary("<", Name("a"), Name("b")), Name("c")), Name("d")),
            Name("e"),
        )),
        ("a ? b : c ? d : e", Choice(Name("a"), Name("b"), Choice(Name("c"), Name("d"), Name("e")))),
        ("-self.sin()", Unary("-", Method(Name("self"), "sin", ()))),
        ("bias->sym_sizes()", Method(Name("bias"), "sym_sizes", (), pointer=True)),
        ("grads[1].t()", Method(Index(Name("grads"), Number("1")), "t", ())),
        ("at::zeros({}, x.options())", Call("at::zeros", (), (Braces(()), Method(Name("x"), "options", ())))),
        ("std::vector<c10::SymInt>(n, 0)", Call("std::vector", ("c10::SymInt",), (Name("n"), Number("0")))),
        ("std::get<0>(f(x))", Call("std::get", ("0",), (Call("f", (), (Name("x"),)),))),
        ('x.div(y, /*rounding_mode=*/"floor")', Method(Name("x"), "div", (Name("y"), Text("floor")))),
        ("(a + b) * c", Binary("*", Binary("+", Name("a"), Name("b")), Name("c"))),
    ],
)  # fmt: skip
def test_a_formula_is_a_value(text: str, expected: Expression) -> None:
    assert parse_formula(text) == expected
