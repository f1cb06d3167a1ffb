"""The gradients of operators: what each saves, and its formulas as derivatives.yaml of PyTorch 2.13 has them.

What is saved decides which modifications in place are found out, so it is what PyTorch saves. The formulas are written
with operators: a gradient can be recorded like any call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dispatchlab.call.tensor import Tensor
from dispatchlab.call.tensor_options import MemoryFormat
from dispatchlab.lab.autograd_graph import Gradients, Node
from dispatchlab.lab.derivatives import (
    Calls,
    Derivative,
    Values,
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
    options_of,
    permute_backwards,
    reshape,
    stack_tensors_backward,
    sum_backward,
    sum_to_size,
    to_copy_backward,
    unsqueeze_all_to,
    unsqueeze_to,
)


def _add_Tensor(calls: Calls, node: Node, grad: Tensor) -> Gradients:
    stash: Any = node.stash
    self_gradient = other_gradient = None
    if node.needs(1):
        other_gradient = handle_r_to_c(
            calls, stash["other_scalar_type"], maybe_multiply(calls, grad, stash["alpha"].conjugate())
        )
    if node.needs(0):
        self_gradient = handle_r_to_c(calls, stash["self_scalar_type"], grad)
    return self_gradient, other_gradient


def _save_add_Tensor(calls: Calls, node: Node, values: Values) -> None:
    node.stash["other_scalar_type"] = values["other"].dtype
    node.stash["alpha"] = values["alpha"]
    node.stash["self_scalar_type"] = values["self"].dtype


def _sub_Tensor(calls: Calls, node: Node, grad: Tensor) -> Gradients:
    stash: Any = node.stash
    self_gradient = other_gradient = None
    if node.needs(1):
        other_gradient = handle_r_to_c(
            calls, stash["other_scalar_type"], maybe_multiply(calls, calls("neg")(grad), stash["alpha"].conjugate())
        )
    if node.needs(0):
        self_gradient = handle_r_to_c(calls, stash["self_scalar_type"], grad)
    return self_gradient, other_gradient


def _mul_Tensor(calls: Calls, node: Node, grad: Tensor) -> Gradients:
    stash: Any = node.stash
    self_gradient = other_gradient = None
    if node.needs(1):
        self = node.unpack("self")
        other_gradient = mul_tensor_backward(calls, grad, self, stash["other_scalar_type"])
    if node.needs(0):
        other = node.unpack("other")
        self_gradient = mul_tensor_backward(calls, grad, other, stash["self_scalar_type"])
    return self_gradient, other_gradient


def _save_mul_Tensor(calls: Calls, node: Node, values: Values) -> None:
    node.save("self", values["self"] if node.needs(1) else None)
    node.stash["other_scalar_type"] = values["other"].dtype
    node.save("other", values["other"] if node.needs(0) else None)
    node.stash["self_scalar_type"] = values["self"].dtype


def _mul_Scalar(calls: Calls, node: Node, grad: Tensor) -> Gradients:
    stash: Any = node.stash
    return (mul_scalar_backward(calls, grad, stash["other"], stash["self_scalar_type"]),)


def _save_mul_Scalar(calls: Calls, node: Node, values: Values) -> None:
    node.stash["other"] = values["other"]
    node.stash["self_scalar_type"] = values["self"].dtype


def _save_mul__Tensor(calls: Calls, node: Node, values: Values) -> None:
    node.save("self", calls("clone")(values["self"]) if node.needs(1) else None)
    node.stash["other_scalar_type"] = values["other"].dtype
    node.save("other", values["other"] if node.needs(0) else None)
    node.stash["self_scalar_type"] = values["self"].dtype


def _div_Tensor(calls: Calls, node: Node, grad: Tensor) -> Gradients:
    stash: Any = node.stash
    self_gradient = other_gradient = None
    if node.needs(1):
        self = node.unpack("self")
        other = node.unpack("other")
        other_gradient = div_tensor_other_backward(calls, grad, self, other)
    if node.needs(0):
        other = node.unpack("other")
        self_gradient = div_tensor_self_backward(calls, grad, other, stash["self_scalar_type"])
    return self_gradient, other_gradient


def _save_div_Tensor(calls: Calls, node: Node, values: Values) -> None:
    node.save("self", values["self"] if node.needs(1) else None)
    node.save("other", values["other"])
    node.stash["self_scalar_type"] = values["self"].dtype


def _neg(calls: Calls, node: Node, grad: Tensor) -> Gradients:
    return (calls("neg")(grad),)


def _sin(calls: Calls, node: Node, grad: Tensor) -> Gradients:
    self = node.unpack("self")
    return (calls("mul.Tensor")(grad, conj(calls, calls("cos")(self))),)


def _save_sin(calls: Calls, node: Node, values: Values) -> None:
    node.save("self", values["self"])


def _cos(calls: Calls, node: Node, grad: Tensor) -> Gradients:
    self = node.unpack("self")
    return (calls("mul.Tensor")(grad, calls("neg")(conj(calls, calls("sin")(self)))),)


def _exp(calls: Calls, node: Node, grad: Tensor) -> Gradients:
    result = node.unpack("result")
    return (calls("mul.Tensor")(grad, conj(calls, result)),)


def _relu(calls: Calls, node: Node, grad: Tensor) -> Gradients:
    result = node.unpack("result")
    return (calls("threshold_backward")(grad, result, 0),)


def _threshold_backward(calls: Calls, node: Node, grad: Tensor) -> Gradients:
    stash: Any = node.stash
    grad_output_gradient = self_gradient = None
    if node.needs(0):
        self = node.unpack("self")
        grad_output_gradient = calls("threshold_backward")(grad, self, stash["threshold"])
    if node.needs(1):
        self_gradient = calls("zeros_like")(grad)
    return grad_output_gradient, self_gradient


def _save_threshold_backward(calls: Calls, node: Node, values: Values) -> None:
    node.save("self", values["self"])
    node.stash["threshold"] = values["threshold"]


def _mm(calls: Calls, node: Node, grad: Tensor) -> Gradients:
    stash: Any = node.stash
    self_gradient = mat2_gradient = None
    if node.needs(1):
        self = node.unpack("self")
        mat2_gradient = mm_mat2_backward(
            calls, grad, self, stash["mat2_sym_sizes"], stash["mat2_sym_strides"], stash["mat2_layout"], 1
        )
    if node.needs(0):
        mat2 = node.unpack("mat2")
        self_gradient = mm_mat1_backward(
            calls, grad, mat2, stash["self_sym_sizes"], stash["self_sym_strides"], stash["self_layout"], 1
        )
    return self_gradient, mat2_gradient


def _save_mm(calls: Calls, node: Node, values: Values) -> None:
    node.save("self", values["self"] if node.needs(1) else None)
    node.stash["mat2_sym_sizes"] = values["mat2"].shape
    node.stash["mat2_sym_strides"] = values["mat2"].strides
    node.stash["mat2_layout"] = values["mat2"].layout
    node.save("mat2", values["mat2"] if node.needs(0) else None)
    node.stash["self_sym_sizes"] = values["self"].shape
    node.stash["self_sym_strides"] = values["self"].strides
    node.stash["self_layout"] = values["self"].layout


def _mv(calls: Calls, node: Node, grad: Tensor) -> Gradients:
    self_gradient = vec_gradient = None
    if node.needs(0):
        vec = node.unpack("vec")
        self_gradient = ger(calls, grad, conj(calls, vec))
    if node.needs(1):
        self = node.unpack("self")
        vec_gradient = calls("mv")(calls("t")(conj(calls, self)), grad)
    return self_gradient, vec_gradient


def _save_mv(calls: Calls, node: Node, values: Values) -> None:
    node.save("vec", values["vec"] if node.needs(0) else None)
    node.save("self", values["self"] if node.needs(1) else None)


def _dot(calls: Calls, node: Node, grad: Tensor) -> Gradients:
    self_gradient = tensor_gradient = None
    if node.needs(0):
        tensor = node.unpack("tensor")
        self_gradient = calls("mul.Tensor")(grad, conj(calls, tensor))
    if node.needs(1):
        self = node.unpack("self")
        tensor_gradient = calls("mul.Tensor")(grad, conj(calls, self))
    return self_gradient, tensor_gradient


def _save_dot(calls: Calls, node: Node, values: Values) -> None:
    node.save("tensor", values["tensor"] if node.needs(0) else None)
    node.save("self", values["self"] if node.needs(1) else None)


def _bmm(calls: Calls, node: Node, grad: Tensor) -> Gradients:
    self_gradient = mat2_gradient = None
    if node.needs(1):
        self = node.unpack("self")
        mat2_gradient = calls("bmm")(conj(calls, calls("transpose.int")(self, 1, 2)), grad)
    if node.needs(0):
        mat2 = node.unpack("mat2")
        self_gradient = calls("bmm")(grad, conj(calls, calls("transpose.int")(mat2, 1, 2)))
    return self_gradient, mat2_gradient


def _save_bmm(calls: Calls, node: Node, values: Values) -> None:
    node.save("self", values["self"] if node.needs(1) else None)
    node.save("mat2", values["mat2"] if node.needs(0) else None)


def _sum(calls: Calls, node: Node, grad: Tensor) -> Gradients:
    stash: Any = node.stash
    return (calls("expand")(grad, list(stash["self_sym_sizes"])),)


def _save_sum(calls: Calls, node: Node, values: Values) -> None:
    node.stash["self_sym_sizes"] = values["self"].shape


def _sum_dim_IntList(calls: Calls, node: Node, grad: Tensor) -> Gradients:
    stash: Any = node.stash
    return (sum_backward(calls, grad, stash["self_sym_sizes"], stash["dim"], stash["keepdim"]),)


def _save_sum_dim_IntList(calls: Calls, node: Node, values: Values) -> None:
    node.stash["self_sym_sizes"] = values["self"].shape
    node.stash["dim"] = values["dim"]
    node.stash["keepdim"] = values["keepdim"]


def _normal_(calls: Calls, node: Node, grad: Tensor) -> Gradients:
    return (calls("zeros_like")(grad),)


def __to_copy(calls: Calls, node: Node, grad: Tensor) -> Gradients:
    stash: Any = node.stash
    return (to_copy_backward(calls, grad, stash["self_options"]),)


def _save__to_copy(calls: Calls, node: Node, values: Values) -> None:
    node.stash["self_options"] = options_of(values["self"])


def _clone(calls: Calls, node: Node, grad: Tensor) -> Gradients:
    return (grad,)


def _alias(calls: Calls, node: Node, grad: Tensor) -> Gradients:
    return (grad,)


def _view(calls: Calls, node: Node, grad: Tensor) -> Gradients:
    stash: Any = node.stash
    return (reshape(calls, grad, stash["self_sym_sizes"]),)


def _t(calls: Calls, node: Node, grad: Tensor) -> Gradients:
    return (calls("t")(grad),)


def _transpose_int(calls: Calls, node: Node, grad: Tensor) -> Gradients:
    stash: Any = node.stash
    return (calls("transpose.int")(grad, stash["dim0"], stash["dim1"]),)


def _save_transpose_int(calls: Calls, node: Node, values: Values) -> None:
    node.stash["dim0"] = values["dim0"]
    node.stash["dim1"] = values["dim1"]


def _permute(calls: Calls, node: Node, grad: Tensor) -> Gradients:
    stash: Any = node.stash
    return (permute_backwards(calls, grad, stash["dims"]),)


def _save_permute(calls: Calls, node: Node, values: Values) -> None:
    node.stash["dims"] = values["dims"]


def _expand(calls: Calls, node: Node, grad: Tensor) -> Gradients:
    stash: Any = node.stash
    return (sum_to_size(calls, grad, stash["self_sym_sizes"]),)


def _unsqueeze(calls: Calls, node: Node, grad: Tensor) -> Gradients:
    stash: Any = node.stash
    return (calls("squeeze.dim")(grad, stash["dim"]),)


def _save_unsqueeze(calls: Calls, node: Node, values: Values) -> None:
    node.stash["dim"] = values["dim"]


def _squeeze_dim(calls: Calls, node: Node, grad: Tensor) -> Gradients:
    stash: Any = node.stash
    return (unsqueeze_to(calls, grad, stash["dim"], stash["self_sym_sizes"]),)


def _save_squeeze_dim(calls: Calls, node: Node, values: Values) -> None:
    node.stash["dim"] = values["dim"]
    node.stash["self_sym_sizes"] = values["self"].shape


def _squeeze_dims(calls: Calls, node: Node, grad: Tensor) -> Gradients:
    stash: Any = node.stash
    return (unsqueeze_all_to(calls, grad, stash["dim"], stash["self_sym_sizes"]),)


def _select_int(calls: Calls, node: Node, grad: Tensor) -> Gradients:
    stash: Any = node.stash
    return (calls("select_backward")(grad, list(stash["self_sym_sizes"]), stash["dim"], stash["index"]),)


def _save_select_int(calls: Calls, node: Node, values: Values) -> None:
    node.stash["self_sym_sizes"] = values["self"].shape
    node.stash["dim"] = values["dim"]
    node.stash["index"] = values["index"]


def __unsafe_view(calls: Calls, node: Node, grad: Tensor) -> Gradients:
    stash: Any = node.stash
    return (reshape(calls, grad, stash["self_sym_sizes"]),)


def _select_backward(calls: Calls, node: Node, grad: Tensor) -> Gradients:
    stash: Any = node.stash
    return (calls("select.int")(grad, stash["dim"], stash["index"]),)


def _save_select_backward(calls: Calls, node: Node, values: Values) -> None:
    node.stash["dim"] = values["dim"]
    node.stash["index"] = values["index"]


def _stack(calls: Calls, node: Node, grad: Tensor) -> Gradients:
    stash: Any = node.stash
    tensors_gradient = stack_tensors_backward(calls, grad, stash["dim"], stash["tensors_args_scalartypes"])
    return [one if node.needs(at) else None for at, one in enumerate(tensors_gradient)]


def _save_stack(calls: Calls, node: Node, values: Values) -> None:
    node.stash["dim"] = values["dim"]
    node.stash["tensors_args_scalartypes"] = [one.dtype for one in values["tensors"]]


def _copy(calls: Calls, node: Node, grad: Tensor) -> Gradients:
    """Source: torch/csrc/autograd/functions/tensor.cpp (`CopyBackwards`)."""
    self = calls("zeros_like")(grad, memory_format=MemoryFormat.contiguous_format) if node.needs(0) else None
    if not node.needs(1):
        return self, None
    inputs: Any = node.stash["inputs"]
    dtype = inputs[1][1]
    return self, grad if grad.dtype == dtype else calls("_to_copy")(grad, dtype=dtype)


FORMULAS: Mapping[str, Derivative] = {
    "add.Tensor": Derivative("AddBackward0", _add_Tensor, _save_add_Tensor),
    "add_.Tensor": Derivative("AddBackward0", _add_Tensor, _save_add_Tensor),
    "sub.Tensor": Derivative("SubBackward0", _sub_Tensor, _save_add_Tensor),
    "sub_.Tensor": Derivative("SubBackward0", _sub_Tensor, _save_add_Tensor),
    "mul.Tensor": Derivative("MulBackward0", _mul_Tensor, _save_mul_Tensor),
    "mul.Scalar": Derivative("MulBackward1", _mul_Scalar, _save_mul_Scalar),
    "mul_.Tensor": Derivative("MulBackward0", _mul_Tensor, _save_mul__Tensor),
    "div.Tensor": Derivative("DivBackward0", _div_Tensor, _save_div_Tensor),
    "neg": Derivative("NegBackward0", _neg),
    "sin": Derivative("SinBackward0", _sin, _save_sin),
    "cos": Derivative("CosBackward0", _cos, _save_sin),
    "exp": Derivative("ExpBackward0", _exp, saves_result=True),
    "relu": Derivative("ReluBackward0", _relu, saves_result=True),
    "threshold_backward": Derivative("ThresholdBackwardBackward0", _threshold_backward, _save_threshold_backward),
    "mm": Derivative("MmBackward0", _mm, _save_mm),
    "mv": Derivative("MvBackward0", _mv, _save_mv),
    "dot": Derivative("DotBackward0", _dot, _save_dot),
    "bmm": Derivative("BmmBackward0", _bmm, _save_bmm),
    "sum": Derivative("SumBackward0", _sum, _save_sum),
    "sum.dim_IntList": Derivative("SumBackward1", _sum_dim_IntList, _save_sum_dim_IntList),
    "normal_": Derivative("NormalBackward0", _normal_),
    "_to_copy": Derivative("ToCopyBackward0", __to_copy, _save__to_copy),
    "clone": Derivative("CloneBackward0", _clone),
    "alias": Derivative("AliasBackward0", _alias),
    "view": Derivative("ViewBackward0", _view, _save_sum),
    "t": Derivative("TBackward0", _t),
    "transpose.int": Derivative("TransposeBackward0", _transpose_int, _save_transpose_int),
    "permute": Derivative("PermuteBackward0", _permute, _save_permute),
    "expand": Derivative("ExpandBackward0", _expand, _save_sum),
    "unsqueeze": Derivative("UnsqueezeBackward0", _unsqueeze, _save_unsqueeze),
    "squeeze.dim": Derivative("SqueezeBackward1", _squeeze_dim, _save_squeeze_dim),
    "squeeze.dims": Derivative("SqueezeBackward2", _squeeze_dims, _save_squeeze_dim),
    "select.int": Derivative("SelectBackward0", _select_int, _save_select_int),
    "_unsafe_view": Derivative("UnsafeViewBackward0", __unsafe_view, _save_sum),
    "select_backward": Derivative("SelectBackwardBackward0", _select_backward, _save_select_backward),
    "stack": Derivative("StackBackward0", _stack, _save_stack),
    "copy_": Derivative("CopyBackwards", _copy),
}
"""By operator. What is not differentiable has none on purpose."""
