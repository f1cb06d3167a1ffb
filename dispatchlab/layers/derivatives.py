"""Derivative formulas, one for each differentiable operator: what it saves, and the gradients of its tensors.

What is saved decides which modifications in place are found out, so it is what PyTorch saves
(tools/autograd/derivatives.yaml). The formulas are written with operators: a gradient can be recorded like any call.
The gradients of several arguments are computed in the order of their names, as in the nodes that PyTorch generates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from dispatchlab.call.operators import Operator
from dispatchlab.call.tensor import Tensor, is_viewable
from dispatchlab.call.tensor_options import MemoryFormat
from dispatchlab.layers.autograd_graph import Gradients, Node
from dispatchlab.layers.schemas import COPIES
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.keys import DispatchKey

_CONTIGUOUS = MemoryFormat.contiguous_format
_BATCHED = DispatchKeySet.of(DispatchKey.Batched).bits

Calls: TypeAlias = Callable[[str], Operator]
Values: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Derivative:
    """One formula.

    Args:
        name: of the node, as torch calls it.
        backward: (the operators, the node, the gradient of the result) -> the gradients of the tensor arguments; a list
            counts as its elements. `node.needs(i)` says which are wanted. A gradient may have the shape that its
            argument was broadcast to; it is summed up afterwards.
        save: keeps what the formula needs of the arguments; None when that is only their shapes.
        saves_result: the result is kept under the name `result`.
    """

    name: str
    backward: Callable[[Calls, Node, Tensor], Gradients]
    save: Callable[[Calls, Node, Values], None] | None = None
    saves_result: bool = False


def sum_to_size(calls: Calls, gradient: Tensor, shape: Sequence[int]) -> Tensor:
    """A gradient of the shape that was broadcast, of the gradient of what it was broadcast to."""
    if gradient.shape == tuple(shape):
        return gradient
    if not shape:
        whole: Tensor = calls("sum")(gradient)
        return whole
    missing = gradient.dim - len(shape)
    dims = [
        *range(missing),
        *(at + missing for at, size in enumerate(shape) if size == 1 != gradient.shape[at + missing]),
    ]
    summed: Tensor = calls("sum.dim_IntList")(gradient, dims, keepdim=True) if dims else gradient
    viewed: Tensor = calls("view")(summed, list(shape)) if missing else summed
    return viewed


def _reshaped(calls: Calls, tensor: Tensor, shape: Sequence[int]) -> Tensor:
    """A view where there can be one, and a view of a copy elsewhere."""
    viewable = is_viewable(tensor.shape, tensor.strides, shape) and not tensor.key_bits & _BATCHED
    whole = tensor if viewable else calls("clone")(tensor, memory_format=_CONTIGUOUS)
    viewed: Tensor = calls("view" if viewable else "_unsafe_view")(whole, list(shape))
    return viewed


def _scaled(calls: Calls, tensor: Tensor, factor: float | complex) -> Tensor:
    scaled: Tensor = tensor if factor == 1 else calls("mul.Scalar")(tensor, factor)
    return scaled


def _linear(sign: int) -> Callable[[Calls, Node, Tensor], Gradients]:
    def backward(calls: Calls, node: Node, gradient: Tensor) -> Gradients:
        alpha: Any = node.stash["alpha"]
        other = None
        if node.needs(1):
            signed = gradient if sign > 0 else calls("neg")(gradient)
            other = _scaled(calls, signed, alpha)
        return gradient if node.needs(0) else None, other

    return backward


def _shape(node: Node, name: str) -> tuple[int, ...]:
    shape = node.stash[f"{name}.shape"]
    assert isinstance(shape, tuple)
    return shape


def _mul(calls: Calls, node: Node, gradient: Tensor) -> Gradients:
    mul = calls("mul.Tensor")
    other = mul(gradient, node.unpack("self")) if node.needs(1) else None
    self = mul(gradient, node.unpack("other")) if node.needs(0) else None
    return self, other


def _save_mul(calls: Calls, node: Node, values: Values) -> None:
    node.save("self", values["self"] if node.needs(1) else None)
    node.save("other", values["other"] if node.needs(0) else None)


def _save_mul_in_place(calls: Calls, node: Node, values: Values) -> None:
    node.save("self", calls("clone")(values["self"]) if node.needs(1) else None)
    node.save("other", values["other"] if node.needs(0) else None)


def _div(calls: Calls, node: Node, gradient: Tensor) -> Gradients:
    div = calls("div.Tensor")
    other = None
    if node.needs(1):
        divisor = node.unpack("other")
        quotient = div(div(node.unpack("self"), divisor), divisor)
        other = calls("mul.Tensor")(calls("neg")(gradient), quotient)
    return div(gradient, node.unpack("other")) if node.needs(0) else None, other


def _save_div(calls: Calls, node: Node, values: Values) -> None:
    node.save("other", values["other"])
    node.save("self", values["self"] if node.needs(1) else None)


def _permute(calls: Calls, node: Node, gradient: Tensor) -> Gradients:
    dims: Any = node.stash["dims"]
    order = [dim % max(len(dims), 1) for dim in dims]
    return (calls("permute")(gradient, [order.index(at) for at in range(len(order))]),)


def _mm(calls: Calls, node: Node, gradient: Tensor) -> Gradients:
    mm, t = calls("mm"), calls("t")
    mat2 = mm(t(node.unpack("self")), gradient) if node.needs(1) else None
    self = mm(gradient, t(node.unpack("mat2"))) if node.needs(0) else None
    return self, mat2


def _bmm(calls: Calls, node: Node, gradient: Tensor) -> Gradients:
    bmm, transpose = calls("bmm"), calls("transpose.int")
    mat2 = bmm(transpose(node.unpack("self"), 1, 2), gradient) if node.needs(1) else None
    self = bmm(gradient, transpose(node.unpack("mat2"), 1, 2)) if node.needs(0) else None
    return self, mat2


def _save_mm(calls: Calls, node: Node, values: Values) -> None:
    node.save("self", values["self"] if node.needs(1) else None)
    node.save("mat2", values["mat2"] if node.needs(0) else None)


def _save_self(calls: Calls, node: Node, values: Values) -> None:
    node.save("self", values["self"])


def _sum_dim(calls: Calls, node: Node, gradient: Tensor) -> Gradients:
    shape = _shape(node, "self")
    dims: Any = node.stash["dim"]
    if dims and shape and not node.stash["keepdim"]:
        for dim in dims if len(dims) == 1 else sorted(one % len(shape) for one in dims):
            gradient = calls("unsqueeze")(gradient, dim)
    return (calls("expand")(gradient, list(shape)),)


def _sum(calls: Calls, node: Node, gradient: Tensor) -> Gradients:
    shape = _shape(node, "self")
    return (calls("expand")(gradient, list(shape)),)


def _squeeze(calls: Calls, node: Node, gradient: Tensor) -> Gradients:
    shape, dim = _shape(node, "self"), node.stash["dim"]
    assert isinstance(dim, int)
    return (calls("unsqueeze")(gradient, dim) if shape and shape[dim] == 1 else gradient,)


def _squeeze_dims(calls: Calls, node: Node, gradient: Tensor) -> Gradients:
    shape, dims = _shape(node, "self"), node.stash["dim"]
    assert isinstance(dims, list)
    for dim in sorted({one % max(len(shape), 1) for one in dims}):
        if shape and shape[dim] == 1:
            gradient = calls("unsqueeze")(gradient, dim)
    return (gradient,)


def _select_scatter(calls: Calls, node: Node, gradient: Tensor) -> Gradients:
    dim, index = node.stash["dim"], node.stash["index"]
    self = src = None
    if node.needs(0):
        zeros = calls("zeros")([*_shape(node, "src")], dtype=gradient.dtype, device=gradient.device)
        self = calls("select_scatter")(gradient, zeros, dim, index)
    if node.needs(1):
        src = calls("select.int")(gradient, dim, index)
    return self, src


def _copy(calls: Calls, node: Node, gradient: Tensor) -> Gradients:
    return (
        calls("zeros_like")(gradient, memory_format=_CONTIGUOUS) if node.needs(0) else None,
        gradient if node.needs(1) else None,
    )


def _save_options(calls: Calls, node: Node, values: Values) -> None:
    self = values["self"]
    node.stash["options"] = {"dtype": self.dtype, "layout": self.layout, "device": self.device}


def _to_copy(calls: Calls, node: Node, gradient: Tensor) -> Gradients:
    options: Any = node.stash["options"]
    if all(getattr(gradient, name) == value for name, value in options.items()):
        return (gradient,)
    return (calls("_to_copy")(gradient, **options),)


def _select(calls: Calls, node: Node, gradient: Tensor) -> Gradients:
    shape = list(_shape(node, "self"))
    return (calls("select_backward")(gradient, shape, node.stash["dim"], node.stash["index"]),)


def _stack(calls: Calls, node: Node, gradient: Tensor) -> Gradients:
    dim = node.stash["dim"]
    select = calls("select.int")
    return [select(gradient, dim, at) if node.needs(at) else None for at in range(len(node.next_edges))]


DERIVATIVES: dict[str, Derivative] = {
    "add.Tensor": Derivative("AddBackward0", _linear(1)),
    "add_.Tensor": Derivative("AddBackward0", _linear(1)),
    "sub.Tensor": Derivative("SubBackward0", _linear(-1)),
    "sub_.Tensor": Derivative("SubBackward0", _linear(-1)),
    "mul.Tensor": Derivative("MulBackward0", _mul, _save_mul),
    "mul_.Tensor": Derivative("MulBackward0", _mul, _save_mul_in_place),
    "mul.Scalar": Derivative(
        "MulBackward1", lambda calls, node, gradient: (calls("mul.Scalar")(gradient, node.stash["other"]),)
    ),
    "div.Tensor": Derivative("DivBackward0", _div, _save_div),
    "alias": Derivative("AliasBackward0", lambda calls, node, gradient: (gradient,)),
    "permute": Derivative("PermuteBackward0", _permute),
    "neg": Derivative("NegBackward0", lambda calls, node, gradient: (calls("neg")(gradient),)),
    "sin": Derivative(
        "SinBackward0",
        lambda calls, node, gradient: (calls("mul.Tensor")(gradient, calls("cos")(node.unpack("self"))),),
        _save_self,
    ),
    "cos": Derivative(
        "CosBackward0",
        lambda calls, node, gradient: (calls("mul.Tensor")(gradient, calls("neg")(calls("sin")(node.unpack("self")))),),
        _save_self,
    ),
    "exp": Derivative(
        "ExpBackward0",
        lambda calls, node, gradient: (calls("mul.Tensor")(gradient, node.unpack("result")),),
        saves_result=True,
    ),
    "relu": Derivative(
        "ReluBackward0",
        lambda calls, node, gradient: (calls("threshold_backward")(gradient, node.unpack("result"), 0),),
        saves_result=True,
    ),
    "threshold_backward": Derivative(
        "ThresholdBackwardBackward0",
        lambda calls, node, gradient: (
            calls("threshold_backward")(gradient, node.unpack("self"), node.stash["threshold"])
            if node.needs(0)
            else None,
            calls("zeros_like")(gradient) if node.needs(1) else None,
        ),
        _save_self,
    ),
    "mm": Derivative("MmBackward0", _mm, _save_mm),
    "bmm": Derivative("BmmBackward0", _bmm, _save_mm),
    "sum": Derivative("SumBackward0", _sum),
    "sum.dim_IntList": Derivative("SumBackward1", _sum_dim),
    "normal_": Derivative("NormalBackward0", lambda calls, node, gradient: (calls("zeros_like")(gradient),)),
    "clone": Derivative("CloneBackward0", lambda calls, node, gradient: (gradient,)),
    "view": Derivative(
        "ViewBackward0", lambda calls, node, gradient: (_reshaped(calls, gradient, _shape(node, "self")),)
    ),
    "t": Derivative("TBackward0", lambda calls, node, gradient: (calls("t")(gradient),)),
    "expand": Derivative(
        "ExpandBackward0", lambda calls, node, gradient: (sum_to_size(calls, gradient, _shape(node, "self")),)
    ),
    "_unsafe_view": Derivative(
        "UnsafeViewBackward0", lambda calls, node, gradient: (_reshaped(calls, gradient, _shape(node, "self")),)
    ),
    "unsqueeze": Derivative(
        "UnsqueezeBackward0", lambda calls, node, gradient: (calls("squeeze.dim")(gradient, node.stash["dim"]),)
    ),
    "squeeze.dim": Derivative("SqueezeBackward1", _squeeze),
    "squeeze.dims": Derivative("SqueezeBackward2", _squeeze_dims),
    "transpose.int": Derivative(
        "TransposeBackward0",
        lambda calls, node, gradient: (calls("transpose.int")(gradient, node.stash["dim0"], node.stash["dim1"]),),
    ),
    "select_scatter": Derivative("SelectScatterBackward0", _select_scatter),
    "copy_": Derivative("CopyBackwards", _copy),
    "_to_copy": Derivative("ToCopyBackward0", _to_copy, _save_options),
    "select.int": Derivative("SelectBackward0", _select),
    "select_backward": Derivative(
        "SelectBackwardBackward0",
        lambda calls, node, gradient: (calls("select.int")(gradient, node.stash["dim"], node.stash["index"]),),
    ),
    "stack": Derivative("StackBackward0", _stack),
}
"""By operator. What is not differentiable has none on purpose."""

DERIVATIVES.update(
    {
        copy: replace(DERIVATIVES[view], name=f"{DERIVATIVES[view].name}_copy")
        for view, copy in COPIES.items()
        if view in DERIVATIVES
    }
)
