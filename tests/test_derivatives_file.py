"""derivatives.yaml as values, and every rule that a file can break, with its words."""

from __future__ import annotations

from pathlib import Path

import pytest

from dispatchlab.codegen import read_native_functions
from dispatchlab.codegen.read.derivatives import (
    DerivativeRule,
    Derivatives,
    DerivativesError,
    derivatives_beside,
    load_derivatives,
    read_derivatives,
)
from dispatchlab.codegen.read.matched_derivatives import matched_derivatives
from dispatchlab.codegen.read.native_functions import NativeFunctions
from dispatchlab.files.source_location import SourceLocation
from dispatchlab.model.keys import DispatchKey

NATIVES = """\
- func: mul.Tensor(Tensor self, Tensor other) -> Tensor
  dispatch: {CPU: mul}
- func: mul_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)
  dispatch: {CPU: mul_}
- func: mul.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)
  dispatch: {CPU: mul_out}
- func: both(Tensor self, float p=1) -> (Tensor first, Tensor second)
  dispatch: {CPU: both}
  autogen: both.out
- func: clash(Tensor self, Tensor grad_input_mask) -> Tensor
"""
MUL = "- name: mul.Tensor(Tensor self, Tensor other) -> Tensor\n"
BOTH = "- name: both(Tensor self, float p=1) -> (Tensor first, Tensor second)\n"


def natives() -> NativeFunctions:
    return read_native_functions(NATIVES)


def read(text: str) -> Derivatives:
    return read_derivatives(text, natives(), file="d.yaml")


BROKEN = {
    DerivativeRule.NOT_YAML: ("- [", "d.yaml:2:1: "),
    DerivativeRule.NOT_A_LIST: ("name: foo", "d.yaml:1:1: found no list of derivatives; start with `- name:`"),
    DerivativeRule.NOT_A_MAPPING: ("- foo", "d.yaml:1:3: found no mapping for an entry"),
    DerivativeRule.REPEATED_FIELD: (
        f"{MUL}  self: grad\n  self: grad",
        "d.yaml:3:3: 'self' is given twice, first on line 2",
    ),
    DerivativeRule.WRONG_VALUE: (f"{MUL}  self: [grad]", "d.yaml:2:9: 'self' has no formula; write an expression"),
    DerivativeRule.NO_NAME: (
        "- self: grad",
        "d.yaml:1:3: found an entry without a name; write the schema of the operator: `- name: ...`",
    ),
    DerivativeRule.UNREADABLE_SCHEMA: ("- name: mul(Tensor self", "d.yaml:1:24: "),
    DerivativeRule.NO_OPERATOR: (
        "- name: mul.Tensr(Tensor self, Tensor other) -> Tensor",
        "d.yaml:1:9: mul.Tensr is not in the file of native functions; did you mean mul.Tensor?",
    ),
    DerivativeRule.OTHER_SCHEMA: (
        "- name: mul.Tensor(Tensor self, Tensor others) -> Tensor",
        "d.yaml:1:9: mul.Tensor has another schema in the file of native functions; write mul.Tensor(Tensor self, "
        "Tensor other) -> Tensor",
    ),
    DerivativeRule.REPEATED_ENTRY: (
        f"{MUL}  self: grad\n{MUL}  other: grad",
        "d.yaml:3:3: mul.Tensor has formulas already, on line 1; keep one of the entries",
    ),
    DerivativeRule.UNKNOWN_KEY: (
        f"{MUL}  dispatch:\n    AutogradCDUA:\n      self: grad",
        "d.yaml:3:5: 'AutogradCDUA' is not a key of formulas; did you mean AutogradCUDA?",
    ),
    DerivativeRule.UNKNOWN_ARGUMENT: (
        f"{MUL}  othr: grad",
        "d.yaml:2:3: 'othr' is no argument and no result of mul.Tensor; did you mean other?",
    ),
    DerivativeRule.REPEATED_ARGUMENT: (
        f"{MUL}  other: grad\n  self, other: grad",
        "d.yaml:3:3: other has a formula and is given another one, or is called non_differentiable; keep one",
    ),
    DerivativeRule.RESERVED_ARGUMENT: (
        "- name: clash(Tensor self, Tensor grad_input_mask) -> Tensor\n  self: grad",
        "d.yaml:1:9: clash has an argument grad_input_mask, which formulas use for something else; give it another "
        "name",
    ),
    DerivativeRule.NO_SUCH_GRADIENT: (
        f"{BOTH}  self: grads[0] + grads[2]",
        "d.yaml:2:20: grads[2] is the gradient of a result that both does not have; it has 2",
    ),
    DerivativeRule.MIXED_GRADIENTS: (
        f"{BOTH}  self: grad + grads[1]",
        "d.yaml:2:3: the formulas of both mix grad, grads and the gradients of named results; use one of them",
    ),
    DerivativeRule.ONLY_FIRST_GRADIENT: (
        f"{BOTH}  self: grads[0] * p",
        "d.yaml:2:3: the formulas of both use grads[0] alone; write grad",
    ),
}


@pytest.mark.parametrize("rule", DerivativeRule)
def test_a_file_that_breaks_a_rule_is_refused_in_pinned_words(rule: DerivativeRule) -> None:
    text, expected = BROKEN[rule]
    with pytest.raises(DerivativesError) as caught:
        read(text)
    (problem,) = caught.value.problems
    assert problem.rule == rule
    assert str(problem).startswith(expected)
    assert str(problem) == expected or expected.endswith(" ")


def test_all_problems_come_at_once_in_the_order_of_the_file() -> None:
    text = f"- foo\n{MUL}  othr: grad\n{BOTH}  self: grads[0] * p"
    with pytest.raises(DerivativesError) as caught:
        read(text)
    rules = [problem.rule for problem in caught.value.problems]
    assert rules == ["not_a_mapping", "unknown_argument", "only_first_gradient"]


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("True", "does not say which results are"),
        ("[True, Perhaps]", "a condition stands alone"),
        ("[True, True, True]", "has 2 results, and this names more"),
        ("[[True]]", "does not say which results are"),
    ],
)
def test_output_differentiability_is_a_list_of_booleans_or_one_condition(field: str, message: str) -> None:
    with pytest.raises(DerivativesError, match=message):
        read(f"{BOTH}  self: grad\n  output_differentiability: {field}")


def test_formulas_stand_below_keys_or_beside_the_name_and_not_both() -> None:
    text = f"{MUL}  self: grad\n  dispatch:\n    Default:\n      other: grad"
    with pytest.raises(DerivativesError, match=r"d\.yaml:2:3: 'self' stands beside dispatch; move it below a key"):
        read(text)


def test_an_entry_is_a_value() -> None:
    text = (
        f"{MUL}  dispatch:\n    Default:\n      other: grad * self\n      self: grad * other\n"
        "      result: auto_linear\n    AutogradNestedTensor:\n      self: non_differentiable\n"
    )
    (entry,) = read(text).entries
    assert [each.key for each in entry.keys] == [DispatchKey.Autograd, DispatchKey.AutogradNestedTensor]
    assert entry.nodes == ("MulBackward0", None)
    default, nested = entry.keys
    assert [(each.names, each.text) for each in default.formulas] == [
        (("other",), "grad * self"),
        (("self",), "grad * other"),
    ]
    assert default.formulas[1].location == SourceLocation("d.yaml", 5, 13)
    assert [each.text for each in default.forward] == ["auto_linear"]
    assert (nested.non_differentiable, nested.formulas) == (("self",), ())


def test_variants_have_the_formulas_of_the_functional_one_and_generated_out_variants_have_none() -> None:
    found = matched_derivatives(natives(), read(f"{MUL}  self: grad\n{BOTH}  self: grad"))
    assert {str(name): (match.nodes, match.exact) for name, match in found.items()} == {
        "aten::mul.Tensor": (("MulBackward0",), True),
        "aten::mul_.Tensor": (("MulBackward0",), False),
        "aten::mul.out": (("MulBackward0",), False),
        "aten::both": (("BothBackward0",), True),
    }


def test_the_file_is_looked_for_beside_the_functions_and_where_pytorch_has_it(tmp_path: Path) -> None:
    packaged = tmp_path / "packaged" / "ATen" / "native" / "native_functions.yaml"
    sources = tmp_path / "pytorch" / "aten" / "src" / "ATen" / "native" / "native_functions.yaml"
    for file, beside in (
        (packaged, tmp_path / "packaged" / "autograd" / "derivatives.yaml"),
        (sources, tmp_path / "pytorch" / "tools" / "autograd" / "derivatives.yaml"),
        (packaged, packaged.with_name("derivatives.yaml")),
    ):
        assert derivatives_beside(file) != beside
        beside.parent.mkdir(parents=True, exist_ok=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text("[]", encoding="utf-8")
        assert derivatives_beside(file) == beside
    assert load_derivatives(packaged.with_name("derivatives.yaml"), natives()).entries == ()


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DerivativesError, match=r"none\.yaml: the file cannot be read: No such file or directory"):
        load_derivatives(tmp_path / "none.yaml", natives())
