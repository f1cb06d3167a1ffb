"""The three forms of an output, through generated kernels: allocated, checked in place, resized; and the proxy."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dispatchlab import Dispatcher, Library
from dispatchlab.call import Tensor, operator, tensor
from dispatchlab.call.tensor_options import Device, DeviceType, DType
from dispatchlab.codegen import read_native_functions
from dispatchlab.codegen.runtime import check_same_device
from dispatchlab.codegen.runtime.memory import Options, empty_strided
from dispatchlab.errors import CallError, ErrorKind
from tests.generated_modules import generated_modules
from tests.structured_lab import StructuredLab

TWICE = """
- func: twice(Tensor self) -> Tensor
  structured_delegate: twice.out
- func: twice_(Tensor(a!) self) -> Tensor(a!)
  structured_delegate: twice.out
- func: twice.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)
  structured: True
  dispatch:
    CPU, CUDA: twice_out
"""


class ByColumns:
    """A meta that wants columns to stand together in memory, and an impl that remembers what it wrote to."""

    def __init__(self) -> None:
        self.written: list[Any] = []

    def meta_twice(self, op: Any, given: Tensor) -> None:
        op.set_output_strided(0, given.shape, (1, given.shape[0]), Options(given.dtype, given.device))

    def twice_out(self, op: Any, given: Tensor, out: Tensor) -> None:
        self.written.append(out.strides)
        np.multiply(given.data, 2, out=out.data)


@pytest.fixture
def twice() -> Iterator[tuple[Dispatcher, ByColumns]]:
    dispatcher, kernels = Dispatcher(), ByColumns()
    (module,) = generated_modules(read_native_functions(TWICE), file="twice.yaml").values()
    with module.register(dispatcher, kernels):
        yield dispatcher, kernels


def test_the_functional_variant_allocates_what_meta_asks_for(twice: tuple[Dispatcher, ByColumns]) -> None:
    dispatcher, kernels = twice
    result = operator(dispatcher, "aten::twice")(tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
    assert (result.strides, kernels.written) == ((1, 2), [(1, 2)])
    np.testing.assert_array_equal(result.data, [[2, 4, 6], [8, 10, 12]])


def test_an_out_with_other_strides_is_written_by_way_of_a_proxy(twice: tuple[Dispatcher, ByColumns]) -> None:
    dispatcher, kernels = twice
    out = tensor(np.zeros((2, 3), np.float32))
    memory = out.data
    result = operator(dispatcher, "aten::twice.out")(tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), out=out)
    assert result is out
    assert out.data is memory
    assert (out.strides, kernels.written) == ((3, 1), [(1, 2)])
    np.testing.assert_array_equal(memory, [[2, 4, 6], [8, 10, 12]])


def test_an_out_with_the_right_strides_is_written_itself(twice: tuple[Dispatcher, ByColumns]) -> None:
    dispatcher, kernels = twice
    out = empty_strided((2, 3), (1, 2), Options(DType.float32, Device(DeviceType.CPU)))
    operator(dispatcher, "aten::twice.out")(tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), out=out)
    assert kernels.written == [(1, 2)]
    np.testing.assert_array_equal(out.data, [[2, 4, 6], [8, 10, 12]])


def test_an_out_of_another_size_is_resized_to_the_strides_that_meta_asks_for(
    twice: tuple[Dispatcher, ByColumns],
) -> None:
    dispatcher, kernels = twice
    out = tensor(np.zeros((0,), np.float32))
    operator(dispatcher, "aten::twice.out")(tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), out=out)
    assert (out.shape, out.strides, kernels.written) == ((2, 3), (1, 2), [(1, 2)])


def test_in_place_is_written_back_from_the_proxy(twice: tuple[Dispatcher, ByColumns]) -> None:
    dispatcher, kernels = twice
    given = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    assert operator(dispatcher, "aten::twice_")(given) is given
    assert (given.strides, kernels.written) == ((3, 1), [(1, 2)])
    np.testing.assert_array_equal(given.data, [[2, 4, 6], [8, 10, 12]])


def test_resizing_what_has_elements_warns() -> None:
    lab = StructuredLab()
    out = tensor([0.0])
    with pytest.warns(UserWarning, match=r"resized since it had shape \[1\], which does not match .* \[2, 2\]"):
        lab("add.out")(tensor([[1.0, 2.0], [3.0, 4.0]]), tensor([1.0, 1.0]), out=out)
    assert out.shape == (2, 2)


def test_on_meta_shapes_and_dtypes_come_without_elements() -> None:
    lab = StructuredLab()
    first, second = tensor([[1.0], [2.0]], device="meta"), tensor([1, 2, 3], device="meta")
    added = lab("add.Tensor")(first, second)
    assert (added.shape, added.dtype, str(added.device)) == ((2, 3), DType.float32, "meta")
    values, indices = lab("max.dim")(added, 1)
    assert (values.shape, values.dtype, indices.dtype) == ((2,), DType.float32, DType.int64)
    out = tensor(np.zeros((0,), np.float32), device="meta")
    assert (
        lab("mm.out")(
            added, lab("mul.Tensor")(tensor(np.ones((3, 4), np.float32), device="meta"), second_scalar()), out=out
        )
        is out
    )
    assert out.shape == (2, 4)


def second_scalar() -> Tensor:
    return tensor(2.0, device="meta")


def test_cuda_is_a_label_and_devices_must_agree() -> None:
    lab = StructuredLab()
    on_cuda = tensor([[1.0, 2.0], [3.0, 4.0]], device="cuda")
    product = lab("mm")(on_cuda, on_cuda)
    assert str(product.device) == "cuda"
    np.testing.assert_array_equal(product.data, [[7, 10], [15, 22]])
    with pytest.raises(
        CallError, match=r"found at least two devices, cuda and cpu! .*argument mat2 in method wrapper_CUDA_mm"
    ):
        lab("mm")(on_cuda, tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert str(lab("add.Tensor")(on_cuda, tensor(1.0)).device) == "cuda"
    with pytest.raises(CallError, match="two devices"):
        lab("add.Tensor")(on_cuda, tensor([1.0]))


def test_another_backend_computes_by_its_out_variant() -> None:
    lab = StructuredLab()
    on_xpu = tensor([1.0, 2.0], device="xpu")
    with pytest.raises(CallError) as caught:
        lab("mul.Tensor")(on_xpu, on_xpu)
    assert (caught.value.kind, "aten::mul.out has no kernel for XPU" in caught.value.message) == (
        ErrorKind.MISSING_KERNEL,
        True,
    )
    calls = []

    def mul_out(self: Tensor, other: Tensor, *, out: Tensor) -> Tensor:
        calls.append(out.shape)
        np.multiply(self.data, other.data, out=out.data)
        return out

    mine = Library("aten", "IMPL", "XPU", dispatcher=lab.dispatcher)
    mine.impl("mul.out", mul_out)
    assert lab("mul.Tensor")(on_xpu, on_xpu).data.tolist() == [1.0, 4.0]
    lab("mul_.Tensor")(on_xpu, on_xpu)
    assert on_xpu.data.tolist() == [1.0, 4.0]
    assert calls == [(2,), (2,)]


def test_a_precomputed_value_is_what_impl_gets() -> None:
    text = """
- func: pick(Tensor self, int dim) -> Tensor
  structured_delegate: pick.out
- func: pick.out(Tensor self, int dim, *, Tensor(a!) out) -> Tensor(a!)
  structured: True
  precomputed:
  - dim -> int axis, bool last
  - int size
  dispatch:
    CPU: pick_out
"""
    got: list[object] = []

    def meta_pick(op: Any, self: Tensor, dim: int) -> tuple[int, bool, int]:
        op.set_output_raw_strided(0, (), None, Options(self.dtype, self.device))
        return dim % self.ndim, dim == -1, self.shape[dim]

    def pick_out(op: Any, self: Tensor, axis: int, last: bool, size: int, out: Tensor) -> None:  # noqa: FBT001
        got.extend((axis, last, size))
        out.data[...] = self.data.sum()

    dispatcher = Dispatcher()
    (module,) = generated_modules(read_native_functions(text), file="pick.yaml").values()
    with module.register(dispatcher, SimpleNamespace(meta_pick=meta_pick, pick_out=pick_out)):
        assert operator(dispatcher, "aten::pick")(tensor([[1.0, 2.0]]), -1).data.item() == 3.0
    assert got == [1, True, 2]


def test_a_device_check_looks_into_lists_and_over_what_is_not_there() -> None:
    check_same_device("w", a=[tensor([1.0]), None], b=None, c=tensor(1.0, device="cpu"))
    with pytest.raises(CallError, match="argument for argument b in method w"):
        check_same_device("w", a=[tensor([1.0])], b=[tensor(1.0), tensor([1.0], device="cuda")])
