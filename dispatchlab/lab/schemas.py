"""The operators of the layers, in the language of native_functions.yaml."""

from __future__ import annotations

NAMESPACE = "aten"

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
"""The operators that compare, each with a number and with a tensor."""

_OPTIONS = "ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None"

_VIEW_SCHEMAS = (
    "alias(Tensor(a) self) -> Tensor(a)",
    "detach(Tensor(a) self) -> Tensor(a)",
    "view(Tensor(a) self, SymInt[] size) -> Tensor(a)",
    "t(Tensor(a) self) -> Tensor(a)",
    "transpose.int(Tensor(a) self, int dim0, int dim1) -> Tensor(a)",
    "permute(Tensor(a) self, int[] dims) -> Tensor(a)",
    "expand(Tensor(a) self, SymInt[] size, *, bool implicit=False) -> Tensor(a)",
    "unsqueeze(Tensor(a) self, int dim) -> Tensor(a)",
    "squeeze.dim(Tensor(a) self, int dim) -> Tensor(a)",
    "squeeze.dims(Tensor(a) self, int[] dim) -> Tensor(a)",
    "select.int(Tensor(a) self, int dim, SymInt index) -> Tensor(a)",
)

VIEWS = tuple(schema.partition("(")[0] for schema in _VIEW_SCHEMAS)
"""The operators whose result shares the memory of their first argument."""


SCHEMAS: tuple[str, ...] = (
    "add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
    "add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)",
    "sub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
    "sub_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)",
    "mul.Tensor(Tensor self, Tensor other) -> Tensor",
    "mul.Scalar(Tensor self, Scalar other) -> Tensor",
    "mul_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)",
    "div.Tensor(Tensor self, Tensor other) -> Tensor",
    *(f"{name}.{kind}(Tensor self, {kind} other) -> Tensor" for name in COMPARISONS for kind in ("Scalar", "Tensor")),
    "neg(Tensor self) -> Tensor",
    "sin(Tensor self) -> Tensor",
    "cos(Tensor self) -> Tensor",
    "exp(Tensor self) -> Tensor",
    "relu(Tensor self) -> Tensor",
    "threshold_backward(Tensor grad_output, Tensor self, Scalar threshold) -> Tensor",
    "mm(Tensor self, Tensor mat2) -> Tensor",
    "mv(Tensor self, Tensor vec) -> Tensor",
    "dot(Tensor self, Tensor tensor) -> Tensor",
    "bmm(Tensor self, Tensor mat2) -> Tensor",
    "matmul(Tensor self, Tensor other) -> Tensor",
    "sum(Tensor self, *, ScalarType? dtype=None) -> Tensor",
    "sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
    f"empty.memory_format(SymInt[] size, *, {_OPTIONS}, MemoryFormat? memory_format=None) -> Tensor",
    f"zeros(SymInt[] size, *, {_OPTIONS}) -> Tensor",
    f"empty_strided(SymInt[] size, SymInt[] stride, *, {_OPTIONS}) -> Tensor",
    f"randn(SymInt[] size, *, {_OPTIONS}) -> Tensor",
    "normal_(Tensor(a!) self, float mean=0, float std=1, *, Generator? generator=None) -> Tensor(a!)",
    f"ones_like(Tensor self, *, {_OPTIONS}, MemoryFormat? memory_format=None) -> Tensor",
    f"zeros_like(Tensor self, *, {_OPTIONS}, MemoryFormat? memory_format=None) -> Tensor",
    f"new_empty_strided(Tensor self, SymInt[] size, SymInt[] stride, *, {_OPTIONS}) -> Tensor",
    "copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)",
    f"_to_copy(Tensor self, *, {_OPTIONS}, bool non_blocking=False, MemoryFormat? memory_format=None) -> Tensor",
    "clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor",
    *_VIEW_SCHEMAS,
    "_unsafe_view(Tensor self, SymInt[] size) -> Tensor",
    "select_backward(Tensor grad_output, SymInt[] input_sizes, int dim, SymInt index) -> Tensor",
    "stack(Tensor[] tensors, int dim=0) -> Tensor",
    "_unique2(Tensor self, bool sorted=True, bool return_inverse=False, bool return_counts=False) "
    "-> (Tensor, Tensor, Tensor)",
    "unique_dim(Tensor self, int dim, bool sorted=True, bool return_inverse=False, bool return_counts=False) "
    "-> (Tensor, Tensor, Tensor)",
)

IN_PLACE = ("add_.Tensor", "sub_.Tensor", "mul_.Tensor", "normal_", "copy_")
"""The operators that write their first argument."""

NOT_DIFFERENTIABLE = (
    *("detach", "ones_like", "zeros_like", "new_empty_strided"),
    *(f"{name}.{overload}" for name in COMPARISONS for overload in ("Scalar", "Tensor")),
)
"""The operators whose result has no history, whatever their arguments have."""

SHORT_NAMES: dict[str, str] = {
    **{name: f"{name}.Tensor" for name in ("add", "add_", "sub", "sub_", "mul", "mul_", "div")},
    "empty": "empty.memory_format",
    "select": "select.int",
    "squeeze": "squeeze.dim",
    "transpose": "transpose.int",
}
"""What is meant by a name alone where the operator has several overloads, or only one that has a name."""
