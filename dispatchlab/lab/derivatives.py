"""The type of gradient formulas, and the functions that formulas call besides operators.

PyTorch's formulas call functions of FunctionsManual.cpp; these are theirs. The formulas themselves are in `formulas`.
Source: torch/csrc/autograd/FunctionsManual.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from dispatchlab.call.operators import Operator
from dispatchlab.call.tensor import Tensor, is_viewable
from dispatchlab.call.tensor_options import DType, Layout, MemoryFormat
from dispatchlab.lab.autograd_graph import Gradients, Node
from dispatchlab.lab.errors import AutogradError, AutogradErrorKind
from dispatchlab.lab.tensor_geometry import Calls, Geometry
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.keys import DispatchKey

Number: TypeAlias = int | float | complex


class Recorded:
    """A call whose gradients are computed: formulas call it with the name of an operator.

    Args:
        calls: the operators.
        node: the node of the call.
        given: the arguments by name; of a tensor its geometry, of a list of tensors theirs.
    """

    __slots__ = ("calls", "given", "node")

    def __init__(self, calls: Calls, node: Node, given: Mapping[str, Any]) -> None:
        self.calls, self.node, self.given = calls, node, given

    def __call__(self, name: str) -> Operator:
        return self.calls(name)

    def __getitem__(self, name: str) -> Any:
        return self.given[name]

    def tensor(self, name: str) -> Tensor:
        """Return a tensor that was saved."""
        return self.node.unpack(name)


Formula: TypeAlias = Callable[[Recorded, Tensor], "Tensor | list[Tensor | None]"]


@dataclass(frozen=True, slots=True)
class Derivative:
    """The formulas of one operator.

    Args:
        name: of the node, as torch calls it.
        gradients: the formula of each tensor argument, in the order in which PyTorch computes them; of a list of
            tensors, a list. A gradient may have the shape that its argument was broadcast to; it is summed up
            afterwards.
        saves: the tensors that are kept, each with the argument whose gradient needs it; kept always where that is
            empty.
        saves_result: the result is kept under the name `result`.
    """

    name: str
    gradients: Mapping[str, Formula]
    saves: Mapping[str, str] = field(default_factory=dict)
    saves_result: bool = False

    def backward(self, recorded: Recorded, gradient: Tensor) -> Gradients:
        """Return the gradients of the tensor arguments, in the order of the schema; a list counts as its elements."""
        order = [name for name in recorded.given if name in self.gradients]
        found: dict[str, Any] = {}
        for name, formula in self.gradients.items():
            if len(order) == 1 or recorded.node.needs(order.index(name)):
                found[name] = formula(recorded, gradient)
        results = [found.get(name) for name in order]
        return results[0] if isinstance(results[0], list) else results


_CONTIGUOUS = MemoryFormat.contiguous_format
_BATCHED = DispatchKeySet.of(DispatchKey.Batched).bits


def conj(calls: Calls, self: Tensor) -> Tensor:
    """Return the complex conjugate, or a real tensor itself.

    Raises:
        AutogradError: the tensor is complex, but the lab has no operator to conjugate it.
    """
    if _is_complex(self.dtype):
        raise _not_for_complex("conjugates a complex tensor")
    return self


def handle_r_to_c(calls: Calls, self_st: DType, gradient_result: Tensor) -> Tensor:
    """Return the gradient of a real tensor from a gradient that is complex because of another input.

    Raises:
        AutogradError: the tensor is complex, but the lab has no operator for its real part.
    """
    if _is_complex(gradient_result.dtype) and not _is_complex(self_st):
        raise _not_for_complex("takes the real part of a complex tensor")
    return gradient_result


def _is_complex(dtype: DType) -> bool:
    return dtype.category == 3


def _not_for_complex(what: str) -> AutogradError:
    message = f"the formula of this gradient {what}, and no operator of the layers does: differentiate real tensors"
    return AutogradError(AutogradErrorKind.NOT_DIFFERENTIABLE, message)


def ger(calls: Calls, self: Tensor, vec2: Tensor) -> Tensor:
    """Return the products of every element of one vector with every element of another."""
    product: Tensor = calls("mul.Tensor")(calls("view")(self, [*self.shape, 1]), vec2)
    return product


def maybe_multiply(calls: Calls, t: Tensor, s: Number) -> Tensor:
    """Return a multiple of a tensor; for the factor 1, the tensor itself."""
    scaled: Tensor = t if s == 1 else calls("mul.Scalar")(t, s)
    return scaled


def mul_tensor_backward(calls: Calls, grad: Tensor, other: Tensor, self_st: DType) -> Tensor:
    """Return the gradient of a factor."""
    return handle_r_to_c(calls, self_st, calls("mul.Tensor")(grad, conj(calls, other)))


def mul_scalar_backward(calls: Calls, grad: Tensor, other: Number, self_st: DType) -> Tensor:
    """Return the gradient of a tensor that was multiplied by a number."""
    return handle_r_to_c(calls, self_st, calls("mul.Scalar")(grad, other.conjugate()))


def div_tensor_self_backward(calls: Calls, grad: Tensor, other: Tensor, self_st: DType) -> Tensor:
    """Return the gradient of the dividend."""
    return handle_r_to_c(calls, self_st, calls("div.Tensor")(grad, conj(calls, other)))


def div_tensor_other_backward(calls: Calls, grad: Tensor, self: Tensor, other: Tensor) -> Tensor:
    """Return the gradient of a divisor."""
    div = calls("div.Tensor")
    # NB: C++ leaves the order of operands open, and PyTorch's binaries compute the right one first
    quotient = conj(calls, div(div(self, other), other))
    return handle_r_to_c(calls, other.dtype, calls("mul.Tensor")(calls("neg")(grad), quotient))


def mm_mat1_backward(calls: Calls, grad: Tensor, mat2: Tensor, mat1: Geometry) -> Tensor:
    """Return the gradient of the first matrix, with its order in memory."""
    mm, t = calls("mm"), calls("t")
    is_column_major = _column_major((grad, mat2), mat1)
    product: Tensor = t(mm(conj(calls, mat2), t(grad))) if is_column_major else mm(grad, conj(calls, t(mat2)))
    return product


def mm_mat2_backward(calls: Calls, grad: Tensor, mat1: Tensor, mat2: Geometry) -> Tensor:
    """Return the gradient of the second matrix, with its order in memory."""
    mm, t = calls("mm"), calls("t")
    is_column_major = _column_major((grad, mat1), mat2)
    product: Tensor = t(mm(t(grad), conj(calls, mat1))) if is_column_major else mm(conj(calls, t(mat1)), grad)
    return product


def _column_major(tensors: Sequence[Tensor], matrix: Geometry) -> bool:
    strided = all(layout is Layout.strided for layout in (matrix.layout, *(tensor.layout for tensor in tensors)))
    return strided and matrix.strides[0] == 1 and matrix.strides[1] == matrix.shape[0]


def permute_backwards(calls: Calls, grad: Tensor, fwd_dims: Sequence[int]) -> Tensor:
    """Return the gradient with its dimensions in the old order."""
    order = [dim % max(len(fwd_dims), 1) for dim in fwd_dims]
    permuted: Tensor = calls("permute")(grad, [order.index(at) for at in range(len(order))])
    return permuted


def reshape(calls: Calls, self: Tensor, shape: Sequence[int]) -> Tensor:
    """Return a view if possible, and otherwise a view of a copy."""
    viewable = is_viewable(self.shape, self.strides, shape) and not self.key_bits & _BATCHED
    whole = self if viewable else calls("clone")(self, memory_format=_CONTIGUOUS)
    viewed: Tensor = calls("view" if viewable else "_unsafe_view")(whole, list(shape))
    return viewed


def stack_tensors_backward(calls: Calls, grad: Tensor, dim: int, dtypes: Sequence[DType]) -> list[Tensor]:
    """Return the gradient of each tensor of a stack."""
    select = calls("select.int")
    return [handle_r_to_c(calls, dtype, select(grad, dim, at)) for at, dtype in enumerate(dtypes)]


def sum_backward(
    calls: Calls,
    grad: Tensor,
    sizes: Sequence[int],
    dims: Sequence[int] | None,
    keepdim: bool,  # noqa: FBT001
) -> Tensor:
    """Return the gradient of a tensor that was summed up along some dimensions, or along all if there are none."""
    if not keepdim and sizes and dims:
        for dim in dims if len(dims) == 1 else sorted(one % len(sizes) for one in dims):
            grad = calls("unsqueeze")(grad, dim)
    expanded: Tensor = calls("expand")(grad, list(sizes))
    return expanded


def sum_to_size(calls: Calls, tensor: Tensor, shape: Sequence[int]) -> Tensor:
    """Return the gradient of a tensor that was broadcast, from the gradient of the result."""
    if tensor.shape == tuple(shape):
        return tensor
    if not shape:
        whole: Tensor = calls("sum")(tensor)
        return whole
    missing = tensor.ndim - len(shape)
    dims = [
        *range(missing),
        *(at + missing for at, size in enumerate(shape) if size == 1 != tensor.shape[at + missing]),
    ]
    summed: Tensor = calls("sum.dim_IntList")(tensor, dims, keepdim=True) if dims else tensor
    viewed: Tensor = calls("view")(summed, list(shape)) if missing else summed
    return viewed


def to_copy_backward(calls: Calls, grad: Tensor, copied: Geometry) -> Tensor:
    """Return the gradient with the dtype, the layout and the device of the copied tensor."""
    if (grad.dtype, grad.layout, grad.device) == (copied.dtype, copied.layout, copied.device):
        return grad
    gradient: Tensor = calls("_to_copy")(grad, dtype=copied.dtype, layout=copied.layout, device=copied.device)
    return gradient


def unsqueeze_to(calls: Calls, self: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """Return the tensor with the dimension that `squeeze` removed, if it removed one."""
    unsqueezed: Tensor = calls("unsqueeze")(self, dim % len(sizes)) if sizes and sizes[dim] == 1 else self
    return unsqueezed


def unsqueeze_all_to(calls: Calls, self: Tensor, dims: Sequence[int], sizes: Sequence[int]) -> Tensor:
    """Return the tensor with the dimensions that `squeeze` removed."""
    for dim in sorted({one % max(len(sizes), 1) for one in dims}):
        self = unsqueeze_to(calls, self, dim, sizes)
    return self
