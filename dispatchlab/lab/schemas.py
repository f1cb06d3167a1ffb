"""The operators of the layers, in the language of native_functions.yaml."""

from __future__ import annotations

from importlib.resources import files

NAMESPACE = "aten"

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
"""The operators that compare, each with a number and with a tensor."""

SCHEMAS = tuple((files("dispatchlab.lab") / "schemas.txt").read_text(encoding="utf-8").splitlines())

VIEWS = tuple(schema.partition("(")[0] for schema in SCHEMAS if schema.endswith("-> Tensor(a)"))
"""The operators whose result shares the memory of their first argument."""

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
