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
from dispatchlab.codegen.read.rules import broken_rules, check_fields
from dispatchlab.codegen.read.schema_parts import SchemaParts, kind_of_schema, parts_of
from dispatchlab.errors import ParseError, did_you_mean
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import SourceLocation
from dispatchlab.model.schema import FunctionSchema
from dispatchlab.model.schema_parser import parse_name, parse_schema
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
    for rule, message, hint, culprit in broken_rules(schema, parts, kind):
        fields.report(rule, node, message, hint, column=_column_of(node, culprit))
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
    check_fields(fields, function, tags)
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


def _column_of(node: Scalar, culprit: str) -> int | None:
    found = re.search(rf"(?<!\w){re.escape(culprit)}(?!\w)", node.text) if culprit else None
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
    node = _bare(fields, field, wanted)
    if node is None:
        return None
    if not node.text.isidentifier():
        fields.report(Rule.UNREADABLE_NAME, node, f"{field} is {quoted(node.text)}, and should be {wanted}")
        return None
    return node.text


def _name(fields: Fields, field: str, schema: FunctionSchema) -> OperatorName | None:
    node = _bare(fields, field, "the name of an operator")
    return None if node is None else _operator(fields, node, node.text, 0, schema)


def _bare(fields: Fields, field: str, wanted: str) -> Scalar | None:
    """The text of a field that is a name without a namespace."""
    node = fields.scalar(field, wanted)
    if node is not None and "::" in node.text:
        message = f"{field} is {quoted(node.text)}, with a namespace"
        hint = "leave the namespace out: it is that of the function itself"
        fields.report(Rule.NAMESPACE_IN_NAME, node, message, hint)
        return None
    return node


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
