"""Types of schemas: frozen values that print as the schema text that they came from.

`int[3]?` is `OptionalType(ListType(SimpleType("int"), size=3))`. Build optionals and unions with `optional_of` and
`union_of`, which bring them to the one form that equal types share.
Source: aten/src/ATen/core/jit_type.h, aten/src/ATen/core/union_type.cpp.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import assert_never


@dataclass(frozen=True, slots=True)
class SimpleType:
    """A type that is one name: `Tensor`, `int`, `Scalar`, `SymInt`, `Device`, ..."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class TypeVariable:
    """A lower-case name that is no type: any type, the same wherever it stands."""

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
    """`Union(a, b)`, its members in the one order that `union_of` gives them."""

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
    """The kind of a type: the name of a simple type or of a wrapper, else List, Optional, Tuple, ..."""
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
    """The type that calls see: `int` for the enums and for SymInt, through lists and optionals, without sizes."""
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
    """The custom classes that a type names."""
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
    """The type with other custom classes in the place of some, by name."""
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
    """The type, `int[]` where it says `int[3]`."""
    match type_:
        case ListType(element, size) if size is not None:
            return ListType(element)
        case OptionalType(ListType(element, size)) if size is not None:
            return OptionalType(ListType(element))
        case _:
            return type_


def is_symint_type(type_: Type) -> bool:
    """Whether the type is one of the four that a kernel may take as SymInt or as int.

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
    """The one type that a union of `members` is: flat, without members that another one covers, in order.

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
