"""Write a schema as the text that a parser reads as exactly this value: `source_text`.

What `str` gives is the text that PyTorch prints, which its parser does not always read: see
Note [Texts that do not read back] in schema.py.
"""

from __future__ import annotations

from typing import assert_never

from dispatchlab.model.schema import AliasInfo, Argument, Constant, Default, FunctionSchema, float_text, sets_text
from dispatchlab.model.schema_parser import NAMED_CONSTANTS
from dispatchlab.model.schema_types import (
    ALL_NUMBERS,
    ClassType,
    DictType,
    ListType,
    OptionalType,
    SimpleType,
    TupleType,
    Type,
    TypeVariable,
    UnionType,
    WrapperType,
)


def source_text(schema: FunctionSchema) -> str:
    """The text of a schema, as somebody would write it to register it.

    >>> from dispatchlab import parse_schema
    >>> print(schema := parse_schema("test::foo(Tensor! out) -> ()"))
    test::foo(Tensor($0! -> ) out) -> ()
    >>> source_text(schema)
    'test::foo(Tensor! out) -> ()'
    """
    return f"{schema.name}({', '.join(_arguments(schema))}) -> {_returns(schema)}"


def _arguments(schema: FunctionSchema) -> list[str]:
    parts: list[str] = []
    keyword_only = False
    for argument in schema.arguments:
        if argument.kwarg_only and not keyword_only:
            keyword_only = True
            parts.append("*")
        parts.append(_argument(argument))
    return [*parts, "..."] if schema.is_vararg else parts


def _returns(schema: FunctionSchema) -> str:
    parts = [*map(_argument, schema.returns), *(["..."] if schema.is_varret else [])]
    alone = len(parts) == 1 and not parts[0].startswith("(")
    return parts[0] if alone else f"({', '.join(parts)})"


def _argument(argument: Argument) -> str:
    text = _annotated(argument.type, argument.alias)
    if argument.name:
        text += f" {argument.name}"
    return text if argument.default is None else f"{text}={_default(argument.default, argument.type)}"


def _annotated(type_: Type, alias: AliasInfo | None) -> str:
    """A type with its annotations: those of elements stand behind the elements."""
    if type_ == _OPTIONAL_NUMBERS:
        return f"Scalar{_annotation(alias)}??"
    match type_:
        case OptionalType(WrapperType() | TupleType() | ClassType() as element) if alias is not None and alias.before:
            return f"Union({_type(element)}, NoneType){_annotation(alias)}"  # which alone takes an annotation there
        case OptionalType(element):
            return f"{_annotated(element, alias)}?"
        case ListType(element, size):
            inner = alias.contained[0] if alias is not None and alias.contained else None
            return f"{_annotated(element, inner)}[{'' if size is None else size}]{_annotation(alias)}"
        case _:
            return f"{_type(type_)}{_annotation(alias)}"


def _annotation(alias: AliasInfo | None) -> str:
    if alias is None or not alias.before:
        return ""
    if any(name.startswith("$") for name in alias.before):
        return "!"
    arrow = "" if alias.before == alias.after else f" -> {sets_text(alias.after)}"
    return f"({sets_text(alias.before)}{'!' if alias.is_write else ''}{arrow})"


def _type(type_: Type) -> str:
    match type_:
        case SimpleType() | TypeVariable() | ClassType():
            return str(type_)
        case ListType() | OptionalType():
            return _annotated(type_, None)
        case TupleType(elements):
            return f"({', '.join(map(_type, elements))})"
        case DictType(key, value):
            return f"Dict({_type(key)}, {_type(value)})"
        case WrapperType(wrapper, element):
            return f"{wrapper}({_type(element)})"
        case UnionType(members):
            return f"Union({', '.join(map(_type, members))})"
        case _:
            assert_never(type_)


_OPTIONAL_NUMBERS = OptionalType(ALL_NUMBERS)


def _default(default: Default, type_: Type) -> str:
    value = default.value
    if type(value) is int and str(type_) in ("float", "complex"):
        return _NAMES.get(value, str(value))  # a number would become one of the type, and a name stays an int
    if not isinstance(value, tuple):
        return _constant(value)
    if isinstance(type_, ListType) and len(value) == type_.size and len({*map(_constant, value)}) == 1:
        return _constant(value[0])  # `int[2] stride=1`
    return f"[{', '.join(map(_constant, value))}]"


_NAMES = {number: name for name, number in reversed(NAMED_CONSTANTS.items())} | {0: "strided"}


def _constant(value: Constant) -> str:
    match value:
        case str():
            return f'"{"".join(_ESCAPED[byte] for byte in value.encode("utf-8", "surrogateescape"))}"'
        case complex():
            return f"{float_text(value.imag)}j"  # the parser makes no other: its real part is 0
        case float():
            return float_text(value)
        case _:
            return str(value)


_ESCAPES = {"\\": "\\\\", "'": "\\'", '"': '\\"', "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\t": "\\t"}
_ESCAPES |= {"\v": "\\v"}
_ESCAPED = [_ESCAPES.get(chr(byte)) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}") for byte in range(256)]
