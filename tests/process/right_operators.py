"""Custom operators of many kinds that are right: no trial may fail on them."""

from __future__ import annotations

import typing

import numpy
import torch
from torch import Tensor

custom_op = torch.library.custom_op
Library: typing.Any = torch.library.Library
LIB = Library("right", "FRAGMENT")


def with_gradient(op: typing.Any, backward: typing.Any, setup: typing.Any) -> None:
    """Register a formula."""
    op.register_autograd(backward, setup_context=setup)


def save_inputs(ctx: typing.Any, inputs: typing.Any, output: typing.Any) -> None:
    """Keep the tensors and the rest of the inputs."""
    ctx.save_for_backward(*[value for value in inputs if isinstance(value, Tensor)])
    ctx.rest = [value for value in inputs if not isinstance(value, Tensor)]


# One tensor, with a gradient.
@custom_op("right::scale", mutates_args=())
def scale(x: Tensor, factor: float) -> Tensor:
    return x * factor


scale.register_fake(lambda x, factor: torch.empty_like(x) if x.is_floating_point() else x.new_empty(x.shape) * factor)
with_gradient(scale, lambda ctx, grad: (grad * ctx.rest[0], None), save_inputs)


# A default, keyword-only arguments, and a setup_context that takes them.
@custom_op("right::affine", mutates_args=())
def affine(x: Tensor, shift: int = 2, *, factor: float = 1.5) -> Tensor:
    return x * factor + shift


@affine.register_fake
def _(x: Tensor, shift: int = 2, *, factor: float = 1.5) -> Tensor:
    return x * factor + shift


def save_factor(ctx: typing.Any, inputs: typing.Any, keyword_only_inputs: typing.Any, output: typing.Any) -> None:
    """Keep the keyword-only argument."""
    ctx.factor = keyword_only_inputs["factor"]


affine.register_autograd(lambda ctx, grad: (grad * ctx.factor, None), setup_context=save_factor)


# Several results, one of which has no gradient.
@custom_op("right::largest", mutates_args=())
def largest(x: Tensor) -> tuple[Tensor, Tensor]:
    values, places = x.max(dim=-1)
    return values.clone(), places.clone()


@largest.register_fake
def _(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape[:-1]), x.new_empty(x.shape[:-1], dtype=torch.long)


# An optional tensor.
@custom_op("right::masked", mutates_args=())
def masked(x: Tensor, mask: typing.Optional[Tensor] = None) -> Tensor:  # noqa: UP045
    return x.clone() if mask is None else x * mask


masked.register_fake(lambda x, mask=None: torch.empty_like(x) if mask is None else x * mask)


# A list of tensors, and one as the result.
@custom_op("right::total", mutates_args=())
def total(xs: typing.Sequence[Tensor]) -> Tensor:
    return torch.stack(list(xs)).sum(0)


total.register_fake(lambda xs: torch.stack(list(xs)).sum(0))


@custom_op("right::halves", mutates_args=())
def halves(x: Tensor) -> list[Tensor]:
    return [x * 2, x + 1]


halves.register_fake(lambda x: [x * 2, x + 1])


# Text, numbers, dtypes and devices.
@custom_op("right::reduce", mutates_args=())
def reduce(x: Tensor, how: str) -> Tensor:
    if how not in ("sum", "mean"):
        raise ValueError(how)
    return x.double().sum() if how == "sum" else x.double().mean()


reduce.register_fake(lambda x, how: x.new_empty((), dtype=torch.double))


@custom_op("right::cast", mutates_args=())
def cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.to(dtype, copy=True)


cast.register_fake(lambda x, dtype: torch.empty_like(x, dtype=dtype))


@custom_op("right::filled", mutates_args=())
def filled(sizes: typing.Sequence[int], value: float, device: torch.device) -> Tensor:
    return torch.full(list(sizes), value, device=device)


filled.register_fake(lambda sizes, value, device: torch.empty(list(sizes), device=device))


@custom_op("right::flag", mutates_args=())
def flag(x: Tensor, negate: bool, power: typing.Optional[float] = None) -> Tensor:  # noqa: FBT001, UP045
    return (-x if negate else x.clone()) ** (1.0 if power is None else power)


flag.register_fake(lambda x, negate, power=None: (-x if negate else x) ** (1.0 if power is None else power))


# What is written.
@custom_op("right::fill_", mutates_args=("x",))
def fill_(x: Tensor, value: float) -> None:
    x.fill_(value)


@custom_op("right::add_into", mutates_args=("out",))
def add_into(x: Tensor, y: Tensor, out: Tensor) -> None:
    out.copy_(x + y)


@custom_op("right::update", mutates_args={"state"})
def update(state: Tensor, x: Tensor) -> Tensor:
    state.add_(x)
    return state * 2


update.register_fake(lambda state, x: torch.empty_like(state))


@custom_op("right::unknown_", mutates_args="unknown")
def unknown_(x: Tensor) -> None:
    x.mul_(3)


# A matrix product whose fake and formula are for matrices alone.
@custom_op("right::product", mutates_args=())
def product(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


product.register_fake(lambda a, b: a.new_empty(a.shape[0], b.shape[1]))
with_gradient(
    product,
    lambda ctx, grad: (grad @ ctx.saved_tensors[1].t(), ctx.saved_tensors[0].t() @ grad),
    save_inputs,
)


# numpy inside, contiguous results, and a fake that says so.
@custom_op("right::numpy_sin", mutates_args=())
def numpy_sin(x: Tensor) -> Tensor:
    return torch.from_numpy(numpy.ascontiguousarray(numpy.sin(x.numpy())))


numpy_sin.register_fake(lambda x: torch.empty_like(x, memory_format=torch.contiguous_format))
with_gradient(numpy_sin, lambda ctx, grad: grad * ctx.saved_tensors[0].cos(), save_inputs)


# A batching rule.
@custom_op("right::rolled", mutates_args=())
def rolled(x: Tensor, dim: int) -> Tensor:
    return x.roll(1, dim)


rolled.register_fake(lambda x, dim: x.roll(1, dim))


@rolled.register_vmap
def _(info: typing.Any, in_dims: typing.Any, x: Tensor, dim: int) -> tuple[Tensor, int]:
    moved = x.movedim(in_dims[0], 0)
    return rolled(moved, dim + 1 if dim >= 0 else dim), 0


# A kernel for rows of three that checks no shape, and its formula.
@custom_op("right::points", mutates_args=())
def points(x: Tensor) -> Tensor:
    return x.reshape(-1)[: x.shape[0] * 3].reshape(-1, 3).square().sum(1)


points.register_fake(lambda x: x.new_empty(x.shape[0]))
with_gradient(
    points,
    lambda ctx, grad: 2 * grad.unsqueeze(1) * ctx.saved_tensors[0].reshape(-1)[: grad.numel() * 3].view(-1, 3),
    save_inputs,
)


# A fake with a table of the values that it knows.
@custom_op("right::arranged", mutates_args=())
def arranged(x: Tensor, layout: str) -> Tensor:
    return x.transpose(0, -1).contiguous() if layout == "last" else x.clone()


@arranged.register_fake
def _(x: Tensor, layout: str) -> Tensor:
    return x.transpose(0, {"first": 0, "last": -1}[layout]).contiguous()


# A rounding whose gradient is passed straight through.
@custom_op("right::rounded", mutates_args=())
def rounded(x: Tensor) -> Tensor:
    return x.round()


rounded.register_fake(lambda x: torch.empty_like(x))
with_gradient(rounded, lambda ctx, grad: grad, save_inputs)


# A result whose shape depends on data.
@custom_op("right::positive", mutates_args=())
def positive(x: Tensor) -> Tensor:
    return x[x > 0.5].clone()


@positive.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(torch.library.get_ctx().new_dynamic_size())


# A kernel that is random.
@custom_op("right::noisy", mutates_args=())
def noisy(x: Tensor) -> Tensor:
    return x + torch.rand_like(x)


noisy.register_fake(lambda x: torch.empty_like(x))


# An autocast rule.
@custom_op("right::cast_product", mutates_args=())
def cast_product(x: Tensor, y: Tensor) -> Tensor:
    return x * y


cast_product.register_fake(lambda x, y: x * y)
cast_product.register_autocast("cpu", torch.bfloat16)

# Kernels in a library: backend, composite of both kinds, below autograd.
LIB.define("double(Tensor x) -> Tensor")
LIB.impl("double", lambda x: x.detach() * 2, "CPU")
LIB.impl("double", lambda x: torch.empty_like(x), "Meta")
LIB.define("squares(Tensor x, *, Scalar alpha=1) -> Tensor")
LIB.impl("squares", lambda x, *, alpha=1: x * x * alpha, "CompositeImplicitAutograd")
LIB.define("first(Tensor(a) x) -> Tensor(a)")
LIB.impl("first", lambda x: x.select(0, 0), "CompositeImplicitAutograd")
LIB.define("initialize(int size, int rank) -> int")
LIB.impl("initialize", lambda size, rank: size * 10 + rank, "CompositeExplicitAutograd")
LIB.define("loss(Tensor x) -> Tensor")
LIB.impl("loss", lambda x: x * 3, "CPU")
LIB.impl("loss", lambda x: torch.empty_like(x), "Meta")


class Loss(torch.autograd.Function):
    """The formula of right::loss."""

    @staticmethod
    def forward(ctx: typing.Any, x: Tensor) -> Tensor:
        with torch._C._AutoDispatchBelowAutograd():
            result: Tensor = torch.ops.right.loss(x)
            return result

    @staticmethod
    def backward(ctx: typing.Any, grad: Tensor) -> Tensor:
        return grad * 3


APPLY: typing.Any = Loss.apply
LIB.impl("loss", lambda x: APPLY(x), "Autograd")
LIB.define("bump_(Tensor(a!) x) -> Tensor(a!)", tags=(torch.Tag.inplace,))
LIB.impl("bump_", lambda x: x.add_(1), "CPU")
LIB.impl("bump_", lambda x: x, "Meta")
LIB.define("choose.plain(Tensor x, Tensor? w, int[] dims) -> Tensor")
LIB.define("choose.text(Tensor x, str mode) -> Tensor")
LIB.impl("choose.plain", lambda x, w, dims: x + (0 if w is None else w), "CompositeImplicitAutograd")
LIB.impl("choose.text", lambda x, mode: x.clone(), "CompositeImplicitAutograd")
