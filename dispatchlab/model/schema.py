"""Function schemas as frozen values that print as PyTorch's text.

`parse_schema` in schema_parser.py reads the text; here are the values, their printing (`str`), and the text that the
parser reads as exactly this value (`source_text`). The types are in schema_types.py. The alias kind is no part of a
schema, it belongs to a def. Source: function_schema.h, alias_info.h and ivalue.cpp in aten/src/ATen/core.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import assert_never

from dispatchlab.model.names import OperatorName
from dispatchlab.model.schema_types import (
    ALL_NUMBERS,
    INT,
    TENSOR,
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
    without_size,
)

Constant = bool | int | float | complex | str | None
DefaultValue = Constant | tuple[Constant, ...]

NAMED_CONSTANTS = {"float": 6, "complex": 9, "long": 4, "strided": 0, "Mean": 1, "contiguous_format": 0}
"""The names that a default of a number may have, and the number that the parser reads."""


@dataclass(frozen=True, slots=True, eq=False)
class Default:
    """The default of an argument: a constant, or a tuple of constants for a list.

    Defaults of different types differ, though Python holds that `1 == True == 1.0`. A device is kept as its text.
    """

    value: DefaultValue

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Default) and _typed(self.value) == _typed(other.value)

    def __hash__(self) -> int:
        return hash(_typed(self.value))


def default_text(default: Default, type_: Type) -> str:
    """What stands after the `=` of an argument of this type."""
    value = default.value
    match value, type_:
        case str(), SimpleType("str") | OptionalType(SimpleType("str")):
            return quoted(value)
        case tuple(), ListType(element) if element == INT and len(value) > 1 and len(set(value)) == 1:
            return str(value[0])  # NB: does not read back for a list without a size
        case tuple(), _:
            return f"[{', '.join(map(_constant_text, value))}]"
        case _:
            return _constant_text(value)


def quoted(text: str) -> str:
    """The text in double quotes, with upstream's escapes."""
    return f'"{"".join(_ESCAPED[byte] for byte in text.encode("utf-8", "surrogateescape"))}"'


def float_text(number: float) -> str:
    """`1.` for 1.0, and 17 digits for what no integer of 64 bits equals."""
    if -(2.0**63) <= number < 2.0**63 and number == int(number):
        return f"{int(number)}."
    return f"{number:.17g}"


def _constant_text(value: Constant) -> str:
    match value:
        case float():
            return float_text(value)
        case complex():
            return f"{float_text(value.real)}{'+' if value.imag >= 0 else '-'}{float_text(abs(value.imag))}j"
        case _:
            return str(value)


def _typed(value: DefaultValue) -> tuple[object, ...]:
    return tuple((type(v), v) for v in value) if isinstance(value, tuple) else (type(value), value, None)


def _octal(byte: int) -> str:
    # NB: upstream counts in signed bytes, so that one above 127 prints characters that are no digits
    rest, digits = byte - 256 if byte > 127 else byte, ""
    for _ in range(3):
        quotient = -(-rest // 8) if rest < 0 else rest // 8
        digits = chr(ord("0") + rest - 8 * quotient) + digits
        rest = quotient
    return "\\" + digits


_ESCAPES = {"\\": "\\\\", "'": "\\'", '"': '\\"', "\a": "\\a", "\b": "\\b", "\f": "\\f"}
_ESCAPES |= {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
_ESCAPED = [_ESCAPES.get(chr(byte)) or (chr(byte) if 32 <= byte < 127 else _octal(byte)) for byte in range(256)]


# Note [Texts that do not read back]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A schema prints what upstream prints, to the character, because people diff dumps. For a few values upstream prints
# text that its own parser refuses, or that reads back as another value: a default that is a device (`=cpu`, without
# quotes), a complex number (`=0.+1.j`) or a string for a type that is not `str`; a list of equal ints without a size
# (`int[] x=1`); a carriage return or a byte above 127 in a string; `Tensor!` (`Tensor($0! -> )`); an alias set inside
# of an optional inside of a list, or of a list of lists; `Scalar??` and unions with all numbers. Packages do register
# some of these, and then nothing but the print is left of the schema. So there are two more functions:
# `parse_printed` (printed_schema.py) reads whatever is printed, and `source_text` writes the text
# that means the value to either parser, `Tensor!` say. Scenario files hold the latter, dumps and records the former.
# A few prints lose what they print: `[1, 1]` and `[1, 1, 1]` are both `=1`, the alias set in `int(a)[][]` is gone, and
# a string for a type that is not `str` has no quotes. What is read of such a print is a value that prints the same.


@dataclass(frozen=True, slots=True)
class AliasInfo:
    """Which alias sets a value is in before and after the call, `(a! -> a|b)`, and whether the call writes it.

    Sets compare as sets and print sorted, `*` last; `contained` is about the elements of a list.
    """

    before: frozenset[str]
    after: frozenset[str]
    is_write: bool = False
    contained: tuple[AliasInfo, ...] = ()

    def __str__(self) -> str:
        arrow = "" if self.before == self.after else f" -> {sets_text(self.after)}"
        return f"({sets_text(self.before)}{'!' if self.is_write else ''}{arrow})"


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument, or one return (then `name` may be empty text, and there is no default)."""

    name: str
    type: Type
    default: Default | None = None
    kwarg_only: bool = False
    alias: AliasInfo | None = None

    @property
    def is_written(self) -> bool:
        """Whether the call writes it."""
        return self.alias is not None and self.alias.is_write

    def __str__(self) -> str:
        type_, alias = self.type, self.alias
        optional = isinstance(type_, OptionalType)
        if isinstance(type_, OptionalType):
            type_ = type_.element
        if alias is None:
            text = str(type_)
        else:
            if isinstance(type_, ListType):
                inner = alias.contained[0] if alias.contained else ""
                text = f"{type_.element}{inner}[{'' if type_.size is None else type_.size}]"
            else:
                text = str(type_)
            if alias.before:
                text += str(alias)
        if optional:
            text += "?"
        if self.name:
            text += f" {self.name}"
        return text if self.default is None else f"{text}={default_text(self.default, self.type)}"


@dataclass(frozen=True, slots=True)
class FunctionSchema:
    """The declaration of an operator, `ns::name.overload(Tensor self, *, int n=1) -> Tensor`, as a value.

    Text and value are two forms of one thing: `parse_schema(source_text(schema)) == schema`. What `str` gives is what
    PyTorch prints, and nearly always the same text: see Note [Texts that do not read back]. An inferred schema has an
    empty name.

    >>> from dispatchlab import parse_schema
    >>> schema = parse_schema("aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor")
    >>> [argument.name for argument in schema.arguments if argument.kwarg_only]
    ['alpha']
    """

    name: OperatorName
    arguments: tuple[Argument, ...]
    returns: tuple[Argument, ...]
    is_vararg: bool = False
    is_varret: bool = False

    @property
    def is_opaque(self) -> bool:
        """Whether nothing is known of it but the text that it prints."""
        return False

    def __repr__(self) -> str:
        return f"{'parse_schema' if self.name.name else 'parse_inferred'}({source_text(self)!r})"

    def __str__(self) -> str:
        """The text that PyTorch 2.13 prints."""
        return _schema_text(self, str)

    def text_2020(self) -> str:
        """The text of 2020, under which the returns always stand in parentheses."""
        return _schema_text(self, str, in_parentheses=True)

    def dispatch_arguments(self) -> int:
        """The arguments that decide the dispatch, bit i for argument i: Tensor, Tensor?, Tensor[] and Tensor?[]."""
        return sum(1 << at for at, argument in enumerate(self.arguments) if without_size(argument.type) in _DISPATCHED)


def clone_with_name(schema: FunctionSchema, name: OperatorName) -> FunctionSchema:
    """The same arguments and returns under another name."""
    return replace(schema, name=name)


def sets_text(sets: frozenset[str]) -> str:
    """Alias sets as they stand in an annotation."""
    # NB: upstream leaves the order open, but its parser refuses a name after a `*`
    return "|".join(sorted(sets, key=lambda name: (name == "*", name)))


_TENSORS = (TENSOR, OptionalType(TENSOR))
_DISPATCHED = frozenset((*_TENSORS, *(ListType(tensor) for tensor in _TENSORS)))


def source_text(schema: FunctionSchema) -> str:
    """The text of a schema, as it is written to register it.

    >>> from dispatchlab import parse_schema
    >>> print(schema := parse_schema("test::foo(Tensor! out) -> ()"))
    test::foo(Tensor($0! -> ) out) -> ()
    >>> source_text(schema)
    'test::foo(Tensor! out) -> ()'
    """
    return _schema_text(schema, _source_argument)


def _schema_text(
    schema: FunctionSchema, argument_text: Callable[[Argument], str], *, in_parentheses: bool = False
) -> str:
    """The text of a schema; a single return stands without parentheses, unless they are asked for or its own."""
    parts: list[str] = []
    for argument in schema.arguments:
        if argument.kwarg_only and "*" not in parts:
            parts.append("*")
        parts.append(argument_text(argument))
    parts += ["..."] * schema.is_vararg
    returns = [*map(argument_text, schema.returns), *["..."] * schema.is_varret]
    shown = ", ".join(returns)
    alone = len(returns) == 1 and not shown.startswith("(") and not in_parentheses
    return f"{schema.name}({', '.join(parts)}) -> {shown if alone else f'({shown})'}"


def _source_argument(argument: Argument) -> str:
    text = _source_annotated(argument.type, argument.alias)
    if argument.name:
        text += f" {argument.name}"
    return text if argument.default is None else f"{text}={_source_default(argument.default, argument.type)}"


def _source_annotated(type_: Type, alias: AliasInfo | None) -> str:
    """A type with its annotations: those of elements stand behind the elements."""
    if type_ == _OPTIONAL_NUMBERS:
        return f"Scalar{_source_annotation(alias)}??"
    match type_:
        case OptionalType(WrapperType() | TupleType() | ClassType() as element) if alias is not None and alias.before:
            # which alone takes an annotation there
            return f"Union({_source_type(element)}, NoneType){_source_annotation(alias)}"
        case OptionalType(element):
            return f"{_source_annotated(element, alias)}?"
        case ListType(element, size):
            inner = alias.contained[0] if alias is not None and alias.contained else None
            return f"{_source_annotated(element, inner)}[{'' if size is None else size}]{_source_annotation(alias)}"
        case _:
            return f"{_source_type(type_)}{_source_annotation(alias)}"


def _source_annotation(alias: AliasInfo | None) -> str:
    if alias is None or not alias.before:
        return ""
    if any(name.startswith("$") for name in alias.before):
        return "!"
    arrow = "" if alias.before == alias.after else f" -> {sets_text(alias.after)}"
    return f"({sets_text(alias.before)}{'!' if alias.is_write else ''}{arrow})"


def _source_type(type_: Type) -> str:
    match type_:
        case SimpleType() | TypeVariable() | ClassType():
            return str(type_)
        case ListType() | OptionalType():
            return _source_annotated(type_, None)
        case TupleType(elements):
            return f"({', '.join(map(_source_type, elements))})"
        case DictType(key, value):
            return f"Dict({_source_type(key)}, {_source_type(value)})"
        case WrapperType(wrapper, element):
            return f"{wrapper}({_source_type(element)})"
        case UnionType(members):
            return f"Union({', '.join(map(_source_type, members))})"
        case _:
            assert_never(type_)


_OPTIONAL_NUMBERS = OptionalType(ALL_NUMBERS)


def _source_default(default: Default, type_: Type) -> str:
    value = default.value
    if type(value) is int and str(type_) in ("float", "complex"):
        return _NAME_OF_NUMBER.get(value, str(value))  # a number would become one of the type, and a name stays an int
    if not isinstance(value, tuple):
        return _source_constant(value)
    if isinstance(type_, ListType) and len(value) == type_.size and len({*map(_source_constant, value)}) == 1:
        return _source_constant(value[0])  # `int[2] stride=1`
    return f"[{', '.join(map(_source_constant, value))}]"


_NAME_OF_NUMBER = {number: name for name, number in reversed(NAMED_CONSTANTS.items())} | {0: "strided"}


def _source_constant(value: Constant) -> str:
    match value:
        case str():
            return f'"{"".join(_SOURCE_ESCAPED[byte] for byte in value.encode("utf-8", "surrogateescape"))}"'
        case complex():
            return f"{float_text(value.imag)}j"  # the parser makes no other: its real part is 0
        case float():
            return float_text(value)
        case _:
            return str(value)


# NB: the parser reads every byte in octal, and has no escape for a carriage return
_SOURCE_ESCAPES = {char: escape for char, escape in _ESCAPES.items() if char != "\r"}
_SOURCE_ESCAPED = [
    _SOURCE_ESCAPES.get(chr(byte)) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}") for byte in range(256)
]
