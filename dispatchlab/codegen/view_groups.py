"""Which functions are one view: the view, its copying variant, and the one in place.

Source: torchgen/gen.py (`get_grouped_by_view_native_functions`), torchgen/model.py (`NativeFunctionsViewGroup`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from dispatchlab.codegen.native_function import NativeFunction
from dispatchlab.codegen.problems import Rule, YamlProblem
from dispatchlab.codegen.schema_parts import SchemaKind, signature_of, without_copy
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.registration import Place

_COMPOSITES = (
    DispatchKey.CompositeImplicitAutograd,
    DispatchKey.CompositeImplicitAutogradNestedTensor,
)


class ViewKind(StrEnum):
    """How a function is a view."""

    ALIASING = "aliasing"
    ALIASING_INPLACE = "aliasing_inplace"


@dataclass(frozen=True, slots=True)
class ViewGroup:
    """A view and what belongs to it.

    Args:
        view: shares memory with its argument.
        copy: gives a new tensor with the same elements; `None` where the view is taken apart by its composite kernel.
        inplace: makes self the view.
    """

    view: NativeFunction
    copy: NativeFunction | None = None
    inplace: NativeFunction | None = None


def grouped_by_view(
    functions: Sequence[NativeFunction], problems: list[YamlProblem]
) -> tuple[ViewGroup | NativeFunction, ...]:
    """The functions with views in groups; what is wrong with them is added to `problems`."""
    # NB: only what has the name of a view, or of the copy of one, can meet another function under that name
    named = {_view_name(each) for each in functions if each.is_view or each.parts.name.base.endswith(_SUFFIXES)}
    by_signature: dict[Hashable, dict[SchemaKind | ViewKind, NativeFunction]] = {}
    for function in functions:
        if _view_name(function) not in named:
            by_signature[function.name] = {function.kind: function}
            continue
        signature = signature_of(function.schema, function.parts, base=_view_name(function))
        found = by_signature.setdefault(signature, {})
        kind = view_kind(function) or function.kind
        if kind in found:
            message = f"{function.short_name} and {found[kind].short_name} are both the {kind} variant of one view"
            problems.append(_problem(Rule.REPEATED_VIEW, function, message, "give one of them another name"))
        else:
            found[kind] = function
    groups: list[ViewGroup | NativeFunction] = []
    for found in by_signature.values():
        view = found.pop(ViewKind.ALIASING, None)
        if view is not None:
            inplace, copy = found.pop(ViewKind.ALIASING_INPLACE, None), found.pop(SchemaKind.FUNCTIONAL, None)
            group = ViewGroup(view, copy, inplace)
            problems += _broken(group)
            groups.append(group)
        groups += found.values()
    return tuple(groups)


_SUFFIXES = ("_copy", "_scatter")


def _view_name(function: NativeFunction) -> str:
    base = function.parts.name.base
    return without_copy(base) if base.endswith(_SUFFIXES) else base


def view_kind(function: NativeFunction) -> ViewKind | None:
    """How the function is a view, or None."""
    if not function.is_view:
        return None
    return ViewKind.ALIASING_INPLACE if function.parts.name.inplace else ViewKind.ALIASING


def needs_copy(view: NativeFunction) -> bool:
    """Whether there must be a copying variant of the view."""
    return (
        DispatchKey.CompositeImplicitAutograd not in view.composites
        and "inplace_view" not in view.tags
        and not view.parts.name.base.endswith("_inverse")
    )


def _problem(rule: Rule, function: NativeFunction, message: str, hint: str) -> YamlProblem:
    return YamlProblem(rule, function.place or Place("<made>", 1), message, hint)


def _broken(group: ViewGroup) -> Iterator[YamlProblem]:
    view, copy, inplace = group.view, group.copy, group.inplace
    if copy is None:
        if needs_copy(view):
            message = f"{view.short_name} is a view, and no function copies in its place"
            name = view.short_name.replace(view.parts.name.base, f"{view.parts.name.base}_copy", 1)
            yield _problem(Rule.VIEW_COPY_MISSING, view, message, f"add {name} with the tag view_copy")
    else:
        if not copy.parts.name.base.endswith(_SUFFIXES):
            message = f"{copy.short_name} has the signature of the view {view.short_name} and is no view"
            yield _problem(Rule.VIEW_COPY_NAME, copy, message, f"call it {copy.parts.name.base}_copy")
        if "view_copy" not in copy.tags:
            message = f"{copy.short_name} copies in the place of the view {view.short_name}"
            yield _problem(Rule.VIEW_COPY_TAG, copy, message, "add `tags: view_copy`")
    if inplace is not None:
        for key in _COMPOSITES:
            if key in view.composites and key not in inplace.composites:
                message = (
                    f"{view.short_name} has a {key} kernel, and its in-place variant {inplace.short_name} has none"
                )
                yield _problem(Rule.VIEW_COMPOSITE, inplace, message, "give it one, or take it from the view")
