"""Which formulas each function has: its own, those of a variant, of the view that it copies, or of one element.

Source: torchgen/api/autograd.py (`match_differentiability_info`, `gen_foreach_derivativeinfo`),
torchgen/packaged/autograd/load_derivatives.py (`add_view_copy_derivatives`).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace

from dispatchlab.codegen.read.derivatives import DerivativeEntry, Derivatives
from dispatchlab.codegen.read.groups import ViewGroup
from dispatchlab.codegen.read.native_function import NativeFunction
from dispatchlab.codegen.read.native_functions import NativeFunctions
from dispatchlab.codegen.read.schema_parts import SchemaKind, signature_of
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.schema_types import ListType, Type


@dataclass(frozen=True, slots=True)
class Match:
    """The formulas of one function.

    Args:
        entry: where they are written.
        keys: the keys of its autograd kernels.
        nodes: what the nodes are called, key by key; None where no gradient goes anywhere.
        exact: they are written for this function; otherwise for a variant of it.
    """

    entry: DerivativeEntry
    keys: tuple[DispatchKey, ...]
    nodes: tuple[str | None, ...]
    exact: bool

    @property
    def has_derivatives(self) -> bool:
        """Whether a gradient can go anywhere."""
        return self.entry.has_derivatives


def matched_derivatives(natives: NativeFunctions, derivatives: Derivatives) -> Mapping[OperatorName, Match]:
    """The formulas of every function that has some."""
    matches = _of_entries(natives, derivatives)
    functional: dict[Hashable, Match] = {}
    others: dict[Hashable, Match] = {}
    for name, match in matches.items():
        function = natives.by_name[name]
        found = functional if function.kind is SchemaKind.FUNCTIONAL else others
        found[_signature(function)] = match
    matched: dict[OperatorName, Match] = {}
    for function in natives.functions:
        found_match = _match(function, matches, functional, others)
        if found_match is not None:
            matched[function.name] = found_match
    return matched


def _of_entries(natives: NativeFunctions, derivatives: Derivatives) -> dict[OperatorName, Match]:
    """The formulas that are written for a function, and those of views again, for their copies."""
    matches = {
        name: Match(entry, tuple(each.key for each in entry.keys), entry.nodes, exact=True)
        for name, entry in derivatives.by_function.items()
    }
    for group in natives.view_groups:
        if isinstance(group, ViewGroup) and group.copy is not None and group.view.name in matches:
            match = matches[group.view.name]
            nodes = tuple(None if node is None else f"{node}_copy" for node in match.nodes)
            matches.setdefault(group.copy.name, replace(match, nodes=nodes))
    return matches


def _match(
    function: NativeFunction,
    matches: Mapping[OperatorName, Match],
    functional: Mapping[Hashable, Match],
    others: Mapping[Hashable, Match],
) -> Match | None:
    if function.is_generated and function.kind is SchemaKind.OUT:
        return None
    if function.name in matches:
        return matches[function.name]
    signature = _signature(function)
    on_lists = function.parts.name.base.startswith(_FOREACH)
    if signature in functional and not on_lists:
        return replace(functional[signature], exact=False)
    if function.is_generated and signature in others:
        return replace(others[signature], exact=False)
    return _of_one_element(function, functional, others) if on_lists else None


_FOREACH = "_foreach_"
_INPLACE_REFERENCES = frozenset(("_foreach_zero_",))
_FEWER_ARGUMENTS = frozenset(
    f"_foreach_{name}.{overload}" for name in ("add", "add_", "sub", "sub_") for overload in ("Scalar", "ScalarList")
)
"""They have no `alpha`, as the operators on one element do."""


def _of_one_element(
    function: NativeFunction, functional: Mapping[Hashable, Match], others: Mapping[Hashable, Match]
) -> Match | None:
    """The formulas of the operator that does with one tensor what this one does with a list of them."""
    found = next((each for each in functional.values() if _is_reference(function, each.entry.function)), None)
    if found is None and function.short_name in _INPLACE_REFERENCES:
        found = next((each for each in others.values() if _is_reference(function, each.entry.function)), None)
    if found is None:
        return None
    if function.kind is SchemaKind.INPLACE:
        return replace(found, exact=False)
    node = found.nodes[0]
    name = None if node is None else f"Foreach{node}{function.name.overload}"
    return Match(found.entry, (DispatchKey.Autograd,), (name,), exact=True)


def _is_reference(function: NativeFunction, other: NativeFunction) -> bool:
    inputs, others = function.parts.inputs, other.parts.inputs
    return (
        function.parts.name.base.split(_FOREACH)[-1] == other.parts.name.base
        and (not other.parts.name.inplace or function.short_name in _INPLACE_REFERENCES)
        and (function.short_name in _FEWER_ARGUMENTS or len(inputs) == len(others))
        and all(theirs.type in (mine.type, _element(mine.type)) for mine, theirs in zip(inputs, others, strict=False))
    )


def _element(type_: Type) -> Type | None:
    return type_.element if isinstance(type_, ListType) else None


def _signature(function: NativeFunction) -> Hashable:
    """What variants have in common, whatever defaults their arguments have."""
    return signature_of(function.schema, function.parts, defaults=False)
