"""Kernels made from `ufunc_inner_loop`: which loop runs, how numbers are rounded, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dispatchlab.call.operators import operator
from dispatchlab.call.tensor import Tensor
from dispatchlab.call.tensor_options import DType
from dispatchlab.codegen.emit.generate import generated_modules
from dispatchlab.codegen.emit.ufunc_loops import UfuncLoopError
from dispatchlab.codegen.kernels import by_name
from dispatchlab.codegen.read.native_functions import read_native_functions
from dispatchlab.codegen.runtime.element_types import Vectorized, fused, scalar_to
from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.engine.kernel import fallthrough
from dispatchlab.engine.library import Library
from dispatchlab.errors import CallError
from tests.structured_lab import StructuredLab

GROUP = """
- func: add.Tensor({arguments}) -> Tensor
  structured_delegate: add.out
- func: add.out({arguments}{comma} Tensor(a!) out) -> Tensor(a!)
  structured: True
  structured_inherits: TensorIteratorBase
  ufunc_inner_loop:
{loops}
"""
ARGUMENTS = "Tensor self, Tensor other, *, Scalar alpha=1"


def group(*loops: str, arguments: str = ARGUMENTS) -> Callable[..., Tensor]:
    """An `add` with these loops, ready to be called."""
    taken, comma = (arguments.removesuffix(", *"), ", *,") if arguments.endswith(", *") else (arguments, ",")
    text = GROUP.format(arguments=taken, comma=comma, loops="\n".join(f"    {loop}" for loop in loops))
    natives = read_native_functions(text.encode(), file="x.yaml")
    (module,) = generated_modules(natives, file="x.yaml").values()
    dispatcher = Dispatcher(builtin_fallbacks=False)
    held = [module.register(dispatcher, by_name()), Library("_", "IMPL", dispatcher=dispatcher)]
    for key in ("BackendSelect", "ADInplaceOrView", "Autograd"):
        held[1].fallback(fallthrough, key)

    def add(*args: object, **named: object) -> Tensor:
        assert len(held) == 2
        result: Tensor = operator(dispatcher, "aten::add.Tensor")(*args, **named)
        return result

    return add


def halves(count: int, step: int = 1) -> Tensor:
    array = (np.arange(count * step) * 0.37 + 0.1).astype(np.float16)
    return Tensor(array[::step])


def test_vectors_of_half_are_rounded_once_and_single_elements_twice() -> None:
    lab = StructuredLab()
    first, second = halves(40), halves(40)
    twice = first.data + np.float16(0.3) * second.data
    once = (first.data.astype(np.float32) + np.float32(np.float16(0.3)) * second.data).astype(np.float16)
    assert (once[:32] != twice[:32]).any()
    contiguous = lab("add.Tensor")(first, second, alpha=0.3).data
    np.testing.assert_array_equal(contiguous[:32], once[:32])
    np.testing.assert_array_equal(contiguous[32:], twice[32:])  # what fills no two vectors
    apart = np.repeat(second.data, 2)[::2]
    np.testing.assert_array_equal(lab("add.Tensor")(first, Tensor(apart), alpha=0.3).data, twice)
    still = lab("add.Tensor")(first, Tensor(np.array(2.0, np.float16)), alpha=0.3).data
    doubled = first.data.astype(np.float32) + np.float32(np.float16(0.3)) * 2
    np.testing.assert_array_equal(still[:32], doubled.astype(np.float16)[:32])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("kind", "widest"), [(np.float32, 30), (np.float64, 200)])
def test_a_product_and_a_sum_are_rounded_once(kind: type[np.floating[Any]], widest: int) -> None:
    source = np.random.default_rng(4)
    scales = 10.0 ** source.integers(-widest, widest, (3, 200))
    first, second, third = (source.standard_normal((3, 200)) * scales).astype(kind)
    third[:50] = -(first[:50] * second[:50])  # so that only what was rounded away is left
    found = fused(first, second, third)
    for at in range(200):
        if not np.isfinite(third[at]):
            continue
        exact = Fraction(float(first[at])) * Fraction(float(second[at])) + Fraction(float(third[at]))
        try:
            wanted = _nearest(exact, kind)
        except OverflowError:
            wanted = np.inf if exact > 0 else -np.inf
        assert found[at] == wanted, (first[at], second[at], third[at])


def _nearest(exact: Fraction, kind: type[np.floating[Any]]) -> float:
    """The float next to a number, ties to even: of the two around it, the one that is nearer."""
    near = kind(float(exact))
    around = [near, np.nextafter(near, kind(np.inf)), np.nextafter(near, kind(-np.inf))]
    if not all(np.isfinite(around)):
        return float(near)
    best = min(around, key=lambda one: (abs(Fraction(float(one)) - exact), int(one.view(f"i{one.itemsize}")) & 1))
    return float(best)


def test_a_dtype_without_a_loop_is_refused_by_the_name_of_its_kernel() -> None:
    add = group("Generic: add (Floating)", "ScalarOnly: add (Bool)")
    ones = np.ones(3)
    assert add(Tensor(ones), Tensor(ones), alpha=2).data.tolist() == [3.0, 3.0, 3.0]
    assert add(Tensor(ones.astype(bool)), Tensor(ones.astype(bool))).data.tolist() == [True] * 3
    for device, name in (("cpu", "add_stub"), ("cuda", "ufunc_add_CUDA")):
        whole = Tensor(ones.astype(np.int64), device=device)
        with pytest.raises(CallError) as caught:
            add(whole, whole)
        assert caught.value.message == f"\"{name}\" not implemented for 'Long'"


def test_a_functor_of_cuda_holds_a_scalar_of_the_cpu_in_the_wider_type() -> None:
    lab = StructuredLab()
    many = Tensor(np.full(4, 0.1, np.float16), device="cuda")
    number = Tensor(np.array(0.30001))
    expected = (np.float32(np.float16(0.1)) + np.float32(0.30001)).astype(np.float16)
    for found in (lab("add.Tensor")(many, number), lab("add.Tensor")(number, many)):
        assert (found.dtype, found.data.tolist()) == (DType.float16, [float(expected)] * 4)


@pytest.mark.parametrize(
    ("number", "kind", "expected"),
    [
        (300, "Byte", "value cannot be converted to type uint8_t without overflow"),
        (-200, "Byte", 56),
        (-300, "Byte", "value cannot be converted to type uint8_t without overflow"),
        (7e4, "Half", "value cannot be converted to type c10::Half without overflow"),
        (float("inf"), "Half", float("inf")),
        (1e300, "ComplexFloat", "value cannot be converted to type c10::complex<float> without overflow"),
        (2, "Bool", True),
        (2**40, "Int", "value cannot be converted to type int without overflow"),
        (2 + 0j, "Float", 2.0),
    ],
)
def test_a_number_becomes_an_element_or_is_refused(number: complex, kind: str, expected: object) -> None:
    if isinstance(expected, str):
        with pytest.raises(CallError) as caught:
            scalar_to(number, kind)
        assert caught.value.message == expected
    else:
        assert scalar_to(number, kind) == expected


def test_arithmetic_of_vectors_keeps_their_type() -> None:
    one, two = Vectorized(np.arange(4.0)), Vectorized(np.full(4, 2.0))
    assert ((one + two) * (one - two)).values.tolist() == [-4.0, -3.0, 0.0, 5.0]


@pytest.mark.parametrize(
    ("loops", "arguments", "reason"),
    [
        (
            ("CPUVector: add (Float)", "ScalarOnly: add (Long)"),
            ARGUMENTS,
            "Float has a vector loop on CPU and no scalar",
        ),
        (("CPUScalar: add (Float)",), ARGUMENTS, "CUDA needs CUDAFunctorOnSelf, ScalarOnly or Generic"),
        (("Generic: add (Float)", "ScalarOnly: plus (Bool)"), ARGUMENTS, "ScalarOnly and Generic name two functions"),
        (("Generic: add (Float)", "CUDAFunctor: mine (Half)"), ARGUMENTS, "Float has functors for CPU scalars on CUDA"),
        (("Generic: add (Float)",), "Tensor a, Tensor b, *", "are called self and other, and these are a and b"),
        (
            ("Generic: add (Float)",),
            "Tensor self, Tensor other, int n, *",
            "n is int, and the loops of CPU take tensors",
        ),
    ],
)
def test_loops_that_make_no_kernel_are_refused(loops: tuple[str, ...], arguments: str, reason: str) -> None:
    with pytest.raises(UfuncLoopError, match=reason) as caught:
        group(*loops, arguments=arguments)
    assert str(caught.value).startswith("x.yaml:")
