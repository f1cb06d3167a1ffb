"""The messages of Python bindings held to those of the installed torch, where the signatures are the same."""

from __future__ import annotations

from typing import Any

import pytest

from dispatchlab.call import tensor
from dispatchlab.call.python_arg_parser import PythonArgParser

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

SIGNATURES = {
    "add": (
        "add(Tensor input, Scalar alpha, Tensor other, *, Tensor out=None)|deprecated",
        "add(Tensor input, Tensor other, *, Scalar alpha=1, Tensor out=None)",
    ),
    "mm": (
        "mm(Tensor input, Tensor mat2, *, Tensor out=None)",
        "mm(Tensor input, Tensor mat2, ScalarType out_dtype, *, Tensor out=None)",
    ),
    "clamp": (
        "clamp(Tensor input, Tensor? min=None, Tensor? max=None, *, Tensor out=None)",
        "clamp(Tensor input, Scalar? min=None, Scalar? max=None, *, Tensor out=None)",
    ),
    "cumsum": ("cumsum(Tensor input, int dim, *, ScalarType? dtype=None, Tensor out=None)",),
    "sin": ("sin(Tensor input, *, Tensor out=None)",),
    "sum": (
        "sum(Tensor input, *, ScalarType? dtype=None)",
        "sum(Tensor input, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None, Tensor out=None)",
    ),
}
T = "a tensor"
CALLS: tuple[tuple[str, tuple[Any, ...], dict[str, Any]], ...] = (
    *(("add", (1, "x"), {}), ("add", (T, "x"), {}), ("add", (T,), {}), ("add", (), {}), ("add", (T, T), {"beta": 2})),
    *(("add", (T, T), {"alpha": "a"}), ("add", (T, T), {"input": T})),
    *(("mm", (T, "x"), {}), ("mm", (T, T, T), {}), ("mm", (T,), {}), ("mm", (T,), {"mat2": T, "foo": 1})),
    *(("mm", (T, T), {"mat2": T}), ("mm", (T,), {"mat2": "x"}), ("clamp", (T, "a"), {}), ("clamp", (T, 1, T), {})),
    *(("cumsum", (T,), {}), ("cumsum", (T, 0.5), {}), ("cumsum", (T, 0, 1), {}), ("cumsum", (T, "x"), {"dtype": 1})),
    *(("sin", (T, T, T), {}), ("sin", (), {}), ("sin", (3,), {}), ("sin", (T,), {"out": "x"}), ("sin", (T,), {"x": 1})),
    *(("sum", (T, [0], 3), {}), ("sum", (T,), {"dim": "x"}), ("sum", (T, 1.5), {}), ("sum", ("x",), {})),
)


@pytest.mark.parametrize(("name", "args", "kwargs"), CALLS)
def test_a_refusal_reads_as_torchs_and_adds_the_reasons(
    name: str, args: tuple[object, ...], kwargs: dict[str, object]
) -> None:
    def given(value: object, mine: Any) -> object:
        return mine if value is T else value

    mine, theirs = tensor([1.0, 2.0]), torch.ones(2)
    numbers = name == "add"
    with pytest.raises(TypeError) as torchs:
        getattr(torch, name)(*(given(one, theirs) for one in args), **{k: given(v, theirs) for k, v in kwargs.items()})
    with pytest.raises(TypeError) as caught:
        PythonArgParser(name, SIGNATURES[name], numbers=numbers).bind(
            tuple(given(one, mine) for one in args), {k: given(v, mine) for k, v in kwargs.items()}
        )
    assert _plain(str(caught.value)) == _plain(str(torchs.value))


def _plain(text: str) -> list[str]:
    lines = [line.replace("!", "") for line in text.splitlines() if line and not line.startswith("      didn't match")]
    if lines and "- got (" in lines[0]:
        head, _, rest = lines[0].partition("- got (")
        inner, _, tail = rest.partition("), but")
        # NB: torch lists keyword arguments in the order of a hash table
        lines[0] = f"{head}- got ({', '.join(sorted(inner.split(', ')))}), but{tail}"
    return lines
