"""Which overload a call of `ns::name` goes to, and a call that two overloads compete for.

`torch.ops.ns.name(...)` tries the overloads of the name in order, and the first that takes the arguments runs. So the
order shows exactly where a call is taken by two of them: `common_call` finds such a call, from the schemas alone.
Source: `getOpWithStack` and `toIValue` in torch/csrc/jit/python/pybind_utils.{h,cpp}, and pybind11's casts.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import TypeAlias

from dispatchlab._short_repr import member_repr
from dispatchlab.model.keys import PARSED_DEVICES
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Block, Def, Registration
from dispatchlab.model.schema import Argument, FunctionSchema, clone_with_name
from dispatchlab.model.schema_types import (
    ANY,
    NONE,
    TENSOR,
    ClassType,
    DictType,
    ListType,
    OptionalType,
    SimpleType,
    TupleType,
    Type,
    UnionType,
    WrapperType,
    is_subtype,
    kind_of,
    optional_of,
)


@dataclass(frozen=True, slots=True)
class TensorValue:
    """A tensor of ones, as an argument of a call.

    Args:
        shape: its sizes.
        element: `float`, `int`, `bool` or `complex`.
    """

    shape: tuple[int, ...]
    element: str = "float"

    def __repr__(self) -> str:
        dtype = "" if self.element == "float" else f", dtype=torch.{_DTYPES[self.element]}"
        size = str(self.shape[0]) if len(self.shape) == 1 else str(self.shape)
        return f"torch.ones({size}{dtype})"


@dataclass(frozen=True, slots=True)
class ObjectValue:
    """An argument that is an object of PyTorch.

    Args:
        kind: the type of schemas that it is a value of, `ScalarType` or `Generator`.
        text: the Python expression that makes it.
    """

    kind: str
    text: str

    def __repr__(self) -> str:
        return self.text


Value: TypeAlias = (
    "bool | int | float | complex | str | TensorValue | ObjectValue "
    "| list[Value] | tuple[Value, ...] | dict[Value, Value] | None"
)
"""An argument of a call. Its `repr` is the Python expression that makes it."""


class Match(Enum):
    """What an overload does with an argument or a call."""

    TAKES = "takes it"
    REFUSES = "refuses it, so that the next overload is tried"
    RAISES = "raises an error that ends the call, so that no other overload is tried"

    __repr__ = member_repr


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of a call.

    >>> str(Call((TensorValue((2,)), 1), (("alpha", 2),)))
    '(torch.ones(2), 1, alpha=2)'
    """

    args: tuple[Value, ...]
    kwargs: tuple[tuple[str, Value], ...] = ()

    def __str__(self) -> str:
        return f"({', '.join([*map(repr, self.args), *(f'{name}={value!r}' for name, value in self.kwargs)])})"


def earlier_overloads(order: Sequence[FunctionSchema], name: OperatorName) -> Iterator[tuple[str, str]]:
    """The overloads that are tried before an operator and compete with it, each with a call for which that matters.

    Args:
        order: all overloads of the name, as they are tried.
        name: the operator; nothing competes with one that is not among them.
    """
    own = next((schema for schema in order if schema.name == name), None)
    if own is None:  # it is refused, or gone
        return
    for each in order:
        if each.name == name:
            return
        call = example_call(each, own)
        if call is not None:
            yield str(each.name), str(call)


def example_call(one: FunctionSchema, other: FunctionSchema) -> Call | None:
    """The `common_call` of two overloads, the same whichever comes first."""
    return common_call(*sorted((one, other), key=lambda schema: str(schema.name)))


def schemas_in(registration: Registration, namespace: str = "") -> Iterator[FunctionSchema]:
    """The schemas that a registration defines, under the whole names of their operators; none for a name alone."""
    match registration:
        case Block():
            for inner in registration.registrations:
                yield from schemas_in(inner, registration.namespace or "")
        case Def(schema=FunctionSchema() as schema):
            yield clone_with_name(schema, schema.name.within(namespace))
        case _:
            pass


def overloads_text(earlier: Iterable[tuple[str, str]]) -> str:
    """A line for each overload that is tried before an operator: which, and a call for which that matters."""
    return "".join(f"{name} is tried first: {call}\n" for name, call in sorted(earlier))


def match_call(schema: FunctionSchema, args: Sequence[Value], kwargs: Mapping[str, Value]) -> tuple[Match, str]:
    """What one overload does with a call, and why it does not take it, as PyTorch says it."""
    name, declared = schema.name.qualified, _as_called(schema)
    if len(args) + len(kwargs) > len(declared):
        given = len(args) + len(kwargs)
        text = f"{name}() expected at most {len(declared)} argument(s) but received {given} argument(s)."
        return Match.REFUSES, f"{text} Declaration: {schema}"
    for at, value in enumerate(args):
        if declared[at].kwarg_only:
            text = f"{name}() takes {at} positional argument(s) but {len(args)} was/were given."
            return Match.REFUSES, f"{text}  Declaration: {schema}"
        if (match := match_value(declared[at].type, value)) is not Match.TAKES:
            return match, _mismatch(schema, at, value, match)
    used = 0
    for at, argument in enumerate(declared[len(args) :], len(args)):
        if argument.name in kwargs:
            used += 1
            value = kwargs[argument.name]
            if (match := match_value(argument.type, value)) is not Match.TAKES:
                return match, _mismatch(schema, at, value, match)
        elif argument.default is None:
            return Match.REFUSES, f"{name}() is missing value for argument '{argument.name}'. Declaration: {schema}"
    if used == len(kwargs):
        return Match.TAKES, ""
    known = [argument.name for argument in declared]
    unknown = next((each for each in kwargs if each not in known), None)
    if unknown is not None:
        return Match.REFUSES, f"Unknown keyword argument '{unknown}' for operator '{name}'. Schema: {schema}"
    twice = next(argument for argument in declared if argument.name in kwargs)
    text = f"Argument '{twice.name}' specified both as positional and keyword argument. Schema: {schema}"
    # NB: PyTorch fails on an assertion there
    return Match.REFUSES if twice.default is None else Match.RAISES, text


def _mismatch(schema: FunctionSchema, at: int, value: Value, match: Match) -> str:
    found = value.kind if isinstance(value, ObjectValue) else type(value).__name__.replace("TensorValue", "Tensor")
    if match is Match.RAISES:
        return f"{schema.name}() fails on {value!r} for argument '{schema.arguments[at].name}'"
    wanted = f"Expected a value of type '{schema.arguments[at].type}' for argument '{schema.arguments[at].name}'"
    return f"{schema.name.qualified}() {wanted} but instead found type '{found}'."


def _as_called(schema: FunctionSchema) -> tuple[Argument, ...]:
    """The arguments, with another type for the tensors of operators that take numbers for them."""
    name = schema.name
    if name.namespace != "prims" and not (name.namespace == "aten" and name.name in _NUMBERS_AS_TENSORS):
        return schema.arguments
    return tuple(replace(argument, type=_with_numbers(argument.type)) for argument in schema.arguments)


def _with_numbers(type_: Type) -> Type:
    match type_:
        case SimpleType("Tensor"):
            return SimpleType("Tensor or number")
        case OptionalType(element):
            return OptionalType(_with_numbers(element))
        case ListType(OptionalType(element), size):
            return ListType(OptionalType(_with_numbers(element)), size)
        case _:
            return type_


_NUMBERS_AS_TENSORS = frozenset(("_conj", "_to_copy", "copy", "copy_", "floor_divide", "floor_divide_", "to")) | {
    f"{name}{mutates}"
    for name in ("add", "div", "divide", "mul", "multiply", "sub", "subtract", "true_divide")
    for mutates in ("", "_")
}
"""Source: `should_allow_numbers_as_tensors` in torch/csrc/utils/python_arg_parser.cpp."""


# Note [What an argument takes]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A packet does not match types with types, it tries to convert each value. What converts is wider than a schema says:
# - None is a Tensor and a bool, a tensor with one element is an int, a float, a complex and a bool;
# - a list of most types takes whatever can be iterated: a string, the keys of a dictionary, a tensor along its first
#   dimension. `int[]`, `float[]`, `bool[]` and `Tensor[]` take sequences alone, converted by pybind11;
# - a number or a bool is an `int[2]`, and a float a `float[2]`; an int is no `SymInt[2]`;
# - a dtype is an int and a Scalar;
# - a number is a Tensor of `aten::add` and a few more, and of everything in `prims`.
# Some values neither convert nor are refused: a string that is no device, a value of which Any cannot infer a type, an
# int too large for a Scalar. These end the call. A Stream reads any object as if it were one; whatever comes of that,
# no other overload is tried, so that it is modelled as an error.

_DTYPES = {"float": "float32", "int": "int64", "bool": "bool", "complex": "complex64"}
_DEVICE = f"(?:{'|'.join(PARSED_DEVICES)})(?::(?:0|[1-9][0-9]*))?"
_INTS, _SCALAR_INTS = range(-(2**63), 2**63), range(-(2**63), 2**64)
_INT_OBJECTS = frozenset(("ScalarType", "Layout", "MemoryFormat", "QScheme"))
_BY_PYBIND = frozenset(("int", "float", "bool", "Tensor"))
_INFERRED_OBJECTS = {"ScalarType": "int", "Layout": "int", "QScheme": "int"} | {
    kind: kind for kind in ("Device", "Generator", "Stream")
}
_KEYS = frozenset(("bool", "int", "float", "complex", "Tensor", "Device", "str"))
_OF_OBJECTS = frozenset(("Device", "Storage", "Generator", "Capsule"))


def match_value(type_: Type, value: Value) -> Match:
    """What an argument of this type does with a value. See Note [What an argument takes].

    >>> from dispatchlab.model.schema_types import SimpleType
    >>> match_value(SimpleType("float"), 1).name, match_value(SimpleType("Device"), "nowhere").name
    ('TAKES', 'RAISES')
    """
    match type_:
        case OptionalType(element):
            return Match.TAKES if value is None else match_value(element, value)
        case ListType(element, size):
            return _match_list(element, size, value)
        case TupleType(elements):
            items = _iterated(value)
            if items is None or len(items) != len(elements):
                return Match.REFUSES
            return _first_failure(map(match_value, elements, items))
        case DictType(key, of_key):
            return _match_dict(key, of_key, value)
        case UnionType():
            return _match_inferred(value, type_)
        case ClassType() | WrapperType():
            if value is None and kind_of(type_) in ("RRef", "Future", "Await"):
                return Match.RAISES
            same = isinstance(value, ObjectValue) and value.kind == _opaque_kind(type_)
            return Match.TAKES if same else Match.REFUSES
        case SimpleType(name):
            return _match_simple(name, value)
        case _:
            return Match.REFUSES  # a type variable converts from nothing


def _match_simple(name: str, value: Value) -> Match:
    kind = value.kind if isinstance(value, ObjectValue) else ""
    match name:
        case "Any":
            return _match_inferred(value, None)
        case "Tensor":
            return _taken(value is None or isinstance(value, TensorValue))
        case "Tensor or number":
            if isinstance(value, int) and value not in _SCALAR_INTS:
                return Match.RAISES
            return _taken(value is None or isinstance(value, TensorValue | int | float | complex))
        case "int":
            return _taken(_as_int(value) or kind in _INT_OBJECTS)
        case "ScalarType" | "Layout" | "MemoryFormat":
            return _taken(_as_int(value) or kind == name)
        case "SymInt":
            return _taken(_as_int(value))
        case "float":
            return _taken(_as_float(value))
        case "complex":
            return _taken(_as_float(value) or isinstance(value, complex))
        case "bool" | "SymBool":
            return _taken(_as_bool(value))
        case "Scalar":
            if isinstance(value, int) and value not in _SCALAR_INTS:
                return Match.RAISES
            return _taken(isinstance(value, int | float | complex) or kind in _INT_OBJECTS - {"MemoryFormat"})
        case "str":
            return _taken(isinstance(value, str))
        case "Device" if isinstance(value, str):
            return Match.TAKES if re.fullmatch(_DEVICE, value) else Match.RAISES
        case "QScheme":
            return _taken(isinstance(value, int) and value in _INTS)
        case "NoneType":
            return _taken(value is None)
        case "Stream":
            return Match.TAKES if kind == name else Match.RAISES
        case "Capsule" if value is None:
            return Match.RAISES
        case _:
            return _taken(kind == name and name in _OF_OBJECTS)


def _taken(takes: object) -> Match:
    return Match.TAKES if takes else Match.REFUSES


def _is_one(value: Value) -> bool:
    return isinstance(value, TensorValue) and all(size == 1 for size in value.shape)


def _as_int(value: Value) -> bool:
    return _is_one(value) or (isinstance(value, int) and value in _INTS)


def _as_float(value: Value) -> bool:
    return _is_one(value) or isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**1024)


def _as_bool(value: Value) -> bool:
    return value is None or isinstance(value, int | float | complex) or _is_one(value)


def _match_sym_int(value: Value) -> Match:
    """What a list of SymInt does with an element."""
    if isinstance(value, TensorValue):
        if _is_one(value) and value.element == "bool":
            return Match.RAISES
        return _taken(_is_one(value) and value.element == "int")
    return _taken(isinstance(value, int) and value in _INTS)


def _iterated(value: Value) -> Sequence[Value] | None:
    """What Python iterates over; None where it does not."""
    match value:
        case str() | list() | tuple():
            return list(value)
        case dict():
            return list(value)
        case TensorValue((size, *rest), element):
            return [TensorValue(tuple(rest), element)] * size
        case ObjectValue("Storage"):
            return [0]
        case _:
            return None


def _first_failure(matches: Iterable[Match]) -> Match:
    return next((match for match in matches if match is not Match.TAKES), Match.TAKES)


def _match_list(element: Type, size: int | None, value: Value) -> Match:
    name, items = kind_of(element), _iterated(value)
    if name in _BY_PYBIND:
        if size is not None and name == "int" and isinstance(value, int):
            return _taken(value in _INTS)
        if size is not None and name == "float" and isinstance(value, float):
            return Match.TAKES
        sequence = not isinstance(value, str | dict | TensorValue) and items is not None
        return _taken(sequence and all(map(_ELEMENTS[name], items or ())))
    if items is None:
        return Match.REFUSES
    if name == "SymInt":
        return _first_failure(map(_match_sym_int, items))
    return _first_failure(match_value(element, item) for item in items)


_ELEMENTS = {
    "int": _as_int,
    "float": _as_float,
    "bool": _as_bool,
    "Tensor": lambda value: isinstance(value, TensorValue),
}


def _match_dict(key: Type, of_key: Type, value: Value) -> Match:
    if value is None:
        return Match.RAISES  # NB: a cast that pybind11 takes for a wrong argument of the packet itself
    if isinstance(value, dict):
        pairs = list(value.items())
    else:
        items = _iterated(value)
        found = None if items is None else [_iterated(item) for item in items]
        if found is None or any(pair is None or len(pair) != 2 or not _hashable(pair[0]) for pair in found):
            return Match.REFUSES
        pairs = list({pair[0]: pair[1] for pair in found if pair is not None}.items())
    return _first_failure(itertools.chain(*((match_value(key, k), match_value(of_key, v)) for k, v in pairs)))


def _hashable(value: Value) -> bool:
    if isinstance(value, tuple):
        return all(map(_hashable, value))
    return not isinstance(value, list | dict)


def _match_inferred(value: Value, union: UnionType | None) -> Match:
    inferred = _inferred(value)
    if inferred is None:
        return Match.RAISES
    match = match_value(inferred, value)
    if match is Match.TAKES and union is not None:
        return _taken(any(is_subtype(inferred, member) for member in union.members))
    return match


def _inferred(value: Value) -> Type | None:
    """The type that PyTorch infers of a value; None where it cannot."""
    match value:
        case None:
            return NONE
        case bool() | int() | float() | complex() | str():
            return SimpleType(type(value).__name__)
        case TensorValue():
            return TENSOR
        case ObjectValue(kind):
            name = _INFERRED_OBJECTS.get(kind)
            return None if name is None else SimpleType(name)
        case tuple():
            found = [_inferred(item) for item in value]
            known = [each for each in found if each is not None]
            return TupleType(tuple(known)) if len(known) == len(found) else None
        case list():
            element = _unified(value)
            return None if element is None else ListType(element)
        case dict():
            key, of_key = _unified(value), _unified(value.values())
            return None if of_key is None or str(key) not in _KEYS else DictType(SimpleType(str(key)), of_key)


def _unified(values: Iterable[Value]) -> Type | None:
    """The one type of several values; None where there is none."""
    one: Type | None = None
    for value in values:
        found = _inferred(value)
        if found is None:
            return None
        one = found if one is None else _unify(one, found)
        if one is None:
            return None
    return one


def _unify(first: Type, second: Type) -> Type | None:
    if is_subtype(first, second):
        return second
    if is_subtype(second, first):
        return first
    match first, second:
        case (SimpleType("NoneType"), other) | (other, SimpleType("NoneType")):
            return optional_of(other)
        case (OptionalType(element), other) | (other, OptionalType(element)):
            inner = _unify(element, other.element if isinstance(other, OptionalType) else other)
            return None if inner is None else optional_of(inner)
        case TupleType(these), TupleType(those) if len(these) == len(those):
            each = [_unify(a, b) for a, b in zip(these, those, strict=True)]
            known = tuple(one for one in each if one is not None)
            return TupleType(known) if len(known) == len(each) else None
        case _:
            return None


# Note [A call in common]
# ~~~~~~~~~~~~~~~~~~~~~~~
# Two overloads have a call in common when some number of leading arguments and some names can be given to both. Of the
# names, those that one of the two requires are enough: another one only adds a condition. So for each number of
# leading arguments there is one call to look for, and it exists when each of its arguments has a value in common.
# A value in common of two types is searched among candidates. Values that no type tells apart are one candidate, so
# that there are few atoms; lists, tuples and dictionaries are made of the values in common of what they hold.
# The order also shows where one overload takes a call and the other ends it with an error: which of the two happens is
# decided by the first. Such a call is an example, too, where none is taken by both.


def common_call(first: FunctionSchema, second: FunctionSchema) -> Call | None:
    """A call for which it matters which of two overloads is tried first; None when there is none.

    Both overloads take it; or one takes it and the other ends it with an error. See Note [A call in common].

    >>> from dispatchlab import parse_schema
    >>> first, second = map(parse_schema, ["t::foo.a(Tensor x, int n=0) -> ()", "t::foo.b(Tensor x, float s) -> ()"])
    >>> print(common_call(first, second))
    (torch.ones(2), 1)

    Returns:
        The call with the fewest arguments, by position where it can be.
    """
    return _common_call(_as_called(first), _as_called(second))


@lru_cache(maxsize=4096)
def _common_call(first: tuple[Argument, ...], second: tuple[Argument, ...]) -> Call | None:
    calls = [*_calls(first, second), *_ended_calls(first, second), *_ended_calls(second, first)]
    ranked: list[tuple[bool, int, int, Call]] = []
    for call in calls:
        matches = {
            match_call(FunctionSchema(_UNNAMED, each, ()), call.args, dict(call.kwargs))[0] for each in (first, second)
        }
        if Match.TAKES in matches and Match.REFUSES not in matches:
            ranked.append((len(matches) > 1, len(call.args) + len(call.kwargs), len(call.kwargs), call))
    return min(ranked, key=lambda each: each[:3])[3] if ranked else None


_UNNAMED = OperatorName("", "")


def _calls(first: tuple[Argument, ...], second: tuple[Argument, ...]) -> Iterator[Call]:
    """The calls that both may take, one for each number of leading arguments."""
    for given in range(min(_positional(first), _positional(second)) + 1):
        mine, others = _by_name(first[given:]), _by_name(second[given:])
        named = list(dict.fromkeys([*_required(first[given:]), *_required(second[given:])]))
        if mine.keys() >= {*named} <= others.keys():
            pairs = [*zip(first[:given], second[:given], strict=True), *((mine[name], others[name]) for name in named)]
            values = [_common_value(a.type, b.type) for a, b in pairs]
            known = [each[0] for each in values if each]
            if len(known) == len(values):
                yield _call(known, named)


def _ended_calls(taking: tuple[Argument, ...], ending: tuple[Argument, ...]) -> Iterator[Call]:
    """The calls that one may take and the other ends: at an argument, or at a name that it has taken by position."""
    for given in range(min(_positional(taking), len(ending)) + 1):
        mine, others = _by_name(taking[given:]), _by_name(ending[given:])
        required = dict.fromkeys(_required(taking[given:]))
        required |= dict.fromkeys(name for name in _required(ending[given:]) if name in mine)
        for at, ends in enumerate(ending):
            taken = taking[at] if at < given else mine.get(ends.name)
            ended = () if taken is None else _ended_value(taken.type, ends.type)
            again = ends.name in mine and (at >= given or ends.default is not None)
            for named in ([*required], list(dict.fromkeys([*required, ends.name]))) if again else ([*required],):
                is_by_name = ends.name in named
                if not (ended or (is_by_name and at < given)):
                    continue
                pairs = [*zip(taking[:given], ending[:given], strict=True)]
                pairs += [(mine[name], others.get(name, mine[name])) for name in named]
                values = [_common_value(a.type, b.type) or _common_value(a.type, a.type) for a, b in pairs]
                if ended and at < given:
                    values[at] = ended
                elif is_by_name and at >= given:
                    values[given + named.index(ends.name)] = ended
                known = [each[0] for each in values if each]
                if len(known) == len(values):
                    yield _call(known, named)


def _call(values: Sequence[Value], named: Sequence[str]) -> Call:
    given = len(values) - len(named)
    return Call(tuple(values[:given]), tuple(zip(named, values[given:], strict=True)))


def _positional(arguments: tuple[Argument, ...]) -> int:
    return next((at for at, argument in enumerate(arguments) if argument.kwarg_only), len(arguments))


def _by_name(arguments: tuple[Argument, ...]) -> dict[str, Argument]:
    return {argument.name: argument for argument in arguments}


def _required(arguments: tuple[Argument, ...]) -> list[str]:
    return [argument.name for argument in arguments if argument.default is None]


_ATOMS: tuple[Value, ...] = (
    *(TensorValue((2,)), 1, True, 1.5, 1j, "cpu", "a", TensorValue((), "int"), TensorValue((1,), "int")),
    *(ObjectValue("ScalarType", "torch.float32"), ObjectValue("Device", "torch.device('cpu')")),
    *(ObjectValue("Layout", "torch.strided"), ObjectValue("MemoryFormat", "torch.contiguous_format")),
    *(ObjectValue("Generator", "torch.Generator()"), ObjectValue("QScheme", "torch.per_tensor_affine")),
    *(ObjectValue("Storage", "torch.UntypedStorage(1)"), ObjectValue("Stream", "torch.Stream('cpu')")),
    *(None, "", [], TensorValue((0,)), 2**64, TensorValue((1,), "bool"), TensorValue((), "bool")),
)
"""Of any two values that are no container, some type takes one and not the other, or one of these stands for both; the
most usual first."""


@lru_cache(maxsize=4096)
def _common_value(first: Type, second: Type) -> tuple[Value, ...]:
    """The first value that both types take, as a tuple; empty when there is none."""
    return tuple(itertools.islice(_common_values(first, second), 1))


@lru_cache(maxsize=4096)
def _ended_value(taking: Type, ending: Type) -> tuple[Value, ...]:
    """The first value that one type takes and at which the other ends the call."""
    for value in _candidates(taking, ending):
        if match_value(ending, value) is Match.RAISES and match_value(taking, value) is Match.TAKES:
            return (value,)
    return ()


def _common_values(first: Type, second: Type) -> Iterator[Value]:
    for value in _candidates(first, second):
        if match_value(first, value) is Match.TAKES and match_value(second, value) is Match.TAKES:
            yield value


def _competed_values(first: Type, second: Type) -> list[Value]:
    """The values that no type refuses and one takes; those that both take come first."""
    matches = ((value, {match_value(first, value), match_value(second, value)}) for value in _candidates(first, second))
    found = [each for each in matches if Match.TAKES in each[1] and Match.REFUSES not in each[1]]
    return [value for value, _ in sorted(found, key=lambda each: len(each[1]))]


def _candidates(first: Type, second: Type) -> Iterator[Value]:
    """Values such that, if both types take any at all, they take one of these."""
    yield from _ATOMS
    alternatives = [*_alternatives(first)], [*_alternatives(second)]
    for a, b in (*itertools.product(*alternatives), *((each, each) for some in alternatives for each in some)):
        yield from (ObjectValue(_opaque_kind(each), f"<{each}>") for each in (a, b) if _opaque_kind(each))
        if isinstance(a, ListType | TupleType | DictType) or isinstance(b, ListType | TupleType | DictType):
            yield from _containers(a, b)


def _alternatives(type_: Type) -> Iterator[Type]:
    match type_:
        case OptionalType(element):
            yield from _alternatives(element)
        case UnionType(members):
            for member in members:
                yield from _alternatives(member)
        case _:
            yield type_


def _opaque_kind(type_: Type) -> str:
    """The kind of the objects of a type of which nothing but the type is known; empty for other types."""
    if isinstance(type_, WrapperType):
        return type_.wrapper  # of any element
    return str(type_) if isinstance(type_, ClassType) or type_ == SimpleType("Capsule") else ""


def _containers(first: Type, second: Type) -> Iterator[Value]:
    sizes = {len(each.elements) for each in (first, second) if isinstance(each, TupleType)} or {1}
    if len(sizes) > 1:
        return
    (size,) = sizes
    yield from ("a" * size, TensorValue((size,)), TensorValue((size,), "int"), TensorValue((size, 1)))
    items = [(_item(first, at), _item(second, at)) for at in range(size)]
    found = [[*_competed_values(a, b)] for a, b in items if a is not None and b is not None]
    if len(found) == len(items):
        # NB: the elements of a tuple do not depend on one another, and a few of each are enough
        for chosen in itertools.product(*(each[: None if size == 1 else 3] for each in found)):
            yield from (list(chosen), tuple(chosen))
    yield from _dictionaries(first, second, size)


def _item(type_: Type, at: int) -> Type | None:
    """The type of an item of the values of a type; None where it has no items."""
    match type_:
        case ListType(element):
            return element
        case TupleType(elements):
            return elements[at]
        case DictType(key, value):
            return TupleType((key, value))
        case SimpleType("Any" | "str" as name):
            return SimpleType(name)
        case _:
            return None


def _dictionaries(first: Type, second: Type, size: int) -> Iterator[Value]:
    for one, other in ((first, second), (second, first)):
        if not isinstance(one, DictType):
            continue
        keys: list[Type | None] = (
            [other.key] if isinstance(other, DictType) else [_item(other, at) for at in range(size)]
        )
        of_key = other.value if isinstance(other, DictType) else ANY if other == ANY else one.value
        ending = (value for value in _candidates(one.value, ANY) if match_value(one.value, value) is Match.RAISES)
        values = [*_competed_values(one.value, of_key), *itertools.islice(ending, 1)]
        found = [filter(_hashable, _competed_values(one.key, each)) for each in keys if each is not None]
        for chosen in itertools.product(*(itertools.islice(each, 8) for each in found)):
            for value in values:
                yield dict.fromkeys(chosen, value)
