"""The gradients of operators: their saved tensors, and their formulas as in derivatives.yaml of PyTorch 2.13.

The saved tensors decide which modifications in place are found, so they are those of PyTorch. The formulas are written
with operators: a gradient can be recorded like any call.
"""

from __future__ import annotations

from collections.abc import Mapping

from dispatchlab.call.tensor import Tensor
from dispatchlab.call.tensor_options import MemoryFormat
from dispatchlab.lab.derivatives import (
    Derivative,
    Formula,
    Recorded,
    conj,
    div_tensor_other_backward,
    div_tensor_self_backward,
    ger,
    handle_r_to_c,
    maybe_multiply,
    mm_mat1_backward,
    mm_mat2_backward,
    mul_scalar_backward,
    mul_tensor_backward,
    permute_backwards,
    reshape,
    stack_tensors_backward,
    sum_backward,
    sum_to_size,
    to_copy_backward,
    unsqueeze_all_to,
    unsqueeze_to,
)

_BOTH = {"self": "other", "other": "self"}
_MATRICES = {"self": "mat2", "mat2": "self"}


def _passed_on(at: Recorded, grad: Tensor) -> Tensor:
    return handle_r_to_c(at, at["self"].dtype, grad)


def _times(at: Recorded, grad: Tensor, factor: Tensor) -> Tensor:
    product: Tensor = at("mul.Tensor")(grad, conj(at, factor))
    return product


def _added(at: Recorded, grad: Tensor) -> Tensor:
    return handle_r_to_c(at, at["other"].dtype, maybe_multiply(at, grad, at["alpha"].conjugate()))


def _viewed(at: Recorded, grad: Tensor) -> Tensor:
    return reshape(at, grad, at["self"].shape)


def _stacked(at: Recorded, grad: Tensor) -> list[Tensor | None]:
    gradients = stack_tensors_backward(at, grad, at["dim"], [one.dtype for one in at["tensors"]])
    return [one if at.node.needs(number) else None for number, one in enumerate(gradients)]


def _copied(at: Recorded, grad: Tensor) -> Tensor:
    """Copy a gradient. Source: torch/csrc/autograd/functions/tensor.cpp (`CopyBackwards`)."""
    dtype = at["src"].dtype
    copied: Tensor = grad if grad.dtype == dtype else at("_to_copy")(grad, dtype=dtype)
    return copied


_ADD: Mapping[str, Formula] = {"other": _added, "self": _passed_on}
_SUB: Mapping[str, Formula] = {"other": lambda at, grad: _added(at, at("neg")(grad)), "self": _passed_on}
_MUL: Mapping[str, Formula] = {
    "other": lambda at, grad: mul_tensor_backward(at, grad, at.tensor("self"), at["other"].dtype),
    "self": lambda at, grad: mul_tensor_backward(at, grad, at.tensor("other"), at["self"].dtype),
}

FORMULAS: Mapping[str, Derivative] = {
    "add.Tensor": Derivative("AddBackward0", _ADD),
    "add_.Tensor": Derivative("AddBackward0", _ADD),
    "sub.Tensor": Derivative("SubBackward0", _SUB),
    "sub_.Tensor": Derivative("SubBackward0", _SUB),
    "mul.Tensor": Derivative("MulBackward0", _MUL, _BOTH),
    "mul_.Tensor": Derivative("MulBackward0", _MUL, _BOTH),
    "mul.Scalar": Derivative(
        "MulBackward1", {"self": lambda at, grad: mul_scalar_backward(at, grad, at["other"], at["self"].dtype)}
    ),
    "div.Tensor": Derivative(
        "DivBackward0",
        {
            "other": lambda at, grad: div_tensor_other_backward(at, grad, at.tensor("self"), at.tensor("other")),
            "self": lambda at, grad: div_tensor_self_backward(at, grad, at.tensor("other"), at["self"].dtype),
        },
        {"self": "other", "other": ""},
    ),
    "neg": Derivative("NegBackward0", {"self": lambda at, grad: at("neg")(grad)}),
    "sin": Derivative(
        "SinBackward0", {"self": lambda at, grad: _times(at, grad, at("cos")(at.tensor("self")))}, {"self": ""}
    ),
    "cos": Derivative(
        "CosBackward0",
        {"self": lambda at, grad: at("mul.Tensor")(grad, at("neg")(conj(at, at("sin")(at.tensor("self")))))},
        {"self": ""},
    ),
    "exp": Derivative(
        "ExpBackward0", {"self": lambda at, grad: _times(at, grad, at.tensor("result"))}, saves_result=True
    ),
    "relu": Derivative(
        "ReluBackward0",
        {"self": lambda at, grad: at("threshold_backward")(grad, at.tensor("result"), 0)},
        saves_result=True,
    ),
    "threshold_backward": Derivative(
        "ThresholdBackwardBackward0",
        {
            "grad_output": lambda at, grad: at("threshold_backward")(grad, at.tensor("self"), at["threshold"]),
            "self": lambda at, grad: at("zeros_like")(grad),
        },
        {"self": ""},
    ),
    "mm": Derivative(
        "MmBackward0",
        {
            "mat2": lambda at, grad: mm_mat2_backward(at, grad, at.tensor("self"), at["mat2"]),
            "self": lambda at, grad: mm_mat1_backward(at, grad, at.tensor("mat2"), at["self"]),
        },
        _MATRICES,
    ),
    "mv": Derivative(
        "MvBackward0",
        {
            "self": lambda at, grad: ger(at, grad, conj(at, at.tensor("vec"))),
            "vec": lambda at, grad: at("mv")(at("t")(conj(at, at.tensor("self"))), grad),
        },
        {"vec": "self", "self": "vec"},
    ),
    "dot": Derivative(
        "DotBackward0",
        {
            "self": lambda at, grad: _times(at, grad, at.tensor("tensor")),
            "tensor": lambda at, grad: _times(at, grad, at.tensor("self")),
        },
        {"tensor": "self", "self": "tensor"},
    ),
    "bmm": Derivative(
        "BmmBackward0",
        {
            "mat2": lambda at, grad: at("bmm")(conj(at, at("transpose.int")(at.tensor("self"), 1, 2)), grad),
            "self": lambda at, grad: at("bmm")(grad, conj(at, at("transpose.int")(at.tensor("mat2"), 1, 2))),
        },
        _MATRICES,
    ),
    "sum": Derivative("SumBackward0", {"self": lambda at, grad: at("expand")(grad, [*at["self"].shape])}),
    "sum.dim_IntList": Derivative(
        "SumBackward1",
        {"self": lambda at, grad: sum_backward(at, grad, at["self"].shape, at["dim"], at["keepdim"])},
    ),
    "normal_": Derivative("NormalBackward0", {"self": lambda at, grad: at("zeros_like")(grad)}),
    "_to_copy": Derivative("ToCopyBackward0", {"self": lambda at, grad: to_copy_backward(at, grad, at["self"])}),
    "clone": Derivative("CloneBackward0", {"self": lambda at, grad: grad}),
    "alias": Derivative("AliasBackward0", {"self": lambda at, grad: grad}),
    "view": Derivative("ViewBackward0", {"self": _viewed}),
    "t": Derivative("TBackward0", {"self": lambda at, grad: at("t")(grad)}),
    "transpose.int": Derivative(
        "TransposeBackward0", {"self": lambda at, grad: at("transpose.int")(grad, at["dim0"], at["dim1"])}
    ),
    "permute": Derivative("PermuteBackward0", {"self": lambda at, grad: permute_backwards(at, grad, at["dims"])}),
    "expand": Derivative("ExpandBackward0", {"self": lambda at, grad: sum_to_size(at, grad, at["self"].shape)}),
    "unsqueeze": Derivative("UnsqueezeBackward0", {"self": lambda at, grad: at("squeeze.dim")(grad, at["dim"])}),
    "squeeze.dim": Derivative(
        "SqueezeBackward1", {"self": lambda at, grad: unsqueeze_to(at, grad, at["dim"], at["self"].shape)}
    ),
    "squeeze.dims": Derivative(
        "SqueezeBackward2", {"self": lambda at, grad: unsqueeze_all_to(at, grad, at["dim"], at["self"].shape)}
    ),
    "select.int": Derivative(
        "SelectBackward0",
        {"self": lambda at, grad: at("select_backward")(grad, [*at["self"].shape], at["dim"], at["index"])},
    ),
    "_unsafe_view": Derivative("UnsafeViewBackward0", {"self": _viewed}),
    "select_backward": Derivative(
        "SelectBackwardBackward0",
        {"grad_output": lambda at, grad: at("select.int")(grad, at["dim"], at["index"])},
    ),
    "stack": Derivative("StackBackward0", {"tensors": _stacked}),
    "copy_": Derivative(
        "CopyBackwards",
        {
            "self": lambda at, grad: at("zeros_like")(grad, memory_format=MemoryFormat.contiguous_format),
            "src": _copied,
        },
    ),
}
"""By operator. What is not differentiable has none on purpose."""
