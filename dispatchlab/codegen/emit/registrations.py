"""Every registration that is generated for each function, structured or not: defs, and kernels key by key.

A value of this module says what a build of PyTorch registers with generated code. Kernels of Autograd are missing:
derivatives.yaml decides about them. Handwritten registrations in C++ or Python are missing, which native_functions.yaml
does not have. Source: torchgen/gen.py, torchgen/dest/register_dispatch_key.py,
torchgen/gen_functionalization_type.py, torchgen/packaged/autograd/gen_inplace_or_view_type.py, gen_trace_type.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dispatchlab._short_repr import WordEnum
from dispatchlab.codegen.emit.generated_group import generated_group, plain_wrapper_name
from dispatchlab.codegen.emit.python_source import inferred_schema
from dispatchlab.codegen.read.groups import FunctionGroup, ViewGroup
from dispatchlab.codegen.read.native_function import BackendKernel, NativeFunction
from dispatchlab.codegen.read.native_functions import NativeFunctions
from dispatchlab.codegen.read.schema_parts import SchemaKind
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.schema import FunctionSchema


class Part(WordEnum):
    """The part of the generated code that a kernel is in: the name of its file, without the number."""

    BACKEND = "Register"
    """`RegisterCPU`: the kernels of one key of `dispatch`."""
    BACKEND_SELECT = "RegisterBackendSelect"
    FUNCTIONALIZATION = "RegisterFunctionalization"
    VIEWS_AND_WRITES = "ADInplaceOrViewType"
    TRACER = "TraceType"


class Body(WordEnum):
    """The body of a generated kernel."""

    CALLS_NATIVE = "calls a function written by hand"
    STRUCTURED = "meta, then impl"
    META = "meta alone"
    DEFAULT = "meta, then the out variant, called anew"
    RETURNS_SELF = "returns self, which has to be on meta"
    SELECTS_BACKEND = "redispatches to the key of dtype, layout and device"
    FUNCTIONALIZES = "unwraps, calls the variant that writes nothing, and wraps"
    DECOMPOSES = "the composite kernel itself"
    VIEW = "redispatches, and makes the result a view"
    WRITE = "redispatches, and raises the version of what was written"
    RECORDS = "records the call in the graph of the tracer"


_SHARDS: Mapping[Part, int] = {Part.FUNCTIONALIZATION: 4, Part.VIEWS_AND_WRITES: 2, Part.TRACER: 10}
_SHARDS_OF_CPU = 4


@dataclass(frozen=True, slots=True)
class GeneratedKernel:
    """A generated kernel of a function.

    Args:
        function: the function.
        key: its key.
        part: the part of the generated code that it is in.
        body: its work.
        name: the C++ function that is registered.
        inferred: the schema of its type.
        calls: the handwritten function that it calls, if there is one.
    """

    function: NativeFunction
    key: DispatchKey
    part: Part
    body: Body
    name: str
    inferred: FunctionSchema
    calls: str = ""

    @property
    def file(self) -> str:
        """The file that it is in: `RegisterCPU_0.cpp`."""
        base = self.function.parts.name.base
        match self.part:
            case Part.BACKEND_SELECT:
                return f"{self.part}.cpp"
            case Part.BACKEND:
                count = _SHARDS_OF_CPU if self.key is DispatchKey.CPU else 1
                return f"{self.part}{self.key}_{_shard(base, count)}.cpp"
            case _:
                return f"{self.part}_{_shard(base, _SHARDS[self.part])}.cpp"


def _shard(key: str, count: int) -> int:
    """Return the number of the file among `count`. Source: `string_stable_hash` in torchgen/utils.py."""
    return int.from_bytes(hashlib.sha1(key.encode("latin1"), usedforsecurity=False).digest(), "little") % count


@dataclass(frozen=True, slots=True)
class FunctionRegistrations:
    """The generated registrations of one function.

    Args:
        function: the function, with the schema and tags of the def.
        kernels: in the order of their keys.
    """

    function: NativeFunction
    kernels: tuple[GeneratedKernel, ...]


def registrations_of(natives: NativeFunctions) -> tuple[FunctionRegistrations, ...]:
    """Return the generated registrations of each function, in the order of the file."""
    found: dict[OperatorName, list[GeneratedKernel]] = {function.name: [] for function in natives.functions}
    for kernels in (
        _backends(natives),
        _backend_select(natives),
        _functionalization(natives),
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


def left_out(natives: NativeFunctions) -> tuple[LeftOut, ...]:
    """Return the functions of the file that get no code, reason by reason."""
    functions = natives.functions
    refused = _without_variant(natives)
    found = [
        LeftOut(
            "kernels that `manual_kernel_registration` leaves to C++",
            tuple(function.name for function in functions if function.manual_kernel_registration),
        ),
        LeftOut(
            "kernels of Autograd, ADInplaceOrView and Tracer, written by hand",
            tuple(function.name for function in functions if function.cpp_name in _BY_HAND),
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
            inferred = inferred_schema(function, symint=body is Body.CALLS_NATIVE)
            yield GeneratedKernel(function, key.key, Part.BACKEND, body, wrapper.name, inferred, calls=calls)


def _unstructured(function: NativeFunction) -> Iterator[GeneratedKernel]:
    if function.manual_kernel_registration:
        return
    inferred = inferred_schema(function)
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
        name = function.name.name  # as `needs_backend_select` of torchgen reads it
        if function.parts.options and not (name.endswith("_like") or name.startswith("new_")):
            yield GeneratedKernel(
                function,
                DispatchKey.BackendSelect,
                Part.BACKEND_SELECT,
                Body.SELECTS_BACKEND,
                function.cpp_name,
                inferred_schema(function),
            )


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
                yield from _functionalize(one, replaced=view.copy is not None)


def _functionalized_writes(group: FunctionGroup) -> Iterator[GeneratedKernel]:
    wanted = [function for function in group.functions if _IMPLICIT not in function.composites]
    # NB: one of these two takes its variants with it
    if any(each.short_name in ("lift", "resize_") for each in wanted):
        return
    for each in wanted:
        if any(argument.is_written for argument in each.schema.arguments):
            yield from _functionalize(each, replaced=True)


def _functionalize(function: NativeFunction, *, replaced: bool) -> Iterator[GeneratedKernel]:
    """Return the kernel of a write or a view; `replaced` means that another operator writes nothing or copies."""
    composite, key, part = function.kernel_at(_IMPLICIT), DispatchKey.Functionalize, Part.FUNCTIONALIZATION
    if composite is not None:
        # NB: the kernel is registered as it is, and takes plain integers unless its name says otherwise
        inferred = inferred_schema(function, symint=composite.takes_symint)
        name = f"at::native::{composite.name}"
        yield GeneratedKernel(function, key, part, Body.DECOMPOSES, name, inferred, calls=name)
    elif replaced:
        yield GeneratedKernel(
            *(function, key, part, Body.FUNCTIONALIZES, f"functionalization::{_wrapper_name(function)}"),
            inferred_schema(function),
        )


# -- ADInplaceOrView, Tracer

_BY_HAND = frozenset(
    (
        *("options", "data", "set_data", "is_leaf", "output_nr", "_version", "retain_grad", "_backward"),
        *("requires_grad_", "resize_", "resize_as_", "detach", "detach_", "copy_", "_fw_primal", "_make_dual"),
    )
)
"""Kernels of Autograd, ADInplaceOrView and Tracer that are written by hand. Source: gen_trace_type.py."""
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
        if not function.is_abstract or function.cpp_name in _BY_HAND:
            continue
        writes = function.kind in (SchemaKind.INPLACE, SchemaKind.OUT) and bool(function.schema.returns)
        if writes or function.parts.name.base in _VIEWS:
            name, inferred = f"ADInplaceOrView::{_wrapper_name(function)}", inferred_schema(function)
            body = Body.WRITE if writes else Body.VIEW
            yield GeneratedKernel(function, DispatchKey.ADInplaceOrView, Part.VIEWS_AND_WRITES, body, name, inferred)


def _tracer(natives: NativeFunctions) -> Iterator[GeneratedKernel]:
    for function in natives.functions:
        if function.cpp_name not in _BY_HAND:
            name, inferred = f"TraceType::{_wrapper_name(function)}", inferred_schema(function)
            yield GeneratedKernel(function, DispatchKey.Tracer, Part.TRACER, Body.RECORDS, name, inferred)


# -- names and types


def _wrapper_name(function: NativeFunction) -> str:
    """Return `add_out_out` for add.out. Source: `type_wrapper_name`."""
    overload = function.name.overload
    return f"{function.cpp_name}_{overload}" if overload else function.cpp_name
