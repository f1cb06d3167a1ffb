"""Read one entry of native_functions.yaml: a `NativeFunction`, or the problems that it has.

Source: torchgen/model.py (`NativeFunction.from_yaml`, `NativeFunction.__post_init__`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping as Dictionary
from enum import StrEnum
from typing import TypeVar

from dispatchlab.codegen.read.fields import Fields
from dispatchlab.codegen.read.kernel_fields import read_dispatch, read_precomputed, read_ufunc, with_ufunc_kernels
from dispatchlab.codegen.read.native_function import DeviceCheck, NativeFunction, Variant, shares_memory
from dispatchlab.codegen.read.problems import Rule
from dispatchlab.codegen.read.rules import broken_rules
from dispatchlab.codegen.read.schema_parts import SchemaKind, SchemaParts, innermost, kind_of_schema, parts_of
from dispatchlab.errors import ParseError, did_you_mean
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import SourceLocation
from dispatchlab.model.schema import FunctionSchema
from dispatchlab.model.schema_parser import parse_name, parse_schema
from dispatchlab.model.schema_types import SimpleType
from dispatchlab.yaml_tree import Listing, Scalar, quoted

DEFAULT_NAMESPACE = "aten"
_FUNCTION = frozenset((Variant.FUNCTION,))
_IMPLICIT = frozenset((DispatchKey.CompositeImplicitAutograd, DispatchKey.CompositeImplicitAutogradNestedTensor))


def read_entry(fields: Fields, tags: frozenset[str]) -> NativeFunction | None:
    """The function of one entry; None when its schema cannot be read. Problems go to `fields`."""
    node = fields.scalar("func", "the schema of an operator")
    schema = None if node is None else _schema(fields, node)
    if node is None or schema is None:
        return None
    parts = parts_of(schema)
    kind = kind_of_schema(parts)
    for rule, message, hint, word in broken_rules(schema, parts, kind):
        fields.report(rule, node, message, hint, column=_column_of(node, word))
    given = fields.nodes
    structured = "structured" in given and fields.flag("structured")
    delegate = _name(fields, "structured_delegate", schema) if "structured_delegate" in given else None
    manual = "manual_kernel_registration" in given and fields.flag("manual_kernel_registration")
    kernels = read_dispatch(fields, schema, parts, structured=structured, delegates=delegate is not None, manual=manual)
    loops = read_ufunc(fields, structured=structured) if "ufunc_inner_loop" in given else ()
    if loops:
        kernels = with_ufunc_kernels(fields, schema, kernels)
    all_tags = _tags(fields, parts, schema, tags)
    function = NativeFunction(
        schema=schema,
        parts=parts,
        kind=kind,
        dispatch=kernels,
        variants=_variants(fields) if "variants" in given else _FUNCTION,
        structured=structured,
        structured_delegate=delegate,
        structured_inherits=_plain_name(fields, "structured_inherits", "the name of a class"),
        precomputed=read_precomputed(fields, parts, structured=structured) if "precomputed" in given else None,
        autogen=_autogen(fields, schema) if "autogen" in given else (),
        ufunc_inner_loop=loops,
        manual_kernel_registration=manual,
        manual_cpp_binding="manual_cpp_binding" in given and fields.flag("manual_cpp_binding"),
        python_module=fields.text("python_module", "the name of a module") if "python_module" in given else None,
        category_override=fields.text("category_override", "a category") if "category_override" in given else None,
        device_guard="device_guard" not in given or fields.flag("device_guard"),
        device_check=_device_check(fields) if "device_check" in given else DeviceCheck.EXACT_SAME,
        cpp_no_default_args=_no_default_arguments(fields, schema),
        use_const_ref_for_mutable_tensors=fields.flag("use_const_ref_for_mutable_tensors"),
        tags=all_tags,
        is_abstract=delegate is not None or not kernels or any(one.key not in _IMPLICIT for one in kernels),
        is_view=shares_memory(schema, parts, all_tags),
        location=SourceLocation(fields.file, node.line, node.column),
    )
    _check(fields, function, tags)
    return function


def _schema(fields: Fields, node: Scalar) -> FunctionSchema | None:
    try:
        schema = parse_schema(node.text)
    except ParseError as error:
        fields.report(Rule.UNREADABLE_SCHEMA, node, error.sentence, column=node.column_of(error.at))
        return None
    name = schema.name
    if name.namespace:
        return schema
    inside = OperatorName(DEFAULT_NAMESPACE, name.name, name.overload)
    return FunctionSchema(inside, schema.arguments, schema.returns, schema.is_vararg, schema.is_varret)


def _column_of(node: Scalar, word: str) -> int | None:
    found = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", node.text) if word else None
    return node.column_of(found.start()) if found else None


def _variants(fields: Fields) -> frozenset[Variant]:
    node = fields.scalar("variants", "function, method, or both")
    if node is None:
        return _FUNCTION
    found = _VARIANTS.get(node.text)
    if found is not None:
        return found
    words = [word.strip() for word in node.text.split(",")]
    read = [_one_of(fields, node, word, _VARIANT_WORDS, "variant") for word in words]
    return frozenset(one for one in read if one is not None)


_VARIANT_WORDS = {str(each): each for each in Variant}
_VARIANTS = {
    text: frozenset(map(Variant, text.split(", ")))
    for text in ("function", "method", "function, method", "method, function")
}
_DEVICE_CHECKS = {str(each): each for each in DeviceCheck}
E_co = TypeVar("E_co", bound=StrEnum)


def _one_of(fields: Fields, node: Scalar, word: str, known: Dictionary[str, E_co], what: str) -> E_co | None:
    if word in known:
        return known[word]
    near = did_you_mean(word, known).removeprefix("; ")
    fields.report(
        Rule.UNKNOWN_WORD, node, f"{quoted(word)} is no {what}: expected one of {', '.join(sorted(known))}", near
    )
    return None


def _device_check(fields: Fields) -> DeviceCheck:
    node = fields.scalar("device_check", "NoCheck or ExactSame")
    found = None if node is None else _one_of(fields, node, node.text, _DEVICE_CHECKS, "device_check")
    return DeviceCheck.EXACT_SAME if found is None else found


def _plain_name(fields: Fields, field: str, wanted: str) -> str | None:
    node = fields.scalar(field, wanted)
    if node is None:
        return None
    if "::" in node.text:
        message = f"{field} is {quoted(node.text)}, with a namespace"
        fields.report(
            Rule.NAMESPACE_IN_NAME, node, message, "leave the namespace out: it is that of the function itself"
        )
        return None
    if not node.text.isidentifier():
        fields.report(Rule.UNREADABLE_NAME, node, f"{field} is {quoted(node.text)}, and should be {wanted}")
        return None
    return node.text


def _name(fields: Fields, field: str, schema: FunctionSchema) -> OperatorName | None:
    node = fields.scalar(field, "the name of an operator")
    if node is None:
        return None
    if "::" in node.text:
        fields.report(
            Rule.NAMESPACE_IN_NAME,
            node,
            f"{field} is {quoted(node.text)}, with a namespace",
            "leave the namespace out: it is that of the function itself",
        )
        return None
    return _operator(fields, node, node.text, 0, schema)


def _operator(fields: Fields, node: Scalar, text: str, at: int, schema: FunctionSchema) -> OperatorName | None:
    try:
        return parse_name(text).within(schema.name.namespace)
    except ParseError as error:
        message = f"{quoted(text)} is no name of an operator: {error.sentence}"
        fields.report(Rule.UNREADABLE_NAME, node, message, column=node.column_of(at + error.at))
        return None


def _autogen(fields: Fields, schema: FunctionSchema) -> tuple[OperatorName, ...]:
    node = fields.scalar("autogen", "names of operators with commas between them")
    if node is None:
        return ()
    found: list[OperatorName] = []
    at = 0
    for part in node.text.split(","):
        start = at + len(part) - len(part.lstrip())
        at += len(part) + 1
        name = _operator(fields, node, part.strip(), start, schema)
        if name is not None:
            found.append(name)
    return tuple(found)


def _no_default_arguments(fields: Fields, schema: FunctionSchema) -> frozenset[str]:
    node = fields.nodes.get("cpp_no_default_args")
    if node is None:
        return frozenset()
    if not isinstance(node, Listing):
        fields.report(Rule.WRONG_VALUE, node, "cpp_no_default_args should be a list of names of arguments")
        return frozenset()
    words = fields.words("cpp_no_default_args", "a list of names of arguments")
    having = [argument.name for argument in schema.arguments if argument.default is not None]
    for word in words:
        if word.text not in having:
            is_one = any(argument.name == word.text for argument in schema.arguments)
            found = "has no default" if is_one else "is no argument of the function"
            fields.report(
                Rule.NO_DEFAULT_TO_OMIT,
                word,
                f"{word.text} {found}, so there is none to leave out in C++",
                f"those with defaults are {', '.join(having)}" if having else "no argument has a default",
            )
    return frozenset(word.text for word in words)


def _tags(fields: Fields, parts: SchemaParts, schema: FunctionSchema, known: frozenset[str]) -> frozenset[str]:
    found: set[str] = set()
    words = fields.words("tags", "a tag, or a list of tags") if "tags" in fields.nodes else ()
    for word in words:
        if word.text in known:
            found.add(word.text)
        else:
            hint = did_you_mean(word.text, sorted(known)).removeprefix("; ") or "tags.yaml lists those that there are"
            fields.report(Rule.UNKNOWN_TAG, word, f"{quoted(word.text)} is no tag", hint)
    # NB: these three are not written down, every function of the kind has them
    if schema.name.namespace == DEFAULT_NAMESPACE:
        found.add("pt2_compliant_tag")
    if parts.outs:
        found.add("out")
    if parts.name.inplace:
        found.add("inplace")
    return frozenset(found & known)


def _check(fields: Fields, function: NativeFunction, tags: frozenset[str]) -> None:
    """The rules about fields that contradict the schema or each other."""
    parts, name = function.parts, function.short_name
    if parts.outs:
        if Variant.METHOD in function.variants:
            fields.report_field(
                Rule.OUT_METHOD,
                "variants",
                f"{name} has out= arguments and is a method",
                "only functions take out=: write `variants: function`",
            )
        if function.use_const_ref_for_mutable_tensors:
            fields.report_field(
                Rule.CONST_REF_OUT,
                "use_const_ref_for_mutable_tensors",
                f"{name} has out= arguments, which are never const references",
                "leave it out",
            )
    if function.python_module is not None and Variant.METHOD in function.variants:
        fields.report_field(
            Rule.MODULE_METHOD,
            "python_module",
            f"{name} is a function of the module {function.python_module} and a method of tensors",
            "write `variants: function`, or leave the module out",
        )
    if function.structured:
        if function.kind is not SchemaKind.OUT:
            fields.report_field(
                Rule.STRUCTURED_VARIANT,
                "structured",
                f"{name} is the {function.kind} variant, and the out variant is the structured one",
                "write `structured_delegate:` with the name of the out variant",
            )
        if parts.options:
            fields.report_field(
                Rule.STRUCTURED_OPTIONS,
                "structured",
                f"{name} takes tensor options, and structured functions take none",
            )
    if function.structured_delegate is not None and function.kind is SchemaKind.OUT:
        fields.report_field(
            Rule.DELEGATE_VARIANT,
            "structured_delegate",
            f"{name} is the out variant, to which the others delegate",
            "write `structured: True`",
        )
    if function.in_structured_group and not function.device_guard:
        fields.report_field(
            Rule.STRUCTURED_DEVICE_GUARD,
            "device_guard",
            "structured kernels guard the device themselves, whatever device_guard says",
            "leave it out",
        )
    if function.structured_inherits is not None and not function.structured:
        fields.report_field(
            Rule.INHERITS_UNSTRUCTURED,
            "structured_inherits",
            f"{name} is not structured and has no meta class that could inherit from {function.structured_inherits}",
            "write it at the out variant, beside `structured: True`",
        )
    if name.startswith("_foreach") and function.device_check is not DeviceCheck.NO_CHECK:
        fields.report_field(
            Rule.FOREACH_DEVICE_CHECK,
            "device_check",
            f"{name} takes the slow path when its tensors are on different devices, so nothing may check for that",
            "add `device_check: NoCheck`",
        )
    if "nondeterministic_seeded" in tags and "nondeterministic_seeded" not in function.tags and _is_random(function):
        fields.report_field(
            Rule.SEEDED_TAG,
            "tags",
            f"{name} looks random, by its name or by a generator among its arguments",
            "add `tags: nondeterministic_seeded`",
        )
    if function.is_view and parts.name.inplace and "inplace_view" not in function.tags:
        fields.report_field(
            Rule.INPLACE_VIEW_TAG,
            "tags",
            f"{name} changes in place what the tensor is a view of",
            "add `tags: inplace_view`",
        )


def _is_random(function: NativeFunction) -> bool:
    name = function.short_name
    if "rand" in name or any(innermost(one.type) == SimpleType("Generator") for one in function.parts.inputs):
        return True
    drops = "dropout" in name or any("dropout" in one.name for one in function.schema.arguments)
    return drops and "backward" not in name and function.schema.name.name != "_cudnn_init_dropout_state"
