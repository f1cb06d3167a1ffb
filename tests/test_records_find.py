"""Finding operators of a registry, and counting its kernels."""

from __future__ import annotations

from dispatchlab.model.keys import DispatchKey as K
from dispatchlab.records.file import open_bundled
from dispatchlab.records.find import KeyCount, find, find_names, key_counts
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


def test_operators_are_filtered_by_name_keys_dangling_and_overridden() -> None:
    assert names() == ["else::gone", "test::bar.out", "test::foo"]
    assert names(dangling=True) == ["else::gone"]
    assert names(overridden=True) == ["test::foo"]
    assert names(keys=(K.CPU, K.CUDA)) == ["else::gone", "test::foo"]
    assert names(keys=(K.CPU,), overridden=True) == []
    assert names(keys=(K.Meta,), overridden=True) == ["test::foo"]
    assert names(asked="test::*", keys=(K.CUDA,)) == []
    assert names(asked="test::bar") == ["test::bar.out"]


def test_all_overridden_kernels_of_pytorch_are_meta_kernels() -> None:
    registry = open_bundled("torch-2.13-cpu").load()
    assert len(list(find(registry, overridden=True))) == 636
    assert len(list(find(registry, overridden=True, keys=(K.Meta,)))) == 636
    assert list(find(registry, dangling=True)) == []


def test_kernels_are_counted_by_key() -> None:
    assert key_counts(SMALL) == (
        KeyCount(K.CPU, 1, 0, 0, fallback=False),
        KeyCount(K.CUDA, 1, 0, 0, fallback=False),
        KeyCount(K.Meta, 1, 1, 0, fallback=False),
        KeyCount(K.AutogradCPU, 0, 0, 0, fallback=True),
        KeyCount(K.Autograd, 1, 0, 0, fallback=False),
        KeyCount(K.CompositeImplicitAutograd, 1, 0, 0, fallback=False),
    )


def test_the_counts_of_all_keys_add_up_to_the_kernels_of_pytorch() -> None:
    counts = key_counts(open_bundled("torch-2.13-cpu"))
    assert sum(count.operators + count.inactive for count in counts) == 17168
    assert sum(count.fallback for count in counts) == 38
    assert sum(count.fallthrough for count in counts) == 232
    by_key = {count.key: count for count in counts}
    assert by_key[K.CPU] == KeyCount(K.CPU, 1178, 0, 0, fallback=False)
    assert by_key[K.Meta] == KeyCount(K.Meta, 1612, 636, 0, fallback=True)
