"""Schema differences: the first difference because of which a kernel does not fit the schema of its operator.

Names, defaults, keyword-only, alias annotations, list sizes, varargs and varrets do not count; the numbers and the
types of arguments and returns do.
Source: `findSchemaDifferences` in aten/src/ATen/core/op_registration/infer_schema.cpp and `cloneWithRealTypes` in
aten/src/ATen/core/function_schema.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from dispatchlab._short_repr import WordEnum
from dispatchlab.model.schema import (
    ALL_NUMBERS,
    SCALAR,
    Argument,
    DictType,
    FunctionSchema,
    ListType,
    OptionalType,
    TupleType,
    Type,
    TypeVariable,
    UnionType,
    WrapperType,
    fake_of,
    is_symint_type,
    without_size,
)


class DifferenceKind(WordEnum):
    """A kind of difference, in the order in which the check asks."""

    ARGUMENT_COUNT = "argument_count"
    RETURN_COUNT = "return_count"
    ARGUMENT_TYPE = "argument_type"
    RETURN_TYPE = "return_type"


class Difference(NamedTuple):
    """The first difference of two schemas.

    Args:
        kind: the kind of difference.
        expected: the number or the type on the side of the def.
        found: the number or the type on the side of the kernel.
        position: which argument or return, from 1; None for a number.
    """

    kind: DifferenceKind
    expected: str
    found: str
    position: int | None = None

    @property
    def reason(self) -> str:
        """Upstream's sentence."""
        sides = f"{self.expected} vs {self.found}."
        side = self.kind.partition("_")[0]
        if self.position is None:
            return f"The number of {side}s is different. {sides}"
        return f"Type mismatch in {side} {self.position}: {sides}"

    def __str__(self) -> str:
        return self.reason


def schema_difference(expected: FunctionSchema, found: FunctionSchema, *, symint_kernel: bool) -> Difference | None:
    """Return the first difference between the schema of a kernel and the schema of a def; None when the kernel fits.

    Args:
        expected: the schema of the def.
        found: the schema that was inferred from the kernel.
        symint_kernel: whether the kernel takes SymInt arguments (`is_symint_schema`); if not, a SymInt argument of
            the def counts as int. Returns are compared unchanged.

    An opaque schema fits every schema, because its content is unknown.
    """
    if expected.is_opaque or found.is_opaque:
        return None

    def read(type_: Type) -> Type:
        return fake_of(type_) if is_symint_type(type_) and not symint_kernel else without_size(type_)

    counts = (
        (DifferenceKind.ARGUMENT_COUNT, expected.arguments, found.arguments),
        (DifferenceKind.RETURN_COUNT, expected.returns, found.returns),
    )
    for kind, ours, theirs in counts:
        if len(ours) != len(theirs):
            return Difference(kind, str(len(ours)), str(len(theirs)))
    return _first_type(
        DifferenceKind.ARGUMENT_TYPE, zip(expected.arguments, found.arguments, strict=True), read
    ) or _first_type(DifferenceKind.RETURN_TYPE, zip(expected.returns, found.returns, strict=True), without_size)


def as_compared(schema: FunctionSchema, *, symint_kernel: bool) -> FunctionSchema:
    """The schema of a def as it is compared with a kernel, which is how a refusal prints it: for a kernel that takes no
    SymInt, arguments that may be int are.

    Source: `cloneWithRealTypes` in aten/src/ATen/core/function_schema.cpp.
    """
    if symint_kernel or schema.is_opaque:
        return schema
    arguments = tuple(
        replace(one, type=fake_of(one.type)) if is_symint_type(one.type) else one for one in schema.arguments
    )
    return schema if arguments == schema.arguments else replace(schema, arguments=arguments)


def _first_type(
    kind: DifferenceKind, pairs: Iterable[tuple[Argument, Argument]], read: Callable[[Type], Type]
) -> Difference | None:
    for position, (ours, theirs) in enumerate(pairs, start=1):
        left, right = read(ours.type), without_size(theirs.type)
        if not same_type(left, right):
            return Difference(kind, str(left), str(right), position)
    return None


def same_type(left: Type, right: Type, *, by_members: bool = False) -> bool:
    """Return whether the types are equal as upstream compares them: every type variable equals every other.

    Args:
        left: one type.
        right: the other.
        by_members: as in subtypes: `Scalar` is the union of all numbers, and the order of a union does not matter.
    """
    if by_members:
        left, right = (ALL_NUMBERS if each == SCALAR else each for each in (left, right))
    same = partial(same_type, by_members=by_members)
    match left, right:
        case TypeVariable(), TypeVariable():
            return True
        case (ListType(one), ListType(other)) | (OptionalType(one), OptionalType(other)):
            return same(one, other)
        case WrapperType(wrapper, one), WrapperType(another, other):
            return wrapper == another and same(one, other)
        case DictType(key, one), DictType(other_key, other):
            return same(key, other_key) and same(one, other)
        case UnionType(ones), UnionType(others) if by_members:
            return len(ones) == len(others) and all(any(same(one, each) for each in others) for one in ones)
        case (TupleType(ones), TupleType(others)) | (UnionType(ones), UnionType(others)):
            return len(ones) == len(others) and all(map(same, ones, others))
        case _:
            return left == right
