"""Programs of test_readiness_truth.py: operators of every kind, and what runs the claims of `readiness` on them."""

PACKAGE = r"""# Operators of every kind that `readiness` distinguishes, with arguments to run them on.

import torch
from torch import Tensor


def _x() -> Tensor:
    return torch.arange(6.0).reshape(2, 3) + 1


@torch.library.custom_op("ready::whole", mutates_args=())
def whole(x: Tensor) -> Tensor:
    return x * 2


whole.register_fake(torch.empty_like)
whole.register_autograd(lambda ctx, grad: grad * 2)
whole.register_vmap(lambda info, dims, x: (x * 2, dims[0]))
torch.library.register_autocast("ready::whole", "cpu", torch.bfloat16)


@torch.library.custom_op("ready::bare", mutates_args=())
def bare(x: Tensor) -> Tensor:
    return x * 2


@torch.library.custom_op("ready::writes", mutates_args=("x",))
def writes(x: Tensor) -> None:
    x.mul_(2)


@torch.library.custom_op("ready::on_cpu", mutates_args=(), device_types="cpu")
def on_cpu(x: Tensor) -> Tensor:
    return x * 2


@torch.library.custom_op("ready::on_cuda", mutates_args=(), device_types="cuda")
def on_cuda(x: Tensor) -> Tensor:
    return x * 2


on_cuda.register_fake(torch.empty_like)


@torch.library.custom_op("ready::refuses", mutates_args=(), device_types="cpu")
def refuses(x: Tensor) -> Tensor:
    return x * 2


def _raises(ctx, grad):
    raise RuntimeError("no second derivative")


torch.library.register_autograd("ready::refuses", _raises)

LIB = torch.library.Library("ready", "FRAGMENT")


def _define(schema: str, kernel, key: str = "CPU", fake=None, backward=None, **more) -> None:
    name = "ready::" + schema.partition("(")[0]
    LIB.define(schema, **more)
    LIB.impl(name, kernel, key)
    if fake is not None:
        torch.library.register_fake(name, fake, lib=LIB)
    if backward is not None:
        torch.library.register_autograd(name, backward, lib=LIB)


def _in_place(x):
    x.mul_(2)
    return x


_define("plain(Tensor x) -> Tensor", lambda x: x * 2)
_define(
    "traced(Tensor x) -> Tensor",
    lambda x: x * 2,
    fake=torch.empty_like,
    backward=lambda ctx, grad: grad * 2,
    tags=torch.Tag.pt2_compliant_tag,
)
_define("meta(Tensor x) -> Tensor", lambda x: x * 2)
LIB.impl("ready::meta", torch.empty_like, "Meta")
_define("composite(Tensor x) -> Tensor", lambda x: x * 2, "CompositeImplicitAutograd")
_define("explicit(Tensor x) -> Tensor", lambda x: x * 2, "CompositeExplicitAutograd")
_define("in_place(Tensor(a!) x) -> Tensor(a!)", _in_place, fake=lambda x: x)
_define("view(Tensor(a) x) -> Tensor(a)", lambda x: x.view(-1), fake=lambda x: x.view(-1))
_define("writes_and_makes(Tensor(a!) x) -> Tensor", lambda x: x.mul_(2) * 2, fake=torch.empty_like)
_define("writes_list(Tensor(a!)[] xs) -> ()", lambda xs: [x.mul_(2) for x in xs] and None, fake=lambda xs: None)
_define("of_list(Tensor[] xs) -> Tensor", lambda xs: xs[0] * 2, fake=lambda xs: torch.empty_like(xs[0]))
_define("to_list(Tensor x) -> Tensor[]", lambda x: [x * 2], fake=lambda x: [torch.empty_like(x)])
_define("writes_to_list(Tensor(a!) x) -> Tensor[]", lambda x: [x.mul_(2) * 2], fake=lambda x: [torch.empty_like(x)])
_define("two(Tensor x) -> (Tensor, Tensor)", lambda x: (x * 2, x * 3), fake=lambda x: (x.clone(), x.clone()))
_define("to_number(Tensor x) -> int", lambda x: 3, fake=lambda x: 3)

ARGUMENTS = {
    f"ready::{name}": (lambda: ([_x()],)) if name in ("of_list", "writes_list") else (lambda: (_x(),))
    for name in (
        *("whole", "bare", "writes", "on_cpu", "on_cuda", "refuses", "plain", "traced", "meta", "composite"),
        *("explicit", "in_place", "view", "writes_and_makes", "writes_list", "of_list", "to_list"),
        *("writes_to_list", "two", "to_number"),
    )
}
"""
"""A module that registers operators, with `ARGUMENTS`: operator -> a function that makes arguments to run it on."""

TRUTH = r"""# Run what the cells of `readiness` claim: a program that prints, operator by operator, what worked.
#
# It imports a module that registers operators and has `ARGUMENTS`: operator -> a function that makes its arguments.

import contextlib
import json
import sys
import warnings
from importlib import import_module

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode


def overload_of(name):
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")


def mapped(function, values):
    return pytree.tree_map(lambda one: function(one) if isinstance(one, torch.Tensor) else one, values)


def fake(op, arguments):
    mode = FakeTensorMode(shape_env=ShapeEnv())
    given = mapped(mode.from_tensor, arguments)
    with mode:
        op(*given)
    return True


def autograd(op, arguments):
    # Whether a gradient comes, and is the derivative along one direction.
    tensors = [one for one in pytree.tree_leaves(arguments) if isinstance(one, torch.Tensor) and is_real(one)]

    def total(values, given):
        results = [*pytree.tree_leaves(op(*given)), *(values if op._schema.is_mutable else ())]
        return sum(one.sum() for one in results if isinstance(one, torch.Tensor) and is_real(one))

    def at(step):
        moved = iter([one + step * moves for one, moves in zip(tensors, known, strict=True)])
        given = mapped(lambda one: next(moved) if is_real(one) else one.clone(), arguments)
        return float(total([one for one in pytree.tree_leaves(given) if isinstance(one, torch.Tensor)], given))

    leaves = [one.clone().requires_grad_() for one in tensors]
    fresh = iter([one * 1 for one in leaves])
    given = mapped(lambda one: next(fresh) if is_real(one) else one.clone(), arguments)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*autograd kernel.*")
        total([one for one in pytree.tree_leaves(given) if isinstance(one, torch.Tensor)], given).backward()
    known = [one.grad is not None for one in leaves]
    found = sum(float(one.grad.sum()) for one in leaves if one.grad is not None)
    expected = (at(0.01) - at(-0.01)) / 0.02
    assert abs(found - expected) <= 0.05 * max(1.0, abs(expected)), f"{found} is not {expected}"
    return any(one.grad is not None for one in leaves)


def is_real(tensor):
    return tensor.is_floating_point() and tensor.dtype in (torch.float32, torch.float64)


def vmap(op, arguments):
    tensors = [one for one in pytree.tree_leaves(arguments) if isinstance(one, torch.Tensor)]
    assert tensors
    given = mapped(lambda one: torch.stack([one, one]), arguments)
    dims = pytree.tree_map(lambda one: 0 if isinstance(one, torch.Tensor) else None, given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.vmap(lambda *batched: op(*batched), in_dims=tuple(dims))(*given)
    return True


def compiled(backend):
    def check(op, arguments):
        torch._dynamo.reset()
        expected, given = mapped(torch.clone, arguments), mapped(torch.clone, arguments)
        with torch.no_grad():
            result = op(*expected)
            found = torch.compile(lambda *rest: op(*rest), backend=backend, fullgraph=True)(*given)
        flat = zip(pytree.tree_leaves((expected, result)), pytree.tree_leaves((given, found)), strict=True)
        assert all(torch.equal(one, two) for one, two in flat if isinstance(one, torch.Tensor))
        return True

    return check


def export(op, arguments):
    class Module(torch.nn.Module):
        def forward(self, *rest):
            return op(*rest)

    torch.export.export(Module(), tuple(arguments)).run_decompositions({})
    return True


class Seen(TorchDispatchMode):
    def __init__(self, op):
        super().__init__()
        self.op, self.dtypes = op, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is self.op:
            self.dtypes.append([one.dtype for one in pytree.tree_leaves(args) if isinstance(one, torch.Tensor)])
        return func(*args, **(kwargs or {}))


def autocast(op, arguments):
    # Whether the operator sees other dtypes than it is given, in either direction.
    for dtype in (torch.float32, torch.bfloat16):
        given = mapped(lambda one, dtype=dtype: one.to(dtype) if is_real(one) else one.clone(), arguments)
        before = [one.dtype for one in pytree.tree_leaves(given) if isinstance(one, torch.Tensor)]
        with Seen(op) as seen, torch.autocast("cpu", dtype=torch.bfloat16), contextlib.suppress(Exception):
            op(*given)
        if any(dtypes != before for dtypes in seen.dtypes):
            return True
    return False


def dtensor(op, arguments):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate

    if not torch.distributed.is_initialized():
        from torch.testing._internal.distributed.fake_pg import FakeStore

        torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    op(*mapped(lambda one: DTensor.from_local(one, mesh, [Replicate()], run_check=False), arguments))
    return True


def cpu(op, arguments):
    op(*arguments)
    return True


def tags(op, arguments):
    return torch.Tag.pt2_compliant_tag in op.tags


CHECKS = {
    "cpu": cpu,
    "fake": fake,
    "autograd": autograd,
    "functionalize": compiled("aot_eager"),
    "vmap": vmap,
    "autocast": autocast,
    "dtensor": dtensor,
    "export": export,
    "inductor": compiled("inductor"),
    "tags": tags,
}


def main():
    module = import_module(sys.argv[1])
    found = {}
    for name, make in module.ARGUMENTS.items():
        found[name] = {}
        for aspect, check in CHECKS.items():
            try:
                with contextlib.redirect_stdout(sys.stderr):
                    found[name][aspect] = [bool(check(overload_of(name), make())), ""]
            except Exception as error:  # that is what is asked
                found[name][aspect] = [False, f"{type(error).__name__}: {error}"[:300]]
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
"""
"""A program that imports such a module and prints, operator by operator, which claims hold."""
