"""Rules about one function and the others of its file: delegates, and views that are made in place.

Source: torchgen/gen.py (`error_check_native_functions`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dispatchlab.codegen.fields import Fields
from dispatchlab.codegen.native_function import NativeFunction
from dispatchlab.codegen.problems import Rule
from dispatchlab.errors import did_you_mean
from dispatchlab.model.names import OperatorName

_NOT_VIEWS = frozenset(("resize_", "resize_as_"))


def check_functions(functions: Sequence[NativeFunction], entries: Mapping[OperatorName, Fields]) -> None:
    """Report what is wrong with each function beside the others, to the fields that it was read from."""
    by_name = {function.name: function for function in functions}
    bases = {(str(function.parts.name), function.parts.name.inplace) for function in functions}
    for function in functions:
        fields = entries[function.name]
        if function.structured_delegate is not None:
            _check_delegate(fields, function, by_name)
        if "inplace_view" in function.tags:
            _check_inplace_view(fields, function, bases)


def _check_delegate(fields: Fields, function: NativeFunction, by_name: Mapping[OperatorName, NativeFunction]) -> None:
    delegate = function.structured_delegate
    assert delegate is not None
    found = by_name.get(delegate)
    shown = str(delegate).removeprefix(f"{function.name.namespace}::")
    if found is None:
        near = did_you_mean(shown, [each.short_name for each in by_name.values() if each.structured])
        fields.report_field(
            Rule.NO_DELEGATE,
            "structured_delegate",
            f"{function.short_name} delegates to {shown}, which is not in the file",
            near.removeprefix("; ") or "name the out variant of the operator",
        )
    elif not found.structured:
        fields.report_field(
            Rule.DELEGATE_UNSTRUCTURED,
            "structured_delegate",
            f"{function.short_name} delegates to {shown}, which is not structured",
            f"add `structured: True` to {shown}",
        )


def _check_inplace_view(fields: Fields, function: NativeFunction, bases: set[tuple[str, bool]]) -> None:
    name = function.short_name
    base = function.parts.name
    if name in _NOT_VIEWS or function.name.name == "set_":
        return
    if not base.inplace:
        fields.report_field(
            Rule.INPLACE_VIEW_NAME,
            "tags",
            f"{name} is tagged inplace_view and is not in place by its name",
            "add an underscore to the name, or take the tag off",
        )
        return
    alone = f"__{base.base}__" if base.dunder else base.base
    if (alone, False) not in bases:
        fields.report_field(
            Rule.INPLACE_VIEW_ALONE,
            "tags",
            f"{name} is tagged inplace_view, and there is no view {alone} that is not in place",
            f"add {alone}",
        )
