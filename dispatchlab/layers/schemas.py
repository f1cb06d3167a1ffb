"""The operators of the layers, in the language of native_functions.yaml."""

from __future__ import annotations

NAMESPACE = "aten"

SCHEMAS: tuple[str, ...] = (
    "add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
    "add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)",
    "sub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
    "sub_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)",
    "mul.Tensor(Tensor self, Tensor other) -> Tensor",
    "mul.Scalar(Tensor self, Scalar other) -> Tensor",
    "mul_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)",
    "div.Tensor(Tensor self, Tensor other) -> Tensor",
    "eq.Scalar(Tensor self, Scalar other) -> Tensor",
    "eq.Tensor(Tensor self, Tensor other) -> Tensor",
    "ne.Scalar(Tensor self, Scalar other) -> Tensor",
    "ne.Tensor(Tensor self, Tensor other) -> Tensor",
    "lt.Scalar(Tensor self, Scalar other) -> Tensor",
    "lt.Tensor(Tensor self, Tensor other) -> Tensor",
    "le.Scalar(Tensor self, Scalar other) -> Tensor",
    "le.Tensor(Tensor self, Tensor other) -> Tensor",
    "gt.Scalar(Tensor self, Scalar other) -> Tensor",
    "gt.Tensor(Tensor self, Tensor other) -> Tensor",
    "ge.Scalar(Tensor self, Scalar other) -> Tensor",
    "ge.Tensor(Tensor self, Tensor other) -> Tensor",
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
    "empty.memory_format(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
    "bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
    "zeros(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
    "bool? pin_memory=None) -> Tensor",
    "empty_strided(SymInt[] size, SymInt[] stride, *, ScalarType? dtype=None, Layout? layout=None, "
    "Device? device=None, bool? pin_memory=None) -> Tensor",
    "randn(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
    "bool? pin_memory=None) -> Tensor",
    "normal_(Tensor(a!) self, float mean=0, float std=1, *, Generator? generator=None) -> Tensor(a!)",
    "ones_like(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
    "bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
    "zeros_like(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
    "bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
    "new_empty_strided(Tensor self, SymInt[] size, SymInt[] stride, *, ScalarType? dtype=None, Layout? layout=None, "
    "Device? device=None, bool? pin_memory=None) -> Tensor",
    "copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)",
    "_to_copy(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, "
    "bool non_blocking=False, MemoryFormat? memory_format=None) -> Tensor",
    "clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor",
    "alias(Tensor(a) self) -> Tensor(a)",
    "detach(Tensor(a) self) -> Tensor(a)",
    "view(Tensor(a) self, SymInt[] size) -> Tensor(a)",
    "_unsafe_view(Tensor self, SymInt[] size) -> Tensor",
    "t(Tensor(a) self) -> Tensor(a)",
    "transpose.int(Tensor(a) self, int dim0, int dim1) -> Tensor(a)",
    "movedim.int(Tensor(a) self, int source, int destination) -> Tensor(a)",
    "permute(Tensor(a) self, int[] dims) -> Tensor(a)",
    "expand(Tensor(a) self, SymInt[] size, *, bool implicit=False) -> Tensor(a)",
    "unsqueeze(Tensor(a) self, int dim) -> Tensor(a)",
    "squeeze.dim(Tensor(a) self, int dim) -> Tensor(a)",
    "squeeze.dims(Tensor(a) self, int[] dim) -> Tensor(a)",
    "select.int(Tensor(a) self, int dim, SymInt index) -> Tensor(a)",
    "select_backward(Tensor grad_output, SymInt[] input_sizes, int dim, SymInt index) -> Tensor",
    "stack(Tensor[] tensors, int dim=0) -> Tensor",
    "select_scatter(Tensor self, Tensor src, int dim, SymInt index) -> Tensor",
    "copy(Tensor self, Tensor src, bool non_blocking=False) -> Tensor",
    "normal_functional(Tensor self, float mean=0, float std=1, *, Generator? generator=None) -> Tensor",
    "alias_copy(Tensor self) -> Tensor",
    "detach_copy(Tensor self) -> Tensor",
    "view_copy(Tensor self, SymInt[] size) -> Tensor",
    "t_copy(Tensor self) -> Tensor",
    "transpose_copy.int(Tensor self, int dim0, int dim1) -> Tensor",
    "permute_copy(Tensor self, int[] dims) -> Tensor",
    "expand_copy(Tensor self, SymInt[] size, *, bool implicit=False) -> Tensor",
    "unsqueeze_copy(Tensor self, int dim) -> Tensor",
    "squeeze_copy.dim(Tensor self, int dim) -> Tensor",
    "squeeze_copy.dims(Tensor self, int[] dim) -> Tensor",
    "select_copy.int(Tensor self, int dim, SymInt index) -> Tensor",
    "_unique2(Tensor self, bool sorted=True, bool return_inverse=False, bool return_counts=False) "
    "-> (Tensor, Tensor, Tensor)",
    "unique_dim(Tensor self, int dim, bool sorted=True, bool return_inverse=False, bool return_counts=False) "
    "-> (Tensor, Tensor, Tensor)",
    "linalg_lu_factor_ex(Tensor A, *, bool pivot=True, bool check_errors=False) "
    "-> (Tensor LU, Tensor pivots, Tensor info)",
)

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
"""The operators that compare, each with a number and with a tensor."""

VIEWS = (
    *("alias", "detach", "view", "t", "transpose.int", "permute", "expand", "unsqueeze"),
    *("squeeze.dim", "squeeze.dims", "select.int"),
)
"""The operators whose result shares the memory of their first argument."""

COPIES: dict[str, str] = {
    name: f"{base}_copy{dot}{overload}" for name in VIEWS for base, dot, overload in (name.partition("."),)
}
"""For each view the operator that returns a copy of it."""

FUNCTIONAL: dict[str, str] = {
    **{f"{name}_.Tensor": f"{name}.Tensor" for name in ("add", "sub", "mul")},
    "normal_": "normal_functional",
    "copy_": "copy",
}
"""For each operator that writes its first argument the one that returns what it would write."""

IN_PLACE = ("add_.Tensor", "sub_.Tensor", "mul_.Tensor", "normal_", "copy_")
"""The operators that write their first argument."""

NOT_DIFFERENTIABLE = (
    *("detach", "ones_like", "zeros_like", "new_empty_strided"),
    *(f"{name}.{overload}" for name in COMPARISONS for overload in ("Scalar", "Tensor")),
)
"""The operators whose result has no history, whatever their arguments have."""

WITHOUT_FORMULA = ("copy", "normal_functional", "detach_copy")
"""The operators through which no gradient goes, though their results require one."""

SHORT_NAMES: dict[str, str] = {
    **{name: f"{name}.Tensor" for name in ("add", "add_", "sub", "sub_", "mul", "mul_", "div")},
    "empty": "empty.memory_format",
    "select": "select.int",
    "movedim": "movedim.int",
    "squeeze": "squeeze.dim",
    "transpose": "transpose.int",
}
"""What is meant by a name alone where the operator has several overloads, or only one that has a name."""
