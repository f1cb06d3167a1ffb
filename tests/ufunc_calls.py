"""Generated calls of kernels made from `ufunc_inner_loop`, compared with torch's bit for bit.

Two classes of calls cannot agree, and are counted by name:

- ComplexHalf: the result has a dtype that the lab has no tensors of;
- contraction: the compiler made several versions of a loop, and rounds the product in some of them; each element is
  then one of the values that contraction allows.
"""

from __future__ import annotations

import random
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

from dispatchlab.call.tensor import Array, Tensor
from dispatchlab.codegen.runtime.element_types import fused
from dispatchlab.errors import CallError
from tests.structured_lab import StructuredLab

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

DTYPES = (
    *("bool", "uint8", "int8", "int16", "int32", "int64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
ALPHAS = (
    *(1, 2, -1, 3, 255, 300, -200, 2**40, 0, True, False),
    *(1.0, 0.3, -2.5, 1e-3, 1e10, 7e4, 1e300, float("inf"), float("nan")),
    *(1j, 0.3 + 0.7j, complex(2, 0), complex(1e300, 1)),
)
SIZES = ((), (1,), (3,), (40,), (130,), (2, 3), (3, 70), (65, 2), (2, 1, 40), (0,), (2, 0), (4, 5, 3))


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor for both: numbers, and how they lie in memory."""

    shape: tuple[int, ...]
    dtype: str
    form: str
    seed: int

    def pair(self) -> tuple[Tensor, Any]:
        grown = tuple(2 * size for size in self.shape) if self.form == "stepped" else self.shape
        grown = grown[::-1] if self.form == "turned" else grown
        base = torch.from_numpy(self._numbers(grown)).clone()
        if self.form == "turned":
            base = base.permute(tuple(range(base.dim() - 1, -1, -1)))
        if self.form == "stepped":
            base = base[tuple(slice(None, None, 2) for _ in self.shape)]
        if self.form == "expanded" and self.shape:
            base = base[:1].expand(self.shape)
        copied = torch.from_numpy(self._numbers(grown))
        return Tensor(copied.as_strided(base.shape, base.stride()).numpy()), base

    def _numbers(self, shape: tuple[int, ...]) -> Array:
        numbers = np.random.default_rng([self.seed, len(self.dtype)])
        kind = np.dtype(self.dtype)
        if kind.kind == "b":
            return np.asarray(numbers.integers(0, 2, shape)).astype(bool)
        if kind.kind in "iu":
            limits = np.iinfo(kind)
            return np.asarray(numbers.integers(limits.min, limits.max, shape, kind, endpoint=True))
        made = np.asarray(numbers.standard_normal(shape) * 10.0 ** numbers.integers(-3, 4, shape))
        if kind.kind == "c":
            made = made + 1j * np.asarray(numbers.standard_normal(shape))
        return np.asarray(made.astype(kind))


def operands(source: random.Random) -> Iterator[Operand]:
    shape: tuple[int, ...] = source.choice(SIZES)
    dtype = source.choice(DTYPES)
    for _ in range(2):
        own = shape
        if source.random() < 0.3:
            own = tuple(1 if source.random() < 0.5 else size for size in shape)[source.randint(0, len(shape)) :]
        elif source.random() < 0.05:
            own = source.choice(SIZES)
        form = source.choice(("plain", "plain", "turned", "stepped", "expanded"))
        if form == "expanded" and own and not own[0]:
            form = "plain"
        yield Operand(own, dtype if source.random() < 0.6 else source.choice(DTYPES), form, source.getrandbits(30))


@cache
def lab() -> StructuredLab:
    return StructuredLab()


def ended(call: Callable[[], Any]) -> tuple[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return "returned", call()
        except (CallError, RuntimeError, IndexError, NotImplementedError, TypeError) as error:
            text = error.message if isinstance(error, CallError) else str(error)
            return named(text.splitlines()[0]), None


NAMES = {
    **{"Bool": "bool", "Byte": "uint8", "Char": "int8", "Short": "int16", "Int": "int32", "Long": "int64"},
    **{"Half": "float16", "Float": "float32", "Double": "float64", "ComplexFloat": "complex64"},
    **{"ComplexDouble": "complex128"},
}


def named(text: str) -> str:
    """A message with dtypes by the names that Python has for them, as those are what the lab prints."""
    text = re.sub(r"\b(result type|output type|dtype) (\w+)", lambda m: f"{m[1]} {NAMES.get(m[2], m[2])}", text)
    return text.replace("torch.", "")


def check(operators: tuple[str, str, str], source: random.Random, seen: Counter[str]) -> None:
    """One call of each variant on both sides."""
    functional, inplace, out = operators
    given = list(operands(source))
    alpha = source.choice(ALPHAS)
    target = Operand(
        source.choice((*SIZES[:4], given[0].shape, given[0].shape)),
        source.choice((given[0].dtype, *DTYPES)),
        source.choice(("plain", "stepped", "turned")),
        1,
    )
    for name in (functional, inplace, out):
        pairs = [one.pair() for one in given]
        mine, theirs = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        result: dict[str, Any] = {"alpha": alpha}
        wanted = dict(result)
        if name == out:
            result["out"], wanted["out"] = target.pair()
        base, _, overload = name.partition(".")
        ours = ended(lambda: lab()(name)(*mine, **result))  # noqa: B023 - called at once
        other = ended(lambda: getattr(getattr(torch.ops.aten, base), overload)(*theirs, **wanted))  # noqa: B023
        what = (name, given, alpha, target if name == out else None)
        if torch.result_type(*theirs) == torch.complex32:
            seen["ComplexHalf"] += 1
            continue
        assert ours[0] == other[0], (what, ours[0], other[0])
        seen[f"{name} {'returned' if ours[0] == 'returned' else re.sub(r'[^a-z ]+', '*', ours[0][:40])}"] += 1
        if ours[0] == "returned":
            allowed = contractions([one.pair()[1] for one in given], alpha)
            seen["contraction"] += same(ours[1], other[1], allowed, what)
            seen[f"dtype {ours[1].dtype}"] += 1


def contractions(given: list[Any], alpha: complex) -> Callable[[], list[Array]]:
    """The results that contraction allows where the compiler is known to have several versions of a loop."""

    def values() -> list[Array]:
        common = torch.result_type(*given)
        first, other = torch.broadcast_tensors(*(one.to(common) for one in given))
        lone = given[1].numel() < other.numel() or 0 in given[1].stride()
        kind = str(common).removeprefix("torch.")
        if not lone and kind != "complex64":
            return []
        self, other = first.contiguous().numpy(), other.contiguous().numpy()
        number = np.asarray(alpha).astype(kind)[()]
        with np.errstate(all="ignore"):
            if self.dtype.kind == "f" and self.dtype != np.float16:
                return [self + number * other, np.asarray(fused(number, other, self))]
            if self.dtype.kind != "c":
                return []
            real = _products(number.real, other.real, -number.imag, other.imag)
            imaginary = _products(number.real, other.imag, number.imag, other.real)
            return [
                np.asarray((self.real + one) + 1j * (self.imag + two), self.dtype) for one in real for two in imaginary
            ]

    return values


def _products(first: Any, second: Any, third: Any, fourth: Any) -> list[Array]:
    """`first * second + third * fourth`, rounded in each way."""
    one, other = first * second, third * fourth
    return [one + other, fused(np.broadcast_to(first, second.shape), second, other), fused(third, fourth, one)]


def same(mine: Tensor, theirs: Any, allowed: Callable[[], list[Array]], what: object) -> bool:
    """Make sure that two results are equal; True when they are so but for contraction."""
    assert str(mine.dtype) == str(theirs.dtype).removeprefix("torch."), what
    assert mine.shape == tuple(theirs.shape), what
    assert mine.strides == theirs.stride(), (what, mine.strides, theirs.stride())
    array, expected = mine.data, theirs.numpy()
    if array.dtype.kind not in "fc":
        np.testing.assert_array_equal(array, expected, err_msg=str(what))
        return False
    different = ~_equal(array, expected)
    if not different.any():
        return False
    values = allowed()
    assert values, (what, array[different][:4], expected[different][:4])
    near = np.zeros(expected.shape, bool)
    for one in values:
        near |= _equal(np.asarray(one.astype(expected.dtype)), expected)
    assert near.all(), (what, expected[~near][:4], [one[~near][:4] for one in values])
    return True


def _equal(one: Array, other: Array) -> Array:
    """Which numbers are equal, with their signs; which of several NaNs comes out is up to the processor."""
    if one.dtype.kind == "c":
        return np.asarray(_equal(one.real, other.real) & _equal(one.imag, other.imag))
    both = np.isnan(one) & np.isnan(other)
    return np.asarray(both | ((one == other) & (np.signbit(one) == np.signbit(other))))


def compare(count: int, seed: int) -> Counter[str]:
    """Compare that many generated calls of each variant of `add` with torch's."""
    seen: Counter[str] = Counter()
    source = random.Random(seed)
    for _ in range(count):
        check(("add.Tensor", "add_.Tensor", "add.out"), source, seen)
    return seen


def vector_bytes() -> int:
    """How wide the vectors of the installed torch are, where its loops are contracted as for AVX2."""
    capability = torch.backends.cpu.get_cpu_capability()
    if capability not in ("AVX2", "AVX512"):
        pytest.skip(f"loops for {capability} round otherwise")
    return 32  # `add` has no loops for AVX512, and runs those for AVX2 there
