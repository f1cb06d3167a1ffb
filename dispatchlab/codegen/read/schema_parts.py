"""Parts of a schema: its arguments by role, which variant of an operator it is, and the signature that variants share.

A schema shows by its shape whether it is the functional, the in-place, the out or the mutable variant of an operator;
variants have equal signatures. Source: torchgen/model.py (`Arguments`, `FunctionSchema.kind`, `.signature`).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

from dispatchlab._short_repr import WordEnum
from dispatchlab.model.schema import (
    TENSOR,
    AliasInfo,
    Argument,
    Default,
    FunctionSchema,
    ListType,
    OptionalType,
    SimpleType,
    Type,
)

# Note [Signatures]
# ~~~~~~~~~~~~~~~~~
# `add.Tensor`, `add_.Tensor` and `add.out` are one operator in three forms, and nothing in the file shows it but their
# schemas. What they have in common is the signature: the base name (without the overload, the trailing underscore, the
# `i` of `__iadd__` and the suffix `_functional`), the arguments without out= arguments, alias annotations and tensor
# options, and the types that come back, where an argument that is written and not returned counts as a return.


class SchemaKind(WordEnum):
    """The variant of an operator that a schema is."""

    FUNCTIONAL = "functional"
    INPLACE = "inplace"
    OUT = "out"
    MUTABLE = "mutable"
    SCRATCH = "scratch"


@dataclass(frozen=True, slots=True)
class BaseName:
    """The name of an operator taken apart: `__iadd__` is `add`, a dunder method, in place."""

    base: str
    inplace: bool = False
    dunder: bool = False
    functional: bool = False

    def __str__(self) -> str:
        if self.dunder:
            return f"__{'i' if self.inplace else ''}{self.base}__"
        return f"{self.base}{'_' if self.inplace else '_functional' if self.functional else ''}"


_IN_PLACE_METHODS = frozenset(
    f"i{name}" for name in ("add", "sub", "mul", "div", "mod", "pow", "lshift", "rshift", "and", "xor", "or")
)


def base_name(name: str) -> BaseName:
    """Return the name of an operator, without namespace and overload, taken apart."""
    inner = name[2:-2]
    if name.startswith("__") and name.endswith("__") and inner and "_" not in inner:
        inplace = inner in _IN_PLACE_METHODS
        return BaseName(inner[1:] if inplace else inner, inplace, dunder=True)
    inplace = len(name) > 1 and name.endswith("_")
    base = name[:-1] if inplace else name
    suffix = "_functional"
    if base.endswith(suffix) and base != suffix:
        return BaseName(base.removesuffix(suffix), inplace, functional=True)
    return BaseName(base, inplace)


@dataclass(frozen=True, slots=True)
class SchemaParts:
    """The arguments of a schema by purpose.

    Args:
        name: its name, taken apart.
        before_self: the arguments before `self`; `where.self` has one.
        self_argument: the argument `self`.
        after_self: the other positional arguments; all positional arguments without a `self`.
        by_name: the keyword-only arguments that are not in the following fields.
        options: dtype, layout, device and pin_memory, if all four are together.
        options_at: the number of arguments in `by_name` before `options`.
        outs: the keyword-only arguments that are written.
        has_wildcard: an argument ends up in the alias set `*`.
    """

    name: BaseName
    before_self: tuple[Argument, ...]
    self_argument: Argument | None
    after_self: tuple[Argument, ...]
    by_name: tuple[Argument, ...]
    options: tuple[Argument, ...]
    options_at: int
    outs: tuple[Argument, ...]
    has_wildcard: bool

    @property
    def positional(self) -> tuple[Argument, ...]:
        """The positional arguments in order."""
        middle = () if self.self_argument is None else (self.self_argument,)
        return (*self.before_self, *middle, *self.after_self)

    @property
    def keywords(self) -> tuple[Argument, ...]:
        """The keyword-only arguments in order, without out= arguments."""
        return (*self.by_name[: self.options_at], *self.options, *self.by_name[self.options_at :])

    @property
    def inputs(self) -> tuple[Argument, ...]:
        """All arguments, except out= arguments."""
        return (*self.positional, *self.keywords)


def parts_of(schema: FunctionSchema) -> SchemaParts:
    """Return the arguments of a schema by purpose."""
    positional: list[Argument] = []
    keywords: list[Argument] = []
    outs: list[Argument] = []
    self_at, has_wildcard = -1, False
    for argument in schema.arguments:
        alias = argument.alias
        if alias is not None:
            inner = alias.contained[0] if alias.contained else alias
            has_wildcard = has_wildcard or ("*" in inner.after)
        if not argument.kwarg_only:
            if argument.name == "self" and self_at < 0:
                self_at = len(positional)
            positional.append(argument)
        elif alias is not None and alias.is_write:
            outs.append(argument)
        else:
            keywords.append(argument)
    at = _options_at(keywords) if len(keywords) >= 4 else -1
    return SchemaParts(
        base_name(schema.name.name),
        tuple(positional[: max(self_at, 0)]),
        positional[self_at] if self_at >= 0 else None,
        tuple(positional[self_at + 1 :]),
        tuple(keywords if at < 0 else keywords[:at] + keywords[at + 4 :]),
        tuple(keywords[at : at + 4]) if at >= 0 else (),
        len(keywords) if at < 0 else at,
        tuple(outs),
        has_wildcard,
    )


class _Option(NamedTuple):
    name: str
    type: Type


_OPTIONS = (
    *(_Option("dtype", SimpleType("ScalarType")), _Option("layout", SimpleType("Layout"))),
    *(_Option("device", SimpleType("Device")), _Option("pin_memory", SimpleType("bool"))),
)


def _options_at(arguments: list[Argument]) -> int:
    """Return the position of the four tensor options, or -1."""
    for at in range(len(arguments) - 3):
        if arguments[at].name == "dtype" and options_stand_at(arguments, at):
            return at
    return -1


def options_stand_at(arguments: list[Argument], at: int) -> bool:
    """Return whether dtype, layout, device and pin_memory are the four arguments from `at` on."""
    return len(arguments) >= at + 4 and all(
        argument.name == name and argument.type in (type_, OptionalType(type_))
        for argument, (name, type_) in zip(arguments[at:], _OPTIONS, strict=False)
    )


def is_tensor_like(type_: Type) -> bool:
    """Return whether it is a tensor, an optional tensor, or a list of these."""
    return innermost(type_) == TENSOR


def innermost(type_: Type) -> Type:
    """Return the type without its lists and optionals."""
    while isinstance(type_, ListType | OptionalType):
        type_ = type_.element
    return type_


def kind_of_schema(parts: SchemaParts) -> SchemaKind:
    """Return the kind of variant that the schema is."""
    if parts.name.inplace:
        return SchemaKind.INPLACE
    if parts.outs:
        scratch = any(argument.name.startswith("_scratch_") for argument in parts.outs)
        return SchemaKind.SCRATCH if scratch else SchemaKind.OUT
    if any(one.is_written for one in parts.after_self):
        return SchemaKind.MUTABLE
    return SchemaKind.FUNCTIONAL


def signature_of(schema: FunctionSchema, parts: SchemaParts, *, base: str = "") -> Hashable:
    """Return the part of the schema that all variants of an operator share. See Note [Signatures].

    Args:
        schema: the schema.
        parts: its parts.
        base: the base name, if it is not that of the schema.
    """
    # NB: the p of bernoulli.p has no default, that of bernoulli_.float has, and they are one operator
    is_bernoulli = schema.name.name == "bernoulli" and schema.name.overload == "p"
    inputs: list[object] = []
    written: list[Type] = []
    for one in parts.positional:
        default = Default(0.5) if is_bernoulli and one.name == "p" else one.default
        inputs += (one.name, one.type) if default is None else (one.name, one.type, default)
    inputs.append("*")
    for one in parts.by_name:
        inputs += (one.name, one.type) if one.default is None else (one.name, one.type, one.default)
    if any(argument.alias is not None for argument in schema.arguments):
        returned = [one.alias for one in schema.returns]
        first = () if parts.self_argument is None else (parts.self_argument,)
        written = [
            one.type for one in (*first, *parts.outs, *parts.after_self) if one.is_written and one.alias not in returned
        ]
    types = (*(one.type for one in schema.returns), *written)
    return (base or parts.name.base, parts.name.dunder, *inputs, "->", *types)


def without_copy(base: str) -> str:
    """Return the name of the view that `base` copies: `view` for `view_copy`, `slice_inverse` for `slice_scatter`."""
    if base.endswith("_copy"):
        return base.replace("_copy", "")
    return base.replace("scatter", "inverse") if base.endswith("_scatter") else base


def alias_letters(schema: FunctionSchema) -> frozenset[str]:
    """Return the names of all alias sets that the arguments are in before the call."""
    return frozenset(
        letter
        for argument in schema.arguments
        if argument.alias is not None
        for info in (argument.alias, *argument.alias.contained)
        for letter in info.before
    )


def writes_alias(letter: str) -> AliasInfo:
    """Return `(a!)` for the letter a."""
    one = frozenset((letter,))
    return AliasInfo(one, one, is_write=True)
