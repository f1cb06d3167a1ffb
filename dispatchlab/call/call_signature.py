"""Call signatures: a schema made ready to check arguments and to compute key sets.

A call accepts what PyTorch's Python calls accept: an int for a float, one int for `int[2]`, a tuple
for a list, None for a tensor, which then is undefined. Source: torch/csrc/jit/python/pybind_utils.cpp (`toIValue`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TypeAlias

import numpy as np

from dispatchlab.call.tensor import NUMBERS, Generator, Tensor, takes_numbers, wrapped_number
from dispatchlab.call.tensor_keys import UNDEFINED_TENSOR_KEYS
from dispatchlab.call.tensor_options import Device, DType, Layout, MemoryFormat
from dispatchlab.errors import CallError, ErrorKind, did_you_mean
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.schema import (
    TENSOR,
    Argument,
    DictType,
    FunctionSchema,
    ListType,
    OptionalType,
    SimpleType,
    TupleType,
    Type,
    UnionType,
)


class _Missing:
    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"


MISSING = _Missing()
"""The value of an argument that a call does not give."""


# Note [What an in-place form returns]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A kernel in C++ that has a type, as PyTorch's own operators have at the autograd keys, returns a reference to its
# argument, whatever a kernel below it returned. A kernel in Python has no type: what it returns for `Tensor(a!)`, be it
# another tensor or None, is what the caller gets.
_TYPED = frozenset(("aten", "prims"))


class CallSignature:
    """A schema with prepared checks of its arguments; it depends only on the schema.

    Args:
        schema: the schema.
    """

    def __init__(self, schema: FunctionSchema) -> None:
        arguments = schema.arguments
        self.schema = schema
        self.name = str(schema.name)
        self.arguments = arguments
        numbers = takes_numbers(schema.name)
        self.checks: tuple[Check, ...] = tuple(
            tensor_or_number if numbers and argument.type == TENSOR else check_of(argument.type)
            for argument in arguments
        )
        self.positional = sum(not argument.kwarg_only for argument in arguments)
        self._by_name = tuple((at, one.name) for at, one in enumerate(arguments) if one.kwarg_only)
        self.position = {argument.name: at for at, argument in enumerate(arguments)}
        dispatched = schema.dispatch_arguments()
        self.dispatched = tuple(at for at in range(len(arguments)) if dispatched >> at & 1)
        self.generators = tuple(at for at, argument in enumerate(arguments) if argument.type in _GENERATORS)
        self.defaults: tuple[object, ...] = tuple(
            MISSING if argument.default is None else default_value(argument) for argument in arguments
        )
        required = sum(default is MISSING for default in self.defaults)
        self.takes_every_argument = self.positional == required == len(arguments)
        self.return_checks: tuple[Check, ...] = tuple(check_of(one.type) for one in schema.returns)
        self.writes = _written_arguments(schema)
        # See Note [What an in-place form returns]
        self.written = self.writes if schema.name.namespace in _TYPED else None

    def __repr__(self) -> str:
        return f"<CallSignature {self.schema}>"

    def default(self, at: int) -> object:
        """Return the default of an argument, a new list for a list; `MISSING` without a default."""
        default = self.defaults[at]
        return [*default] if isinstance(default, list) else default

    def bind(self, args: Sequence[object], kwargs: Mapping[str, object]) -> tuple[object, ...]:
        """Return every argument of a call, checked, in the form that kernels see.

        Raises:
            CallError: of kinds `missing_argument`, `extra_argument` or `wrong_type`, naming the argument.
        """
        if len(args) > self.positional:
            message = f"{self.name} takes {self.positional} positional arguments but {len(args)} were given"
            hidden = [argument.name for argument in self.arguments if argument.kwarg_only]
            raise self.refused(
                ErrorKind.EXTRA_ARGUMENT, message + (f"; pass {', '.join(hidden)} by name" if hidden else ""), ""
            )
        held = [*args, *[MISSING] * (len(self.arguments) - len(args))]
        for name, value in kwargs.items():
            at = self.position.get(name)
            if at is None or held[at] is not MISSING:
                what = "no argument" if at is None else "two values for argument"
                hint = did_you_mean(name, self.position) if at is None else ""
                message = f"{self.name} has {what} {name!r}{hint}"
                raise self.refused(ErrorKind.EXTRA_ARGUMENT, message, name)
            held[at] = value
        return self.checked(held)

    def checked(self, values: Sequence[object]) -> tuple[object, ...]:
        """Return a checked value for each argument, as kernels get it; `MISSING` stands for its default.

        Raises:
            CallError: of kinds `missing_argument` or `wrong_type`, naming the argument.
        """
        held = [*values]
        for at, (value, check) in enumerate(zip(held, self.checks, strict=True)):
            if value is MISSING:
                held[at] = self._left_out(at)
                continue
            try:
                held[at] = check(value)
            except NotOfTypeError:
                raise self.wrong_type(at, value) from None
        return tuple(held)

    def _left_out(self, at: int) -> object:
        default = self.default(at)
        if default is MISSING:
            name = self.arguments[at].name
            raise self.refused(
                ErrorKind.MISSING_ARGUMENT, f"{self.name} is missing a value for argument {name!r}", name
            )
        return default

    def wrong_type(self, at: int, value: object) -> CallError:
        """Return the refusal of a value."""
        argument = self.arguments[at]
        shown = repr(value) if len(repr(value)) < 60 else "..."
        message = (
            f"{self.name} expects {argument.type} for argument {argument.name!r} (position {at}) "
            f"but got {type(value).__name__} {shown}"
        )
        return self.refused(ErrorKind.WRONG_TYPE, message, argument.name)

    def refused(self, kind: ErrorKind, message: str, argument: str) -> CallError:
        """Return a refusal that shows the schema."""
        facts = {"operator": self.name, "schema": str(self.schema)}
        if argument:
            facts["argument"] = argument
        return CallError(kind, f"{message}\n  {self.schema}", facts)

    def key_bits(self, values: Sequence[object], *, generators: bool) -> int:
        """Return the keys of all arguments that decide the dispatch; generators count in calls that are not boxed."""
        bits = 0
        for at in self.dispatched:
            bits |= self._bits_of(at, values[at])
        if generators:
            for at in self.generators:
                bits |= self._bits_of(at, values[at])
        return bits

    def each_key_set(self, values: Sequence[object], *, generators: bool) -> dict[str, DispatchKeySet]:
        """Return the keys of each argument that has any, by its name."""
        places = (*self.dispatched, *self.generators) if generators else self.dispatched
        bits = {self.arguments[at].name: self._bits_of(at, values[at]) for at in sorted(places)}
        return {name: DispatchKeySet(some) for name, some in bits.items() if some}

    def _bits_of(self, at: int, value: object) -> int:
        if isinstance(value, Tensor):
            return value.key_bits
        if isinstance(value, list):
            bits = 0
            for element in value:
                if element is not None:
                    bits |= element.key_bits
            return bits
        if isinstance(value, Generator):
            return value.generator_bits
        # See Note [Undefined tensors have keys]
        return UNDEFINED_TENSOR_KEYS.bits if self.arguments[at].type == TENSOR else 0

    def returns(self, values: Sequence[object], result: object) -> tuple[object, ...]:
        """Return the result of a call, made of its kernel's result and checked against the schema.

        Raises:
            NotReturnableError: it is something else.
        """
        return self._checked_returns(result) if self.written is None else self.written_returns(values, result)

    def written_returns(self, values: Sequence[object], result: object) -> tuple[object, ...]:
        """Return the result of a typed C++ kernel of an in-place or out form: the arguments that it wrote.

        See Note [What an in-place form returns].

        Raises:
            NotReturnableError: the kernel returned a value that is neither None nor fits the schema.
        """
        if result is not None:
            self._checked_returns(result)
        return tuple(values[at] for at in self.writes or ())

    def _checked_returns(self, result: object) -> tuple[object, ...]:
        count = len(self.return_checks)
        if count == 0:
            if result is not None:
                raise NotReturnableError(f"returned {type(result).__name__} and should return None")
            return ()
        if count == 1:
            given: Sequence[object] = (result,)
        elif isinstance(result, list | tuple):
            given = result
        else:
            raise NotReturnableError(f"returned {type(result).__name__} and should return {count} values")
        if len(given) != count:
            raise NotReturnableError(f"returned {len(given)} values and should return {count}")
        checked = []
        for at, (value, check) in enumerate(zip(given, self.return_checks, strict=True)):
            try:
                checked.append(check(value))
            except NotOfTypeError:
                wanted = self.schema.returns[at].type
                which = "" if count == 1 else f" as value {at}"
                what = f"returned {type(value).__name__}{which} and should return {wanted}"
                raise NotReturnableError(what) from None
        return tuple(checked)

    def wrong_return(self, kernel: str, what: NotReturnableError) -> CallError:
        """Return the refusal of a kernel's result."""
        refusal = self.refused(ErrorKind.WRONG_RETURN, f"the kernel {kernel} of {self.name} {what}", "")
        return CallError(refusal.kind, refusal.message, {**refusal.facts, "kernel": kernel})

    def as_python_call(self, values: Sequence[object]) -> tuple[Sequence[object], dict[str, object]]:
        """Return positional and named values for a Python kernel, without values that equal their default.

        Only the last positional values are left out; every keyword-only value can be left out.
        """
        count, defaults = self.positional, self.defaults
        while count and same_value(values[count - 1], defaults[count - 1]):
            count -= 1
        named = {name: values[at] for at, name in self._by_name if not same_value(values[at], defaults[at])}
        return values[:count], named


class NotReturnableError(Exception):
    """The result of a kernel does not fit the schema; the text of the error is the end of a sentence."""


class NotOfTypeError(Exception):
    """A value is not of the type that was asked for."""


Check: TypeAlias = Callable[[object], object]


@cache
def check_of(type_: Type) -> Check:
    """Return the check for a type: it returns the value as kernels see it, or raises `NotOfTypeError`."""
    match type_:
        case SimpleType(name):
            return _SIMPLE.get(name, _anything)
        case OptionalType(element):
            inner = check_of(element)
            return lambda value: None if value is None else inner(value)
        case ListType(element, size):
            # NB: None is an undefined tensor as an argument of its own, and no tensor at all inside of a list
            check = _defined_tensor if element == SimpleType("Tensor") else check_of(element)
            return _list(check, size if element in _REPEATED else None)
        case TupleType(elements):
            return _tuple(tuple(map(check_of, elements)))
        case DictType(key, value):
            return _dict(check_of(key), check_of(value))
        case UnionType(members):
            return _union(tuple(map(check_of, members)))
        case _:
            return _anything


def default_value(argument: Argument) -> object:
    """Return the default of an argument as kernels see it; a new list each time."""
    assert argument.default is not None
    value: object = argument.default.value
    type_ = argument.type.element if isinstance(argument.type, OptionalType) else argument.type
    if value is not None and isinstance(type_, SimpleType):
        known = {"ScalarType": DType, "Layout": Layout, "MemoryFormat": MemoryFormat}.get(type_.name)
        if known is not None and isinstance(value, int):
            return known(value)
    return check_of(argument.type)(value)


def same_value(one: object, other: object) -> bool:
    """Return whether two values are equal and of one type; 1 and 1.0 are not."""
    if one is other:
        return True
    kind = type(one)
    if kind is not type(other):
        return False
    if kind in _NUMBERS:
        return bool(one == other)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_value, one, other))
    return not isinstance(one, Tensor) and bool(one == other)


def tensor_or_number(value: object) -> object:
    """Return a tensor unchanged, and a number as a tensor."""
    if isinstance(value, np.number | np.bool_):
        value = value.item()
    return wrapped_number(value) if isinstance(value, NUMBERS) else _tensor(value)


def _anything(value: object) -> object:
    return value


def _tensor(value: object) -> object:
    if value is None or isinstance(value, Tensor):
        return value
    raise NotOfTypeError


def _defined_tensor(value: object) -> object:
    if isinstance(value, Tensor):
        return value
    raise NotOfTypeError


def _int(value: object) -> object:
    if isinstance(value, int | np.integer):
        return int(value)
    raise NotOfTypeError


def _float(value: object) -> object:
    if isinstance(value, int | float | np.integer | np.floating):
        return float(value)
    raise NotOfTypeError


def _bool(value: object) -> object:
    if value is None or isinstance(value, int | float | complex | np.number | np.bool_):
        return bool(value)  # NB: pybind11 takes what has a truth value for a bool, and None for False
    raise NotOfTypeError


def _complex(value: object) -> object:
    if isinstance(value, int | float | complex | np.number):
        return complex(value)
    raise NotOfTypeError


def _scalar(value: object) -> object:
    if isinstance(value, np.number | np.bool_):
        return value.item()
    if isinstance(value, int | float | complex):
        return value
    raise NotOfTypeError


def _of(wanted: type) -> Check:
    def check(value: object) -> object:
        if isinstance(value, wanted):
            return value
        raise NotOfTypeError

    return check


def _device(value: object) -> object:
    if isinstance(value, Device):
        return value
    if isinstance(value, str):
        try:
            return Device.parse(value)
        except CallError as error:
            raise NotOfTypeError from error
    raise NotOfTypeError


def _none(value: object) -> object:
    if value is None:
        return None
    raise NotOfTypeError


_SIMPLE: dict[str, Check] = {
    "Tensor": _tensor,
    "int": _int,
    "SymInt": _int,
    "float": _float,
    "bool": _bool,
    "SymBool": _bool,
    "complex": _complex,
    "Scalar": _scalar,
    "str": _of(str),
    "ScalarType": _of(DType),
    "Layout": _of(Layout),
    "MemoryFormat": _of(MemoryFormat),
    "Device": _device,
    "Generator": _of(Generator),
    "NoneType": _none,
}
_NUMBERS = frozenset((bool, int, float))
_REPEATED = frozenset(map(SimpleType, ("int", "SymInt", "float", "bool")))


def _list(check: Check, size: int | None) -> Check:
    def check_list(value: object) -> object:
        if isinstance(value, list | tuple):
            return [check(element) for element in value]
        if size is not None:
            return [check(value)] * size
        raise NotOfTypeError

    return check_list


def _tuple(checks: tuple[Check, ...]) -> Check:
    def check_tuple(value: object) -> object:
        if isinstance(value, list | tuple) and len(value) == len(checks):
            return tuple(check(element) for check, element in zip(checks, value, strict=True))
        raise NotOfTypeError

    return check_tuple


def _dict(check_key: Check, check_value: Check) -> Check:
    def check_dict(value: object) -> object:
        if isinstance(value, dict):
            return {check_key(key): check_value(held) for key, held in value.items()}
        raise NotOfTypeError

    return check_dict


def _union(checks: tuple[Check, ...]) -> Check:
    def check_union(value: object) -> object:
        for check in checks:
            try:
                return check(value)
            except NotOfTypeError:
                continue
        raise NotOfTypeError

    return check_union


_GENERATORS = (SimpleType("Generator"), OptionalType(SimpleType("Generator")))


def _written_arguments(schema: FunctionSchema) -> tuple[int, ...] | None:
    """Return the arguments that an in-place or out form returns; None for every other operator."""
    positions: list[int] = []
    for returned in schema.returns:
        found = _position_of_alias(returned, schema.arguments)
        if found is None:
            return None
        positions.append(found)
    return tuple(positions) or None


def _position_of_alias(returned: Argument, arguments: Sequence[Argument]) -> int | None:
    alias = returned.alias
    if alias is None or not alias.is_write or isinstance(returned.type, ListType):
        return None
    for at, argument in enumerate(arguments):
        if argument.alias is not None and argument.alias.is_write and argument.alias.before & alias.before:
            return at
    return None
