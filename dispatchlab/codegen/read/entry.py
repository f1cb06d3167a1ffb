"""Read one entry of native_functions.yaml: a `NativeFunction`, or the problems that it has.

Source: torchgen/model.py (`NativeFunction.from_yaml`, `NativeFunction.__post_init__`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping as Dictionary
from typing import TypeVar

from dispatchlab.codegen.read.fields import (
    AUTOGEN,
    CATEGORY_OVERRIDE,
    CONST_REF,
    CPP_NO_DEFAULT_ARGS,
    DEVICE_CHECK,
    DEVICE_GUARD,
    MANUAL_CPP_BINDING,
    MANUAL_KERNEL_REGISTRATION,
    PYTHON_MODULE,
    STRUCTURED,
    STRUCTURED_DELEGATE,
    STRUCTURED_INHERITS,
    TAGS,
    VARIANTS,
    Fields,
)
from dispatchlab.codegen.read.kernel_fields import read_dispatch, read_precomputed, read_ufunc, with_ufunc_kernels
from dispatchlab.codegen.read.native_function import DeviceCheck, NativeFunction, Variant, shares_memory
from dispatchlab.codegen.read.problems import Rule
from dispatchlab.codegen.read.rules import broken_rules, check_fields
from dispatchlab.codegen.read.schema_parts import SchemaParts, kind_of_schema, parts_of
from dispatchlab.errors import ParseError, did_you_mean
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.schema import FunctionSchema
from dispatchlab.model.schema_parser import parse_name, parse_schema
from dispatchlab.scenario.yaml_fields import Field
from dispatchlab.scenario.yaml_tree import Scalar, quoted

DEFAULT_NAMESPACE = "aten"
_FUNCTION = frozenset((Variant.FUNCTION,))
_IMPLICIT = frozenset((DispatchKey.CompositeImplicitAutograd, DispatchKey.CompositeImplicitAutogradNestedTensor))


def read_entry(fields: Fields, tags: frozenset[str]) -> NativeFunction | None:
    """Return the function of one entry; None if its schema cannot be read. Problems are added to `fields`."""
    node = fields.func
    schema = _schema(fields, node)
    if schema is None:
        return None
    parts = parts_of(schema)
    kind = kind_of_schema(parts)
    for rule, message, hint, culprit in broken_rules(schema, parts, kind):
        found = re.search(rf"(?<!\w){re.escape(culprit)}(?!\w)", node.text) if culprit else None
        fields.report(rule, node, message, hint, column=node.column_of(found.start()) if found else None)
    structured = fields.get(STRUCTURED, False)
    named = _bare(fields, STRUCTURED_DELEGATE)
    delegate = None if named is None else _operator(fields, named, named.text, 0, schema)
    manual = fields.get(MANUAL_KERNEL_REGISTRATION, False)
    kernels = read_dispatch(fields, schema, parts, structured=structured, delegates=delegate is not None, manual=manual)
    loops = read_ufunc(fields, structured=structured)
    if loops:
        kernels = with_ufunc_kernels(fields, schema, kernels)
    all_tags = _tags(fields, parts, schema, tags)
    function = NativeFunction(
        schema=schema,
        parts=parts,
        kind=kind,
        dispatch=kernels,
        variants=_variants(fields),
        structured=structured,
        structured_delegate=delegate,
        structured_inherits=_inherits(fields),
        precomputed=read_precomputed(fields, parts, structured=structured),
        autogen=_autogen(fields, schema),
        ufunc_inner_loop=loops,
        manual_kernel_registration=manual,
        manual_cpp_binding=fields.get(MANUAL_CPP_BINDING, False),
        python_module=fields.get(PYTHON_MODULE),
        category_override=fields.get(CATEGORY_OVERRIDE),
        device_guard=fields.get(DEVICE_GUARD, True),
        device_check=_device_check(fields),
        cpp_no_default_args=_no_default_arguments(fields, schema),
        use_const_ref_for_mutable_tensors=fields.get(CONST_REF, False),
        tags=all_tags,
        is_abstract=delegate is not None or not kernels or any(kernel.key not in _IMPLICIT for kernel in kernels),
        is_view=shares_memory(schema, parts, all_tags),
        text=node.text,
        location=fields.location(node),
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


def _variants(fields: Fields) -> frozenset[Variant]:
    node = fields.get(VARIANTS)
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
META_BASES = {name: name for name in ("MetaBase", "TensorIteratorBase")}
"""What the meta class of a structured kernel may inherit from: the runtime has these."""
E_co = TypeVar("E_co", bound=str)


def _one_of(fields: Fields, node: Scalar, word: str, known: Dictionary[str, E_co], what: str) -> E_co | None:
    if word in known:
        return known[word]
    near = did_you_mean(word, known).removeprefix("; ")
    fields.report(
        Rule.UNKNOWN_WORD,
        node,
        f"{quoted(word)} is not a valid {what}: expected {', '.join(sorted(known))}",
        near,
    )
    return None


def _device_check(fields: Fields) -> DeviceCheck:
    node = fields.get(DEVICE_CHECK)
    found = None if node is None else _one_of(fields, node, node.text, _DEVICE_CHECKS, "device_check")
    return DeviceCheck.EXACT_SAME if found is None else found


def _inherits(fields: Fields) -> str | None:
    node = _bare(fields, STRUCTURED_INHERITS)
    if node is None:
        return None
    if not node.text.isidentifier():
        wanted = STRUCTURED_INHERITS.shape.wanted
        message = f"{STRUCTURED_INHERITS.name} is {quoted(node.text)}, and should be {wanted}"
        fields.report(Rule.UNREADABLE_NAME, node, message)
        return None
    return _one_of(fields, node, node.text, META_BASES, "class for a meta class to inherit from")


def _bare(fields: Fields, field: Field[Scalar]) -> Scalar | None:
    """Return the text of a field that is a name without a namespace."""
    node = fields.get(field)
    if node is not None and "::" in node.text:
        message = f"{field.name} is {quoted(node.text)}, with a namespace"
        hint = "leave the namespace out: it is that of the function itself"
        fields.report(Rule.NAMESPACE_IN_NAME, node, message, hint)
        return None
    return node


def _operator(fields: Fields, node: Scalar, text: str, at: int, schema: FunctionSchema) -> OperatorName | None:
    try:
        return parse_name(text).within(schema.name.namespace)
    except ParseError as error:
        message = f"{quoted(text)} is not the name of an operator: {error.sentence}"
        fields.report(Rule.UNREADABLE_NAME, node, message, column=node.column_of(at + error.at))
        return None


def _autogen(fields: Fields, schema: FunctionSchema) -> tuple[OperatorName, ...]:
    node = fields.get(AUTOGEN)
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
    words = fields.get(CPP_NO_DEFAULT_ARGS, ())
    having = [argument.name for argument in schema.arguments if argument.default is not None]
    for word in words:
        if word.text not in having:
            is_one = any(argument.name == word.text for argument in schema.arguments)
            found = "has no default" if is_one else "is not an argument of the function"
            fields.report(
                Rule.NO_DEFAULT_TO_OMIT,
                word,
                f"{word.text} {found}, so there is none to leave out in C++",
                f"those with defaults are {', '.join(having)}" if having else "no argument has a default",
            )
    return frozenset(word.text for word in words)


def _tags(fields: Fields, parts: SchemaParts, schema: FunctionSchema, known: frozenset[str]) -> frozenset[str]:
    found: set[str] = set()
    for word in fields.get(TAGS, ()):
        if word.text in known:
            found.add(word.text)
        else:
            hint = did_you_mean(word.text, sorted(known)).removeprefix("; ") or "tags.yaml lists those that there are"
            fields.report(Rule.UNKNOWN_TAG, word, f"{quoted(word.text)} is not a tag", hint)
    # NB: these three are not written down, every function of the kind has them
    if schema.name.namespace == DEFAULT_NAMESPACE:
        found.add("pt2_compliant_tag")
    if parts.outs:
        found.add("out")
    if parts.name.inplace:
        found.add("inplace")
    return frozenset(found & known)
