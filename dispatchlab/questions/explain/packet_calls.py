"""Read the arguments of a call of a name, such as `cpu 1 alpha=2`, and find the overload that it goes to."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dispatchlab.call.tensor import Generator, Tensor
from dispatchlab.call.tensor_options import DType
from dispatchlab.errors import DispatchLabError
from dispatchlab.model.overloads import Call, ObjectValue, TensorValue, Value
from dispatchlab.model.packet import Packet, PacketCall, call_packet
from dispatchlab.model.schema import FunctionSchema
from dispatchlab.questions.explain.argument_specs import (
    ArgumentSpec,
    ArgumentSpecError,
    Described,
    deciding_arguments,
    describe_arguments,
)

# Note [The arguments of a call]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# An argument is a description of a tensor, as everywhere in `explain`, or a value that Python would write: a number, a
# bool, a text in quotes, a list of these. `NAME=` before it gives it by name. Whether an overload takes a tensor can
# depend on its size, since a tensor of one element is a number as well: a description stands for one of two elements.


class TorchScriptCallError(DispatchLabError):
    """A call goes to an overload that only TorchScript has."""

    name: str
    call: str
    overload: str

    template = "{name}{call} goes to {overload}, which only TorchScript has: it never reaches the dispatcher"


@dataclass(frozen=True, slots=True)
class Given:
    """The arguments of a call: as they were given, and as Python has them."""

    args: tuple[tuple[ArgumentSpec, Value], ...]
    kwargs: tuple[tuple[str, ArgumentSpec, Value], ...]

    @property
    def call(self) -> Call:
        """The call."""
        return Call(tuple(value for _, value in self.args), tuple((name, value) for name, _, value in self.kwargs))


def read_call(arguments: Sequence[ArgumentSpec]) -> Given:
    """The arguments of a call. See Note [The arguments of a call].

    Raises:
        ArgumentSpecError: one cannot be read, or a positional one comes after one by name, or a name comes twice.
    """
    args: list[tuple[ArgumentSpec, Value]] = []
    kwargs: dict[str, tuple[ArgumentSpec, Value]] = {}
    for spec in arguments:
        named = _NAMED.match(spec) if isinstance(spec, str) else None
        if named is None and kwargs:
            raise ArgumentSpecError(
                f"{spec} comes after {list(kwargs)[-1]}=, and is given by position: name it as well"
            )
        if named is None or not isinstance(spec, str):
            args.append((spec, _value("", spec)))
        elif named[1] in kwargs:
            raise ArgumentSpecError(f"{named[1]} was given twice")
        else:
            text = spec[named.end() :].strip()
            kwargs[named[1]] = text, _value(named[1], text)
    return Given(tuple(args), tuple((name, *pair) for name, pair in kwargs.items()))


_NAMED = re.compile(r"\s*([A-Za-z_]\w*)\s*=")
_LITERAL = re.compile(r"[-+.\d'\"\[({]|(?:True|False|None)$")
_OBJECTS = {"dtype": "ScalarType", "layout": "Layout", "memory_format": "MemoryFormat"}


def _value(name: str, spec: ArgumentSpec) -> Value:
    """What Python has for an argument."""
    match spec:
        case None:
            return None
        case Tensor():
            return TensorValue((2,))
        case Generator():
            return ObjectValue("Generator", "torch.Generator()")
        case str():
            return _value_of_text(name, spec.strip())
        case _:
            return [_value("", each) for each in spec]


def _value_of_text(name: str, text: str) -> Value:
    if text == "none":
        return None
    if name in _OBJECTS or (not name and text in DType.__members__):
        return ObjectValue(_OBJECTS.get(name, "ScalarType"), f"torch.{text.removeprefix('torch.')}")
    if name == "device":
        return text.strip("'\"")
    if text.startswith("list:"):
        return [_value_of_text("", each.strip()) for each in text[5:].split(",") if each.strip()]
    if text.partition(" ")[0] == "generator":
        return ObjectValue("Generator", "torch.Generator()")
    if not _LITERAL.match(text):
        return TensorValue((2,))
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        value = ...
    if not _is_value(value):
        raise ArgumentSpecError(
            f"{text} is no value: expected one that Python reads, such as 1, 2.5, '\"mean\"' or [1, 2]"
        )
    return value  # type: ignore[no-any-return]  # checked


def _is_value(value: object) -> bool:
    match value:
        case list() | tuple():
            return all(map(_is_value, value))
        case dict():
            return all(map(_is_value, (*value, *value.values())))
        case _:
            return value is None or isinstance(value, bool | int | float | complex | str)


def resolve(packet: Packet, given: Given) -> PacketCall:
    """The overload that a call goes to.

    Raises:
        NoOverloadError: no overload takes it.
        SeveralTakeItError: several may, and the order in which they are tried is not known.
        TorchScriptCallError: TorchScript alone has the one that does.
    """
    found = call_packet(packet, given.call)
    taken = found.tried[-1].name
    if any(overload.torchscript for overload in packet.overloads if overload.name == taken):
        raise TorchScriptCallError(packet.name, str(given.call), taken)
    return found


def describe_call(schema: FunctionSchema, given: Given, *, privateuse1: str = "") -> Described:
    """What the arguments of a call that an overload takes add to its key set.

    Raises:
        ArgumentSpecError: a description cannot be read.
    """
    deciding = {argument.name for argument in deciding_arguments(schema)}
    specs: list[ArgumentSpec] = []
    numbers: dict[str, str] = {}
    for name, spec, value in _by_name(schema, given):
        if name in deciding and isinstance(value, bool | int | float | complex):
            numbers[name] = str(value)
            specs.append(f"{name}=cpu")
        elif name in deciding:
            specs.append(f"{name}={_description(spec, value)}" if isinstance(spec, str) else spec)
        elif name in ("device", "layout", "dtype") and isinstance(spec, str) and value is not None:
            specs.append(f"{name}={spec.strip(_QUOTES).removeprefix('torch.')}")
    described = describe_arguments(schema, specs, privateuse1=privateuse1)
    noted = (
        replace(one, given=numbers[one.name], note="a number becomes a tensor on the CPU")
        if one.name in numbers
        else one
        for one in described.arguments
    )
    return replace(described, arguments=tuple(noted))


_QUOTES = "'\""


def _by_name(schema: FunctionSchema, given: Given) -> Iterator[tuple[str, ArgumentSpec, Value]]:
    for argument, (spec, value) in zip(schema.arguments, given.args, strict=False):
        yield argument.name, spec, value
    yield from given.kwargs


def _description(spec: str, value: Value) -> str:
    """The description of what an argument takes that decides the dispatch."""
    if value is None:
        return "none"
    return "list:" if isinstance(value, list | tuple) and not value else spec
