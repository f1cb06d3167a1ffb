"""Function schemas as frozen values that print as PyTorch's text.

`parse_schema` in schema_parser.py reads the text; here are the values, their printing (`str`), and the text that the
parser reads as exactly this value (`source_text`). The alias kind is no part of a schema, it belongs to a def.

A type is a value that prints as its text, too: `int[3]?` is `OptionalType(ListType(SimpleType("int"), size=3))`. Build
optionals and unions with `optional_of` and `union_of`, which bring them to the one form that equal types share.
Source: function_schema.h, alias_info.h, ivalue.cpp, jit_type.h and union_type.cpp in aten/src/ATen/core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from dispatchlab.model.names import OperatorName


@dataclass(frozen=True, slots=True)
class SimpleType:
    """A type that is one name: `Tensor`, `int`, `Scalar`, `SymInt`, `Device`, ..."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class TypeVariable:
    """A lower-case name that is not a type: it stands for any type, the same at every occurrence."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class ClassType:
    """A custom class, `namespace.Name`."""

    name: str

    def __str__(self) -> str:
        return f"__torch__.torch.classes.{self.name}"


@dataclass(frozen=True, slots=True)
class ListType:
    """`element[]`; only the list that an argument itself is can have a size, `int[3]`."""

    element: Type
    size: int | None = None

    def __str__(self) -> str:
        return f"{self.element}[{'' if self.size is None else self.size}]"


@dataclass(frozen=True, slots=True)
class OptionalType:
    """`element?`."""

    element: Type

    def __str__(self) -> str:
        return f"{self.element}?"


@dataclass(frozen=True, slots=True)
class TupleType:
    """`(int, Tensor)`."""

    elements: tuple[Type, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.elements))})"


@dataclass(frozen=True, slots=True)
class DictType:
    """`Dict(key, value)`."""

    key: Type
    value: Type

    def __str__(self) -> str:
        return f"Dict({self.key}, {self.value})"


@dataclass(frozen=True, slots=True)
class WrapperType:
    """`Future(element)`, `Await(element)` or `RRef(element)`."""

    wrapper: str
    element: Type

    def __str__(self) -> str:
        return f"{self.wrapper}({self.element})"


@dataclass(frozen=True, slots=True)
class UnionType:
    """`Union(a, b)`, with its members in the order of `union_of`."""

    members: tuple[Type, ...]

    def __str__(self) -> str:
        if not _NUMBERS.issubset(self.members):
            return f"Union({', '.join(map(str, self.members))})"
        # NB: upstream puts a comma in front of all but the first member, numbers included, and of the last Scalar
        # only if it wrote one before: `Union(, str, Scalar)` and `Union(TensorScalar)`.
        shown = [(at, str(member)) for at, member in enumerate(self.members) if member not in _NUMBERS]
        comma = ", " if any(at for at, _ in shown) else ""
        return f"Union({''.join(f', {text}' if at else text for at, text in shown)}{comma}Scalar)"


Type = SimpleType | TypeVariable | ClassType | ListType | OptionalType | TupleType | DictType | WrapperType | UnionType

INT, SYM_INT, TENSOR, NONE = SimpleType("int"), SimpleType("SymInt"), SimpleType("Tensor"), SimpleType("NoneType")
OPTIONAL_TENSORS = ListType(OptionalType(TENSOR))
SCALAR, ANY = SimpleType("Scalar"), SimpleType("Any")
_NUMBERS = frozenset((SimpleType("float"), SimpleType("complex"), INT))
_FAKE_INTS = frozenset(("ScalarType", "Layout", "MemoryFormat", "SymInt"))
_SYM_INTS = frozenset(
    (SYM_INT, OptionalType(SYM_INT), ListType(SYM_INT), OptionalType(ListType(SYM_INT))),
)
_KINDS = (
    *("Any", "AnyEnumType", "Tensor", "Storage", "Tuple", "List", "Dict", "Scalar", "float", "complex", "Future"),
    *("Await", "RRef", "int", "NoneType", "str", "Generator", "Quantizer", "bool", "Optional", "Variable", "Device"),
    *("Stream", "Class", "Capsule", "QScheme", "ScalarType", "Layout", "MemoryFormat", "AnyClassType", "SymInt"),
    *("SymBool", "Union"),
)
_ORDER = {kind: at for at, kind in enumerate(_KINDS)}


def kind_of(type_: Type) -> str:
    """Return the kind of a type: the name of a simple type or of a wrapper, else List, Optional, Tuple, ..."""
    match type_:
        case SimpleType(name):
            return name
        case WrapperType(wrapper):
            return wrapper
        case TypeVariable():
            return "Variable"
        case ClassType():
            return "Class"
        case ListType():
            return "List"
        case OptionalType():
            return "Optional"
        case TupleType():
            return "Tuple"
        case DictType():
            return "Dict"
        case UnionType():
            return "Union"
        case _:
            assert_never(type_)


def fake_of(type_: Type) -> Type:
    """Return the type that calls see: `int` for enums and SymInt, through lists and optionals, without sizes."""
    match type_:
        case SimpleType(name):
            return INT if name in _FAKE_INTS else type_
        case ListType(element):
            return ListType(fake_of(element))
        case OptionalType(element):
            return OptionalType(fake_of(element))
        case _:
            return type_


def classes_in(type_: Type) -> frozenset[str]:
    """Return the custom classes that a type names."""
    match type_:
        case SimpleType() | TypeVariable():
            return frozenset()
        case ClassType(name):
            return frozenset((name,))
        case ListType(element) | OptionalType(element) | WrapperType(_, element):
            return classes_in(element)
        case TupleType(elements) | UnionType(elements):
            return frozenset[str]().union(*map(classes_in, elements))
        case DictType(key, value):
            return classes_in(key) | classes_in(value)
        case _:
            assert_never(type_)


def with_classes(type_: Type, names: Mapping[str, str]) -> Type:
    """Return the type with some custom classes replaced by others, by name."""
    match type_:
        case SimpleType() | TypeVariable():
            return type_
        case ClassType(name):
            return ClassType(names.get(name, name))
        case ListType(element, size):
            return ListType(with_classes(element, names), size)
        case OptionalType(element):
            return OptionalType(with_classes(element, names))
        case WrapperType(wrapper, element):
            return WrapperType(wrapper, with_classes(element, names))
        case TupleType(elements):
            return TupleType(tuple(with_classes(each, names) for each in elements))
        case UnionType(members):
            return union_of(with_classes(member, names) for member in members)
        case DictType(key, value):
            return DictType(with_classes(key, names), with_classes(value, names))
        case _:
            assert_never(type_)


def without_size(type_: Type) -> Type:
    """Return the type, with `int[]` instead of `int[3]`."""
    match type_:
        case ListType(element, size) if size is not None:
            return ListType(element)
        case OptionalType(ListType(element, size)) if size is not None:
            return OptionalType(ListType(element))
        case _:
            return type_


def is_symint_type(type_: Type) -> bool:
    """Return whether the type is one of the four that a kernel may take as SymInt or as int.

    Source: `unpackSymInt` in aten/src/ATen/core/boxing/KernelFunction.h.
    """
    return without_size(type_) in _SYM_INTS


def optional_of(type_: Type) -> Type:
    """`type_?`, where `T??` is `T?`.

    Raises:
        ValueError: the type is None itself.
    """
    match type_:
        case OptionalType(SimpleType("Scalar")):
            return OptionalType(ALL_NUMBERS)  # NB: upstream prints `Scalar??` as `Union(Scalar)?`
        case OptionalType():
            return type_
        case UnionType():
            return _optional_union({*type_.members, NONE})
        case SimpleType("NoneType"):
            raise ValueError("NoneType cannot be optional")
        case _:
            return OptionalType(type_)


def union_of(members: Iterable[Type]) -> Type:
    """Return the union of `members` as one type: flat, in order, without members that another one covers.

    Raises:
        ValueError: fewer than two members are left.
    """
    kept: list[Type] = []
    for member in (flat for given in members for flat in _flattened(given)):
        if not any(_covers(other, member) for other in kept):
            kept = [other for other in kept if not _covers(member, other)] + [member]
    if len(kept) < 2:
        raise ValueError("a union needs two different types")
    if NONE in kept and (len(kept) == 2 or set(kept) == {*_NUMBERS, NONE}):
        return _optional_union(set(kept))
    return _sorted_union(kept)


def _optional_union(members: set[Type]) -> Type:
    rest = members - {NONE}
    if rest == _NUMBERS:
        return OptionalType(SCALAR)
    return OptionalType(rest.pop() if len(rest) == 1 else _sorted_union(rest))


def _sorted_union(members: Iterable[Type]) -> UnionType:
    return UnionType(tuple(sorted(members, key=lambda member: (_ORDER[kind_of(member)], str(member)))))


ALL_NUMBERS = _sorted_union(_NUMBERS)
"""`Union(float, complex, int)`, which prints as `Union(Scalar)`."""


def _flattened(type_: Type) -> tuple[Type, ...]:
    match type_:
        case UnionType(members):
            return members
        case OptionalType(element):
            return (*_flattened(element), NONE)
        case SimpleType("Scalar"):
            return tuple(sorted(_NUMBERS, key=str))
        case _:
            return (type_,)


def _covers(wide: Type, narrow: Type) -> bool:
    return wide == narrow if NONE in (wide, narrow) else is_subtype(narrow, wide)


def is_subtype(narrow: Type, wide: Type) -> bool:
    match wide, narrow:
        case TupleType(these), TupleType(those):
            return len(these) == len(those) and all(map(is_subtype, those, these))
        case OptionalType(inner), OptionalType(element):
            return is_subtype(element, inner)
        case OptionalType(inner), _:
            return narrow == NONE or is_subtype(narrow, inner)
        case TypeVariable(), TypeVariable():
            return True
        case SimpleType("Scalar"), _ if narrow in _NUMBERS:
            return True
        case _:
            return wide in (narrow, ANY)


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
    """Return the text after the `=` of an argument of this type."""
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
    """Return the text in double quotes, with upstream's escapes."""
    return f'"{"".join(_ESCAPED[byte] for byte in text.encode("utf-8", "surrogateescape"))}"'


def float_text(number: float) -> str:
    """Return `1.` for 1.0, and 17 digits for a value that equals no integer of 64 bits."""
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
    """The alias sets of a value before and after the call, `(a! -> a|b)`, and whether the call writes it.

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
        """True when the call writes it."""
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

    Text and value have the same content: `parse_schema(source_text(schema)) == schema`. `str` returns the text that
    PyTorch prints, which is nearly always the same: see Note [Texts that do not read back]. An inferred schema has an
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
        """True if only its printed text is known."""
        return False

    def __repr__(self) -> str:
        return f"{'parse_schema' if self.name.name else 'parse_inferred'}({source_text(self)!r})"

    def __str__(self) -> str:
        """The text that PyTorch 2.13 prints."""
        return _schema_text(self, str)

    def text_2020(self) -> str:
        """Return the text of 2020, with the returns always in parentheses."""
        return _schema_text(self, str, in_parentheses=True)

    def dispatch_arguments(self) -> int:
        """Return the arguments that decide the dispatch, bit i for argument i: Tensor, Tensor?, Tensor[], Tensor?[]."""
        return sum(1 << at for at, argument in enumerate(self.arguments) if without_size(argument.type) in _DISPATCHED)


def is_out_of(other: FunctionSchema, schema: FunctionSchema) -> bool:
    """Return whether a schema takes the arguments of another one, and `out` tensors for the results."""
    outs = [argument for argument in other.arguments if argument.kwarg_only and argument.is_written]
    rest = [(argument.name, argument.type) for argument in other.arguments if argument not in outs]
    return bool(outs) and rest == [(argument.name, argument.type) for argument in schema.arguments]


def clone_with_name(schema: FunctionSchema, name: OperatorName) -> FunctionSchema:
    """Return the same arguments and returns under another name."""
    return replace(schema, name=name)


def sets_text(sets: frozenset[str]) -> str:
    """Return alias sets as an annotation writes them."""
    # NB: upstream leaves the order open, but its parser refuses a name after a `*`
    return "|".join(sorted(sets, key=lambda name: (name == "*", name)))


_TENSORS = (TENSOR, OptionalType(TENSOR))
_DISPATCHED = frozenset((*_TENSORS, *(ListType(tensor) for tensor in _TENSORS)))


def source_text(schema: FunctionSchema) -> str:
    """Return the text of a schema, as a registration writes it.

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
    """Return the text of a schema; a single return has no parentheses, unless they are asked for or its own."""
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
    """Return a type with its annotations; annotations of elements stand behind the elements."""
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
