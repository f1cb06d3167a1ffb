"""What an unknown name was meant to be."""

from __future__ import annotations

import pytest

from dispatchlab.errors import nearest, nearest_operators, no_operator
from dispatchlab.registry.file import open_bundled

KNOWN = (
    "aten::add.Scalar",
    "aten::add.Tensor",
    "aten::add_.Tensor",
    "aten::pad",
    "aten::rand",
    "my::relu",
    "my::sole.out",
)


@pytest.mark.parametrize(
    ("asked", "first"),
    [
        ("torch.add", "aten::add"),
        ("torch.Tensor.add_", "aten::add_.Tensor"),
        ("torch.ops.aten.add.Tensor", "aten::add.Tensor"),
        ("torch.ops.my.relu", "my::relu"),
        ("aten.add.Scalar", "aten::add.Scalar"),
        ("at::add", "aten::add"),
        ("torch::pad", "aten::pad"),
        ("my.relu.default", "my::relu"),
        ("aten::ad", "aten::add"),
        ("aten::adt.Tensor", "aten::add.Tensor"),
        ("aten::add.tensor", "aten::add.Tensor"),
        ("Aten::Pad", "aten::pad"),
        ("my::sol", "my::sole.out"),
        ("my::sole", "my::sole.out"),
        ("mine::relu", "my::relu"),
        ("relu", "my::relu"),
    ],
)
def test_an_operator_is_found_by_what_it_is_called_elsewhere_and_by_what_is_like_it(asked: str, first: str) -> None:
    assert nearest_operators(asked, KNOWN)[:1] == (first,)


def test_nothing_is_near_to_nonsense() -> None:
    for asked in ("", ".", "::", "zzzzzz", "a.b.c.d", "q" * 500):
        assert nearest_operators(asked, KNOWN) == ()
    assert nearest_operators("aten::add", ()) == ()


def test_every_operator_of_pytorch_is_near_to_itself_as_python_calls_it() -> None:
    names = open_bundled("torch-2.13-cpu").names
    for name in names[::97]:
        assert nearest_operators("torch.ops." + name.replace("::", "."), names)[0] == name


def test_everyday_words_mean_what_pytorch_calls_them() -> None:
    assert nearest("gpu", ["xpu", "cuda"]) == ("cuda",)
    assert nearest("GPU", ["XPU", "CUDA"]) == ("CUDA",)
    assert nearest("gpu", ["xpu"]) == ("xpu",)


def test_a_glob_that_matches_nothing_says_what_there_is() -> None:
    assert (
        no_operator("my::*x", KNOWN)
        == "no operator matches my::*x; the namespace my has 2 operators, which 'my::*' lists"
    )
    assert no_operator("attn::*", KNOWN) == "no operator matches attn::*; did you mean 'aten::*'?"
    assert (
        no_operator("qq::*", KNOWN, source="a.yaml")
        == "no operator in a.yaml matches qq::*; its namespaces are aten, my"
    )
    assert no_operator("qq::*", KNOWN[:2]) == "no operator matches qq::*; it has aten::add.Scalar, aten::add.Tensor"
    assert no_operator("qq::*") == "no operator matches qq::*"
