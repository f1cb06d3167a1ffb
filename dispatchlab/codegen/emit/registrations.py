"""Every registration that is generated for each function, structured or not: defs, and kernels key by key.

A value of this module says what a build of PyTorch registers with generated code; what is registered by hand in C++ or
Python is not in native_functions.yaml. Source: torchgen/gen.py, torchgen/dest/register_dispatch_key.py,
torchgen/gen_functionalization_type.py, torchgen/packaged/autograd/gen_variable_type.py, gen_inplace_or_view_type.py,
gen_trace_type.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from dispatchlab._short_repr import WordEnum
from dispatchlab.codegen.emit.generated_group import generated_group, plain_wrapper_name
from dispatchlab.codegen.emit.python_source import annotated_types
from dispatchlab.codegen.read.derivatives import Derivatives
from dispatchlab.codegen.read.groups import FunctionGroup, ViewGroup
from dispatchlab.codegen.read.matched_derivatives import Match, matched_derivatives
from dispatchlab.codegen.read.native_function import BackendKernel, NativeFunction
from dispatchlab.codegen.read.native_functions import NativeFunctions
from dispatchlab.codegen.read.schema_parts import SchemaKind, is_tensor_like
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.schema import Argument, FunctionSchema
from dispatchlab.model.schema_types import ListType, OptionalType, SimpleType, Type


class Part(WordEnum):
    """The part of the generated code that a kernel is in: the name of its file, without the number."""

    BACKEND = "Register"
    """`RegisterCPU`: the kernels of one key of `dispatch`."""
    BACKEND_SELECT = "RegisterBackendSelect"
    FUNCTIONALIZATION = "RegisterFunctionalization"
    AUTOGRAD = "VariableType"
    VIEWS_AND_WRITES = "ADInplaceOrViewType"
    TRACER = "TraceType"


class Body(WordEnum):
    """What a generated kernel does."""

    CALLS_NATIVE = "calls a function written by hand"
    STRUCTURED = "meta, then impl"
    META = "meta alone"
    DEFAULT = "meta, then the out variant, called anew"
    RETURNS_SELF = "returns self, which has to be on meta"
    SELECTS_BACKEND = "redispatches to the key of dtype, layout and device"
    FUNCTIONALIZES = "unwraps, calls the variant that writes nothing, and wraps"
    DECOMPOSES = "the composite kernel itself"
    FORMULA = "records a node with the formulas of derivatives.yaml"
    NO_FORMULA = "records nothing: no gradient goes anywhere"
    NOT_IMPLEMENTED = "boxed: records a node that raises in backward"
    VIEW = "redispatches, and makes the result a view"
    WRITE = "redispatches, and raises the version of what was written"
    RECORDS = "records the call in the graph of the tracer"


SHARDS: Mapping[Part, int] = {Part.FUNCTIONALIZATION: 4, Part.AUTOGRAD: 10, Part.VIEWS_AND_WRITES: 2, Part.TRACER: 10}
_SHARDS_OF_CPU = 4


@dataclass(frozen=True, slots=True)
class GeneratedKernel:
    """One kernel that is generated for a function.

    Args:
        function: the function.
        key: where it is registered.
        part: the part of the generated code that it is in.
        body: what it does.
        name: the C++ function that is registered.
        inferred: the schema that its type gives; None for a boxed kernel.
        node: what its node is called, for a kernel with a formula: `MulBackward0`.
        calls: the function written by hand that it calls, where it is one.
        functional: for a kernel of Functionalize, the operator that it calls in place of its own, where there is one:
            it writes nothing, or copies what is viewed.
        view: for one of a view, the view, which is another operator where it is in place.
    """

    function: NativeFunction
    key: DispatchKey
    part: Part
    body: Body
    name: str
    inferred: FunctionSchema | None
    node: str = ""
    calls: str = ""
    functional: str = ""
    view: str = ""

    @property
    def file(self) -> str:
        """The file that it is in: `RegisterCPU_0.cpp`."""
        match self.part:
            case Part.BACKEND_SELECT:
                return f"{self.part}.cpp"
            case Part.BACKEND:
                count = _SHARDS_OF_CPU if self.key is DispatchKey.CPU else 1
                return f"{self.part}{self.key}_{shard(self._shard_key, count)}.cpp"
            case _:
                return f"{self.part}_{shard(self._shard_key, SHARDS[self.part])}.cpp"

    @property
    def _shard_key(self) -> str:
        # NB: autograd kernels go by the C++ name, everything else by the name without underscore
        return cpp_name(self.function) if self.part is Part.AUTOGRAD else self.function.parts.name.base


def shard(key: str, count: int) -> int:
    """The number of the file among `count`. Source: `string_stable_hash` in torchgen/utils.py."""
    return int.from_bytes(hashlib.sha1(key.encode("latin1"), usedforsecurity=False).digest(), "little") % count


@dataclass(frozen=True, slots=True)
class FunctionRegistrations:
    """What is generated for one function.

    Args:
        function: the function; its schema and tags are those of the def.
        kernels: in the order of their keys.
    """

    function: NativeFunction
    kernels: tuple[GeneratedKernel, ...]


def registrations_of(
    natives: NativeFunctions, derivatives: Derivatives | None = None
) -> tuple[FunctionRegistrations, ...]:
    """What is generated for each function, in the order of the file.

    Args:
        natives: the content of native_functions.yaml.
        derivatives: that of derivatives.yaml; without it nothing is known of autograd kernels, and there are none.
    """
    found: dict[OperatorName, list[GeneratedKernel]] = {function.name: [] for function in natives.functions}
    for kernels in (
        _backends(natives),
        _backend_select(natives),
        _functionalization(natives),
        () if derivatives is None else _autograd(natives, matched_derivatives(natives, derivatives)),
        _views_and_writes(natives),
        _tracer(natives),
    ):
        for kernel in kernels:
            found[kernel.function.name].append(kernel)
    return tuple(
        FunctionRegistrations(function, tuple(sorted(found[function.name], key=lambda one: one.key)))
        for function in natives.functions
    )


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Kernels that are not generated, although the file has the functions.

    Args:
        why: the reason.
        functions: the functions.
    """

    why: str
    functions: tuple[OperatorName, ...]


def left_out(natives: NativeFunctions, derivatives: Derivatives | None) -> tuple[LeftOut, ...]:
    """What is not generated for functions of the file, reason by reason."""
    functions = natives.functions
    matches = {} if derivatives is None else matched_derivatives(natives, derivatives)
    refused = _without_variant(natives)
    found = [
        LeftOut(
            "kernels that `manual_kernel_registration` leaves to C++",
            tuple(function.name for function in functions if function.manual_kernel_registration),
        ),
        LeftOut(
            "kernels of Autograd, ADInplaceOrView and Tracer, written by hand",
            tuple(function.name for function in functions if cpp_name(function) in BY_HAND),
        ),
        LeftOut(
            "kernels of Functionalize: C++ has them, or nothing has",
            tuple(one for one in _never_functionalized(natives) if one not in refused),
        ),
        LeftOut(
            "kernels of Functionalize: no variant writes nothing, or gives a copy, and torchgen refuses the file",
            refused,
        ),
    ]
    if derivatives is None:
        without = tuple(one.name for one in functions if _has_autograd_kernel(one, matches.get(one.name)))
        found.append(LeftOut("kernels of Autograd: there is no derivatives.yaml, name one with --derivatives", without))
    return tuple(each for each in found if each.functions)


def _without_variant(natives: NativeFunctions) -> tuple[OperatorName, ...]:
    alone = {one.name for one in natives.groups if not isinstance(one, FunctionGroup)}
    copied = {
        one.name
        for group in natives.view_groups
        if isinstance(group, ViewGroup) and group.copy is not None
        for one in (group.view, group.inplace)
        if one is not None
    }
    by_hand = {function.name for function in natives.functions if function.short_name in _NOT_FUNCTIONALIZED}
    return tuple(one for one in _never_functionalized(natives) if one in alone and one not in by_hand | copied)


def _never_functionalized(natives: NativeFunctions) -> tuple[OperatorName, ...]:
    generated = {kernel.function.name for kernel in _functionalization(natives)}
    return tuple(
        function.name
        for function in natives.functions
        if function.name not in generated
        and _IMPLICIT not in function.composites
        and (function.is_view or any(argument.is_written for argument in function.schema.arguments))
    )


# -- backends


def _backends(natives: NativeFunctions) -> Iterator[GeneratedKernel]:
    for group in natives.groups:
        if isinstance(group, FunctionGroup) and group.structured:
            yield from _structured(group)
        else:
            for function in group.functions if isinstance(group, FunctionGroup) else (group,):
                yield from _unstructured(function)


_BODIES = {"STRUCTURED": Body.STRUCTURED, "META": Body.META, "DEFAULT": Body.DEFAULT, "PLAIN": Body.CALLS_NATIVE}


def _structured(group: FunctionGroup) -> Iterator[GeneratedKernel]:
    for key in generated_group(group).keys:
        for wrapper in key.wrappers:
            function = wrapper.function
            body = _BODIES[key.form.name]
            kernel = function.kernel_at(key.key)
            calls = _native(kernel) if body is Body.CALLS_NATIVE and kernel is not None else ""
            # NB: meta takes plain integers
            inferred = inferred_schema_of(function, symint=body is Body.CALLS_NATIVE)
            yield GeneratedKernel(function, key.key, Part.BACKEND, body, wrapper.name, inferred, calls=calls)


def _unstructured(function: NativeFunction) -> Iterator[GeneratedKernel]:
    if function.manual_kernel_registration:
        return
    inferred = inferred_schema_of(function)
    for kernel in function.dispatch:
        name = plain_wrapper_name(kernel.key, function)
        yield GeneratedKernel(
            function, kernel.key, Part.BACKEND, Body.CALLS_NATIVE, name, inferred, calls=_native(kernel)
        )
    meta = DispatchKey.Meta
    if (
        function.kind is SchemaKind.INPLACE
        and function.kernel_at(meta) is None
        and not function.composites
        and len(function.schema.returns) == 1
    ):
        yield GeneratedKernel(
            function, meta, Part.BACKEND, Body.RETURNS_SELF, plain_wrapper_name(meta, function), inferred
        )


def _native(kernel: BackendKernel) -> str:
    return f"{kernel.namespace}::{kernel.name}"


# -- BackendSelect


def _backend_select(natives: NativeFunctions) -> Iterator[GeneratedKernel]:
    for function in natives.functions:
        if is_factory(function):
            yield GeneratedKernel(
                function,
                DispatchKey.BackendSelect,
                Part.BACKEND_SELECT,
                Body.SELECTS_BACKEND,
                cpp_name(function),
                inferred_schema_of(function),
            )


def is_factory(function: NativeFunction) -> bool:
    """Whether dtype, layout and device decide which backend a call goes to. Source: `needs_backend_select`."""
    name = function.name.name
    return bool(function.parts.options) and not (name.endswith("_like") or name.startswith("new_"))


# -- Functionalize

_NOT_FUNCTIONALIZED = frozenset(
    (
        *("adaptive_avg_pool3d_backward.grad_input", "_slow_conv2d_backward.grad_input", "_cummax_helper"),
        *("_cummin_helper", "polygamma_", "record_stream", "resize_", "resize_as_", "_fill_mem_eff_dropout_mask_"),
        "_flash_attention_forward_no_dropout_inplace",
    )
)
"""Source: `MUTABLE_OPS_NOT_USING_FUNCTIONALIZATION`."""
_IMPLICIT = DispatchKey.CompositeImplicitAutograd


def _functionalization(natives: NativeFunctions) -> Iterator[GeneratedKernel]:
    for group in natives.groups:
        if isinstance(group, FunctionGroup):
            by_hand = group.inplace is not None and group.inplace.short_name == "set_.source_Tensor"
            yield from () if by_hand else _functionalized_writes(group)
    for view in natives.view_groups:
        if isinstance(view, ViewGroup) and view.view.short_name != "lift_fresh":
            members = [one for one in (view.view, view.inplace) if one is not None]
            for one in members:
                yield from _functionalize(one, view.copy, view.view)


def _functionalized_writes(group: FunctionGroup) -> Iterator[GeneratedKernel]:
    wanted = [function for function in group.functions if _IMPLICIT not in function.composites]
    # NB: one of these two takes its variants with it
    if any(each.short_name in ("lift", "resize_") for each in wanted):
        return
    for each in wanted:
        if any(argument.is_written for argument in each.schema.arguments):
            yield from _functionalize(each, group.functional)


def _functionalize(
    function: NativeFunction, functional: NativeFunction | None, view: NativeFunction | None = None
) -> Iterator[GeneratedKernel]:
    composite, key, part = function.kernel_at(_IMPLICIT), DispatchKey.Functionalize, Part.FUNCTIONALIZATION
    if composite is not None:
        # NB: the kernel is registered as it is, and takes plain integers unless its name says otherwise
        inferred = inferred_schema_of(function, symint=composite.takes_symint)
        name = f"at::native::{composite.name}"
        yield GeneratedKernel(function, key, part, Body.DECOMPOSES, name, inferred, calls=name)
    elif functional is not None:
        yield GeneratedKernel(
            *(function, key, part, Body.FUNCTIONALIZES, f"functionalization::{wrapper_name(function)}"),
            inferred_schema_of(function),
            functional=functional.short_name,
            view="" if view is None else view.short_name,
        )


# -- Autograd, ADInplaceOrView, Tracer

BY_HAND = frozenset(
    (
        *("options", "data", "set_data", "is_leaf", "output_nr", "_version", "retain_grad", "_backward"),
        *("requires_grad_", "resize_", "resize_as_", "detach", "detach_", "copy_", "_fw_primal", "_make_dual"),
    )
)
"""Kernels of Autograd, ADInplaceOrView and Tracer that are written by hand. Source: gen_trace_type.py."""
_NEVER_REQUIRES_GRAD = frozenset(
    (
        *("empty_like", "ones_like", "full_like", "zeros_like", "rand_like", "randn_like", "new_empty"),
        *("new_empty_strided", "new_full", "new_zeros", "new_ones", "__and__", "__iand__", "__ilshift__", "__ior__"),
        *("__irshift__", "__ixor__", "__lshift__", "__or__", "__rshift__", "__xor__", "_sobol_engine_draw"),
        *("_sobol_engine_ff", "_sobol_engine_scramble_", "_sobol_engine_initialize_state_", "_coalesced_"),
        *("quantize_per_tensor", "quantize_per_channel", "argmax", "argmin", "argsort", "searchsorted", "bucketize"),
        *("isnan", "isposinf", "isneginf", "isinf", "signbit", "isin", "allclose", "record_stream", "logical_and"),
        *("logical_xor", "logical_not", "logical_or", "_nested_tensor_size", "_nested_tensor_strides"),
        "_nested_tensor_storage_offsets",
    )
)
"""Source: `DONT_REQUIRE_DERIVATIVE`."""
_UNCHECKED = frozenset(
    (
        *("set_", "_cudnn_rnn_flatten_weight", "_unsafe_masked_index", "_unsafe_masked_index_put_accumulate"),
        *("_slow_conv2d_forward", "slow_conv3d_forward", "channel_shuffle", "_embedding_bag"),
        *("_embedding_bag_forward_only", "q_per_channel_scales", "q_per_channel_zero_points", "lu_unpack"),
        *("_cudnn_rnn_backward", "_cudnn_rnn", "dequantize_self", "lift", "lift_fresh", "lift_fresh_copy"),
        *("_nested_tensor_size", "_nested_tensor_strides", "_nested_tensor_storage_offsets"),
    )
)
"""Functions whose results may be their arguments, so that they have a kernel of their own. Source:
`DONT_ENFORCE_SAME_TENSOR_IMPL_OR_STORAGE`, `DONT_ENFORCE_STORAGE_IMPL_USE_COUNT`."""


def _has_autograd_kernel(function: NativeFunction, match: Match | None) -> bool:
    """Whether generated kernels record it. Source: `use_derived`, `dispatch_strategy`."""
    differentiates = match is not None and match.has_derivatives
    return cpp_name(function) not in BY_HAND and (function.is_abstract or differentiates)


def _autograd(natives: NativeFunctions, matches: Mapping[OperatorName, Match]) -> Iterator[GeneratedKernel]:
    for function in natives.functions:
        match = matches.get(function.name)
        if not _has_autograd_kernel(function, match):
            continue
        name, inferred, key = wrapper_name(function), inferred_schema_of(function), DispatchKey.Autograd
        if match is not None:
            for at, node in zip(match.keys, match.nodes, strict=True):
                suffix = "" if at is key else f"_{at}"
                records = node is not None and function.kind is not SchemaKind.OUT
                body = Body.FORMULA if records else Body.NO_FORMULA
                full = f"VariableType::{name}{suffix}"
                yield GeneratedKernel(function, at, Part.AUTOGRAD, body, full, inferred, node or "" if records else "")
        elif _is_boxed(function):
            boxed = "torch::autograd::autogradNotImplementedFallback()"
            yield GeneratedKernel(function, key, Part.AUTOGRAD, Body.NOT_IMPLEMENTED, boxed, None)
        else:
            yield GeneratedKernel(function, key, Part.AUTOGRAD, Body.NO_FORMULA, f"VariableType::{name}", inferred)


def _is_boxed(function: NativeFunction) -> bool:
    """Whether a function without formulas has the boxed kernel that raises in backward."""
    return (
        function.name.name not in ("set_", "resize_")
        and function.parts.name.base not in _NEVER_REQUIRES_GRAD
        and any(is_tensor_like(one.type) for one in function.schema.returns)
        and cpp_name(function) not in _UNCHECKED
        and wrapper_name(function) not in _UNCHECKED
    )


_VIEWS = frozenset(
    (
        *("numpy_T", "alias", "as_strided", "diagonal", "expand", "permute", "select", "slice", "slice_inverse"),
        *("split", "split_with_sizes", "squeeze", "t", "transpose", "unfold", "unsqueeze", "flatten", "view"),
        *("unbind", "_indices", "_values", "indices", "values", "crow_indices", "col_indices", "ccol_indices"),
        *("row_indices", "sparse_coo_tensor_with_dims_and_tensors", "_reshape_alias"),
        *("_test_autograd_multiple_dispatch_view", "view_as_complex", "view_as_real", "_conj", "_neg_view"),
        *("_nested_get_values", "_nested_view_from_buffer", "_nested_view_from_jagged", "chunk", "detach"),
        *("contiguous", "reshape", "reshape_as", "expand_as", "view_as", "real", "imag", "narrow", "movedim"),
        *("tensor_split", "swapdims", "swapaxes", "mT", "mH", "adjoint", "matrix_H"),
    )
)
"""Functions whose results are views, or may be. Source: `VIEW_FUNCTIONS`, `RETURNS_VIEWS_OF_INPUT`."""


def _views_and_writes(natives: NativeFunctions) -> Iterator[GeneratedKernel]:
    for function in natives.functions:
        # NB: a function with formulas is abstract, or torchgen refuses the file
        if not _has_autograd_kernel(function, None):
            continue
        writes = function.kind in (SchemaKind.INPLACE, SchemaKind.OUT) and bool(function.schema.returns)
        if writes or function.parts.name.base in _VIEWS:
            name, inferred = f"ADInplaceOrView::{wrapper_name(function)}", inferred_schema_of(function)
            body = Body.WRITE if writes else Body.VIEW
            yield GeneratedKernel(function, DispatchKey.ADInplaceOrView, Part.VIEWS_AND_WRITES, body, name, inferred)


def _tracer(natives: NativeFunctions) -> Iterator[GeneratedKernel]:
    for function in natives.functions:
        if cpp_name(function) not in BY_HAND:
            name, inferred = f"TraceType::{wrapper_name(function)}", inferred_schema_of(function)
            yield GeneratedKernel(function, DispatchKey.Tracer, Part.TRACER, Body.RECORDS, name, inferred)


# -- names and types


def cpp_name(function: NativeFunction) -> str:
    """`add_out` for add.out. Source: `name` in torchgen/api/cpp.py."""
    return f"{function.name.name}{'_out' if function.parts.outs else ''}"


def wrapper_name(function: NativeFunction) -> str:
    """`add_out_out` for add.out. Source: `type_wrapper_name`."""
    overload = function.name.overload
    return f"{cpp_name(function)}_{overload}" if overload else cpp_name(function)


def inferred_schema_of(function: NativeFunction, *, symint: bool = True) -> FunctionSchema:
    """The schema that the C++ type of a kernel gives.

    Args:
        function: the function.
        symint: the kernel takes symbolic integers where the schema has them.
    """
    arguments, returns = annotated_types(function)
    return FunctionSchema(
        OperatorName("", ""),
        tuple(_numbered(arguments, symint=symint)),
        tuple(_numbered(returns, symint=symint)),
    )


def _numbered(types: Iterable[Type], *, symint: bool) -> Iterator[Argument]:
    for at, type_ in enumerate(types):
        yield Argument(f"_{at}", type_ if symint else _plain(type_))


def _plain(type_: Type) -> Type:
    match type_:
        case SimpleType("SymInt"):
            return SimpleType("int")
        case OptionalType(element):
            return OptionalType(_plain(element))
        case ListType(element, size):
            return ListType(_plain(element), size)
        case _:
            return type_
