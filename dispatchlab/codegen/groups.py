"""Which functions are variants of one operator: groups, completed by the variants that are made from others.

Source: torchgen/native_function_generation.py (`add_generated_native_functions`), torchgen/model.py
(`NativeFunctionsGroup`), torchgen/gen.py (`get_grouped_native_functions`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from dispatchlab.codegen.made_variants import functional_variant, out_variant
from dispatchlab.codegen.native_function import NativeFunction
from dispatchlab.codegen.problems import Rule, YamlProblem
from dispatchlab.codegen.schema_parts import SchemaKind, is_tensor_like, signature_of
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Place

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
"""Operators without a tensor among their returns, of which no out variant can be made; torchgen lists them, too."""


@dataclass(frozen=True, slots=True)
class FunctionGroup:
    """The variants of one operator; each of them has the same signature.

    Args:
        functional: gives new tensors.
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
        """Whether all are made from one meta and one impl."""
        return self.out.structured

    @property
    def functions(self) -> tuple[NativeFunction, ...]:
        """The variants: functional, out, inplace, mutable."""
        optional = (one for one in (self.inplace, self.mutable) if one is not None)
        return (self.functional, self.out, *optional)


_Variants = dict[SchemaKind, NativeFunction]


def grouped(
    functions: Sequence[NativeFunction], problems: list[YamlProblem]
) -> tuple[tuple[NativeFunction, ...], tuple[FunctionGroup | NativeFunction, ...]]:
    """The functions that are made from others, and all functions in groups.

    Args:
        functions: those of the file, each right on its own.
        problems: where what is wrong with a group is added.
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


def _problem(rule: Rule, function: NativeFunction, message: str, hint: str = "") -> YamlProblem:
    return YamlProblem(rule, function.place or Place("<made>", 1), message, hint)


def _completed(variants: _Variants, problems: list[YamlProblem]) -> Iterator[NativeFunction]:
    """The out and the functional variant of an operator that has neither but can have both."""
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
        if not any("out" in f"{name.name}.{name.overload}" for name in base.autogen):
            return
        out = variants[SchemaKind.OUT] = out_variant(base)
        yield out
    if SchemaKind.FUNCTIONAL not in variants:
        functional = variants[SchemaKind.FUNCTIONAL] = functional_variant(base)
        yield functional


def _group(variants: _Variants, problems: list[YamlProblem]) -> tuple[FunctionGroup | NativeFunction, ...]:
    found = tuple(variants.values())
    functional, out = variants.get(SchemaKind.FUNCTIONAL), variants.get(SchemaKind.OUT)
    if functional is not None and out is not None:
        group = FunctionGroup(functional, out, variants.get(SchemaKind.INPLACE), variants.get(SchemaKind.MUTABLE))
        problems += _broken(group)
        return (group,)
    for one in found:
        if one.structured and not any(problem.where == one.place for problem in problems):
            message = f"{one.short_name} is structured, and no functional variant has its signature"
            hint = "add the functional variant, with the same arguments but `out`"
            problems.append(_problem(Rule.STRUCTURED_ALONE, one, message, hint))
        elif one.structured_delegate is not None:
            message = f"{one.short_name} delegates to {_short(one.structured_delegate)}, which has another signature"
            hint = "variants have the same arguments but `out`, with the same names and defaults"
            problems.append(_problem(Rule.DELEGATE_ALONE, one, message, hint))
    if functional is None and out is not None and len(found) > 1:
        told = " and ".join(sorted(one.short_name for one in found))
        message = f"{told} are variants of one operator that has no functional variant"
        problems.append(_problem(Rule.NO_FUNCTIONAL, out, message, "add it, with the same arguments but `out`"))
    return found


def _broken(group: FunctionGroup) -> Iterator[YamlProblem]:
    """The rules that a group breaks."""
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
                # NB: a delegate of something that is not structured has been told before
                message = f"{one.short_name} delegates, and its out variant {out.short_name} is not structured"
            else:
                message = f"{out.short_name} is structured, and {other.short_name}, a variant of it, does not delegate"
            hint = f"add `structured_delegate: {out.short_name}` to {other.short_name}"
            yield _problem(Rule.PARTLY_STRUCTURED, one, message, hint)
        elif group.structured and one is not out and one.structured_delegate != out.name:
            assert one.structured_delegate is not None
            message = (
                f"{one.short_name} delegates to {_short(one.structured_delegate)}, "
                f"and the out variant with its signature is {out.short_name}"
            )
            yield _problem(Rule.OTHER_DELEGATE, one, message, f"write `structured_delegate: {out.short_name}`")
    if group.mutable is not None and not functional.parts.name.functional:
        name = functional.name.name
        message = f"{group.mutable.short_name} is mutable, and its functional variant is called {functional.short_name}"
        yield _problem(Rule.MUTABLE_NAME, functional, message, f"call it {name}_functional")
    yield from _autogen(group)


def _autogen(group: FunctionGroup) -> Iterator[YamlProblem]:
    made = sorted(_short(one.name) for one in group.functions if one.is_generated)
    told = sorted({_short(name) for one in group.functions for name in one.autogen})
    if made == told:
        return
    source = next(one for one in group.functions if not one.is_generated)
    hint = f"write `autogen: {', '.join(made)}` there" if made else "leave autogen out"
    if not told:
        message = f"{', '.join(made)} can be made from {source.short_name}, and no autogen says so"
        yield _problem(Rule.AUTOGEN_MISSING, source, message, hint)
        return
    telling = next(one for one in group.functions if one.autogen)
    makes = ", ".join(made) if made else "nothing"
    message = f"autogen says {', '.join(told)}, and what can be made from {telling.short_name} is {makes}"
    yield _problem(Rule.AUTOGEN_DIFFERS, telling, message, hint)


def _short(name: OperatorName) -> str:
    return f"{name.name}.{name.overload}" if name.overload else name.name
