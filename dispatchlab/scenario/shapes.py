"""What can stand in the fields of a scenario: dispatch keys, names, schemas, namespaces, numbers of registrations."""

from __future__ import annotations

import re
from functools import partial

from dispatchlab.model.keys import RUNTIME_KEYS, DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.schema import FunctionSchema, clone_with_name
from dispatchlab.model.schema_parser import parse_name, parse_schema, parse_schema_or_name
from dispatchlab.yaml_fields import Context, Shape, Wrong, did_you_mean, expected, parsed, scalar
from dispatchlab.yaml_tree import Node, Scalar


def _sentence(node: Node, context: Context) -> str:
    text = scalar(node, "a sentence").text
    if not text.strip():
        raise expected("a sentence", node)
    return text


def _key(node: Node, context: Context) -> DispatchKey | None:
    text = scalar(node, "a dispatch key").text
    try:
        return DispatchKey[text] or None
    except KeyError:
        hint = did_you_mean(text, DispatchKey.__members__) if text else "leave the field out for no key"
        raise expected("a dispatch key", node, hint) from None


def _row(node: Node, context: Context) -> DispatchKey:
    key = _key(node, context) or DispatchKey.Undefined
    if not key.is_runtime:
        why = "an alias key stands for several rows" if key.is_alias else "there is one row for each of its backends"
        raise Wrong(node, f"expected a key that has a row in the table but found {key}", why)
    return key


_NAMESPACE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _namespace(node: Node, context: Context) -> str:
    text = scalar(node, "a namespace").text
    if not _NAMESPACE.fullmatch(text):
        raise expected("a namespace", node, "a namespace is letters, digits and _, and starts with no digit")
    return text


def _library(node: Node, context: Context) -> str | None:
    namespace = _namespace(node, context)
    return None if namespace == "_" else namespace


def _operator(node: Node, context: Context) -> OperatorName:
    return parsed(scalar(node, "the name of an operator"), parse_name, context)


def _definition(node: Node, context: Context) -> FunctionSchema | OperatorName:
    # As in a library block: `tensor` is a slip and no type variable, which aten:: and prim:: alone may have.
    return parsed(scalar(node, "a schema"), _parse_definition, context)


_parse_definition = partial(parse_schema_or_name, typevars=False)


def _index(node: Node, context: Context) -> int:
    text = scalar(node, "the number of a registration").text
    if not re.fullmatch("[0-9]{1,9}", text):
        raise expected("the number of a registration, from 0", node)
    return int(text)


def anonymous_schema(node: Scalar, context: Context) -> FunctionSchema:
    """The schema of a function without a name, `(Tensor _0) -> Tensor _0`; its operator name is empty."""
    return parsed(node, _parse_anonymous, context, prefix=_PREFIX)


_PREFIX = "_"
"""Stands for the missing name while the parser is at work."""


def _parse_anonymous(text: str) -> FunctionSchema:
    return clone_with_name(parse_schema(text), OperatorName("", ""))


SENTENCE = Shape("a sentence", _sentence, {"type": "string", "minLength": 1})
KEY = Shape("a dispatch key", _key, {"$ref": "#/$defs/key"})
ROW = Shape("a dispatch key", _row, {"enum": [key.name for key in RUNTIME_KEYS]})
NAMESPACE = Shape("a namespace", _namespace, {"type": "string", "pattern": f"^{_NAMESPACE.pattern}$"})
LIBRARY = Shape("a namespace or _", _library, NAMESPACE.schema)
OPERATOR = Shape("the name of an operator", _operator, {"type": "string", "minLength": 1})
DEFINITION = Shape("a schema", _definition, {"type": "string", "minLength": 1})
INDEX = Shape("the number of a registration", _index, {"type": "integer", "minimum": 0})
