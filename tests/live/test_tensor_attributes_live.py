"""What the handler of a tensor is asked for attributes, operators and conversions, against the running PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from torch.overrides import resolve_name  # noqa: E402  torch has to be there

from dispatchlab import Lab, tensor  # noqa: E402
from dispatchlab.call.tensor_options import DType  # noqa: E402
from dispatchlab.lab.overrides import Functions, as_subclass  # noqa: E402

FUNCTIONS = Functions(Lab())
EXPRESSIONS = (
    *("x.dim()", "x.ndimension()", "x.is_inference()", "x.ndim", "x.shape", "x.dtype", "x.is_leaf", "x.T", "x.data"),
    *("x.to('cpu')", "x.to(y)", "x.to(float64)", "x.to(dtype=float64, copy=True)", "x.to(x)", "x.float()", "x.cpu()"),
    *("x | y", "y | x", "x | 1", "1 | x", "x & y", "1 & x", "x ^ y", "1 ^ x", "x.__or__(1)", "x.__ior__(1)", "~x"),
    *("x << 1", "x >> 1", "x // 2", "2 // x", "x % 2", "5 % x", "x @ y", "y @ x", "x + y", "1 + x", "x - 1", "1 - x"),
    *("x * 2", "2 * x", "x / 2", "x == y", "x != 1", "x < y", "x <= 1", "-x", "x[0]", "1 in x", "len(x)", "list(x)"),
    *("format(x, '')", "format(x, '.2f')", "f'{x}'", "x.__reduce_ex__(2)", "reversed(x)", "int(x)", "float(x)"),
    *("bool(x)", "x.item()", "x.size()", "x.size(0)", "x.numel()", "x.clone()", "x.detach()", "x.tolist()", "x.sum(0)"),
)


def asked(expression: str, base: Any, name: Callable[[Any], str | None], float64: object, make: Any) -> list[Any]:
    """The functions that the handler of `x` gets, with how many arguments and the names of others."""
    log: list[Any] = []

    def handler(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        log.append(((name(func) or "").removeprefix("torch."), len(args), kwargs and sorted(kwargs)))
        return "text" if "format" in str(name(func)) else 1

    kind = type("Kind", (base,), {"__torch_function__": classmethod(handler)})
    x, y = make(kind)
    try:
        eval(expression, {"x": x, "y": y, "float64": float64})
    except TypeError as error:
        log.append(str(error))
    return log


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_a_handler_is_asked_for_what_pytorchs_is_asked_for(expression: str) -> None:
    theirs = asked(
        *(expression, torch.Tensor, resolve_name, torch.float64),
        lambda kind: (torch.tensor([1.0, 2.0]).as_subclass(kind), torch.tensor([1.0, 2.0])),
    )
    mine = asked(
        *(expression, FUNCTIONS.Tensor, FUNCTIONS.resolve_name, DType.float64),
        lambda kind: (as_subclass(FUNCTIONS.tensor([1.0, 2.0]), kind), FUNCTIONS.tensor([1.0, 2.0])),
    )
    assert mine == theirs


def test_without_a_handler_they_answer() -> None:
    x = FUNCTIONS.tensor([1.0, 2.0])
    assert (x.dim(), x.is_inference(), x.ndim) == (1, False, 1)
    assert (tensor([1.0]).dim(), tensor([1.0]).is_inference()) == (1, False)
    assert x.to("cpu") is x
    double = x.to(DType.float64)
    assert (double.dtype, type(double), x.to(double).dtype) == (DType.float64, FUNCTIONS.Tensor, DType.float64)
    assert x.to("meta").device.type == "meta"
    assert x.to(DType.float32, copy=True) is not x
    assert (format(FUNCTIONS.tensor(1.5), ".2f"), f"{x}") == ("1.50", "tensor([1., 2.])")
