"""The body of a fake kernel that a fix gives: right for inputs of other ranks, dtypes and numbers, too."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

import torch

from dispatchlab.live.failure.fake_body import Call, body_in_a_copy, body_of
from dispatchlab.live.worker.engine import LiveEngine

X = torch.zeros(3, 4)
ALIKE = "  # for inputs like this one: the kernel also takes inputs for which it is wrong"

BODIES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "gain(Tensor x, Tensor g) -> Tensor": (
        lambda x, g: (x * g).contiguous(),
        (X, X[0]),
        "x.new_empty(torch.broadcast_shapes(x.shape, g.shape))",
    ),
    "peaks(Tensor x) -> Tensor": (lambda x: x.argmax(-1), (X,), "x.new_empty(x.shape[:-1], dtype=torch.int64)"),
    "window(Tensor x, SymInt size) -> Tensor": (
        lambda x, size: x.unfold(-1, size, size).sum(-1),
        (torch.zeros(6), 2),
        "x.new_empty((*x.shape[:-1], x.shape[-1] // size))",
    ),
    "product(Tensor a, Tensor b) -> Tensor": (
        torch.matmul,
        (X, torch.zeros(4, 5)),
        "a.new_empty((*a.shape[:-1], b.shape[-1]))",
    ),
    "rows(Tensor a) -> Tensor": (
        lambda a: a.reshape(a.shape[0], -1).sum(1) if a.dim() > 1 else a.clone(),
        (X,),
        "a.new_empty((a.shape[0],))",
    ),
    "flipped(Tensor a) -> Tensor": (
        lambda a: a.t().contiguous(),
        (X,),
        f"a.new_empty((a.shape[1], a.shape[0])){ALIKE}",
    ),
    "places(Tensor a) -> Tensor": (
        torch.nonzero,
        (X,),
        "a.new_empty((torch.library.get_ctx().new_dynamic_size(), a.dim()), dtype=torch.int64)",
    ),
    "wide(Tensor a, Tensor b) -> Tensor": (
        lambda a, b: a + b,
        (X, X.double()),
        "b.new_empty(torch.broadcast_shapes(a.shape, b.shape))",
    ),
}


@pytest.mark.parametrize("schema", BODIES)
def test_a_body_is_right_for_every_input_that_the_kernel_takes_or_says_that_it_is_not(schema: str) -> None:
    kernel, inputs, body = BODIES[schema]
    name = f"{schema.partition('(')[0]}"
    with torch.library._scoped_library("fake_body", "FRAGMENT") as library:
        library.define(schema)
        library.impl(name, kernel, "CPU")
        call = Call(getattr(torch.ops.fake_body, name).default, inputs, {})
        assert body_of(call) == body
        if ALIKE in body or "new_dynamic_size" in body:
            return
        for changed in (inputs, (torch.stack([inputs[0]] * 2), *inputs[1:])):
            names = [argument.name for argument in call.operator._schema.arguments]
            made = eval(body, {"torch": torch, **dict(zip(names, changed, strict=True))})
            result = call.operator(*changed)
            assert (made.shape, made.dtype, made.stride()) == (result.shape, result.dtype, result.stride())


def test_a_kernel_that_ends_its_process_for_another_rank_still_has_a_body() -> None:
    with LiveEngine() as engine:
        assert engine.ask(f"{__name__}:body_of_ending_kernel") == "x.new_empty((x.shape[0],))"


def body_of_ending_kernel() -> str:
    def kernel(x: Any) -> Any:
        if x.dim() != 2:
            os._exit(3)
        return x.sum(1)

    with torch.library._scoped_library("fake_body", "FRAGMENT") as library:
        library.define("ends(Tensor x) -> Tensor")
        library.impl("ends", kernel, "CPU")
        return body_in_a_copy(Call(torch.ops.fake_body.ends.default, (X,), {}))
