"""Variants that the file does not have, made from one that it has: the out variant and the functional one.

Source: torchgen/native_function_generation.py (`generate_function`).
"""

from __future__ import annotations

import string
from dataclasses import replace

from dispatchlab.codegen.dispatch_field import native_name
from dispatchlab.codegen.native_function import BackendKernel, DeviceCheck, NativeFunction, shares_memory
from dispatchlab.codegen.schema_parts import (
    SchemaKind,
    SchemaParts,
    alias_letters,
    innermost,
    is_tensor_like,
    is_written,
    kind_of_schema,
    parts_of,
    writes_alias,
)
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.schema import AliasInfo, Argument, FunctionSchema
from dispatchlab.model.schema_types import TENSOR, ListType, SimpleType

_KEPT_TAGS = frozenset(("nondeterministic_seeded", "view_copy", "pt2_compliant_tag"))


def out_variant(function: NativeFunction) -> NativeFunction:
    """The out variant of an in-place, a mutable or a functional function."""
    name, parts = function.name, function.parts
    overload = f"{name.overload}_out" if name.overload else "out"
    made = OperatorName(name.namespace, _base(parts), overload)
    if function.kind is SchemaKind.INPLACE:
        itself = parts.self_argument
        assert itself is not None
        out = Argument("out", itself.type, None, kwarg_only=True, alias=itself.alias)
        inputs = tuple(replace(one, alias=None) if one is itself else one for one in parts.inputs)
        return _made(function, FunctionSchema(made, (*inputs, out), function.schema.returns))
    outs, returns = _outs_and_returns(function)
    inputs = parts.inputs
    if function.kind is SchemaKind.FUNCTIONAL:
        inputs = tuple(replace(one, alias=None) for one in (*parts.positional, *parts.by_name))
    return _made(function, FunctionSchema(made, (*inputs, *outs), returns))


def functional_variant(function: NativeFunction) -> NativeFunction:
    """The functional variant of an in-place, a mutable or an out function: what was written comes back as new."""
    name, parts = function.name, function.parts
    suffix = "_functional" if function.kind is SchemaKind.MUTABLE else ""
    made = OperatorName(name.namespace, _base(parts) + suffix, name.overload)
    given = [one.alias for one in function.schema.returns]
    itself = () if parts.self_argument is None else (parts.self_argument,)
    written = tuple(
        Argument(f"{one.name}_out", one.type)
        for one in (*itself, *parts.outs, *parts.after_self)
        if is_written(one) and one.alias not in given
    )
    returns = tuple(Argument(one.name, one.type) for one in function.schema.returns)
    inputs = tuple(replace(one, alias=None) for one in (*parts.positional, *parts.by_name))
    return _made(function, FunctionSchema(made, inputs, (*returns, *written)))


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


def _made(function: NativeFunction, schema: FunctionSchema) -> NativeFunction:
    parts = parts_of(schema)
    kind = kind_of_schema(parts)
    name = schema.name
    kernel = native_name(schema, parts)
    if kind is SchemaKind.OUT:
        kernel = f"{name.name}_{name.overload}" if name.overload else name.name
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
        place=function.place,
    )
