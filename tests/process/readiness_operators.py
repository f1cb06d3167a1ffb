"""Programs of test_readiness_runs.py: operators with one defect each, right ones, and what runs their cells."""

PLANTED = r"""# Operators with one defect each; `EXPECTED` has the columns of which at least one has to say so.

import os
import torch
from torch import Tensor

LIB = torch.library.Library("planted", "FRAGMENT")
INPUTS, EXPECTED = {}, {}
_state = {"count": 0}


def x(*shape, grad=True, dtype=torch.float32, seed=0):
    shape = shape or (3, 4)
    g = torch.Generator().manual_seed(seed)
    r = (torch.rand(shape, generator=g, dtype=torch.float64) + 0.5).to(dtype)
    return r.requires_grad_(grad) if r.is_floating_point() else r


def op(
    schema,
    kernel,
    *expected,
    inputs=None,
    fake=torch.empty_like,
    backward=None,
    setup=None,
    vmap=None,
    key="CPU",
    tags=(),
):
    name = "planted::" + schema.partition("(")[0]
    LIB.define(schema, tags=tags)
    if kernel is not None:
        LIB.impl(name, kernel, key)
    if fake is not None:
        torch.library.register_fake(name, fake, lib=LIB)
    if backward is not None:
        torch.library.register_autograd(name, backward, setup_context=setup, lib=LIB)
    if vmap is not None:
        torch.library.register_vmap(name, vmap, lib=LIB)
    INPUTS[name] = inputs or (lambda: (x(),))
    EXPECTED[name] = expected


def save(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return a * a

    @staticmethod
    def backward(ctx, g):
        return g * 2 * ctx.saved_tensors[0]


FAKES = ("fake", "test_faketensor")
op("fake_shape(Tensor x) -> Tensor", lambda x: x.sum(0) + 0, *FAKES)
op("fake_dtype(Tensor x) -> Tensor", lambda x: x.double(), *FAKES)
op("fake_stride(Tensor x) -> Tensor", lambda x: (x * 2).t().contiguous().t(), *FAKES)
op("fake_rank(Tensor x) -> Tensor", lambda x: x[None].clone(), *FAKES)
op("fake_count(Tensor x) -> Tensor[]", lambda x: [x.clone(), x.clone()], *FAKES, fake=lambda x: [torch.empty_like(x)])
op("fake_raises(Tensor x) -> Tensor", lambda x: x * 2, *FAKES, fake=lambda x: torch.empty(x.nothing))
op("fake_data(Tensor x) -> Tensor", lambda x: x * 2, *FAKES, fake=lambda x: x.new_empty((int(x.sum().item()),)))
op("fake_missing(Tensor x) -> Tensor", lambda x: x * 2, "fake", fake=None)
op(
    "fake_fixed(Tensor x) -> Tensor",
    lambda x: x[x > 1].clone(),
    *FAKES,
    "dynamic_shapes",
    fake=lambda x: x.new_empty(4),
)
op(
    "fake_const(Tensor x) -> Tensor",
    lambda x: x * 2,
    *FAKES,
    "empty",
    "test_aot_dispatch_dynamic",
    fake=lambda x: x.new_empty(3, 4),
    inputs=lambda: (x(),),
)
op(
    "fake_static(Tensor x) -> Tensor",
    lambda x: x.new_zeros(x.shape[0]),
    "dynamic_shapes",
    "test_aot_dispatch_dynamic",
    fake=lambda x: x.new_empty(torch.zeros(x.shape[0].__index__() if type(x.shape[0]) is int else 5).shape),
)
op("hidden_write(Tensor x) -> Tensor", lambda x: x.add_(1).clone(), "test_schema", inputs=lambda: (x(grad=False),))
op(
    "hidden_write_second(Tensor x, Tensor y) -> Tensor",
    lambda x, y: x + y.mul_(2),
    "test_schema",
    inputs=lambda: (x(grad=False), x(grad=False, seed=1)),
    fake=lambda x, y: torch.empty_like(x),
)
op("alias(Tensor x) -> Tensor", lambda x: x, "test_schema", inputs=lambda: (x(grad=False),))
op(
    "alias_view(Tensor x) -> Tensor",
    lambda x: x.view(-1),
    "test_schema",
    fake=lambda x: x.new_empty(x.numel()),
    inputs=lambda: (x(grad=False),),
)
op(
    "alias_two(Tensor x) -> (Tensor, Tensor)",
    lambda x: (lambda y: (y, y))(x * 2),
    "test_schema",
    fake=lambda x: (torch.empty_like(x), torch.empty_like(x)),
)
op("autograd_at_cpu(Tensor x) -> Tensor", lambda x: Square.apply(x), "test_autograd_registration")
op(
    "gradient_factor(Tensor x) -> Tensor",
    lambda x: x * x,
    "autograd",
    backward=lambda ctx, g: g * ctx.saved_tensors[0],
    setup=save,
)
op("gradient_sign(Tensor x) -> Tensor", lambda x: -x, "autograd", backward=lambda ctx, g: g)
op(
    "gradient_swapped(Tensor x, Tensor y) -> Tensor",
    lambda x, y: 2 * x + 3 * y,
    "autograd",
    backward=lambda ctx, g: (g * 3, g * 2),
    inputs=lambda: (x(), x(seed=1)),
    fake=lambda x, y: torch.empty_like(x),
)
op(
    "gradient_element(Tensor x) -> Tensor",
    lambda x: x * 2,
    "autograd",
    backward=lambda ctx, g: (g * 2).index_fill(0, torch.tensor([1]), 0),
)
op(
    "gradient_none(Tensor x, Tensor y) -> Tensor",
    lambda x, y: x * y,
    "autograd",
    backward=lambda ctx, g: (g * ctx.saved_tensors[0], None),
    setup=lambda ctx, inputs, output: ctx.save_for_backward(inputs[1]),
    inputs=lambda: (x(), x(seed=1)),
    fake=lambda x, y: torch.empty_like(x),
)
op("gradient_absent(Tensor x) -> Tensor", lambda x: x * 2, "autograd")
op(
    "gradient_shape(Tensor x) -> Tensor",
    lambda x: x.sum(1),
    "autograd",
    backward=lambda ctx, g: g[:, None] * 1,
    fake=lambda x: x.new_empty(x.shape[0]),
)
op(
    "gradient_float32(Tensor x) -> Tensor",
    lambda x: (x.float() * x.float()).to(x.dtype),
    "autograd",
    backward=lambda ctx, g: g,
)
op(
    "gradient_half(Tensor x) -> Tensor",
    lambda x: (x * 2).bfloat16(),
    "autograd",
    fake=lambda x: torch.empty_like(x, dtype=torch.bfloat16),
    backward=lambda ctx, g: g.float() * 3,
)
op(
    "second_detached(Tensor x) -> Tensor",
    lambda x: x * x * x,
    "second_order",
    backward=lambda ctx, g: g * 3 * (ctx.saved_tensors[0] ** 2).detach(),
    setup=save,
)
op(
    "second_once(Tensor x) -> Tensor",
    lambda x: x * x,
    "second_order",
    backward=torch.autograd.function.once_differentiable(lambda ctx, g: g * 2 * ctx.saved_tensors[0]),
    setup=save,
)
op(
    "in_place(Tensor(a!) x) -> Tensor(a!)",
    lambda x: x.mul_(2),
    "functionalize",
    fake=lambda x: x,
    inputs=lambda: (x(grad=False),),
)
op(
    "in_place_returns_list(Tensor(a!) x) -> Tensor[]",
    lambda x: [x.mul_(2) * 2],
    "functionalize",
    fake=lambda x: [torch.empty_like(x)],
    inputs=lambda: (x(grad=False),),
)
op("view(Tensor(a) x) -> Tensor(a)", lambda x: x.view(-1), "functionalize", "export", fake=lambda x: x.view(-1))
op("vmap_shape(Tensor x) -> Tensor", lambda x: x * 2, "vmap", vmap=lambda info, dims, a: ((a * 2).unsqueeze(1), 0))
op("vmap_values(Tensor x) -> Tensor", lambda x: x / x.sum(), "vmap", vmap=lambda info, dims, a: (a / a.sum(), dims[0]))
op("vmap_dim(Tensor x) -> Tensor", lambda x: x * 2, "vmap", vmap=lambda info, dims, a: (a * 2, 0))
op(
    "vmap_first(Tensor x) -> Tensor",
    lambda x: x * 2,
    "vmap",
    vmap=lambda info, dims, a: ((a * 2).select(dims[0], 0), None),
)
op(
    "vmap_unbatched(Tensor x, Tensor y) -> Tensor",
    lambda x, y: x + y.sum(),
    "vmap",
    vmap=lambda info, dims, a, b: (a + b.sum(tuple(range(1, b.dim())), keepdim=True), 0),
    fake=lambda x, y: torch.empty_like(x),
    inputs=lambda: (x(4, 4), x(4, 4, seed=1)),
)
op("vmap_raises(Tensor x) -> Tensor", lambda x: x * 2, "vmap", vmap=lambda info, dims, a: (a.nothing, 0))
op(
    "contiguous(Tensor x) -> Tensor",
    lambda x: torch.as_strided(x, x.shape, torch.empty(x.shape).stride(), x.storage_offset()) * 2,
    "strides",
)
op("offset(Tensor x) -> Tensor", lambda x: torch.as_strided(x, x.shape, x.stride(), 0) * 2, "strides")
op(
    "writes_contiguous(Tensor(a!) x) -> ()",
    lambda x: (torch.as_strided(x, x.shape, torch.empty(x.shape).stride(), x.storage_offset()).mul_(2), None)[1],
    "strides",
    fake=lambda x: None,
    inputs=lambda: (x(grad=False),),
)
op("random(Tensor x) -> Tensor", lambda x: x * float(int.from_bytes(os.urandom(2), "little")), "repeat")


def counts(x):
    _state["count"] += 1
    return x * _state["count"]


op("counts(Tensor x) -> Tensor", counts, "repeat")
op("empty_shape(Tensor x) -> Tensor", lambda x: x.new_zeros(x.shape) if x.numel() else x.new_zeros(1), "empty")
op("empty_exits(Tensor x) -> Tensor", lambda x: x * 2 if x.numel() else os._exit(3), "empty")
op("exits(Tensor x) -> Tensor", lambda x: os._exit(3), "repeat")
op("fake_exits(Tensor x) -> Tensor", lambda x: x * 2, *FAKES, fake=lambda x: os.abort())
op(
    "undeclared_optional(Tensor x, Tensor? y=None) -> Tensor",
    lambda x, y=None: x * 2 if y is None else x + y,
    *FAKES,
    fake=lambda x, y=None: torch.empty_like(x) if y is None else x.new_empty(1),
    inputs=lambda: [((x(),), {}), ((x(), x(seed=1)), {})],
)
op(
    "by_dtype(Tensor x) -> Tensor",
    lambda x: x.float(),
    *FAKES,
    inputs=lambda: [((x(),), {}), ((x(dtype=torch.float64),), {})],
)
op(
    "by_rank(Tensor x) -> Tensor",
    lambda x: x.sum(-1),
    *FAKES,
    fake=lambda x: x.new_empty(x.shape[0]),
    inputs=lambda: [((x(),), {}), ((x(2, 3, 4),), {})],
)
op(
    "gradient_thrice(Tensor x) -> Tensor",
    lambda x: x * 2,
    "autograd",
    fake=torch.empty_like,
    backward=lambda ctx, g: g * 3,
)
op(
    "fake_device(Tensor x) -> Tensor",
    lambda x: x * 2,
    *FAKES,
    fake=lambda x: torch.empty(x.shape, device="meta"),
)
op(
    "fake_second(Tensor x) -> Tensor[]",
    lambda x: [x * 2, x.sum(0)],
    *FAKES,
    fake=lambda x: [torch.empty_like(x), x.new_empty(x.shape[0])],
)
op(
    "gradient_conjugate(Tensor x) -> Tensor",
    lambda x: x * x,
    "autograd",
    backward=lambda ctx, g: g * 2 * ctx.saved_tensors[0],
    setup=save,
    inputs=lambda: (torch.complex(x(grad=False), x(grad=False, seed=1)).requires_grad_(),),
)
op(
    "gradient_list(Tensor x) -> Tensor[]",
    lambda x: [x * 2, x * 3],
    "autograd",
    fake=lambda x: [torch.empty_like(x), torch.empty_like(x)],
    backward=lambda ctx, gs: gs[0] * 2 + gs[1],
)
op(
    "empty_fake(Tensor x) -> Tensor",
    lambda x: x * 2,
    "empty",
    fake=lambda x: torch.empty_like(x) if x.shape[0] else x.new_empty(1),
)
op(
    "alias_part(Tensor x) -> Tensor",
    lambda x: x[1:],
    "test_schema",
    fake=lambda x: x.new_empty((x.shape[0] - 1, *x.shape[1:])),
    inputs=lambda: (x(grad=False),),
)
op(
    "reads_value(Tensor x) -> Tensor",
    lambda x: x * 2 if float(x.detach().sum()) > 0 else x,
    "fake",
    key="CompositeImplicitAutograd",
    fake=None,
)
op(
    "reads_value2(Tensor x) -> Tensor",
    lambda x: torch.ones(int(x.detach().sum())),
    "fake",
    key="CompositeImplicitAutograd",
    fake=None,
)


@torch.library.custom_op("planted::custom_bare", mutates_args=())
def custom_bare(a: Tensor) -> Tensor:
    return a * 2


INPUTS["planted::custom_bare"] = lambda: (x(),)
EXPECTED["planted::custom_bare"] = ("fake",)


@torch.library.custom_op("planted::custom_hidden", mutates_args=())
def custom_hidden(a: Tensor) -> Tensor:
    return a.mul_(2).clone()


custom_hidden.register_fake(torch.empty_like)
INPUTS["planted::custom_hidden"] = lambda: (x(grad=False),)
EXPECTED["planted::custom_hidden"] = ("test_schema",)


@torch.library.custom_op("planted::custom_dtype", mutates_args=())
def custom_dtype(a: Tensor) -> Tensor:
    return a.half()


custom_dtype.register_fake(torch.empty_like)
INPUTS["planted::custom_dtype"] = lambda: (x(),)
EXPECTED["planted::custom_dtype"] = FAKES


@torch.library.custom_op("planted::custom_gradient", mutates_args=())
def custom_gradient(a: Tensor, s: float) -> Tensor:
    return a * s


custom_gradient.register_fake(lambda a, s: torch.empty_like(a))
custom_gradient.register_autograd(lambda ctx, g: (g, None))
INPUTS["planted::custom_gradient"] = lambda: (x(), 3.0)
EXPECTED["planted::custom_gradient"] = ("autograd",)
"""
"""A module of operators with a defect each."""

RIGHT = r"""# Operators that are right, of every kind of schema; `EXCEPT` has what PyTorch refuses of their kind.
import torch, os
from torch import Tensor
from typing import Optional, Sequence

SEED = int(os.environ.get("RIGHT_SEED", "0"))
LIB = torch.library.Library("right", "FRAGMENT")
INPUTS = {}
EXCEPT = {"right::out": {"vmap"}, "right::number": {"vmap"}, "right::composite_view": {"vmap"}}


def op(schema, kernel, fake, inputs, backward=None, setup=None, vmap=None, key="CPU", tags=torch.Tag.pt2_compliant_tag):
    name = "right::" + schema.partition("(")[0]
    LIB.define(schema, tags=tags)
    LIB.impl(name, kernel, key)
    if fake is not None:
        torch.library.register_fake(name, fake, lib=LIB)
    if backward is not None:
        torch.library.register_autograd(name, backward, setup_context=setup, lib=LIB)
    if vmap is not None:
        torch.library.register_vmap(name, vmap, lib=LIB)
    INPUTS[name] = inputs
    if backward is None and key == "CPU":
        EXCEPT.setdefault(name, set()).update(("autograd", "second_order"))


RANDOM = torch.Generator().manual_seed(SEED)


def r(*s):
    return torch.randn(s, generator=RANDOM)


def rg(*s):
    return torch.randn(s, generator=RANDOM).requires_grad_()


EL = torch.empty_like
saved = lambda ctx, inputs, output: ctx.save_for_backward(*[i for i in inputs if isinstance(i, Tensor)])

op("double(Tensor x) -> Tensor", lambda x: x * 2, EL, lambda: (rg(3, 4),), lambda ctx, g: g * 2)
op("double_leaf(Tensor x) -> Tensor", lambda x: x * 2, EL, lambda: (rg(3, 4),), lambda ctx, g: g * 2)
op("nonleaf(Tensor x) -> Tensor", lambda x: x * 2, EL, lambda: (rg(3, 4) * 3,), lambda ctx, g: g * 2)
op(
    "square(Tensor x) -> Tensor",
    lambda x: x * x,
    EL,
    lambda: (rg(5),),
    lambda ctx, g: g * 2 * ctx.saved_tensors[0],
    saved,
)
op(
    "mul(Tensor x, Tensor y) -> Tensor",
    lambda x, y: x * y,
    lambda x, y: torch.empty_like(x),
    lambda: (rg(3, 4), rg(3, 4)),
    lambda ctx, g: (g * ctx.saved_tensors[1], g * ctx.saved_tensors[0]),
    saved,
)
op(
    "mul_half(Tensor x, Tensor table) -> Tensor",
    lambda x, table: x * table.to(x.dtype),
    lambda x, table: torch.empty_like(x),
    lambda: (r(3, 4).half().requires_grad_(), r(3, 4)),
    lambda ctx, g: (g * ctx.saved_tensors[1].to(g.dtype), None),
    saved,
)
op(
    "dequantize(Tensor x, Tensor scale) -> Tensor",
    lambda x, scale: (x * scale).bfloat16(),
    lambda x, scale: torch.empty_like(x, dtype=torch.bfloat16),
    lambda: (torch.randint(0, 9, (64, 512), dtype=torch.int8, generator=RANDOM), r(64, 1).abs() + 1),
    lambda ctx, g: (None, (g.float() * ctx.saved_tensors[0]).sum(1, keepdim=True)),
    saved,
)
op(
    "mul_one(Tensor x, Tensor y) -> Tensor",
    lambda x, y: x * y,
    lambda x, y: torch.empty_like(x),
    lambda: (rg(3, 4), r(3, 4)),
    lambda ctx, g: (g * ctx.saved_tensors[1], g * ctx.saved_tensors[0]),
    saved,
)
op(
    "same_twice(Tensor x, Tensor y) -> Tensor",
    lambda x, y: x * y,
    lambda x, y: torch.empty_like(x),
    lambda: (lambda t: (t, t))(rg(3, 4)),
    lambda ctx, g: (g * ctx.saved_tensors[1], g * ctx.saved_tensors[0]),
    saved,
)
op(
    "shared(Tensor x, Tensor y) -> Tensor",
    lambda x, y: x + y,
    lambda x, y: torch.empty_like(x),
    lambda: (lambda t: (t[:3], t[1:]))(r(4, 4)),
    lambda ctx, g: (g, g),
)
op(
    "relu(Tensor x) -> Tensor",
    lambda x: x.relu(),
    EL,
    lambda: (rg(4, 4),),
    lambda ctx, g: g * (ctx.saved_tensors[0] > 0),
    saved,
)
op(
    "relu_at_zero(Tensor x) -> Tensor",
    lambda x: x.relu(),
    EL,
    lambda: (torch.zeros(4, 4, requires_grad=True),),
    lambda ctx, g: g * (ctx.saved_tensors[0] > 0),
    saved,
)
op("straight_through(Tensor x) -> Tensor", lambda x: x.round(), EL, lambda: (rg(4, 4),), lambda ctx, g: g * 1)
op(
    "quantize_ste(Tensor x, float scale) -> Tensor",
    lambda x, s: (x / s).round().clamp(-8, 7) * s,
    lambda x, s: torch.empty_like(x),
    lambda: (rg(4, 4), 0.1),
    lambda ctx, g: (g * 1, None),
)
op(
    "matmul(Tensor x, Tensor y) -> Tensor",
    lambda x, y: x @ y,
    lambda x, y: x.new_empty(x.shape[0], y.shape[1]),
    lambda: (rg(3, 4), rg(4, 5)),
    lambda ctx, g: (g @ ctx.saved_tensors[1].t(), ctx.saved_tensors[0].t() @ g),
    saved,
)
op(
    "rowsum(Tensor x) -> Tensor",
    lambda x: x.sum(1),
    lambda x: x.new_empty(x.shape[0]),
    lambda: (rg(3, 4),),
    lambda ctx, g: g[:, None].expand(ctx.saved_tensors[0].shape).clone(),
    saved,
)
op(
    "softmax(Tensor x) -> Tensor",
    lambda x: x.softmax(-1),
    lambda x: torch.empty_like(x),
    lambda: (rg(3, 4),),
    lambda ctx, g: (lambda y: y * (g - (g * y).sum(-1, keepdim=True)))(ctx.saved_tensors[0]),
    lambda ctx, inputs, output: ctx.save_for_backward(output),
)
op(
    "float32_only(Tensor x) -> Tensor",
    lambda x: x * 2 if x.dtype == torch.float32 else 1 / 0,
    EL,
    lambda: (rg(3, 4),),
    lambda ctx, g: g * 2,
)
op(
    "float32_inside(Tensor x) -> Tensor",
    lambda x: (x.float() ** 2).to(x.dtype),
    EL,
    lambda: (rg(3, 4),),
    lambda ctx, g: g * 2 * ctx.saved_tensors[0],
    saved,
)
op("half(Tensor x) -> Tensor", lambda x: x * 2, EL, lambda: (r(3, 4).half(),), lambda ctx, g: g * 2)
op("bfloat(Tensor x) -> Tensor", lambda x: x * 2, EL, lambda: (r(3, 4).bfloat16(),), lambda ctx, g: g * 2)
op(
    "complex_(Tensor x) -> Tensor",
    lambda x: x * 2j,
    EL,
    lambda: (torch.randn(3, 4, dtype=torch.complex64, requires_grad=True),),
    lambda ctx, g: g * -2j,
)
op("integers(Tensor x) -> Tensor", lambda x: x * 2, EL, lambda: (torch.arange(6).reshape(2, 3),))
op(
    "to_integers(Tensor x) -> Tensor",
    lambda x: x.argsort(-1),
    lambda x: torch.empty_like(x, dtype=torch.int64),
    lambda: (rg(3, 4),),
)
op("bools(Tensor x) -> Tensor", lambda x: x.logical_not(), EL, lambda: (torch.rand(3, 4) < 0.5,))
op(
    "scalar_arg(Tensor x, Scalar s) -> Tensor",
    lambda x, s: x * s,
    lambda x, s: torch.empty_like(x),
    lambda: (rg(3), 2.5),
    lambda ctx, g: (g * 2.5, None),
)
op(
    "index(Tensor x, Tensor idx) -> Tensor",
    lambda x, i: x[i],
    lambda x, i: x.new_empty(i.shape + x.shape[1:]),
    lambda: (rg(5, 3), torch.randint(0, 5, (4,))),
    lambda ctx, g: (torch.zeros(5, 3, dtype=g.dtype).index_add(0, ctx.saved_tensors[1], g), None),
    saved,
)
op(
    "optional(Tensor x, Tensor? bias=None) -> Tensor",
    lambda x, b=None: x * 2 if b is None else x * 2 + b,
    lambda x, b=None: torch.empty_like(x),
    lambda: [((rg(3, 4),), {}), ((rg(3, 4), rg(4)), {}), ((rg(3, 4),), {"bias": r(4)})],
    lambda ctx, g: (g * 2, g.sum(0))[: len(ctx.needs_input_grad)],
)
op(
    "keyword(Tensor x, *, float scale=2.0, str mode='a') -> Tensor",
    lambda x, scale=2.0, mode="a": x * scale,
    lambda x, scale=2.0, mode="a": torch.empty_like(x),
    lambda: [((r(3),), {}), ((r(3),), {"scale": 3.0, "mode": "b"})],
)
op(
    "concat(Tensor[] xs) -> Tensor",
    lambda xs: torch.cat(xs),
    lambda xs: xs[0].new_empty((sum(x.shape[0] for x in xs), *xs[0].shape[1:])),
    lambda: ([r(2, 3), r(4, 3)],),
    vmap=lambda info, dims, xs: (
        torch.cat(
            [x.movedim(d, 0) if d is not None else x.expand(info.batch_size, *x.shape) for x, d in zip(xs, dims[0])], 1
        ),
        0,
    ),
)
op(
    "split(Tensor x) -> Tensor[]",
    lambda x: [x.sin(), x.cos()],
    lambda x: [torch.empty_like(x), torch.empty_like(x)],
    lambda: (r(3, 4),),
    vmap=lambda info, dims, x: ([x.sin(), x.cos()], [dims[0]] * 2),
)
op(
    "two(Tensor x) -> (Tensor, Tensor)",
    lambda x: (x.sin(), x.cos()),
    lambda x: (torch.empty_like(x), torch.empty_like(x)),
    lambda: (rg(3, 4),),
    lambda ctx, g, h: g * ctx.saved_tensors[0].cos() - h * ctx.saved_tensors[0].sin(),
    saved,
)
op(
    "two_one_int(Tensor x) -> (Tensor, Tensor)",
    lambda x: tuple(torch.sort(x, -1)),
    lambda x: (torch.empty_like(x), torch.empty_like(x, dtype=torch.int64)),
    lambda: (rg(3, 4),),
    lambda ctx, g, h: torch.zeros_like(g).scatter(-1, ctx.saved_tensors[0], g),
    lambda ctx, inputs, output: (ctx.save_for_backward(output[1]), ctx.mark_non_differentiable(output[1]))[0],
)
op(
    "write(Tensor(a!) x) -> ()",
    lambda x: (x.mul_(2), None)[1],
    lambda x: None,
    lambda: (r(3, 4),),
    vmap=lambda info, dims, x: (x.mul_(2), (None, None))[1],
)
op(
    "write_view(Tensor(a!) x) -> ()",
    lambda x: (x.mul_(2), None)[1],
    lambda x: None,
    lambda: (r(4, 6)[1:, ::2],),
    vmap=lambda info, dims, x: (x.mul_(2), (None, None))[1],
)
op(
    "write_two(Tensor(a!) x, Tensor y, Tensor(b!) z) -> ()",
    lambda x, y, z: (x.add_(y), z.sub_(y), None)[2],
    lambda x, y, z: None,
    lambda: (r(3), r(3), r(3)),
    vmap=lambda info, dims, x, y, z: (x.add_(y), z.sub_(y), (None, None))[2],
)
op(
    "write_and_make(Tensor(a!) x) -> Tensor",
    lambda x: x.mul_(2) + 1,
    EL,
    lambda: (r(3, 4),),
    vmap=lambda info, dims, x: (x.mul_(2) + 1, dims[0]),
)
op(
    "out(Tensor x, *, Tensor(a!) out) -> ()",
    lambda x, out: (torch.mul(x, 2, out=out), None)[1],
    lambda x, out: None,
    lambda: ((r(3, 4),), {"out": torch.empty(3, 4)}),
)
op(
    "write_list(Tensor(a!)[] xs) -> ()",
    lambda xs: ([x.mul_(2) for x in xs], None)[1],
    lambda xs: None,
    lambda: ([r(2), r(3)],),
    vmap=lambda info, dims, xs: ([x.mul_(2) for x in xs], (None, None))[1],
)
op("number(Tensor x) -> int", lambda x: 3, lambda x: 3, lambda: (r(3),))
op(
    "sizes(Tensor x, SymInt n) -> Tensor",
    lambda x, n: x.new_ones(n, x.shape[0]),
    lambda x, n: x.new_empty(n, x.shape[0]),
    lambda: (r(3), 4),
)
op(
    "ints(Tensor x, int[] dims) -> Tensor",
    lambda x, d: x.permute(d).contiguous(),
    lambda x, d: x.permute(d).contiguous(),
    lambda: (r(2, 3, 4), [2, 0, 1]),
)
op(
    "nonzero(Tensor x) -> Tensor",
    lambda x: x.nonzero().contiguous(),
    lambda x: x.new_empty((torch.library.get_ctx().new_dynamic_size(), x.dim()), dtype=torch.int64),
    lambda: (r(3, 4).relu(),),
)
op(
    "dropout(Tensor x, float p) -> Tensor",
    lambda x, p: x * (torch.rand_like(x) > p),
    lambda x, p: torch.empty_like(x),
    lambda: (r(8, 8), 0.5),
)
op(
    "dropout_grad(Tensor x, float p) -> (Tensor, Tensor)",
    lambda x, p: (lambda m: (x * m, m))((torch.rand_like(x) > p).to(x.dtype)),
    lambda x, p: (torch.empty_like(x), torch.empty_like(x)),
    lambda: (rg(4, 4), 0.5),
    lambda ctx, g, h: (g * ctx.saved_tensors[0], None),
    lambda ctx, inputs, output: (ctx.save_for_backward(output[1]), ctx.mark_non_differentiable(output[1]))[0],
)
op(
    "noise(Tensor x) -> Tensor",
    lambda x: torch.randn(x.shape, dtype=x.dtype),
    lambda x: x.new_empty(x.shape),
    lambda: (r(4, 4),),
)
op(
    "composite(Tensor x) -> Tensor",
    lambda x: torch.sin(x) * 2,
    None,
    lambda: (rg(3, 4),),
    key="CompositeImplicitAutograd",
)
op(
    "composite_quantize(Tensor x, Tensor s) -> Tensor",
    lambda x, s: torch.clamp(torch.round(x / s), min=-8, max=7).to(torch.int8),
    None,
    lambda: (r(3, 4), torch.tensor(0.5)),
    key="CompositeImplicitAutograd",
)
op(
    "tensor_for_number(Tensor x, float s) -> Tensor",
    lambda x, s: x * s,
    lambda x, s: torch.empty_like(x),
    lambda: (r(3, 4), torch.tensor(0.5)),
    lambda ctx, g: (g * 0.5, None),
)
op(
    "composite_view(Tensor(a) x) -> Tensor(a)",
    lambda x: x.view(-1),
    None,
    lambda: (r(3, 4),),
    key="CompositeImplicitAutograd",
)
op(
    "explicit(Tensor x) -> Tensor",
    lambda x: x * 2,
    None,
    lambda: (rg(3, 4),),
    lambda ctx, g: g * 2,
    key="CompositeExplicitAutograd",
)
op(
    "contiguous_only(Tensor x) -> Tensor",
    lambda x: x * 2 if x.is_contiguous() else (_ for _ in ()).throw(RuntimeError("x must be contiguous")),
    EL,
    lambda: (r(3, 4),),
)
op("nonempty_only(Tensor x) -> Tensor", lambda x: x.max()[None].clone(), lambda x: x.new_empty(1), lambda: (r(3, 4),))
op(
    "channels(Tensor x) -> Tensor",
    lambda x: x * 2,
    EL,
    lambda: (r(2, 3, 4, 4).to(memory_format=torch.channels_last),),
    lambda ctx, g: g * 2,
)
op("strided_input(Tensor x) -> Tensor", lambda x: x * 2, EL, lambda: (r(6, 4).t(),), lambda ctx, g: g * 2)
op(
    "expanded(Tensor x) -> Tensor",
    lambda x: x.sum(0),
    lambda x: x.new_empty(x.shape[1:]),
    lambda: (r(1, 4).expand(3, 4),),
    lambda ctx, g: g.expand(3, 4).clone(),
)
op("zero_dim(Tensor x) -> Tensor", lambda x: x * 2, EL, lambda: (rg(),), lambda ctx, g: g * 2)
op("empty_input(Tensor x) -> Tensor", lambda x: x * 2, EL, lambda: (r(0, 4),), lambda ctx, g: g * 2)
op(
    "large(Tensor x) -> Tensor",
    lambda x: x.tanh(),
    EL,
    lambda: (rg(64, 64),),
    lambda ctx, g: g * (1 - ctx.saved_tensors[0].tanh() ** 2),
    saved,
)
op(
    "parameter(Tensor x, Tensor w) -> Tensor",
    lambda x, w: x @ w,
    lambda x, w: x.new_empty(x.shape[0], w.shape[1]),
    lambda: (r(3, 4), torch.nn.Parameter(r(4, 2))),
    lambda ctx, g: (g @ ctx.saved_tensors[1].t(), ctx.saved_tensors[0].t() @ g),
    saved,
)
op(
    "generator(Tensor x, Generator? g=None) -> Tensor",
    lambda x, g=None: torch.rand(x.shape, generator=g, dtype=x.dtype),
    lambda x, g=None: x.new_empty(x.shape),
    lambda: (r(3),),
)
op(
    "dtype_arg(Tensor x, ScalarType dtype) -> Tensor",
    lambda x, d: x.to(d) if x.dtype != d else x.clone(),
    lambda x, d: torch.empty_like(x, dtype=d),
    lambda: (r(3), torch.float64),
)
op(
    "device_arg(Tensor x, Device device) -> Tensor",
    lambda x, d: x.clone(),
    lambda x, d: torch.empty_like(x),
    lambda: (r(3), torch.device("cpu")),
)
op(
    "without_tensor(int n) -> Tensor",
    lambda n: torch.ones(n),
    lambda n: torch.empty(n),
    lambda: (3,),
    key="CompositeExplicitAutograd",
)
op(
    "fixed_size(Tensor x) -> Tensor",
    lambda x: x * 2 if x.shape[1] == 3 else 1 / 0,
    lambda x: (torch._check(x.shape[1] == 3), torch.empty_like(x))[1],
    lambda: (r(2, 3),),
    lambda ctx, g: g * 2,
)



def checked(a, x):
    torch._check(a.shape[0] == x.shape[1])
    return torch.empty_like(x)


op(
    "steps(Tensor a, Tensor x) -> Tensor",  # as kernels that return early where nothing is to do
    lambda a, x: x * a if x.numel() else x.clone(),
    checked,
    lambda: (r(5), r(3, 5)),
)
op("infinite(Tensor x) -> Tensor", lambda x: x / 0, EL, lambda: (torch.ones(3),))


@torch.library.custom_op("right::custom", mutates_args=())
def custom(x: Tensor, s: float = 2.0) -> Tensor:
    return x * s


custom.register_fake(lambda x, s=2.0: torch.empty_like(x))
custom.register_autograd(
    lambda ctx, g: (g * ctx.s, None), setup_context=lambda ctx, inputs, output: setattr(ctx, "s", inputs[1])
)
INPUTS["right::custom"] = lambda: [((rg(3, 4),), {}), ((rg(3, 4), 3.0), {}), ((r(2),), {"s": 0.5})]


@torch.library.custom_op("right::custom_write", mutates_args=("x",))
def custom_write(x: Tensor, y: Tensor) -> None:
    x.add_(y)


INPUTS["right::custom_write"] = lambda: (r(3), r(3))


@torch.library.custom_op("right::custom_optional", mutates_args=())
def custom_optional(x: Tensor, y: Optional[Tensor] = None) -> Tensor:
    return x.clone() if y is None else x + y


custom_optional.register_fake(lambda x, y=None: torch.empty_like(x))
INPUTS["right::custom_optional"] = lambda: [((r(3),), {}), ((r(3), r(3)), {})]


for name in ("right::custom_write", "right::custom_optional"):
    EXCEPT[name] = {"vmap", "autograd", "second_order"}
"""
"""A module of right operators, whose random inputs the environment variable RIGHT_SEED decides."""

DRIVER = r"""# Run cells of operators in this process: a program that prints, operator by operator, what each run shows.

import json
import sys
from importlib import import_module

from dispatchlab.pytorch.introspection.readiness_runs import begin_runs, run_cell

SLOW = {"export", "export_dynamic", "inductor", "aot_package", "dtensor", "functionalize", "autocast"}

module = import_module(sys.argv[1])
slow = set(sys.argv[2:])
found = {}
for name in module.INPUTS:
    if name.endswith("exits"):
        continue
    source = f"{sys.argv[1]}:INPUTS"
    wanted = set(getattr(module, "EXPECTED", {}).get(name, ()))
    columns = [one for one in begin_runs(source, name) if one not in SLOW - slow or one in wanted]
    runs = {column: run_cell(source, name, column) for column in columns}
    found[name] = {column: [run.outcome, run.how] for column, run in runs.items()}
print(
    json.dumps(
        [found, {name: sorted(e) for name, e in getattr(module, "EXPECTED", getattr(module, "EXCEPT", {})).items()}]
    )
)
"""
"""A program that runs the cells of such a module."""

OPCHECK = r"""# Compare the four cells of opcheck with torch.library.opcheck on the same arguments.

import json
import sys
import warnings
from collections import Counter
from importlib import import_module

import torch
from dispatchlab.model.operator_runs import GENERATED, InputsError
from dispatchlab.pytorch.introspection.readiness_inputs import copy_of, inputs_of, overload
from dispatchlab.pytorch.introspection.readiness_runs import run_cell

TESTS = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
ATEN = '''abs add.Tensor addmm amax argmax asin bmm cat ceil clamp clone cos cumsum diag div.Tensor eq.Tensor erf exp
expand fill.Scalar flip floor gather gelu index_select isnan leaky_relu lerp.Scalar log logsumexp masked_fill.Scalar
max.dim mean mm mul.Tensor neg nonzero permute pow.Tensor_Scalar prod rand_like relu repeat round rsqrt select.int
sigmoid sin softplus sort split.Tensor sqrt squeeze stack sub.Tensor sum t tanh topk transpose.int tril unsqueeze view
add_.Tensor mul_.Tensor relu_ bernoulli native_dropout where.self unbind.int zeros_like'''.split()

warnings.simplefilter("ignore")
operators = []
for module in ("readiness_planted", "readiness_right"):
    names = import_module(module).INPUTS
    operators += [(f"{module}:INPUTS", name) for name in names if not name.endswith("exits")]
operators += [(GENERATED, f"aten::{name}") for name in ATEN]
operators = operators[:: int(sys.argv[1])]
compared, differ, without = Counter(), [], []
for source, name in operators:
    op = overload(name)
    try:
        calls = inputs_of(source, name)
    except InputsError:
        without.append(name)
        continue
    for test in TESTS:
        outcomes = []
        for call in calls:
            own = copy_of(call)
            torch.manual_seed(0)
            done = torch.library.opcheck(op, own.positional, own.named, test_utils=test, raise_exception=False)
            outcomes.append(done[test] == "SUCCESS")
        run = run_cell(source, name, test)
        compared["works" if all(outcomes) else "fails"] += 1
        if (run.outcome == "fails") is all(outcomes):
            differ.append([name, test, run.outcome, run.how])
print(without, file=sys.stderr)
print(json.dumps([len(operators) - len(without), compared, differ]))
"""
"""A program that compares the four cells of opcheck with opcheck."""
