"""Arguments without their defaults, and with them again: the same for every operator there is."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dispatchlab import (
    CallError,
    FunctionSchema,
    parse_schema,
    tensor,
)
from dispatchlab.call import DType, Generator, Layout, MemoryFormat
from dispatchlab.call.call_signature import default_value, same_value
from dispatchlab.call.tensor_options import CPU
from dispatchlab.lab.overrides import (
    normalize,
    without_defaults,
)
from dispatchlab.model.schema import Argument, ListType, OptionalType, SimpleType, TupleType, Type
from dispatchlab.registries.file import open_bundled
from tests.effort import share


def _values_of(type_: Type, choose: random.Random) -> Any:
    match type_:
        case OptionalType(element):
            return None if choose.random() < 0.3 else _values_of(element, choose)
        case ListType(element, size):
            return [_values_of(element, choose) for _ in range(choose.randint(0, 3) if size is None else size)]
        case TupleType(elements):
            return tuple(_values_of(one, choose) for one in elements)
        case SimpleType(name) if name in _MAKERS:
            return _MAKERS[name](choose)
        case _:
            return object()


_MAKERS: dict[str, Callable[[random.Random], Any]] = {
    "Tensor": lambda choose: tensor([choose.random()]),
    "int": lambda choose: choose.randint(-2, 2),
    "SymInt": lambda choose: choose.randint(-2, 2),
    "float": lambda choose: choose.choice([0.0, 1.0, -0.5, 1e-5]),
    "bool": lambda choose: choose.random() < 0.5,
    "SymBool": lambda choose: choose.random() < 0.5,
    "complex": lambda choose: complex(choose.randint(0, 1), 1),
    "Scalar": lambda choose: choose.choice([0, 1, 1.0, True, 2.5]),
    "str": lambda choose: choose.choice(["", "mean", "none"]),
    "ScalarType": lambda choose: choose.choice([*DType]),
    "Layout": lambda choose: choose.choice([*Layout]),
    "Device": lambda choose: CPU,
    "Generator": lambda choose: Generator(seed=choose.randint(0, 9)),
    "MemoryFormat": lambda choose: choose.choice([*MemoryFormat]),
    "NoneType": lambda choose: None,
}


def _value(argument: Argument, choose: random.Random) -> Any:
    if argument.default is not None and choose.random() < 0.5:
        return default_value(argument)
    return _values_of(argument.type, choose)


def test_without_defaults_and_normalized_again_is_the_same_for_every_operator_of_the_bundled_registry() -> None:
    operators = shortened = by_name = 0
    bundled = open_bundled("torch-2.13-cpu")
    for recorded in map(bundled.operator, bundled.names[:: len(bundled.names) // share(len(bundled.names))]):
        assert recorded is not None
        if not recorded.schema:
            continue
        schema = parse_schema(recorded.schema)
        choose = random.Random(str(schema))
        operators += 1
        for _ in range(3):
            given = [_value(argument, choose) for argument in schema.arguments]
            values = _values(schema, *_all(schema, given))
            args, kwargs = without_defaults(schema, values)
            again = _values(schema, args, kwargs)
            assert len(again) == len(values) == len(schema.arguments)
            assert all(map(same_value_or_same, again, values)), (schema, values, again)
            positional = [one for one in schema.arguments if not one.kwarg_only]
            assert set(kwargs) <= {one.name for one in schema.arguments if one.kwarg_only}
            if args:
                last = positional[len(args) - 1]
                assert last.default is None or not same_value(args[-1], default_value(last)), schema
            shortened += len(args) < len(positional)
            by_name += bool(kwargs)
    assert operators >= share(3_500)
    assert shortened > share(1_000)
    assert by_name > share(1_500)


def _values(schema: FunctionSchema, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """The values of a normalized call, in the order of the schema; the keyword-only ones come by name."""
    positional, named = normalize(schema, args, kwargs)
    assert list(named) == [one.name for one in schema.arguments if one.kwarg_only]
    return [*positional, *named.values()]


def _all(schema: FunctionSchema, values: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    pairs = list(zip(schema.arguments, values, strict=True))
    return [value for one, value in pairs if not one.kwarg_only], {
        one.name: value for one, value in pairs if one.kwarg_only
    }


def same_value_or_same(one: Any, other: Any) -> bool:
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same_value_or_same, one, other))
    return one is other or same_value(one, other)


def test_normalize_refuses_what_a_call_refuses() -> None:
    schema = parse_schema("ns::f(Tensor x, int n=1, *, str mode='a') -> Tensor")
    x = tensor([1.0])
    assert normalize(schema, [x]) == ((x, 1), {"mode": "a"})
    assert normalize(schema, [x], {"n": 2, "mode": "b"}) == ((x, 2), {"mode": "b"})
    for args, kwargs, expected in (
        ([], {}, "missing a value for argument 'x'"),
        ([x, 1, "b"], {}, "takes 2 positional arguments but 3 were given"),
        ([x], {"nn": 1}, "no argument 'nn'"),
        ([x, "no"], {}, "expects int for argument 'n'"),
    ):
        with pytest.raises(CallError, match=expected):
            normalize(schema, args, kwargs)
