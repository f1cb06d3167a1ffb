"""Structured operators through the dispatcher held to torch: values, shapes, dtypes, strides, warnings, errors."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any, TypeAlias

import numpy as np
import pytest

from dispatchlab.call.tensor import Array, Tensor
from dispatchlab.call.tensor_options import DType
from dispatchlab.errors import CallError
from tests.structured_kernels.lab import lab_functions
from tests.structured_lab import StructuredLab

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

# NB: what a library of C++ computes and what numpy computes differs in the last bits
CLOSE = {"f2": 2e-3, "f4": 2e-6, "f8": 1e-12, "c8": 4e-6, "c16": 1e-12}
DTYPES = (*("bool", "uint8", "int8", "int32", "int64"), *("float16", "float32", "float64", "complex64"))
FEW = ("bool", "uint8", "int64", "float16", "float32", "complex64")
_NAMES = {
    **{"Bool": "bool", "Byte": "uint8", "Char": "int8", "Short": "int16", "Int": "int32", "Long": "int64"},
    **{"Half": "float16", "Float": "float32", "Double": "float64", "ComplexFloat": "complex64"},
    **{"ComplexDouble": "complex128", "unsigned char": "uint8", "signed char": "int8"},
    **{"long int": "int64", "long": "int64", "float": "float32", "double": "float64", "int": "int32"},
}


@dataclass(frozen=True, slots=True)
class Given:
    """A tensor for both: an array with strides of its own."""

    shape: tuple[int, ...]
    dtype: str
    form: str = "plain"
    seed: int = 0

    def array(self) -> Array:
        random = np.random.default_rng([*self.shape, len(self.dtype), self.seed])
        grown = {"plain": self.shape, "turned": self.shape[::-1], "stepped": tuple(2 * size for size in self.shape)}
        size = grown.get(self.form, self.shape)
        kind = np.dtype(self.dtype)
        if kind.kind == "b":
            base: Array = random.integers(0, 2, size).astype(bool)
        elif kind.kind in "iu":
            base = random.integers(0 if kind.kind == "u" else -9, 10, size).astype(kind)
        else:
            base = np.asarray(random.standard_normal(size) * 3)
            if kind.kind == "c":
                base = base + 1j * random.standard_normal(size)
            base = base.astype(kind)
        base = np.asarray(base)
        if self.form == "turned":
            return base.T
        if self.form == "stepped" and self.shape:
            return base[tuple(slice(None, None, 2) for _ in self.shape)]
        if self.form == "expanded" and self.shape and self.shape[0]:
            return np.lib.stride_tricks.as_strided(base, self.shape, (0, *base.strides[1:]))
        return base

    def pair(self) -> tuple[Tensor, Any]:
        mine, other = self.array().copy("K"), self.array()
        if self.form in ("stepped", "expanded"):
            mine = self.array()
        item = other.itemsize
        span = 1 + sum(max(size - 1, 0) * step // item for size, step in zip(other.shape, other.strides, strict=True))
        flat = torch.zeros(max(span, 1), dtype=getattr(torch, self.dtype))
        strides = [step // item for step in other.strides] if other.size else _contiguous(other.shape)
        theirs = flat.as_strided(other.shape, strides)
        if other.size:
            if self.form == "expanded":
                theirs[:1].copy_(torch.from_numpy(np.ascontiguousarray(other[:1])))
            else:
                theirs.copy_(torch.from_numpy(np.ascontiguousarray(other).reshape(other.shape)))
        if not other.size:
            mine = np.lib.stride_tricks.as_strided(mine, mine.shape, [step * item for step in strides])
        return Tensor(mine), theirs


def _contiguous(shape: Sequence[int]) -> list[int]:
    return [int(np.prod([max(size, 1) for size in shape[at + 1 :]], dtype=np.int64)) for at in range(len(shape))]


Outcome: TypeAlias = tuple[object, ...]


def outcome(call: Callable[[], Any]) -> tuple[Outcome, Any]:
    """What a call did: the kind of end, how often it warned of a resize; and what it returned."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = call()
        except (CallError, RuntimeError, IndexError, NotImplementedError) as error:
            return ("error", message_of(error)), None
    # NB: torch warns once more of an output that it casts to, and once in a process of complex numbers
    texts = dict.fromkeys(re.sub(r"\s*\(Triggered internally.*", "", str(one.message)) for one in caught)
    texts.pop("Casting complex values to real discards the imaginary part", None)
    return ("returned", *texts), result


def message_of(error: Exception) -> str:
    text = error.message if isinstance(error, CallError) else str(error)
    text = re.sub(r"torch\.(\w+)", r"\1", text.splitlines()[0]).strip()
    text = text.replace("c10::Half", "Half").replace("c10::complex<float>", "complex64")
    return re.sub(r"\b(" + "|".join(sorted(_NAMES, key=len, reverse=True)) + r")\b", lambda m: _NAMES[m[0]], text)


def check_same(mine: Tensor, theirs: Any, case: Case, *more: object) -> None:
    what = (case, *more)
    array, other = mine.data, theirs.detach()
    assert str(mine.dtype) == str(other.dtype).removeprefix("torch."), what
    assert mine.shape == tuple(other.shape), what
    assert mine.strides == other.stride(), (what, mine.strides, other.stride())
    expected = other.numpy()
    if array.dtype.kind in "fc":
        computed = [np.dtype(each.dtype) for each in case.inputs]
        bound = max(CLOSE.get(kind.str[1:], CLOSE["f4"]) for kind in (array.dtype, *computed))
        np.testing.assert_allclose(array, expected, rtol=bound, atol=bound, err_msg=str(what), equal_nan=True)
    else:
        np.testing.assert_array_equal(array, expected, err_msg=str(what))


@cache
def lab() -> StructuredLab:
    return StructuredLab()


def their_operator(name: str) -> Any:
    base, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), overload or "default")


@dataclass(frozen=True, slots=True)
class Case:
    """One call: the operator's functional, in-place and out names, and what they are given."""

    names: tuple[str, str, str]
    inputs: tuple[Given, ...]
    rest: tuple[object, ...] = ()
    named: tuple[tuple[str, object], ...] = ()

    def values(self) -> tuple[list[Any], list[Any]]:
        pairs = [each.pair() for each in self.inputs]
        return [mine for mine, _ in pairs], [theirs for _, theirs in pairs]

    def dtype_for_torch(self) -> dict[str, Any]:
        named = dict(self.named)
        if isinstance(named.get("dtype"), DType):
            named["dtype"] = getattr(torch, str(named["dtype"]))
        return named


def run(case: Case, seen: Counter[str]) -> None:
    """The three variants of one case, on both."""
    functional, inplace, out = case.names
    mine, theirs = case.values()
    ended, result = outcome(lambda: lab()(functional)(*mine, *case.rest, **dict(case.named)))
    wanted, expected = outcome(lambda: their_operator(functional)(*theirs, *case.rest, **case.dtype_for_torch()))
    assert ended == wanted, (case, "functional", ended, wanted)
    seen[f"{functional} {ended[0]}"] += 1
    results = result if isinstance(result, tuple) else (result,)
    expecteds = expected if isinstance(expected, tuple | list) else (expected,)
    if ended[0] == "returned":
        for one, other in zip(results, expecteds, strict=True):
            check_same(one, other, case, "functional")
    if inplace:
        _in_place(case, inplace, seen)
    _out(case, out, [str(one.dtype) for one in results if one is not None], seen)


def _in_place(case: Case, name: str, seen: Counter[str]) -> None:
    mine, theirs = case.values()
    ended, result = outcome(lambda: lab()(name)(*mine, *case.rest, **dict(case.named)))
    wanted, _ = outcome(lambda: their_operator(name)(*theirs, *case.rest, **case.dtype_for_torch()))
    assert ended == wanted, (case, "in place", ended, wanted)
    seen[f"{name} {ended[0]}"] += 1
    if ended[0] == "returned":
        assert result is mine[0]
        check_same(mine[0], theirs[0], case, "in place")


OUTS = (
    *(((0,), "", "plain"), ((2, 3), "", "plain"), ((3, 1), "", "turned"), ((2, 3), "", "stepped")),
    *(((0,), "int64", "plain"), ((2, 3), "float64", "plain")),
)
"""The outputs that are given: a shape, another dtype than the right one, and a form."""


def _out(case: Case, name: str, dtypes: Sequence[str], seen: Counter[str]) -> None:
    outs = [argument.name for argument in lab()(name).schema.arguments if argument.kwarg_only and argument.alias]
    right = list(dtypes) if len(dtypes) == len(outs) else ["float32"] * len(outs)
    for shape, other, form in OUTS:
        kinds = [other if other and not position else kind for position, kind in enumerate(right)]
        given = [Given(shape, kind, form) for kind in kinds]
        mine, theirs = case.values()
        my_outs, their_outs = zip(*(each.pair() for each in given), strict=True)
        my_named = {**dict(case.named), **dict(zip(outs, my_outs, strict=True))}
        # NB: by the Python binding, for a warning of C++ becomes one of Python there alone
        their_named = {**case.dtype_for_torch(), "out": their_outs if len(outs) > 1 else their_outs[0]}
        ended, _ = outcome(lambda a=mine, k=my_named: lab()(name)(*a, *case.rest, **k))  # type: ignore[misc]
        wanted, _ = outcome(lambda a=theirs, k=their_named: getattr(torch, name.partition(".")[0])(*a, *case.rest, **k))  # type: ignore[misc]
        assert ended == wanted, (case, "out", given, ended, wanted)
        seen[f"{name} {ended[0]}{' with a warning' if len(ended) > 1 and ended[0] == 'returned' else ''}"] += 1
        if ended[0] == "returned":
            for one, other in zip(my_outs, their_outs, strict=True):
                check_same(one, other, case, "out", given)


SHAPES = (
    *(((2, 3), (2, 3)), ((2, 3), (3,)), ((3,), (2, 3)), ((2, 1), (1, 3)), ((), (2, 3)), ((2, 3), ())),
    *(((), ()), ((0,), (1,)), ((2, 0), (2, 1)), ((2, 3), (2,)), ((4, 1, 2), (3, 1))),
)
FORMS = (("turned", "turned"), ("stepped", "plain"), ("expanded", "turned"), ("turned", "expanded"))


def binary_inputs() -> Iterator[tuple[Given, ...]]:
    for first, second in product(DTYPES, DTYPES):
        yield Given((2, 3), first), Given((2, 3), second, seed=1)
        if (first, second) != ("float16", "complex64"):  # NB: complex32, which numpy does not have
            yield Given((2, 3), first), Given((), second, seed=1)
    for (one, other), dtype in product(SHAPES, ("int64", "float32")):
        yield Given(one, dtype), Given(other, dtype, seed=1)
    for form, second_form in FORMS:
        yield Given((4, 3), "float32", form), Given((4, 3), "float32", second_form, seed=1)
        yield Given((2, 4, 3), "float32", form), Given((4, 3), "int64", second_form, seed=1)


def unary_inputs() -> Iterator[tuple[Given, ...]]:
    for dtype, shape in product(DTYPES, ((2, 3), (), (0,), (2, 0, 3))):
        yield (Given(shape, dtype),)
    for form in ("turned", "stepped", "expanded"):
        yield (Given((2, 4, 3), "float32", form),)


def _names(functional: str, out: str, *, inplace: bool) -> tuple[str, str, str]:
    base, dot, overload = functional.partition(".")
    return functional, f"{base}_{dot}{overload}" if inplace else "", out


def cases() -> Iterator[Case]:
    """All cases, operator by operator."""
    for name in ("add", "sub"):
        names = _names(f"{name}.Tensor", f"{name}.out", inplace=True)
        for inputs in binary_inputs():
            yield Case(names, inputs)
        for dtypes, alpha in product(product(FEW, FEW), (2, 0.5, True, 1j)):
            yield Case(names, (Given((3,), dtypes[0]), Given((3,), dtypes[1], seed=1)), (), (("alpha", alpha),))
    for name in ("mul", "div"):
        for inputs in binary_inputs():
            yield Case(_names(f"{name}.Tensor", f"{name}.out", inplace=True), inputs)
    for inputs in binary_inputs():
        yield Case(_names("eq.Tensor", "eq.Tensor_out", inplace=True), inputs)
    for name in ("neg", "sin", "cos", "exp"):
        for inputs in unary_inputs():
            yield Case(_names(name, f"{name}.out", inplace=True), inputs)
    for inputs, bounds in product(unary_inputs(), ((1, 3), (None, 0.5), (-0.5, None), (None, None), (3, 1), (True, 2))):
        yield Case(_names("clamp", "clamp.out", inplace=True), inputs, bounds)
    yield from reductions()
    yield from matrices()


def reductions() -> Iterator[Case]:
    shapes = ((2, 3), (), (0,), (2, 0, 3))
    dims: tuple[object, ...] = ([0], [-1], [0, 1], [], None, [0, 0], [5])
    for dtype, shape, dim, keepdim in product(DTYPES, shapes, dims, (False, True)):
        given = (Given(shape, dtype),)
        yield Case(_names("sum.dim_IntList", "sum.IntList_out", inplace=False), given, (dim, keepdim))
        if isinstance(dim, list) and len(dim) == 1:
            yield Case(_names("max.dim", "max.dim_max", inplace=False), given, (dim[0], keepdim))
    for dtype, shape, dim in product(DTYPES, shapes, (0, -1, 5)):
        yield Case(_names("cumsum", "cumsum.out", inplace=True), (Given(shape, dtype),), (dim,))
        for descending in (False, True):
            sorting = (("stable", True), ("dim", dim), ("descending", descending))
            yield Case(_names("sort.stable", "sort.values_stable", inplace=False), (Given(shape, dtype),), (), sorting)
    for form, kind in product(("turned", "stepped", "expanded"), (None, DType.float64, DType.int64)):
        given = (Given((4, 3, 2), "float32", form),)
        named = (("dtype", kind),)
        yield Case(_names("sum.dim_IntList", "sum.IntList_out", inplace=False), given, ([1], False), named)
        yield Case(_names("cumsum", "cumsum.out", inplace=True), given, (1,), named)
        stable = (("stable", True), ("dim", 1))
        yield Case(_names("sort.stable", "sort.values_stable", inplace=False), given, (), stable)
        yield Case(_names("max.dim", "max.dim_max", inplace=False), given, (1,))


def matrices() -> Iterator[Case]:
    shapes = (((2, 3), (3, 4)), ((2, 3), (2, 3)), ((3,), (3, 4)), ((2, 3), (3,)), ((0, 3), (3, 2)), ((2, 0), (0, 3)))
    for dtypes, (one, other) in product(product(FEW, FEW), shapes):
        inputs = (Given(one, dtypes[0]), Given(other, dtypes[1], seed=1))
        yield Case(_names("mm", "mm.out", inplace=False), inputs)
    for form in ("turned", "stepped", "expanded"):
        inputs = (Given((4, 3), "float32", form), Given((3, 2), "float32", form, seed=1))
        yield Case(_names("mm", "mm.out", inplace=False), inputs)
        for added in ((4, 2), (2,), (1, 2)):
            yield Case(_names("addmm", "addmm.out", inplace=True), (Given(added, "float32", form), *inputs))
    for dtype, (one, other), added in product(DTYPES, shapes[:4], ((2, 4), (4,), ())):
        three = (Given(added, dtype), Given(one, dtype, seed=1), Given(other, dtype, seed=2))
        for factors in ((), (("beta", 2), ("alpha", 3)), (("beta", 0),)):
            yield Case(_names("addmm", "addmm.out", inplace=True), three, (), factors)


ALL_CASES = tuple(cases())
OPERATORS = tuple(sorted({case.names[0] for case in ALL_CASES}))


@pytest.mark.parametrize("functional", OPERATORS)
def test_the_three_variants_do_what_torch_does(functional: str) -> None:
    seen: Counter[str] = Counter()
    for case in ALL_CASES:
        if case.names[0] == functional:
            run(case, seen)
    assert seen[f"{functional} returned"] >= 20
    assert sum(seen.values()) > 300
    assert any("with a warning" in what for what in seen)
    assert any(what.endswith("error") for what in seen)


def _two(array: Array) -> tuple[Tensor, Any]:
    return Tensor(array.copy()), torch.from_numpy(array.copy())


@pytest.mark.parametrize(
    ("name", "views"),
    [
        ("mul.out", ((slice(0, 4), slice(1, 5)), slice(0, 4))),  # writes what it reads, one further
        ("add.out", ((slice(0, 4), slice(4, 8)), slice(2, 6))),
        ("add.out", ((slice(0, 4), slice(4, 8)), slice(0, 4))),  # the same view: in place, and right
        ("sub.out", ((slice(0, 4), slice(0, 4)), slice(4, 8))),
    ],
)
def test_memory_that_is_read_and_written_is_refused_unless_it_is_the_same_view(
    name: str, views: tuple[tuple[slice, slice], slice]
) -> None:
    mine, theirs = np.arange(9.0, dtype=np.float32), torch.arange(9.0)
    (first, second), written = views
    ended, _ = outcome(lambda: lab()(name)(Tensor(mine[first]), Tensor(mine[second]), out=Tensor(mine[written])))
    function = getattr(torch, name.partition(".")[0])
    wanted, _ = outcome(lambda: function(theirs[first], theirs[second], out=theirs[written]))
    assert ended == wanted
    np.testing.assert_array_equal(mine, theirs.numpy())


@pytest.mark.parametrize(
    ("shape", "other"), [((3,), (2, 3)), ((2, 1), (2, 3)), ((1,), ()), ((2, 3), (3,)), ((2, 3), (4,))]
)
@pytest.mark.parametrize("name", ["add_.Tensor", "eq_.Tensor"])
def test_an_output_in_place_is_not_broadcast(name: str, shape: tuple[int, ...], other: tuple[int, ...]) -> None:
    mine, theirs = _two(np.ones(shape, np.float32))
    my_other, their_other = _two(np.full(other, 2, np.float32))
    ended, _ = outcome(lambda: lab()(name)(mine, my_other))
    wanted, _ = outcome(lambda: their_operator(name)(theirs, their_other))
    assert ended == wanted
    np.testing.assert_allclose(mine.data, theirs.numpy(), rtol=CLOSE["f4"])


def test_every_operator_that_there_are_kernels_for_is_held_to_torch() -> None:
    groups = lab_functions().structured_groups
    assert len(groups) == 16
    assert sorted(group.functional.short_name for group in groups) == list(OPERATORS)
    held = {name for case in ALL_CASES for name in case.names if name}
    assert held == {each.short_name for group in groups for each in group.functions}
