"""Operators of a package that have something for transforms and autocast, or lack it; importing it registers them."""

from __future__ import annotations

from typing import Any

import torch
from torch.library import Library, custom_op, fallthrough_kernel, register_autocast, register_autograd, register_vmap

Tensor = torch.Tensor


@custom_op("transformed::plain", mutates_args=())
def plain(x: Tensor) -> Tensor:
    return x.clone()


@custom_op("transformed::full", mutates_args=())
def full(x: Tensor) -> Tensor:
    return x.clone()


full.register_autograd(lambda ctx, gradient: gradient)
full.register_autocast("cpu", torch.float16)


@full.register_vmap
def full_in_vmap(info: Any, in_dims: Any, x: Tensor) -> Any:
    return x.clone(), in_dims[0]


@custom_op("transformed::writes", mutates_args=("x",))
def writes(x: Tensor) -> None:
    x.add_(1)


@custom_op("transformed::takes_list", mutates_args=())
def takes_list(x: list[Tensor]) -> Tensor:
    return x[0].clone()


_LIBRARY: Any = Library("transformed", "FRAGMENT")  # type: ignore[no-untyped-call]


def _operator(name: str, schema: str, **kernels: Any) -> None:
    _LIBRARY.define(f"{name}{schema}")
    for key, kernel in kernels.items():
        _LIBRARY.impl(name, kernel, key)


def _add_one(x: Tensor) -> None:
    x.add_(1)


def _sine(x: Tensor) -> Tensor:
    return x.sin() + 1


_operator("composite", "(Tensor x) -> Tensor", CompositeImplicitAutograd=_sine)
_operator("explicit", "(Tensor x) -> Tensor", CompositeExplicitAutograd=_sine)
_operator("cpu", "(Tensor x) -> Tensor", CPU=_sine)
_operator("rule", "(Tensor x) -> Tensor", CPU=_sine, FuncTorchBatched=torch.sin)
_operator("library_rules", "(Tensor x) -> Tensor", CPU=_sine)
register_vmap("transformed::library_rules", lambda info, dims, x: (x.sin(), dims[0]), lib=_LIBRARY)
register_autograd("transformed::library_rules", lambda ctx, gradient: gradient, lib=_LIBRARY)
register_autocast("transformed::library_rules", "cpu", torch.bfloat16, lib=_LIBRARY)
_operator("view", "(Tensor(a) x) -> Tensor(a)", CPU=lambda x: x.view(-1))
_operator("in_place", "(Tensor(a!) x) -> Tensor(a!)", CPU=lambda x: x.add_(1))
_operator("functional", "(Tensor(a!) x) -> ()", CPU=_add_one, Functionalize=lambda x: None)
_operator(
    "falls_through",
    "(Tensor x) -> Tensor",
    CPU=_sine,
    Autograd=fallthrough_kernel,
    FuncTorchBatched=fallthrough_kernel,
    Functionalize=fallthrough_kernel,
)
_operator(
    "own",
    "(Tensor x) -> Tensor",
    CPU=_sine,
    AutogradCPU=torch.sin,
    AutocastCPU=torch.sin,
    FuncTorchVmapMode=torch.sin,
    Functionalize=torch.sin,
)
