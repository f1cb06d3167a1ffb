"""Schema compatibility: whether code for one schema of an operator works with another schema, by PyTorch's rule.

`backward_break` checks callers of the old schema with the new one. Types are compared as in calls, where
ScalarType, Layout, MemoryFormat and SymInt are int. Source: `isBackwardCompatibleWith` in
aten/src/ATen/core/function_schema.cpp, and `isSubtypeOfExt` in aten/src/ATen/core/type.cpp and
aten/src/ATen/core/union_type.cpp.
"""

from __future__ import annotations

from dispatchlab.model.schema import (
    ALL_NUMBERS,
    ANY,
    NONE,
    SCALAR,
    Argument,
    Default,
    FunctionSchema,
    ListType,
    OptionalType,
    SimpleType,
    TupleType,
    Type,
    UnionType,
    WrapperType,
    default_text,
    fake_of,
    without_size,
)
from dispatchlab.model.schema_difference import same_type

_NUMBERS: tuple[Type, ...] = ALL_NUMBERS.members


def backward_break(old: FunctionSchema, new: FunctionSchema) -> str | None:
    """Return the reason why the new schema breaks callers of the old schema; None if it does not.

    An opaque schema is compatible with every schema, because its content is unknown.
    """
    if old.is_opaque or new.is_opaque:
        return None
    return (
        _structure_break(old, new)
        or _fewer_arguments(old, new)
        or _returns_break(old, new)
        or _arguments_break(old, new)
    )


def _structure_break(old: FunctionSchema, new: FunctionSchema) -> str | None:
    if old.name != new.name:
        return f"it was called {old.name} and is called {new.name}"
    if (old.is_vararg, old.is_varret) != (new.is_vararg, new.is_varret):
        return "a `...` came or went"
    if len(old.returns) != len(new.returns):
        return f"it returned {_values(len(old.returns))} and returns {_values(len(new.returns))}"
    return None


def _values(count: int) -> str:
    return "nothing" if count == 0 else "1 value" if count == 1 else f"{count} values"


def _fewer_arguments(old: FunctionSchema, new: FunctionSchema) -> str | None:
    if len(new.arguments) >= len(old.arguments):
        return None
    left = {argument.name for argument in new.arguments}
    gone = [f"`{argument.name}`" for argument in old.arguments if argument.name not in left]
    return f"it lost {', '.join(gone) or 'arguments'}"


def _returns_break(old: FunctionSchema, new: FunctionSchema) -> str | None:
    for at, (was, now) in enumerate(zip(old.returns, new.returns, strict=True), start=1):
        # NB: callers get what is returned, so here it is the old one that must take the new one
        if _backward_argument(now, was) is not None:
            what = f"`{was.name}`" if was.name else "it" if len(old.returns) == 1 else f"value {at}"
            return f"{what} returned `{was}` and returns `{now}`" if what == "it" else f"{what} was `{was}`, is `{now}`"
    return None


def _arguments_break(old: FunctionSchema, new: FunctionSchema) -> str | None:
    """Compare the arguments before the written ones, then new arguments, then the written ones."""
    olds, news = old.arguments, new.arguments
    old_out, new_out = _first_out(old), _first_out(new)
    for at in range(old_out):
        if found := _backward_argument(olds[at], news[at]):
            return found
    for argument in news[old_out:new_out]:
        if argument.default is None:
            return f"the new argument `{argument}` has no default"
    for at in range(old_out, len(olds)):
        there = at - old_out + new_out
        if there >= len(news):
            return f"it lost `{olds[at].name}`"  # NB: upstream raises IndexError here
        if found := _backward_argument(olds[at], news[there]):
            return found
    return None


def _first_out(schema: FunctionSchema) -> int:
    """Return the position of the first argument that is keyword-only and written to."""
    outs = (at for at, argument in enumerate(schema.arguments) if argument.kwarg_only and argument.is_written)
    return next(outs, len(schema.arguments))


def _backward_argument(old: Argument, new: Argument) -> str | None:
    if found := _argument(old, new):
        return found
    if not is_subtype(fake_of(old.type), fake_of(new.type)):
        return f"`{new.name}` took {old.type} and takes {new.type}"
    return _default(old, new)


def _argument(old: Argument, new: Argument) -> str | None:
    if old.name != new.name:
        return f"`{new.name}` stands where `{old.name}` stood"
    if _size(old.type) != _size(new.type):
        return f"`{new.name}` took {old.type} and takes {new.type}"
    if old.alias != new.alias:
        return f"the alias annotation of `{new.name}` was {old.alias or 'none'} and is {new.alias or 'none'}"
    if new.kwarg_only and not old.kwarg_only:
        return f"`{new.name}` is keyword-only now"
    return None


def _default(old: Argument, new: Argument) -> str | None:
    if old.default is None or old.default == new.default:
        return None
    return f"the default of `{new.name}` was {_shown(old.default, old)} and is {_shown(new.default, new)}"


def _shown(default: Default | None, argument: Argument) -> str:
    return "none" if default is None else default_text(default, argument.type)


def _size(type_: Type) -> int | None:
    match type_:
        case ListType(_, size) | OptionalType(ListType(_, size)):
            return size
        case _:
            return None


def is_subtype(narrow: Type, wide: Type) -> bool:
    """Return whether a value of one type is accepted for another type, as PyTorch's `isSubtypeOf` decides."""
    narrow, wide = without_size(narrow), without_size(wide)
    match narrow:
        case UnionType(members):
            held = all(any(is_subtype(one, each) for each in _held(wide)) for one in members)
            return held or same_type(narrow, wide, by_members=True)
        case OptionalType(element):
            match wide:
                case OptionalType(other):
                    return is_subtype(element, other)
                case UnionType(members):
                    return _holds(members, NONE) and _holds(members, element)
                case _:
                    return _is_plain_subtype(narrow, wide)
        case SimpleType("Scalar") if isinstance(wide, UnionType):
            return all(_holds(wide.members, number) for number in _NUMBERS)
        case SimpleType("NoneType") if isinstance(wide, OptionalType):
            return True
        case SimpleType("int" | "float" | "complex") if wide == SCALAR:
            return True
        case _:
            return _is_plain_subtype(narrow, wide) or _is_covariant(narrow, wide)


def _is_plain_subtype(narrow: Type, wide: Type) -> bool:
    if wide == ANY or same_type(narrow, wide, by_members=True):
        return True
    match wide:
        case OptionalType(element):
            return is_subtype(narrow, element)
        case UnionType(members):
            return any(is_subtype(narrow, member) for member in members)
        case _:
            return False


def _is_covariant(narrow: Type, wide: Type) -> bool:
    match narrow, wide:
        case TupleType(ones), TupleType(others):
            return len(ones) == len(others) and all(map(is_subtype, ones, others))
        case WrapperType(wrapper, one), WrapperType(another, other):
            return wrapper == another and wrapper != "RRef" and is_subtype(one, other)
        case _:
            return False


def _held(wide: Type) -> tuple[Type, ...]:
    """Return the types to compare the members of a union with."""
    match wide:
        case UnionType(members):
            return members
        case OptionalType(element):
            return (NONE, *(_NUMBERS if element == SCALAR else (element,)))
        case SimpleType("Scalar"):
            return _NUMBERS
        case _:
            return (wide,)


def _holds(members: tuple[Type, ...], type_: Type) -> bool:
    if type_ == SCALAR:
        return all(_holds(members, number) for number in _NUMBERS)
    return any(is_subtype(type_, member) for member in members)
