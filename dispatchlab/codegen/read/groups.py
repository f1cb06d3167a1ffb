"""Groups of native functions: the variants of one operator, and a view with its copies.

Variants that the file leaves out are generated from the others. Source: torchgen/gen.py
(`get_grouped_native_functions`, `get_grouped_by_view_native_functions`), torchgen/model.py (`NativeFunctionsGroup`,
`NativeFunctionsViewGroup`), torchgen/native_function_generation.py (`add_generated_native_functions`).
"""

from __future__ import annotations

import string
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

from dispatchlab._short_repr import WordEnum
from dispatchlab.codegen.read.kernel_fields import native_name
from dispatchlab.codegen.read.native_function import BackendKernel, DeviceCheck, NativeFunction, shares_memory
from dispatchlab.codegen.read.problems import Rule
from dispatchlab.codegen.read.schema_parts import (
    SchemaKind,
    SchemaParts,
    alias_letters,
    innermost,
    is_tensor_like,
    kind_of_schema,
    parts_of,
    signature_of,
    without_copy,
    writes_alias,
)
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import SourceLocation
from dispatchlab.model.schema import TENSOR, AliasInfo, Argument, FunctionSchema, ListType, SimpleType
from dispatchlab.scenario.yaml_tree import Problem


@dataclass(frozen=True, slots=True)
class FunctionGroup:
    """The variants of one operator, which all have the same signature.

    Args:
        functional: returns new tensors.
        out: writes into the tensors that it is given for that.
        inplace: writes self.
        mutable: writes other arguments.
    """

    functional: NativeFunction
    out: NativeFunction
    inplace: NativeFunction | None = None
    mutable: NativeFunction | None = None

    @property
    def structured(self) -> bool:
        """True if all variants are made from one meta and one impl."""
        return self.out.structured

    @property
    def functions(self) -> tuple[NativeFunction, ...]:
        """The variants: functional, out, inplace, mutable."""
        optional = (one for one in (self.inplace, self.mutable) if one is not None)
        return (self.functional, self.out, *optional)


@dataclass(frozen=True, slots=True)
class ViewGroup:
    """A view and its copies.

    Args:
        view: shares memory with its argument.
        copy: returns a new tensor with the same elements; `None` if a composite kernel decomposes the view.
        inplace: makes self the view.
    """

    view: NativeFunction
    copy: NativeFunction | None = None
    inplace: NativeFunction | None = None


def members_of(group: FunctionGroup | NativeFunction) -> tuple[NativeFunction, ...]:
    """Return the variants of a group, or a function without a group."""
    return group.functions if isinstance(group, FunctionGroup) else (group,)


def group_variants(
    functions: Sequence[NativeFunction], problems: list[Problem]
) -> tuple[tuple[NativeFunction, ...], tuple[FunctionGroup | NativeFunction, ...]]:
    """Return the functions that are generated from others, and all functions in groups.

    Args:
        functions: the functions of the file, each without a problem of its own.
        problems: the list to which problems of groups are added.
    """
    by_signature: dict[Hashable, _Variants] = {}
    for function in functions:
        variants = by_signature.setdefault(signature_of(function.schema, function.parts), {})
        if function.kind in variants:
            first = variants[function.kind]
            message = (
                f"{function.short_name} and {first.short_name} are both the {function.kind} variant of one operator"
            )
            problems.append(
                _problem(Rule.REPEATED_VARIANT, function, message, "give one of them another name or other arguments")
            )
        else:
            variants[function.kind] = function
    made: list[NativeFunction] = []
    for variants in by_signature.values():
        made += _completed(variants, problems)
    groups: list[FunctionGroup | NativeFunction] = []
    for variants in by_signature.values():
        groups += _group(variants, problems)
    return tuple(made), tuple(groups)


def group_views(functions: Sequence[NativeFunction], problems: list[Problem]) -> tuple[ViewGroup | NativeFunction, ...]:
    """Return the functions with views in groups; add the mistakes in them to `problems`."""
    # NB: only what has the name of a view, or of the copy of one, can meet another function under that name
    named = {_view_name(each) for each in functions if each.is_view or each.parts.name.base.endswith(_SUFFIXES)}
    by_signature: dict[Hashable, dict[SchemaKind | ViewKind, NativeFunction]] = {}
    for function in functions:
        if _view_name(function) not in named:
            by_signature[function.name] = {function.kind: function}
            continue
        signature = signature_of(function.schema, function.parts, base=_view_name(function))
        found = by_signature.setdefault(signature, {})
        kind = _view_kind(function) or function.kind
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
            problems += _broken_view(group)
            groups.append(group)
        groups += found.values()
    return tuple(groups)


_Variants = dict[SchemaKind, NativeFunction]


_OUT_WITHOUT_OTHERS = frozenset(("adaptive_avg_pool3d_backward.grad_input", "_slow_conv2d_backward.grad_input"))
_INPLACE_WITHOUT_OTHERS = frozenset(("polygamma_",))
_WITHOUT_OUT = frozenset(
    (
        *("_cummax_helper", "_cummin_helper", "_assert_async", "_assert_async.msg", "_assert_tensor_metadata"),
        *("_cslt_sparse_mm_search", "_assert_scalar", "_dimI", "_dimV", "_has_same_storage_numel"),
        *("_linalg_check_errors", "_local_scalar_dense", "_nested_tensor_from_mask_left_aligned", "_nnz"),
        *("_use_cudnn_ctc_loss", "_use_cudnn_ctc_loss.Tensor", "_use_miopen_ctc_loss"),
        *("_use_miopen_ctc_loss.Tensor", "_validate_compressed_sparse_indices", "allclose", "dense_dim", "equal"),
        *("is_coalesced", "is_pinned", "is_same_size", "is_set_to", "q_per_channel_axis", "q_scale"),
        *("q_zero_point", "qscheme", "record_stream", "sparse_dim", "sym_constrain_range"),
        *("sym_constrain_range_for_size", "_nested_tensor_storage_offsets"),
        *("_chunk_grad_outputs_efficient_attention", "_fused_sdp_choice", "_print", "_sink_tokens"),
        "_nested_get_ragged_idx",
    )
)
"""Operators that return no tensor, so they cannot have an out variant; torchgen lists them, too."""


def _completed(variants: _Variants, problems: list[Problem]) -> Iterator[NativeFunction]:
    """Return the out and the functional variant of an operator that has neither but can have both."""
    found = tuple(variants.values())
    if SchemaKind.SCRATCH in variants and len(variants) == 1:
        return
    is_composite = all(DispatchKey.CompositeImplicitAutograd in one.composites for one in found)
    if (
        all(one.manual_cpp_binding for one in found)
        or any(one.is_view and one.name.name != "set_" for one in found)
        or (is_composite and not any("core" in one.tags for one in found))
    ):
        return
    out = variants.get(SchemaKind.OUT)
    if out is not None and len(found) == 1:
        if out.short_name not in _OUT_WITHOUT_OTHERS:
            message = f"{out.short_name} is an out variant, and no other function has its signature"
            hint = "add the functional variant, with the same arguments but `out`"
            problems.append(_problem(Rule.STRUCTURED_ALONE if out.structured else Rule.OUT_ALONE, out, message, hint))
        return
    inplace = variants.get(SchemaKind.INPLACE)
    if inplace is not None and inplace.short_name in _INPLACE_WITHOUT_OTHERS:
        return
    order = (SchemaKind.MUTABLE, SchemaKind.INPLACE, SchemaKind.OUT, SchemaKind.FUNCTIONAL)
    base = next(variants[kind] for kind in order if kind in variants)
    if out is None:
        can_be_made = base.kind is SchemaKind.INPLACE or any(is_tensor_like(one.type) for one in base.schema.returns)
        if not can_be_made:
            if base.short_name not in _WITHOUT_OUT:
                message = f"{base.short_name} returns no tensor, so that no out variant can be made of it"
                hint = "return a tensor; torchgen has a list of those that need not"
                problems.append(_problem(Rule.NO_OUT_VARIANT, base, message, hint))
            return
        if not any("out" in str(name.without_namespace) for name in base.autogen):
            return
        out = variants[SchemaKind.OUT] = _out_variant(base)
        yield out
    if SchemaKind.FUNCTIONAL not in variants:
        functional = variants[SchemaKind.FUNCTIONAL] = _functional_variant(base)
        yield functional


def _group(variants: _Variants, problems: list[Problem]) -> tuple[FunctionGroup | NativeFunction, ...]:
    found = tuple(variants.values())
    functional, out = variants.get(SchemaKind.FUNCTIONAL), variants.get(SchemaKind.OUT)
    if functional is not None and out is not None:
        group = FunctionGroup(functional, out, variants.get(SchemaKind.INPLACE), variants.get(SchemaKind.MUTABLE))
        problems += _broken(group)
        return (group,)
    for one in found:
        if one.structured and not any(problem.where == one.location for problem in problems):
            message = f"{one.short_name} is structured, and no functional variant has its signature"
            hint = "add the functional variant, with the same arguments but `out`"
            problems.append(_problem(Rule.STRUCTURED_ALONE, one, message, hint))
        elif one.structured_delegate is not None:
            delegate = one.structured_delegate.without_namespace
            message = f"{one.short_name} delegates to {delegate}, which has another signature"
            hint = "variants have the same arguments but `out`, with the same names and defaults"
            problems.append(_problem(Rule.DELEGATE_ALONE, one, message, hint))
    if functional is None and out is not None and len(found) > 1:
        names = " and ".join(sorted(one.short_name for one in found))
        message = f"{names} are variants of one operator that has no functional variant"
        problems.append(_problem(Rule.NO_FUNCTIONAL, out, message, "add it, with the same arguments but `out`"))
    return found


def _broken(group: FunctionGroup) -> Iterator[Problem]:
    """Return the rules that a group breaks."""
    functional, out = group.functional, group.out
    for one in group.functions:
        if one.name.namespace != functional.name.namespace:
            message = (
                f"{one.short_name} is in {one.name.namespace}, {functional.short_name} in {functional.name.namespace}"
            )
            yield _problem(Rule.GROUP_NAMESPACE, one, message, "variants of one operator are in one namespace")
        if one.in_structured_group is not group.structured:
            structured, other = (out, one) if group.structured else (one, out)
            if structured is one:
                # NB: a delegate of something that is not structured has been reported before
                message = f"{one.short_name} delegates, and its out variant {out.short_name} is not structured"
            else:
                message = f"{out.short_name} is structured, and {other.short_name}, a variant of it, does not delegate"
            hint = f"add `structured_delegate: {out.short_name}` to {other.short_name}"
            yield _problem(Rule.PARTLY_STRUCTURED, one, message, hint)
        elif group.structured and one is not out and one.structured_delegate != out.name:
            assert one.structured_delegate is not None
            message = (
                f"{one.short_name} delegates to {one.structured_delegate.without_namespace}, "
                f"and the out variant with its signature is {out.short_name}"
            )
            yield _problem(Rule.OTHER_DELEGATE, one, message, f"write `structured_delegate: {out.short_name}`")
    if group.mutable is not None and not functional.parts.name.functional:
        name = functional.name.name
        message = f"{group.mutable.short_name} is mutable, and its functional variant is called {functional.short_name}"
        yield _problem(Rule.MUTABLE_NAME, functional, message, f"call it {name}_functional")
    yield from _autogen(group)


def _autogen(group: FunctionGroup) -> Iterator[Problem]:
    generated = sorted(str(function.name.without_namespace) for function in group.functions if function.is_generated)
    listed = sorted({str(name.without_namespace) for one in group.functions for name in one.autogen})
    if generated == listed:
        return
    source = next(function for function in group.functions if not function.is_generated)
    hint = f"write `autogen: {', '.join(generated)}` there" if generated else "leave autogen out"
    if not listed:
        message = f"{', '.join(generated)} can be made from {source.short_name}, and no autogen lists it"
        yield _problem(Rule.AUTOGEN_MISSING, source, message, hint)
        return
    lister = next(function for function in group.functions if function.autogen)
    makes = ", ".join(generated) if generated else "nothing"
    message = f"autogen says {', '.join(listed)}, and what can be made from {lister.short_name} is {makes}"
    yield _problem(Rule.AUTOGEN_DIFFERS, lister, message, hint)


class ViewKind(WordEnum):
    """The kind of a view function."""

    ALIASING = "aliasing"
    ALIASING_INPLACE = "aliasing_inplace"


_COMPOSITES = (
    DispatchKey.CompositeImplicitAutograd,
    DispatchKey.CompositeImplicitAutogradNestedTensor,
)


_SUFFIXES = ("_copy", "_scatter")


def _view_name(function: NativeFunction) -> str:
    base = function.parts.name.base
    return without_copy(base) if base.endswith(_SUFFIXES) else base


def _view_kind(function: NativeFunction) -> ViewKind | None:
    """Return the kind of view that the function is, or None."""
    if not function.is_view:
        return None
    return ViewKind.ALIASING_INPLACE if function.parts.name.inplace else ViewKind.ALIASING


def _broken_view(group: ViewGroup) -> Iterator[Problem]:
    view, copy, inplace = group.view, group.copy, group.inplace
    if copy is None:
        is_composite = DispatchKey.CompositeImplicitAutograd in view.composites
        if not (is_composite or "inplace_view" in view.tags or view.parts.name.base.endswith("_inverse")):
            message = f"{view.short_name} is a view, and no function copies in its place"
            name = view.short_name.replace(view.parts.name.base, f"{view.parts.name.base}_copy", 1)
            yield _problem(Rule.VIEW_COPY_MISSING, view, message, f"add {name} with the tag view_copy")
    else:
        if not copy.parts.name.base.endswith(_SUFFIXES):
            message = f"{copy.short_name} has the signature of the view {view.short_name} and is not a view"
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


def _problem(rule: Rule, function: NativeFunction, message: str, hint: str = "") -> Problem:
    return Problem(function.location or SourceLocation("<made>", 1), message, hint, rule)


def _out_variant(function: NativeFunction) -> NativeFunction:
    """Return the out variant of an in-place, a mutable or a functional function."""
    name, parts = function.name, function.parts
    overload = f"{name.overload}_out" if name.overload else "out"
    made = OperatorName(name.namespace, _base(parts), overload)
    if function.kind is SchemaKind.INPLACE:
        itself = parts.self_argument
        assert itself is not None
        out = Argument("out", itself.type, None, kwarg_only=True, alias=itself.alias)
        inputs = tuple(replace(one, alias=None) if one is itself else one for one in parts.inputs)
        return _generated(function, FunctionSchema(made, (*inputs, out), function.schema.returns))
    outs, returns = _outs_and_returns(function)
    inputs = parts.inputs
    if function.kind is SchemaKind.FUNCTIONAL:
        inputs = tuple(replace(one, alias=None) for one in (*parts.positional, *parts.by_name))
    return _generated(function, FunctionSchema(made, (*inputs, *outs), returns))


def _functional_variant(function: NativeFunction) -> NativeFunction:
    """Return the functional variant of an in-place, a mutable or an out function, which returns the written values."""
    name, parts = function.name, function.parts
    suffix = "_functional" if function.kind is SchemaKind.MUTABLE else ""
    made = OperatorName(name.namespace, _base(parts) + suffix, name.overload)
    given = [one.alias for one in function.schema.returns]
    itself = () if parts.self_argument is None else (parts.self_argument,)
    written = tuple(
        Argument(f"{one.name}_out", one.type)
        for one in (*itself, *parts.outs, *parts.after_self)
        if one.is_written and one.alias not in given
    )
    returns = tuple(Argument(one.name, one.type) for one in function.schema.returns)
    inputs = tuple(replace(one, alias=None) for one in (*parts.positional, *parts.by_name))
    return _generated(function, FunctionSchema(made, inputs, (*returns, *written)))


def _base(parts: SchemaParts) -> str:
    return f"__{parts.name.base}__" if parts.name.dunder else parts.name.base


def _outs_and_returns(function: NativeFunction) -> tuple[tuple[Argument, ...], tuple[Argument, ...]]:
    returns = function.schema.returns
    used = alias_letters(function.schema)
    letters = [letter for letter in string.ascii_lowercase if letter not in used]
    plain = all(one.type == TENSOR for one in returns)
    outs: list[Argument] = []
    back: list[Argument] = []
    for at, one in enumerate(returns):
        if not is_tensor_like(one.type):
            back.append(one)
            continue
        alias = writes_alias(letters[at])
        if isinstance(one.type, ListType):
            alias = AliasInfo(frozenset(), frozenset(), is_write=True, contained=(alias,))
        name = "out" if len(returns) == 1 else f"out{at}"
        outs.append(Argument(name, one.type, None, kwarg_only=True, alias=alias))
        if plain:
            back.append(Argument("", one.type, alias=alias))
    return tuple(outs), tuple(back)


_KEPT_TAGS = frozenset(("nondeterministic_seeded", "view_copy", "pt2_compliant_tag"))


def _generated(function: NativeFunction, schema: FunctionSchema) -> NativeFunction:
    parts = parts_of(schema)
    kind = kind_of_schema(parts)
    name = schema.name
    kernel = native_name(schema, parts)
    if kind is SchemaKind.OUT:
        kernel = str(name.without_namespace).replace(".", "_")
    if any(innermost(one.type) == SimpleType("SymInt") for one in function.parts.inputs):
        kernel += "_symint"
    tags = {"generated", *(function.tags & _KEPT_TAGS)}
    if parts.outs:
        tags.add("out")
    return NativeFunction(
        schema=schema,
        parts=parts,
        kind=kind,
        dispatch=(BackendKernel(DispatchKey.CompositeExplicitAutograd, kernel),),
        device_guard=False,
        device_check=DeviceCheck.NO_CHECK,
        use_const_ref_for_mutable_tensors=function.use_const_ref_for_mutable_tensors,
        tags=frozenset(tags),
        is_view=shares_memory(schema, parts, frozenset(tags)),
        is_abstract=function.is_abstract,
        text=function.text,
        location=function.location,
    )
