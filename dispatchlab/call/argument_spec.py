"""Argument specs such as `cuda requires_grad`: the dispatch keys of an argument without making a tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from dispatchlab.call.explanation import ArgumentKeys
from dispatchlab.call.tensor_keys import (
    PYTHON_KEYS,
    UNDEFINED_TENSOR_KEYS,
    compute_dispatch_key,
    tensor_key_set,
)
from dispatchlab.call.tensor_options import DeviceType, DType, Layout
from dispatchlab.errors import DispatchLabError, did_you_mean
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.schema import Argument, FunctionSchema
from dispatchlab.model.schema_types import TENSOR, ListType, OptionalType, SimpleType, Type

LAYOUTS: Mapping[str, Layout] = MappingProxyType(
    {
        "strided": Layout.strided,
        "sparse": Layout.sparse,
        "csr": Layout.sparse_csr,
        "csc": Layout.sparse_csc,
        "bsr": Layout.sparse_bsr,
        "bsc": Layout.sparse_bsc,
        "mkldnn": Layout.mkldnn,
        "nested": Layout.jagged,
        **{layout.name: layout for layout in Layout},
    }
)
"""The layouts by name, and by the short names that people use."""

_LAZY = {"conj": DispatchKey.Conjugate, "neg": DispatchKey.Negative, "zero": DispatchKey.ZeroTensor}
_OTHERS = ("requires_grad", "quantized", "python", "inference", "none", *_LAZY)
_GENERATOR = SimpleType("Generator")


class ArgumentSpecError(DispatchLabError):
    """The spec of an argument cannot be read, or does not fit the schema."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the tensor that a factory makes, which has no tensor to go by.

    Args:
        backend: the key that dtype, layout and device choose.
        given: the options as they were given.
    """

    backend: DispatchKey = DispatchKey.CPU
    given: str = "the default device, cpu"


@dataclass(frozen=True, slots=True)
class Described:
    """All that was said about the arguments of a call."""

    arguments: tuple[ArgumentKeys, ...]
    options: Options
    requires_grad: bool


def describe_arguments(schema: FunctionSchema, specs: Sequence[str]) -> Described:
    """What the arguments of a call add to its key set.

    Args:
        schema: the operator's.
        specs: a description for each argument that decides the dispatch, in order, or `NAME=DESCRIPTION` for any of
            them and for `device`, `layout` and `dtype`. Without any, each tensor that must be given is on the CPU.

    Raises:
        ArgumentSpecError: a spec cannot be read, no argument is left for it, or a tensor that must be given is not.
    """
    deciding = {one.name: one for one in _deciding(schema)}
    settings = {one.name: one for one in schema.arguments if one.name in ("device", "layout", "dtype")}
    given: dict[str, str] = {}
    waiting = list(deciding)
    for text in specs:
        name, separator, rest = text.partition("=")
        if separator and name.strip() in deciding.keys() | settings.keys():
            name, described = name.strip(), rest
        elif separator:
            hint = did_you_mean(name, [*deciding, *settings]) or f"; it has {_listed([*deciding, *settings])}"
            raise ArgumentSpecError(f"{schema.name} has no argument {name!r} that decides the dispatch{hint}")
        elif waiting:
            name, described = waiting[0], text
        else:
            raise ArgumentSpecError(
                f"{text!r} is one argument too many: {schema.name} has {len(deciding)} that decide the dispatch"
                f"{': ' + _listed(list(deciding)) if deciding else ''}"
                + ("; say where a factory makes its tensor with device=cuda" if "device" in settings else "")
            )
        if name in given:
            raise ArgumentSpecError(f"{name} was described twice: {given[name]!r} and {described!r}")
        given[name] = " ".join(described.split())
        if name in waiting:
            waiting.remove(name)
    required = [
        name for name in waiting if deciding[name].default is None and not isinstance(deciding[name].type, OptionalType)
    ]
    arguments = tuple(
        _argument(one, given.get(name, "cpu" if name in required else None)) for name, one in deciding.items()
    )
    if required and any(name in deciding for name in given):
        raise ArgumentSpecError(
            f"{schema.name} must be given {_listed(required)}, too: repeat --arg, in the order of {schema}"
        )
    grad = any("requires_grad" in text.replace(",", " ").replace(":", " ").split() for text in given.values())
    return Described(arguments, _options(given), grad)


def _deciding(schema: FunctionSchema) -> list[Argument]:
    dispatched = schema.dispatch_arguments()
    return [
        argument
        for at, argument in enumerate(schema.arguments)
        if dispatched >> at & 1 or _bare(argument.type) == _GENERATOR
    ]


def _bare(type_: Type) -> Type:
    return type_.element if isinstance(type_, OptionalType) else type_


def _argument(argument: Argument, given: str | None) -> ArgumentKeys:
    name, type_ = argument.name, argument.type
    if given is None:
        return ArgumentKeys(name, str(type_), "left out", DispatchKeySet())
    is_list = isinstance(type_, ListType)
    if given.startswith("list:"):
        if not is_list:
            raise ArgumentSpecError(f"{name} is {type_} and no list: describe one argument, without 'list:'")
        elements = [part.strip() for part in given.removeprefix("list:").split(",")]
    else:
        elements = [given]
    keys = DispatchKeySet()
    for element in elements if given != "list:" else []:
        if element == "none":
            if type_ == TENSOR:
                note = "None for a Tensor is an undefined one, which has keys of its own"
                return ArgumentKeys(name, str(type_), given, UNDEFINED_TENSOR_KEYS, note)
            continue
        if _bare(type_) == _GENERATOR:
            keys |= DispatchKeySet.of(_generator_key(element))
        else:
            keys |= keys_of_spec(element)
    return ArgumentKeys(name, str(type_), given, keys)


def _generator_key(text: str) -> DispatchKey:
    return compute_dispatch_key(_device(text.removeprefix("generator").strip() or "cpu"))


def keys_of_spec(text: str) -> DispatchKeySet:
    """The keys of a tensor.

    Args:
        text: words in any order: a device (`cpu` when left out), a layout, `quantized`, `requires_grad` (which adds
            nothing), `conj`, `neg`, `zero`, `inference`, `python` for a subclass that intercepts calls, and names of
            dispatch keys, which are added as they are.

    Raises:
        ArgumentSpecError: a word is not known; the message names the nearest.
    """
    device, layout, dtype = DeviceType.CPU, Layout.strided, None
    extra: list[DispatchKey] = []
    late = DispatchKeySet()
    inference = False
    for word in text.split():
        if word in LAYOUTS:
            layout = LAYOUTS[word]
        elif word == "quantized":
            dtype = DType.quint8
        elif word == "python":
            late |= PYTHON_KEYS
        elif word in _LAZY:
            extra.append(_LAZY[word])
        elif word == "inference":
            inference = True
        elif word in DispatchKey.__members__ and DispatchKey[word].is_runtime:
            late = late.add(DispatchKey[word])
        elif word != "requires_grad":
            device = _device(word)
    return tensor_key_set(DispatchKeySet.of(_backend(device, layout, dtype), *extra), inference=inference) | late


def _backend(device: DeviceType, layout: Layout, dtype: DType | None) -> DispatchKey:
    try:
        return compute_dispatch_key(device, layout, dtype)
    except KeyError:
        raise ArgumentSpecError(f"no dispatch key stands for a tensor of layout {layout} on {device}") from None


def _device(word: str) -> DeviceType:
    name = word.partition(":")[0]
    if name not in tuple(DeviceType):
        known = [*map(str, DeviceType), *LAYOUTS, *_OTHERS]
        near = did_you_mean(word, known) or did_you_mean(word, DispatchKey.__members__)
        more = near or "; say where the tensor is and what it is like, such as 'cuda requires_grad' or 'cpu sparse'"
        raise ArgumentSpecError(f"{word!r} does not describe a tensor{more}")
    return DeviceType(name)


def _options(given: Mapping[str, str]) -> Options:
    given_options = [f"{name}={given[name]}" for name in ("dtype", "layout", "device") if name in given]
    if not given_options:
        return Options()
    layout = given.get("layout", "strided")
    if layout not in LAYOUTS:
        raise ArgumentSpecError(f"{layout!r} is no layout{did_you_mean(layout, LAYOUTS)}")
    dtype = given.get("dtype")
    if dtype is not None and dtype not in DType.__members__:
        raise ArgumentSpecError(f"{dtype!r} is no dtype{did_you_mean(dtype, DType.__members__)}")
    kind = None if dtype is None else DType[dtype]
    return Options(_backend(_device(given.get("device", "cpu")), LAYOUTS[layout], kind), ", ".join(given_options))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
