"""Finding operators of a registry."""

from __future__ import annotations

from dispatchlab.model.keys import DispatchKey as K
from dispatchlab.model.names import find_names
from dispatchlab.registries.file import open_bundled
from dispatchlab.registries.model import find
from tests.registry_cases import SMALL

NAMES = open_bundled("torch-2.13-cpu").names


def names(**asked: object) -> list[str]:
    return [str(operator.name) for operator in find(SMALL, **asked)]  # type: ignore[arg-type]  # options by name


def test_a_name_is_exact_or_stands_for_its_overloads_or_is_a_glob() -> None:
    assert find_names(NAMES, "aten::relu") == ("aten::relu",)
    assert find_names(NAMES, "relu") == ("aten::relu",)
    assert find_names(NAMES, "aten::add") == (
        "aten::add.Scalar",
        "aten::add.Scalar_out",
        "aten::add.Tensor",
        "aten::add.out",
    )
    assert find_names(NAMES, "aten::ad") == ()
    assert find_names(NAMES, "quantized::*_relu.out") == ("quantized::add_relu.out", "quantized::mul_relu.out")
    assert len(find_names(NAMES, "aten::add*")) == 26
    assert len(find_names(NAMES, "*::*")) == 3598
    assert find_names(NAMES, "aten::ad[d]_.Tenso?") == ("aten::add_.Tensor",)


def test_operators_are_filtered_by_name_and_keys() -> None:
    assert names() == ["else::gone", "test::bar.out", "test::foo"]
    assert names(keys=(K.CPU, K.CUDA)) == ["else::gone", "test::foo"]
    assert names(asked="test::*", keys=(K.CUDA,)) == []
    assert names(asked="test::bar") == ["test::bar.out"]
