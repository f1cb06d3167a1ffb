"""Formulas as Python: which overload a call means, what is kept, what is missing, and `codegen --formulas`."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dispatchlab import tensor
from dispatchlab.cli import main
from dispatchlab.codegen import read_native_functions
from dispatchlab.codegen.emit.layer_formulas import GeneratedFormulas, generated_formulas
from dispatchlab.codegen.read.derivatives import read_derivatives
from dispatchlab.layers import AutogradError, AutogradErrorKind, Lab

NATIVES = """\
- func: f(Tensor self, Tensor other, Scalar s, int n, int[] dims, bool b, Tensor? o) -> Tensor
  dispatch: {CPU: f}
- func: f_(Tensor(a!) self, Tensor other, Scalar s, int n, int[] dims, bool b, Tensor? o) -> Tensor(a!)
  dispatch: {CPU: f_}
- func: f.out(Tensor self, Tensor other, Scalar s, int n, int[] dims, bool b, Tensor? o, *, Tensor(a!) out) \
-> Tensor(a!)
  dispatch: {CPU: f_out}
- func: lonely(Tensor self) -> Tensor
"""
NAME = "- name: f(Tensor self, Tensor other, Scalar s, int n, int[] dims, bool b, Tensor? o) -> Tensor\n"


def formulas(**named: str) -> GeneratedFormulas:
    natives = read_native_functions(NATIVES)
    text = NAME + "".join(f"  {name}: '{formula}'\n" for name, formula in named.items())
    return generated_formulas(natives, read_derivatives(text, natives))


def code(formula: str) -> str:
    """The Python of a formula for `other`, which the functional variant has first."""
    found = formulas(other=formula)
    assert not found.missing, found.missing
    return found.generated[0].formulas[0].code


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("grad", "grad"),
        ("-grad", 'calls("neg")(grad)'),
        ("grad * self", 'calls("mul.Tensor")(grad, self)'),
        ("grad * s", 'calls("mul.Scalar")(grad, stash["s"])'),
        ("2 * grad", 'calls("mul.Scalar")(grad, 2)'),
        ("grad - self / other", 'calls("sub.Tensor")(grad, calls("div.Tensor")(self, other))'),
        ("at::mm(grad, self.t())", 'calls("mm")(grad, calls("t")(self))'),
        ("grad.select_symint(n, 0)", 'calls("select.int")(grad, stash["n"], 0)'),
        ("grad.expand_symint(self.sym_sizes())", 'calls("expand")(grad, list(stash["self_sym_sizes"]))'),
        ("grad.expand({n, 2 * n})", 'calls("expand")(grad, list([stash["n"], 2 * stash["n"]]))'),
        ("maybe_multiply(grad, s.conj())", 'maybe_multiply(calls, grad, stash["s"].conjugate())'),
        ("b ? grad : -grad", 'grad if stash["b"] else calls("neg")(grad)'),
        (
            "n == 1 || !b ? grad : grad.neg()",
            'grad if ((stash["n"] == 1) or (not stash["b"])) else calls("neg")(grad)',
        ),
        ("zeros_like(other)", 'zeros_of(calls, stash["other_info"])'),
        ("handle_r_to_c(grad.scalar_type(), grad)", "handle_r_to_c(calls, grad.dtype, grad)"),
    ],
)
def test_the_types_decide_what_a_formula_means(formula: str, expected: str) -> None:
    assert code(formula) == expected


@pytest.mark.parametrize(
    ("formula", "missing"),
    [
        ("grad.masked_fill(self, 0)", "masked_fill(Tensor, Tensor, int)"),
        ("grad + 1", "add(Tensor, int)"),
        ("grad.pow(s)", "pow(Tensor, Scalar)"),
        ("grad * o", "o, Tensor?"),
        ("o->sym_sizes()", "->sym_sizes()"),
        ("dims[0]", "an element of a list"),
        ("grad * (self < other)", "Tensor < Tensor"),
        ("std::get<0>(grad)", "std::get<0>"),
        ("b ? grad : 0", "bool ? Tensor : int"),
        ("self.dim()", "int for other"),
        ("unknown", "unknown"),
        ("*n", "* of an optional"),
        ("dims.sym_sizes()", "int[].sym_sizes()"),
        ("grad;", "it cannot be read: expected a name, a number, or an operator but found ';'"),
    ],
)
def test_what_a_formula_misses_is_named(formula: str, missing: str) -> None:
    found = formulas(other=formula)
    assert {each.missing for each in found.missing} == {missing}
    assert [each.short_name for each in found.not_generated] == ["f", "f_"]
    assert [each.short_name for each in found.without] == ["f.out", "lonely"]


def test_what_is_kept_is_what_a_formula_needs_and_only_when_its_gradient_is_wanted() -> None:
    text = formulas(self="grad * other", other="grad * self").module(first_line="# g", file="d.yaml")
    lines = text.splitlines()
    assert '    node.save("self", values["self"] if node.needs(1) else None)' in lines
    assert '    node.save("other", values["other"] if node.needs(0) else None)' in lines
    assert '    node.save("self", calls("clone")(values["self"]) if node.needs(1) else None)' in lines
    assert '    "f_": Derivative("FBackward0", _f, _save_f_),' in lines  # its formulas are those of f
    assert "    # d.yaml:2" in lines


@pytest.mark.parametrize("name", ["node", "calls", "grad", "self_gradient", "reshape"])
def test_an_argument_with_a_name_that_generated_code_uses_is_named(name: str) -> None:
    natives = read_native_functions(f"- func: f(Tensor self, Tensor {name}) -> Tensor\n  dispatch: {{CPU: f}}\n")
    derivatives = read_derivatives(f"- name: f(Tensor self, Tensor {name}) -> Tensor\n  self: self\n", natives)
    (missing,) = generated_formulas(natives, derivatives).missing
    assert missing.missing == f"an argument {name}, which is the name of something else in generated code"


def codegen(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["codegen", *arguments])


def test_formulas_are_printed_and_what_is_missing_is_noted(tmp_path: Path) -> None:
    file = tmp_path / "n.yaml"
    file.write_text(NATIVES, encoding="utf-8")
    none = codegen(str(file), "--formulas")
    assert (none.exit_code, none.output) == (
        2,
        f"no derivatives.yaml belongs to {file}: name one with --derivatives\n",
    )
    (tmp_path / "derivatives.yaml").write_text(f"{NAME}  self: grad\n", encoding="utf-8")
    result = codegen(str(file), "--formulas")
    assert result.exit_code == 0
    assert '"f": Derivative("FBackward0", _f),' in result.stdout
    assert result.stderr == ""
    of_one = codegen(str(file), "--formulas", "--only", "f", "--only", "lonely")
    assert (of_one.exit_code, "lonely has no formula" in of_one.stderr) == (0, True)
    other = tmp_path / "other.yaml"
    other.write_text(f"{NAME}  self: grad.pow(2)\n", encoding="utf-8")
    missing = codegen(str(file), "--formulas", "--derivatives", str(other))
    assert (missing.exit_code, missing.stdout) == (2, "")
    assert "2 functions, of which 2 call what is not among the operators of the layers: pow(Tensor, int) in 2" in (
        missing.stderr
    )
    both = codegen(str(file), "--formulas", "--registrations")
    assert (both.exit_code, "--formulas do different things" in both.output) == (2, True)


def test_a_gradient_that_needs_a_conjugate_says_so_where_it_was_wrong_before() -> None:
    lab = Lab()
    x = tensor([1 + 2j, 3 - 1j], requires_grad=True)
    with pytest.raises(AutogradError, match="conjugates a complex tensor") as caught:
        lab.backward(lab.mul(x, x), tensor([1 + 0j, 1 + 0j]))
    assert caught.value.kind is AutogradErrorKind.NOT_DIFFERENTIABLE
    lab.backward(lab.add(x, x), tensor([1 + 1j, 2 + 0j]))
    assert x.grad is not None
    assert x.grad.numpy().tolist() == [2 + 2j, 4 + 0j]
