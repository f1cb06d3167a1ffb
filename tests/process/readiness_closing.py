"""Packages for test_readiness_closing.py: operators that lack things, and the calls that readiness names, made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

HEAD = """
import torch
import torch.distributed.tensor.experimental
from torch.distributed.tensor import Replicate

LIB = torch.library.Library("closing", "DEF")


def x():
    return torch.arange(6.0).reshape(2, 3) + 1


ARGUMENTS = {}
"""


@dataclass(frozen=True)
class Kind:
    """A schema with functions that fit it, as code.

    Args:
        signature: of the operator.
        parameters: of a Python function for it.
        kernel: what it returns.
        fake: what a fake implementation returns.
        backward: the function for its gradient.
        vmap: the function for its batching rule.
        sharding: what a sharding rule returns.
        arguments: for a call.
        fixed: the signature, when the advice is to change it.
    """

    signature: str
    parameters: str
    kernel: str
    fake: str
    backward: str
    vmap: str
    sharding: str
    arguments: str = "(x(),)"
    fixed: str = ""


_ONE = "lambda info, dims, x: (x * 2, dims[0])"
_DOUBLED = "lambda ctx, grad: grad * 2"
_RULE = "[([Replicate()], [Replicate()])]"

KINDS = {
    "plain": Kind("(Tensor x) -> Tensor", "x", "x * 2", "torch.empty_like(x)", _DOUBLED, _ONE, _RULE),
    "named": Kind(
        "(Tensor x, float s=2.0, *, int? y=None) -> Tensor",
        "x, s=2.0, *, y=None",
        "x * s",
        "torch.empty_like(x)",
        "lambda ctx, grad: (grad * 2, None)",
        "lambda info, dims, x, s=2.0, *, y=None: (x * s, dims[0])",
        "[([Replicate()], [Replicate(), None, None])]",
    ),
    "two": Kind(
        "(Tensor x, Tensor y) -> (Tensor, Tensor)",
        "x, y",
        "(x * 2, y * 3)",
        "(torch.empty_like(x), torch.empty_like(y))",
        "lambda ctx, one, two: (one * 2, two * 3)",
        "lambda info, dims, x, y: ((x * 2, y * 3), dims)",
        "[([Replicate(), Replicate()], [Replicate(), Replicate()])]",
        "(x(), x())",
    ),
    "of_list": Kind(
        "(Tensor[] xs) -> Tensor",
        "xs",
        "xs[0] * 2",
        "torch.empty_like(xs[0])",
        "lambda ctx, grad: [grad * 2]",
        "lambda info, dims, xs: (xs[0] * 2, dims[0][0])",
        _RULE,
        "([x()],)",
    ),
    "to_list": Kind(
        "(Tensor x) -> Tensor[]",
        "x",
        "[x * 2]",
        "[torch.empty_like(x)]",
        "lambda ctx, grads: grads[0] * 2",
        "lambda info, dims, x: ([x * 2], [dims[0]])",
        _RULE,
    ),
    "writes": Kind(
        "(Tensor(a!) x) -> ()",
        "x",
        "[x.mul_(2)] and None",
        "None",
        "",
        "lambda info, dims, x: ([x.mul_(2)] and None, None)",
        "[([], [Replicate()])]",
    ),
    "makes": Kind(
        "(Tensor(a!) x) -> Tensor",
        "x",
        "x.mul_(2) * 2",
        "torch.empty_like(x)",
        "",
        "lambda info, dims, x: (x.mul_(2) * 2, dims[0])",
        _RULE,
    ),
    "view": Kind(
        "(Tensor(a) x) -> Tensor(a)",
        "x",
        "x * 2",
        "torch.empty_like(x)",
        _DOUBLED,
        _ONE,
        _RULE,
        fixed="(Tensor x) -> Tensor",
    ),
    "both": Kind(
        "(Tensor(a!) x) -> Tensor[]",
        "x",
        "[x.mul_(2) * 2]",
        "[torch.empty_like(x)]",
        "",
        "lambda info, dims, x: ([x.mul_(2) * 2], [dims[0]])",
        _RULE,
        fixed="(Tensor(a!) x) -> Tensor",
    ),
}
KEYS = ("CPU", "CUDA", "CompositeExplicitAutograd", "custom_op", "overload")


@dataclass(frozen=True)
class Operator:
    """One operator of a package."""

    kind: str
    key: str

    @property
    def name(self) -> str:
        """Its name, without the namespace."""
        return f"{self.kind}_{self.key.lower()}{'.Tensor' if self.key == 'overload' else ''}"

    @property
    def is_custom(self) -> bool:
        """Whether `torch.library.custom_op` makes it."""
        return self.key == "custom_op"


OPERATORS = tuple(Operator(*pair) for pair in product(KINDS, KEYS) if pair != ("view", "custom_op"))
"""All but a view of `custom_op`, which refuses it."""


def package(calls: Mapping[str, Sequence[str]] | None = None) -> str:
    """The source of a package.

    Args:
        calls: operator -> the calls that readiness names for it, to be made; for none when left out.
    """
    parts = [HEAD]
    for operator in OPERATORS:
        given = tuple((calls or {}).get(f"closing::{operator.name}", ()))
        parts.append(_source(operator, given))
    return "\n".join(parts)


def _source(operator: Operator, calls: tuple[str, ...]) -> str:
    kind, base = KINDS[operator.kind], operator.name.replace(".", "_")
    advised = any("alias out of the schema" in call or "new tensors alone" in call for call in calls)
    signature = kind.fixed if advised else kind.signature
    kernel, fake = kind.kernel, kind.fake
    if advised and operator.kind == "both":
        kernel, fake = "x.mul_(2) * 2", "torch.empty_like(x)"
    tagged = any("pt2_compliant_tag" in call for call in calls)
    lines = [
        f"def kernel_{base}({kind.parameters}):",
        f"    return {kernel}",
        f"def fake_{base}({kind.parameters}):",
        f"    return {fake}",
    ]
    name = f"closing::{operator.name}"
    tags = ", tags=torch.Tag.pt2_compliant_tag" if tagged else ""
    if operator.is_custom:
        mutates = '("x",)' if "!" in signature else "()"
        lines.append(
            f'custom_{base} = torch.library.custom_op("{name}", kernel_{base}, mutates_args={mutates}, '
            f'schema="{signature}"{tags})'
        )
    else:
        key = "CPU" if operator.key == "overload" else operator.key
        lines += [
            f'torch.library.define("{name}", "{signature}"{tags}, lib=LIB)',
            f'LIB.impl("{operator.name}", kernel_{base}, "{key}")',
        ]
    lines += [
        _made(call, kind, base, advised=advised)
        for call in calls
        if call.startswith("torch.") and "define(" not in call
    ]
    lines.append(f'ARGUMENTS["{name}"] = lambda: {kind.arguments}')
    return "\n".join(lines)


def _made(call: str, kind: Kind, base: str, *, advised: bool) -> str:
    """A call as readiness names it, with functions in the place of its dots."""
    function = call.partition("(")[0].rpartition(".")[2]
    vmap = kind.vmap
    if advised and kind.fixed.endswith("-> Tensor") and "!" in kind.fixed:
        vmap = "lambda info, dims, x: (x.mul_(2) * 2, dims[0])"
    match function:
        case "register_kernel":
            return call.replace("...", f"kernel_{base}")
        case "register_fake":
            return call.replace("...", f"fake_{base}")
        case "register_autograd":
            return call.replace("backward, ...", kind.backward)
        case "register_vmap":
            return call.replace("...", vmap)
        case "register_sharding":
            return f"{call}(lambda {kind.parameters}: {kind.sharding})"
        case "register_autocast":
            return call
    raise AssertionError(f"readiness names a call that is not known here: {call}")
