"""Is a value what a schema asks for? One check for each type; it gives the value in the form that kernels see.

What is accepted is what PyTorch's Python calls accept: an int where a float is wanted, one int for `int[2]`, a tuple
for a list, None for a tensor, which then is undefined. Source: torch/csrc/jit/python/pybind_utils.cpp (`toIValue`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeAlias

import numpy as np

from dispatchlab.call.tensor import Generator, Tensor
from dispatchlab.call.values import Device, DType, Layout, MemoryFormat
from dispatchlab.call.wrapped_numbers import NUMBERS, wrapped_number
from dispatchlab.errors import CallError
from dispatchlab.model.schema import Argument
from dispatchlab.model.schema_types import (
    DictType,
    ListType,
    OptionalType,
    SimpleType,
    TupleType,
    Type,
    UnionType,
)

Check: TypeAlias = Callable[[object], object]


class NotOfTypeError(Exception):
    """A value is not of the type that was asked for."""


@cache
def check_of(type_: Type) -> Check:
    """The check for a type: it returns the value as kernels see it, or raises `NotOfTypeError`."""
    match type_:
        case SimpleType(name):
            return _SIMPLE.get(name, _anything)
        case OptionalType(element):
            return _optional(check_of(element))
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
    """The default of an argument as kernels see it; a new list each time."""
    assert argument.default is not None
    value: object = argument.default.value
    type_ = argument.type.element if isinstance(argument.type, OptionalType) else argument.type
    if value is not None and isinstance(type_, SimpleType):
        known = {"ScalarType": DType, "Layout": Layout, "MemoryFormat": MemoryFormat}.get(type_.name)
        if known is not None and isinstance(value, int):
            return known(value)
    return check_of(argument.type)(value)


def same_value(one: object, other: object) -> bool:
    """Whether two values are equal and of the same type, as 1 and 1.0 are not."""
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


def _anything(value: object) -> object:
    return value


def _tensor(value: object) -> object:
    if value is None or isinstance(value, Tensor):
        return value
    raise NotOfTypeError


def tensor_or_number(value: object) -> object:
    """A tensor, and a number as one that is made of it."""
    if isinstance(value, np.number | np.bool_):
        value = value.item()
    return wrapped_number(value) if isinstance(value, NUMBERS) else _tensor(value)


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
    if isinstance(value, bool | np.bool_):
        return bool(value)
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


def _optional(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


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
