"""Rules of native_functions.yaml: about one schema, and about one function beside the others of its file.

The rules keep the variants of an operator recognisable, so that they can be grouped and generated.
Source: torchgen/model.py (`FunctionSchema.__post_init__`, `Arguments`, `BaseOperatorName.parse`).

Source: torchgen/gen.py (`error_check_native_functions`).
"""

from __future__ import annotations

import keyword
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from dispatchlab.codegen.read.fields import Fields
from dispatchlab.codegen.read.native_function import NativeFunction
from dispatchlab.codegen.read.problems import Rule
from dispatchlab.codegen.read.schema_parts import SchemaKind, SchemaParts, innermost, is_written, options_stand_at
from dispatchlab.errors import did_you_mean
from dispatchlab.model.names import OperatorName
from dispatchlab.model.schema import AliasInfo, Argument, FunctionSchema
from dispatchlab.model.schema_types import TENSOR, ClassType, SimpleType, Type


class Broken(NamedTuple):
    """A broken rule, told of a schema.

    Args:
        rule: the rule.
        message: what was found and what was expected.
        hint: what to do next; may be empty.
        word: the word of the schema text to point at; empty for all of it.
    """

    rule: Rule
    message: str
    hint: str = ""
    word: str = ""


_TYPES = frozenset(
    (
        *("Generator", "ScalarType", "Tensor", "int", "float", "str", "bool", "Layout", "Device", "DeviceIndex"),
        *("Scalar", "MemoryFormat", "QScheme", "Storage", "Stream", "SymInt", "SymBool"),
    )
)
_KEYWORDS = frozenset(keyword.kwlist)
_MAY_SAY_FROM = frozenset(("_has_compatible_shallow_copy_type", "random_.from", "uniform_"))


def broken_rules(schema: FunctionSchema, parts: SchemaParts, kind: SchemaKind) -> Iterator[Broken]:
    """The rules that a schema breaks, most of the time none."""
    # NB: thousands of schemas are read at once, so the common case does not enter a generator
    base = parts.name
    names = [argument.name for argument in schema.arguments]
    if base.dunder or base.functional or schema.name.name.endswith("_out") or not _KEYWORDS.isdisjoint(names):
        yield from _names(schema, parts)
    if not all(_is_plain(one) for one in schema.arguments) or not all(_is_plain(one) for one in schema.returns):
        yield from _types(schema)
    if schema.is_vararg or schema.is_varret:
        yield Broken(Rule.UNKNOWN_TYPE, "found '...', but a native function lists what it takes and gives", "", "...")
    if parts.outs or parts.before_self or parts.options or schema.name.overload:
        yield from _arguments(schema, parts, kind)
    if not (parts.outs or base.inplace or any(one.alias is not None for one in schema.returns)):
        return
    if parts.outs and base.inplace:
        yield Broken(
            Rule.OUT_AND_INPLACE,
            f"{schema.name.name} ends in an underscore, as an in-place variant does, and has an out= argument",
            "write two functions, one in place and one with overload name 'out'",
            parts.outs[0].name,
        )
        return
    yield from _returns(schema, parts)
    if parts.outs:
        yield from _outs(schema, parts)
    if parts.name.inplace:
        yield from _inplace(schema, parts)


def _names(schema: FunctionSchema, parts: SchemaParts) -> Iterator[Broken]:
    name = schema.name.name
    if name.endswith("_out"):
        yield Broken(
            Rule.OUT_SUFFIX,
            f"the name {name} ends in '_out', which is reserved",
            f"make it an overload: {name.removesuffix('_out')}.out",
            name,
        )
    base = parts.name
    if base.dunder and not base.inplace and base.base.startswith("i"):
        yield Broken(
            Rule.DUNDER_NAME,
            f"{name} starts like an in-place method, and Python has no such method",
            "in place are __iadd__, __isub__, __imul__, __idiv__, __imod__, __ipow__, __ilshift__, __irshift__, "
            "__iand__, __ixor__ and __ior__",
            name,
        )
    if base.functional and base.inplace:
        yield Broken(
            Rule.FUNCTIONAL_NAME,
            f"{name} is the functional variant of a mutable operator by its suffix and in place by its underscore",
            "take one of the two off",
            name,
        )
    for argument in schema.arguments:
        if argument.name in _KEYWORDS and not (argument.name == "from" and _short(schema) in _MAY_SAY_FROM):
            yield Broken(
                Rule.RESERVED_ARGUMENT,
                f"the argument {argument.name} has a name that Python reserves, so nobody can pass it by name",
                f"call it {argument.name}_, or something better",
                argument.name,
            )


def _types(schema: FunctionSchema) -> Iterator[Broken]:
    for one in (*schema.arguments, *schema.returns):
        if not _is_known(innermost(one.type)):
            yield Broken(
                Rule.UNKNOWN_TYPE,
                f"{one.name or 'a return'} is of type {one.type}, which native functions do not have",
                f"they have {', '.join(sorted(_TYPES))}, classes, and optionals and lists of those",
                str(innermost(one.type)),
            )
        for info in () if one.alias is None else (one.alias, *one.alias.contained):
            if len(info.before) > 1 and (info.is_write or (len(info.after) > 1 and info.after != info.before)):
                what = "written" if info.is_write else "in several sets afterwards"
                yield Broken(
                    Rule.ALIAS_SETS,
                    f"{one.name or 'a return'} is in {len(info.before)} alias sets, {info}, and {what}",
                    "a value that is written, or that changes its sets, is in one set before",
                    one.name,
                )


def _is_plain(one: Argument) -> bool:
    type_ = one.type
    return one.alias is None and type(type_) is SimpleType and type_.name in _TYPES


def _is_known(type_: Type) -> bool:
    return isinstance(type_, ClassType) or (isinstance(type_, SimpleType) and type_.name in _TYPES)


def _arguments(schema: FunctionSchema, parts: SchemaParts, kind: SchemaKind) -> Iterator[Broken]:
    if parts.outs:
        order = [argument for argument in schema.arguments if argument.kwarg_only]
        first = order.index(parts.outs[0])
        for argument in order[first:]:
            if not is_written(argument):
                yield Broken(
                    Rule.ARGUMENT_AFTER_OUT,
                    f"{argument.name} is not written and stands after the out= argument {parts.outs[0].name}",
                    "out= arguments come last",
                    argument.name,
                )
    for argument in parts.before_self:
        if is_written(argument):
            yield Broken(
                Rule.WRITTEN_BEFORE_SELF,
                f"{argument.name} is written and stands in front of self",
                "put self first, or make it an out= argument",
                argument.name,
            )
    if parts.options:
        if kind is not SchemaKind.FUNCTIONAL:
            yield Broken(
                Rule.OPTIONS_VARIANT,
                f"this is an {kind} function and takes dtype, layout, device and pin_memory",
                "only functions that make tensors take them: leave them out",
                "dtype",
            )
        keywords = [argument for argument in schema.arguments if argument.kwarg_only]
        if any(options_stand_at(keywords, at) for at in range(parts.options_at + 4, len(keywords))):
            yield Broken(
                Rule.OPTIONS_TWICE,
                "dtype, layout, device and pin_memory stand there twice",
                "leave one of the two out",
                "pin_memory",
            )
    if "functional" in schema.name.overload and kind is not SchemaKind.FUNCTIONAL:
        yield Broken(
            Rule.FUNCTIONAL_OVERLOAD,
            f"the overload {schema.name.overload} is called functional, and this is an {kind} function",
            "choose another overload name: the word is for functional variants",
            schema.name.overload,
        )


def _returns(schema: FunctionSchema, parts: SchemaParts) -> Iterator[Broken]:
    aliases = [one.alias for one in schema.returns]
    for out, one in zip(parts.outs, schema.returns, strict=False):
        if out.alias != one.alias:
            yield Broken(
                Rule.OUT_RETURN_DIFFERS,
                f"the out= argument {out.name} is {_with_alias(out)} and the return in its place is {one}",
                f"return {_with_alias(out)} there, in the order of the out= arguments",
                out.name,
            )
    for argument in parts.after_self:
        if is_written(argument) and argument.alias in aliases:
            yield Broken(
                Rule.WRITTEN_ARGUMENT_RETURNED,
                f"{argument.name} is written and returned, which only self and out= arguments may be",
                "do not return it, or make it keyword-only",
                argument.name,
            )
    written = [one for one in schema.returns if is_written(one)]
    if written and len(written) < len(schema.returns):
        yield Broken(
            Rule.MIXED_RETURNS,
            f"{schema.name.name} returns {len(written)} written and {len(schema.returns) - len(written)} new",
            "return the new ones alone",
        )
    known: list[AliasInfo | None] = [out.alias for out in parts.outs]
    known += [one.alias for one in parts.positional if one.name == "self"]
    for one in written:
        # NB: what an argument that is written gives back is told above
        if one.alias not in known and not any(one.alias == other.alias for other in parts.after_self):
            yield Broken(
                Rule.UNMATCHED_RETURN,
                f"the return {one} is written, and neither self nor an out= argument is {_with_alias(one)}",
                "mark the out= argument as keyword-only, behind a '*'",
            )


def _outs(schema: FunctionSchema, parts: SchemaParts) -> Iterator[Broken]:
    if any(out.type != TENSOR for out in parts.outs):
        if schema.returns:
            yield Broken(
                Rule.OUT_LIST_RETURNS,
                f"the out= arguments are not all plain tensors, and {len(schema.returns)} values are returned",
                "return nothing, '-> ()': only plain tensors are returned for chaining",
            )
        return
    count = sum(not out.name.startswith("_scratch_") for out in parts.outs)
    if count != len(schema.returns):
        yield Broken(
            Rule.OUT_COUNT,
            f"there are {count} out= arguments that are not scratch, and {len(schema.returns)} returns",
            "return each of them, in order",
        )


def _inplace(schema: FunctionSchema, parts: SchemaParts) -> Iterator[Broken]:
    itself = parts.self_argument
    if itself is None or not is_written(itself):
        found = "it has no self" if itself is None else f"its self is {itself.type}, which is not written"
        yield Broken(
            Rule.INPLACE_SELF,
            f"{schema.name.name} is in place by its name, and {found}",
            "write Tensor(a!) self, or take the underscore off",
            "self" if itself else schema.name.name,
        )
    elif itself.type == TENSOR:
        if len(schema.returns) != 1 or schema.returns[0].alias != itself.alias:
            yield Broken(
                Rule.INPLACE_RETURN,
                f"{schema.name.name} is in place and does not return self",
                f"return {_with_alias(itself)}",
            )
    elif schema.returns:
        yield Broken(
            Rule.INPLACE_LIST_RETURN,
            f"{schema.name.name} writes self, which is {itself.type}, and returns something",
            "return nothing, '-> ()': only plain tensors are returned for chaining",
        )


def _with_alias(argument: Argument) -> str:
    return str(Argument("", argument.type, None, kwarg_only=False, alias=argument.alias))


def _short(schema: FunctionSchema) -> str:
    return f"{schema.name.name}.{schema.name.overload}" if schema.name.overload else schema.name.name


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
