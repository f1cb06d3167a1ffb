"""Read the arguments of a call of a name, such as `cpu 1 alpha=2`, and find the overload that it runs."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dispatchlab.call.python_arg_parser import NUMBERS_AS_TENSORS, PythonSignature
from dispatchlab.call.tensor import Generator, Tensor
from dispatchlab.call.tensor_options import DType, Layout, MemoryFormat
from dispatchlab.errors import DispatchLabError, RequestError
from dispatchlab.model.packet import Packet, PacketOverload
from dispatchlab.model.printed_schema import parse_printed
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


@dataclass(frozen=True, slots=True)
class Tried:
    """An overload that a call tried.

    Args:
        name: the operator.
        takes: whether it accepted the call.
        reason: why it did not accept the call.
    """

    name: str
    takes: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PacketCall:
    """A call of a name.

    Args:
        packet: the name.
        call: the given arguments.
        tried: the tried overloads, in order; the last one accepted the call.
    """

    packet: str
    call: str
    tried: tuple[Tried, ...]


class NoOverloadError(DispatchLabError):
    """No overload of a name accepts a call.

    Args:
        name: the name.
        call: the arguments.
        reasons: what each overload takes, and why it did not take the call.
    """

    name: str
    call: str
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        what = f"no overload of {self.name} takes" if len(self.reasons) > 1 else f"{self.name} does not take"
        return "\n  ".join((f"{what} {self.call}:", *self.reasons))


@dataclass(frozen=True, slots=True)
class Given:
    """The arguments of a call: the given texts, and their Python values."""

    args: tuple[tuple[ArgumentSpec, object], ...]
    kwargs: tuple[tuple[str, ArgumentSpec, object], ...]

    @property
    def has_values(self) -> bool:
        """Return whether an argument is a value, and no description of a tensor."""
        values = (*(value for _, value in self.args), *(value for _, _, value in self.kwargs))
        return any(value is not _TENSOR for value in values)

    def __str__(self) -> str:
        named = (f"{name}={_shown(spec)}" for name, spec, _ in self.kwargs)
        return f"({', '.join([*(_shown(spec) for spec, _ in self.args), *named])})"


def _shown(spec: ArgumentSpec) -> str:
    return spec.strip() if isinstance(spec, str) else str(spec)


def read_call(arguments: Sequence[ArgumentSpec]) -> Given:
    """Return the arguments of a call. See Note [The arguments of a call].

    Raises:
        ArgumentSpecError: an argument cannot be read, is positional after a keyword argument, or has a name twice.
    """
    args: list[tuple[ArgumentSpec, object]] = []
    kwargs: dict[str, tuple[ArgumentSpec, object]] = {}
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
_OBJECTS: Mapping[str, Mapping[str, object]] = {
    "dtype": DType.__members__,
    "layout": Layout.__members__,
    "memory_format": MemoryFormat.__members__,
}
_TENSOR = Tensor(np.ones(2, np.float32))
"""What a description stands for."""


def _value(name: str, spec: ArgumentSpec) -> object:
    """Return the Python value of an argument."""
    match spec:
        case str():
            return _value_of_text(name, spec.strip())
        case None | Tensor() | Generator():
            return spec
        case _:
            return [_value("", each) for each in spec]


def _value_of_text(name: str, text: str) -> object:
    if text == "none":
        return None
    known = _OBJECTS.get(name or "dtype", {}).get(text.removeprefix("torch."))
    if known is not None:
        return known
    if name == "device":
        return text.strip("'\"")
    if text.startswith("list:"):
        return [_value_of_text("", each.strip()) for each in text[5:].split(",") if each.strip()]
    if text.partition(" ")[0] == "generator":
        return Generator()
    if not _LITERAL.match(text):
        return _TENSOR
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        value = ...
    if not _is_value(value):
        raise ArgumentSpecError(
            f"{text} is no value: expected one that Python reads, such as 1, 2.5, '\"mean\"' or [1, 2]"
        )
    return value


def _is_value(value: object) -> bool:
    match value:
        case list() | tuple():
            return all(map(_is_value, value))
        case dict():
            return all(map(_is_value, (*value, *value.values())))
        case _:
            return value is None or isinstance(value, bool | int | float | complex | str)


def resolve(packet: Packet, given: Given) -> PacketCall:
    """Return the first overload that accepts a call.

    Raises:
        NoOverloadError: no overload does.
        RequestError: several do, but the order in which they are tried is not known; or only TorchScript has it.
    """
    args, kwargs = [value for _, value in given.args], {name: value for name, _, value in given.kwargs}
    refusing: list[Tried] = []
    reasons: list[str] = []
    taking: list[PacketOverload] = []
    for overload in packet.overloads:
        schema = parse_printed(overload.schema)
        numbers = schema.name.name in NUMBERS_AS_TENSORS
        signature = PythonSignature.of(packet.name, schema)
        found = signature.bind(args, kwargs, numbers=numbers, is_anything=lambda _: False)
        if isinstance(found, str):
            refusing.append(Tried(overload.name, takes=False, reason=found))
            reasons.append(f"{overload.schema}: {found.removeprefix(f'{packet.name}()').lstrip(': ')}")
            continue
        taking.append(overload)
        if not packet.unknown:
            break
    if not taking:
        raise NoOverloadError(packet.name, str(given), tuple(reasons))
    if len(taking) > 1:
        names = " or ".join(each.name for each in taking)
        how = "name one of them, or ask the installed PyTorch with --from live"
        raise RequestError(f"{packet.name}{given} may go to {names}, and {packet.unknown}: {how}")
    if taking[0].torchscript:
        goes = f"{packet.name}{given} goes to {taking[0].name}"
        raise RequestError(f"{goes}, which only TorchScript has: it never reaches the dispatcher")
    return PacketCall(packet.name, str(given), (*refusing, Tried(taking[0].name, takes=True)))


def describe_call(schema: FunctionSchema, given: Given, *, privateuse1: str = "") -> Described:
    """Return the keys that the arguments add to the key set of a call, if an overload accepts them.

    Raises:
        ArgumentSpecError: a description cannot be read.
    """
    deciding = {argument.name for argument in deciding_arguments(schema)}
    specs: list[ArgumentSpec] = []
    numbers: dict[str, str] = {}
    args = ((argument.name, *pair) for argument, pair in zip(schema.arguments, given.args, strict=False))
    for name, spec, value in (*args, *given.kwargs):
        if name in deciding and isinstance(value, bool | int | float | complex):
            numbers[name] = str(value)
            specs.append(f"{name}=cpu")
        elif name in deciding:
            text = "none" if value is None else "list:" if isinstance(value, list | tuple) and not value else spec
            specs.append(f"{name}={text}" if isinstance(spec, str) else spec)
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
