"""Formulas that are generated from derivatives.yaml, against the running PyTorch: each operator of the layers."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import pytest

from dispatchlab.codegen.emit.layer_formulas import GeneratedFormulas, formulas_of_the_layers, generated_formulas
from dispatchlab.codegen.read.derivatives import Derivatives, derivatives_beside, load_derivatives
from dispatchlab.codegen.read.native_functions import NativeFunctions, load_native_functions
from dispatchlab.layers import Lab
from dispatchlab.layers.derivative_table import DERIVATIVES
from dispatchlab.layers.formulas import FORMULAS
from tests.formula_calls import MAKERS, formula_calls
from tests.formula_comparison import check
from tools import layer_formulas

WHY = "compares with the installed PyTorch, and there is none"
torch: Any = pytest.importorskip("torch", reason=WHY)
packaged: Any = pytest.importorskip("torchgen.packaged", reason=WHY)
FILE = f"{next(iter(packaged.__path__))}/ATen/native/native_functions.yaml"
of_2_13 = pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="the files are those of 2.13")


@cache
def natives() -> NativeFunctions:
    return load_native_functions(FILE)


@cache
def derivatives() -> Derivatives:
    path = derivatives_beside(FILE)
    assert path is not None
    return load_derivatives(path, natives())


@cache
def of_the_layers() -> GeneratedFormulas:
    return formulas_of_the_layers(natives(), derivatives())


@of_2_13
def test_the_module_of_the_layers_is_what_is_generated() -> None:
    assert layer_formulas.MODULE.read_text(encoding="utf-8") == layer_formulas.text()


@of_2_13
def test_each_operator_of_the_layers_has_a_generated_formula_or_a_named_reason() -> None:
    found = of_the_layers()
    assert [each.function.short_name for each in found.generated] == [*FORMULAS]
    assert {each.function.short_name: each.missing for each in found.missing} == {
        "matmul": "grad_input_mask",
        "_unique2": "a node with 3 results",
        "unique_dim": "a node with 3 results",
        "linalg_lu_factor_ex": "a node with 3 results",
    }
    assert set(DERIVATIVES) - set(FORMULAS) == {"copy_"}
    assert {each.short_name for each in found.without} >= {"copy_", "detach", "empty.memory_format", "zeros"}


@of_2_13
def test_what_is_not_generated_is_named_formula_by_formula() -> None:
    found = generated_formulas(natives(), derivatives())
    functions = len(found.generated), len(found.not_generated), len(found.without)
    assert sum(functions) == len(natives().functions) == 3_101
    assert functions[0] == 162
    assert functions[1] == 714
    assert all(each.missing and each.formula.location.line for each in found.missing)
    unreadable = [each.function.short_name for each in found.missing if "cannot be read" in each.missing]
    assert unreadable == ["roll"]


def test_every_formula_is_called() -> None:
    assert set(MAKERS) == set(DERIVATIVES)


# PyTorch warns that create_graph makes cycles
@pytest.mark.filterwarnings("ignore:Using backward")
def test_gradients_of_generated_calls_are_torchs() -> None:
    lab, counts = Lab(), Counter[str]()
    for at, call in enumerate(formula_calls(10 * len(MAKERS), seed=1)):
        counts += check(lab, torch, call, again=at % 3 == 0)
    assert counts["results"] == 10 * len(MAKERS)
    assert counts["nodes"] > 8 * len(MAKERS)
    assert counts["gradients"] > 9 * len(MAKERS)
    assert counts["second gradients"] > len(MAKERS)


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize(
    ("changed", "by"),
    [
        ("sin", "cos"),
        ("sub.Tensor", "add.Tensor"),
        ("div.Tensor", "mul.Tensor"),
        ("t", "clone"),
        ("relu", "exp"),
        ("select.int", "select_copy.int"),
        ("copy_", "normal_"),
    ],
)
def test_the_comparison_finds_a_wrong_formula(changed: str, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dispatchlab.layers.lab.DERIVATIVES", {**DERIVATIVES, changed: DERIVATIVES[by]})
    lab, found = Lab(), 0
    for call in (each for each in formula_calls(8 * len(MAKERS), seed=2) if each.operator == changed):
        try:
            check(lab, torch, call, again=False)
        except Exception:
            found += 1
    assert found > 3
