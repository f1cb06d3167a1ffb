"""Rules of native_functions.yaml: about one schema, the fields of one entry, and one function beside the others.

The rules keep the variants of an operator recognisable, so that they can be grouped and generated.
Source: torchgen/model.py (`FunctionSchema.__post_init__`, `Arguments`, `BaseOperatorName.parse`,
`NativeFunction.__post_init__`), torchgen/gen.py (`error_check_native_functions`).
"""

from __future__ import annotations

import keyword
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from dispatchlab.codegen.read.fields import (
    CONST_REF,
    DEVICE_CHECK,
    DEVICE_GUARD,
    PYTHON_MODULE,
    STRUCTURED,
    STRUCTURED_DELEGATE,
    STRUCTURED_INHERITS,
    TAGS,
    VARIANTS,
    Fields,
)
from dispatchlab.codegen.read.native_function import DeviceCheck, NativeFunction, Variant
from dispatchlab.codegen.read.problems import Rule
from dispatchlab.codegen.read.schema_parts import SchemaKind, SchemaParts, innermost, options_stand_at
from dispatchlab.errors import did_you_mean
from dispatchlab.model.names import OperatorName
from dispatchlab.model.schema import TENSOR, AliasInfo, Argument, ClassType, FunctionSchema, SimpleType


class BrokenRule(NamedTuple):
    """A rule that a schema breaks.

    Args:
        rule: the rule.
        message: the problem and the expectation.
        hint: what to do next; may be empty.
        culprit: the part of the schema text to point at; empty for all of it.
    """

    rule: Rule
    message: str
    hint: str = ""
    culprit: str = ""


_TYPES = frozenset(
    (
        *("Generator", "ScalarType", "Tensor", "int", "float", "str", "bool", "Layout", "Device", "DeviceIndex"),
        *("Scalar", "MemoryFormat", "QScheme", "Storage", "Stream", "SymInt", "SymBool"),
    )
)
_KEYWORDS = frozenset(keyword.kwlist)
_MAY_SAY_FROM = frozenset(("_has_compatible_shallow_copy_type", "random_.from", "uniform_"))


def broken_rules(schema: FunctionSchema, parts: SchemaParts, kind: SchemaKind) -> Iterator[BrokenRule]:
    """Return the rules that a schema breaks, usually none."""
    # NB: thousands of schemas are read at once, so the common case does not enter a generator
    base = parts.name
    names = [argument.name for argument in schema.arguments]
    if base.dunder or base.functional or schema.name.name.endswith("_out") or not _KEYWORDS.isdisjoint(names):
        yield from _names(schema, parts)
    if not all(_is_plain(one) for one in schema.arguments) or not all(_is_plain(one) for one in schema.returns):
        yield from _types(schema)
    if schema.is_vararg or schema.is_varret:
        message = "found '...', but a native function lists what it takes and gives"
        yield BrokenRule(Rule.UNKNOWN_TYPE, message, culprit="...")
    if parts.outs or parts.before_self or parts.options or schema.name.overload:
        yield from _arguments(schema, parts, kind)
    if not (parts.outs or base.inplace or any(one.alias is not None for one in schema.returns)):
        return
    if parts.outs and base.inplace:
        yield BrokenRule(
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


def _names(schema: FunctionSchema, parts: SchemaParts) -> Iterator[BrokenRule]:
    name = schema.name.name
    if name.endswith("_out"):
        yield BrokenRule(
            Rule.OUT_SUFFIX,
            f"the name {name} ends in '_out', which is reserved",
            f"make it an overload: {name.removesuffix('_out')}.out",
            name,
        )
    base = parts.name
    if base.dunder and not base.inplace and base.base.startswith("i"):
        yield BrokenRule(
            Rule.DUNDER_NAME,
            f"{name} starts like an in-place method, and Python has no such method",
            "in place are __iadd__, __isub__, __imul__, __idiv__, __imod__, __ipow__, __ilshift__, __irshift__, "
            "__iand__, __ixor__ and __ior__",
            name,
        )
    if base.functional and base.inplace:
        yield BrokenRule(
            Rule.FUNCTIONAL_NAME,
            f"{name} is the functional variant of a mutable operator by its suffix and in place by its underscore",
            "take one of the two off",
            name,
        )
    may_say_from = str(schema.name.without_namespace) in _MAY_SAY_FROM
    for argument in schema.arguments:
        if argument.name in _KEYWORDS and not (argument.name == "from" and may_say_from):
            yield BrokenRule(
                Rule.RESERVED_ARGUMENT,
                f"the argument {argument.name} has a name that Python reserves, so that it cannot be passed by name",
                f"call it {argument.name}_, or something better",
                argument.name,
            )


def _types(schema: FunctionSchema) -> Iterator[BrokenRule]:
    for one in (*schema.arguments, *schema.returns):
        kind = innermost(one.type)
        if not isinstance(kind, ClassType) and not (isinstance(kind, SimpleType) and kind.name in _TYPES):
            yield BrokenRule(
                Rule.UNKNOWN_TYPE,
                f"{one.name or 'a return'} is of type {one.type}, which native functions do not have",
                f"they have {', '.join(sorted(_TYPES))}, classes, and optionals and lists of those",
                str(innermost(one.type)),
            )
        for info in () if one.alias is None else (one.alias, *one.alias.contained):
            if len(info.before) > 1 and (info.is_write or (len(info.after) > 1 and info.after != info.before)):
                what = "written" if info.is_write else "in several sets afterwards"
                yield BrokenRule(
                    Rule.ALIAS_SETS,
                    f"{one.name or 'a return'} is in {len(info.before)} alias sets, {info}, and {what}",
                    "a value that is written, or that changes its sets, is in one set before",
                    one.name,
                )


def _is_plain(one: Argument) -> bool:
    type_ = one.type
    return one.alias is None and type(type_) is SimpleType and type_.name in _TYPES


def _arguments(schema: FunctionSchema, parts: SchemaParts, kind: SchemaKind) -> Iterator[BrokenRule]:
    if parts.outs:
        order = [argument for argument in schema.arguments if argument.kwarg_only]
        first = order.index(parts.outs[0])
        for argument in order[first:]:
            if not argument.is_written:
                yield BrokenRule(
                    Rule.ARGUMENT_AFTER_OUT,
                    f"{argument.name} is not written and stands after the out= argument {parts.outs[0].name}",
                    "out= arguments come last",
                    argument.name,
                )
    for argument in parts.before_self:
        if argument.is_written:
            yield BrokenRule(
                Rule.WRITTEN_BEFORE_SELF,
                f"{argument.name} is written and stands before self",
                "put self first, or make it an out= argument",
                argument.name,
            )
    if parts.options:
        if kind is not SchemaKind.FUNCTIONAL:
            yield BrokenRule(
                Rule.OPTIONS_VARIANT,
                f"this is an {kind} function and takes dtype, layout, device and pin_memory",
                "only functions that make tensors take them: leave them out",
                "dtype",
            )
        keywords = [argument for argument in schema.arguments if argument.kwarg_only]
        if any(options_stand_at(keywords, at) for at in range(parts.options_at + 4, len(keywords))):
            yield BrokenRule(
                Rule.OPTIONS_TWICE,
                "dtype, layout, device and pin_memory stand there twice",
                "leave one of the two out",
                "pin_memory",
            )
    if "functional" in schema.name.overload and kind is not SchemaKind.FUNCTIONAL:
        yield BrokenRule(
            Rule.FUNCTIONAL_OVERLOAD,
            f"the overload {schema.name.overload} is called functional, and this is an {kind} function",
            "choose another overload name: the word is for functional variants",
            schema.name.overload,
        )


def _returns(schema: FunctionSchema, parts: SchemaParts) -> Iterator[BrokenRule]:
    aliases = [one.alias for one in schema.returns]
    for out, one in zip(parts.outs, schema.returns, strict=False):
        if out.alias != one.alias:
            yield BrokenRule(
                Rule.OUT_RETURN_DIFFERS,
                f"the out= argument {out.name} is {_with_alias(out)} and the return in its place is {one}",
                f"return {_with_alias(out)} there, in the order of the out= arguments",
                out.name,
            )
    for argument in parts.after_self:
        if argument.is_written and argument.alias in aliases:
            yield BrokenRule(
                Rule.WRITTEN_ARGUMENT_RETURNED,
                f"{argument.name} is written and returned, which only self and out= arguments may be",
                "do not return it, or make it keyword-only",
                argument.name,
            )
    written = [one for one in schema.returns if one.is_written]
    if written and len(written) < len(schema.returns):
        yield BrokenRule(
            Rule.MIXED_RETURNS,
            f"{schema.name.name} returns {len(written)} written and {len(schema.returns) - len(written)} new",
            "return the new ones alone",
        )
    known: list[AliasInfo | None] = [out.alias for out in parts.outs]
    known += [one.alias for one in parts.positional if one.name == "self"]
    for one in written:
        # NB: a written argument that is returned is reported above
        if one.alias not in known and not any(one.alias == other.alias for other in parts.after_self):
            yield BrokenRule(
                Rule.UNMATCHED_RETURN,
                f"the return {one} is written, and neither self nor an out= argument is {_with_alias(one)}",
                "mark the out= argument as keyword-only, behind a '*'",
            )


def _outs(schema: FunctionSchema, parts: SchemaParts) -> Iterator[BrokenRule]:
    if any(out.type != TENSOR for out in parts.outs):
        if schema.returns:
            yield BrokenRule(
                Rule.OUT_LIST_RETURNS,
                f"the out= arguments are not all plain tensors, and {len(schema.returns)} values are returned",
                "return nothing, '-> ()': only plain tensors are returned for chaining",
            )
        return
    count = sum(not out.name.startswith("_scratch_") for out in parts.outs)
    if count != len(schema.returns):
        yield BrokenRule(
            Rule.OUT_COUNT,
            f"there are {count} out= arguments that are not scratch, and {len(schema.returns)} returns",
            "return each of them, in order",
        )


def _inplace(schema: FunctionSchema, parts: SchemaParts) -> Iterator[BrokenRule]:
    itself = parts.self_argument
    if itself is None or not itself.is_written:
        found = "it has no self" if itself is None else f"its self is {itself.type}, which is not written"
        yield BrokenRule(
            Rule.INPLACE_SELF,
            f"{schema.name.name} is in place by its name, and {found}",
            "write Tensor(a!) self, or take the underscore off",
            "self" if itself else schema.name.name,
        )
    elif itself.type == TENSOR:
        if len(schema.returns) != 1 or schema.returns[0].alias != itself.alias:
            yield BrokenRule(
                Rule.INPLACE_RETURN,
                f"{schema.name.name} is in place and does not return self",
                f"return {_with_alias(itself)}",
            )
    elif schema.returns:
        yield BrokenRule(
            Rule.INPLACE_LIST_RETURN,
            f"{schema.name.name} writes self, which is {itself.type}, and returns something",
            "return nothing, '-> ()': only plain tensors are returned for chaining",
        )


def _with_alias(argument: Argument) -> str:
    return str(Argument("", argument.type, None, kwarg_only=False, alias=argument.alias))


def check_fields(fields: Fields, function: NativeFunction, tags: frozenset[str]) -> None:
    """Report fields that contradict the schema or each other."""
    parts, name = function.parts, function.short_name
    if parts.outs:
        if Variant.METHOD in function.variants:
            fields.report_field(
                Rule.OUT_METHOD,
                VARIANTS,
                f"{name} has out= arguments and is a method",
                "only functions take out=: write `variants: function`",
            )
        if function.use_const_ref_for_mutable_tensors:
            fields.report_field(
                Rule.CONST_REF_OUT,
                CONST_REF,
                f"{name} has out= arguments, which are never const references",
                "leave it out",
            )
    if function.python_module is not None and Variant.METHOD in function.variants:
        fields.report_field(
            Rule.MODULE_METHOD,
            PYTHON_MODULE,
            f"{name} is a function of the module {function.python_module} and a method of tensors",
            "write `variants: function`, or leave the module out",
        )
    if function.structured:
        if function.kind is not SchemaKind.OUT:
            fields.report_field(
                Rule.STRUCTURED_VARIANT,
                STRUCTURED,
                f"{name} is the {function.kind} variant, and the out variant is the structured one",
                "write `structured_delegate:` with the name of the out variant",
            )
        if parts.options:
            fields.report_field(
                Rule.STRUCTURED_OPTIONS,
                STRUCTURED,
                f"{name} takes tensor options, and structured functions take none",
            )
    if function.structured_delegate is not None and function.kind is SchemaKind.OUT:
        fields.report_field(
            Rule.DELEGATE_VARIANT,
            STRUCTURED_DELEGATE,
            f"{name} is the out variant, to which the others delegate",
            "write `structured: True`",
        )
    if function.in_structured_group and not function.device_guard:
        fields.report_field(
            Rule.STRUCTURED_DEVICE_GUARD,
            DEVICE_GUARD,
            "structured kernels guard the device themselves, whatever device_guard says",
            "leave it out",
        )
    if function.structured_inherits is not None and not function.structured:
        fields.report_field(
            Rule.INHERITS_UNSTRUCTURED,
            STRUCTURED_INHERITS,
            f"{name} is not structured and has no meta class that could inherit from {function.structured_inherits}",
            "write it at the out variant, beside `structured: True`",
        )
    if name.startswith("_foreach") and function.device_check is not DeviceCheck.NO_CHECK:
        fields.report_field(
            Rule.FOREACH_DEVICE_CHECK,
            DEVICE_CHECK,
            f"{name} takes the slow path when its tensors are on different devices, so nothing may check for that",
            "add `device_check: NoCheck`",
        )
    if "nondeterministic_seeded" in tags and "nondeterministic_seeded" not in function.tags and _is_random(function):
        fields.report_field(
            Rule.SEEDED_TAG,
            TAGS,
            f"{name} looks random, by its name or by a generator among its arguments",
            "add `tags: nondeterministic_seeded`",
        )
    if function.is_view and parts.name.inplace and "inplace_view" not in function.tags:
        fields.report_field(
            Rule.INPLACE_VIEW_TAG,
            TAGS,
            f"{name} changes in place what the tensor is a view of",
            "add `tags: inplace_view`",
        )


def _is_random(function: NativeFunction) -> bool:
    name = function.short_name
    if "rand" in name or any(innermost(one.type) == SimpleType("Generator") for one in function.parts.inputs):
        return True
    drops = "dropout" in name or any("dropout" in argument.name for argument in function.schema.arguments)
    return drops and "backward" not in name and function.schema.name.name != "_cudnn_init_dropout_state"


_NOT_VIEWS = frozenset(("resize_", "resize_as_"))


def check_functions(functions: Sequence[NativeFunction], entries: Mapping[OperatorName, Fields]) -> None:
    """Report the mistakes of each function beside the others, at the fields that it was read from."""
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
    shown = str(delegate.without_namespace)
    if found is None:
        near = did_you_mean(shown, [each.short_name for each in by_name.values() if each.structured])
        fields.report_field(
            Rule.NO_DELEGATE,
            STRUCTURED_DELEGATE,
            f"{function.short_name} delegates to {shown}, which is not in the file",
            near.removeprefix("; ") or "name the out variant of the operator",
        )
    elif not found.structured:
        fields.report_field(
            Rule.DELEGATE_UNSTRUCTURED,
            STRUCTURED_DELEGATE,
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
            TAGS,
            f"{name} is tagged inplace_view and is not in place by its name",
            "add an underscore to the name, or take the tag off",
        )
        return
    alone = f"__{base.base}__" if base.dunder else base.base
    if (alone, False) not in bases:
        fields.report_field(
            Rule.INPLACE_VIEW_ALONE,
            TAGS,
            f"{name} is tagged inplace_view, and there is no view {alone} that is not in place",
            f"add {alone}",
        )
