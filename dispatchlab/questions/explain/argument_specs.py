"""Read descriptions of the arguments of a call, `cuda requires_grad` or `list:cpu, meta`: the keys that they add."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from dispatchlab.call.tensor import Generator, Tensor
from dispatchlab.call.tensor_keys import (
    PYTHON_KEYS,
    UNDEFINED_TENSOR_KEYS,
    backend_of_device,
    compute_dispatch_key,
    key_of_backend,
    tensor_key_set,
)
from dispatchlab.call.tensor_options import DeviceType, DType, Layout, is_device_index
from dispatchlab.errors import DispatchLabError, did_you_mean
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.keys import BACKENDS, DispatchKey
from dispatchlab.model.schema import TENSOR, Argument, FunctionSchema, ListType, OptionalType, SimpleType, Type
from dispatchlab.questions.explain.result import EMPTY, ArgumentKeys

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
_WORDS = ("requires_grad", "quantized", "python", "inference", "none", *_LAZY)
_NAMES_OF_PACKAGES = ("mlu", "musa", "npu", "openreg")
"""What packages call the PrivateUse1 backend."""
_MODES = ("fake", "functionalize", "vmap", "autocast", "compile", "export", "dtensor")
"""Modes of `explain` that are easily taken for what a tensor is like."""
_GENERATOR = SimpleType("Generator")


class ArgumentSpecError(DispatchLabError):
    """The spec of an argument cannot be read, or does not fit the schema."""

    message: str

    template = "{message}"


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the tensor that a factory makes, because it has no tensor argument.

    Args:
        backend: the key that dtype, layout and device choose.
        given: the given options.
    """

    backend: DispatchKey = DispatchKey.CPU
    given: str = "the default device, cpu"


@dataclass(frozen=True, slots=True)
class Described:
    """The facts about the arguments of a call."""

    arguments: tuple[ArgumentKeys, ...]
    options: Options
    requires_grad: bool

    @property
    def keys(self) -> DispatchKeySet:
        """The keys of all arguments."""
        keys = EMPTY
        for argument in self.arguments:
            keys |= argument.keys
        return keys


ArgumentSpec: TypeAlias = str | Tensor | Generator | Sequence[Tensor | None] | None
"""An argument that decides the dispatch: a description of it, or the value itself."""


def describe_arguments(schema: FunctionSchema, specs: Sequence[ArgumentSpec], *, privateuse1: str = "") -> Described:
    """Return the keys that the arguments of a call add to its key set.

    Args:
        schema: the schema of the operator.
        specs: each argument that decides the dispatch, in order: a description or the value; or `NAME=DESCRIPTION` for
            any argument and for `device`, `layout` and `dtype`. A required tensor without a description is on the
            CPU.
        privateuse1: the name of the PrivateUse1 backend, which is also a device.

    Raises:
        ArgumentSpecError: a spec cannot be read, or no argument is left for it.
    """
    deciding = deciding_arguments(schema)
    given, values = _assign_specs(schema, [argument.name for argument in deciding], specs)
    arguments = []
    for argument in deciding:
        text = given.get(argument.name)
        if argument.name in values:
            keys, note = _keys_of_value(argument, text or "", values[argument.name]), ""
        else:
            if text is None and argument.default is None and not isinstance(argument.type, OptionalType):
                text = "cpu"
            keys, note = _keys_of_text(argument, text, privateuse1)
        given_as = "left out" if text is None else text
        arguments.append(ArgumentKeys(argument.name, str(argument.type), given_as, keys, note))
    grad = any("requires_grad" in text.replace(",", " ").replace(":", " ").split() for text in given.values())
    return Described(tuple(arguments), _options(given, privateuse1), grad)


def deciding_arguments(schema: FunctionSchema) -> list[Argument]:
    """Return the arguments that decide the dispatch, or those that decide it in unboxed calls."""
    dispatched = schema.dispatch_arguments()
    return [
        argument
        for number, argument in enumerate(schema.arguments)
        if dispatched >> number & 1 or _required_type(argument.type) == _GENERATOR
    ]


def _assign_specs(
    schema: FunctionSchema, deciding: Sequence[str], specs: Sequence[ArgumentSpec]
) -> tuple[dict[str, str], dict[str, ArgumentSpec]]:
    """Return the spec of each argument and option by name: all specs as texts, and those that are values."""
    settings = [argument.name for argument in schema.arguments if argument.name in ("device", "layout", "dtype")]
    names = dict.fromkeys((*deciding, *settings))
    given: dict[str, str] = {}
    values: dict[str, ArgumentSpec] = {}
    for spec in specs:
        text = _words(spec)
        name, separator, described = text.partition("=")
        if not separator:
            name, described = next((name for name in deciding if name not in given), ""), text
        elif name.strip() in names:
            name = name.strip()
        else:
            hint = did_you_mean(name, names) or f"; it has {_listed(names)}"
            raise ArgumentSpecError(f"{schema.name} has no argument {name!r} that decides the dispatch{hint}")
        if not name:
            raise ArgumentSpecError(
                f"{text!r} is one argument too many: {schema.name} has {len(deciding)} that decide the dispatch"
                f"{': ' + _listed(deciding) if deciding else ''}"
                + ("; say where a factory makes its tensor with device=cuda" if "device" in settings else "")
            )
        if name in given:
            raise ArgumentSpecError(f"{name} was described twice: {given[name]!r} and {described!r}")
        words = described.replace("+", " ").split()
        given[name] = " ".join("requires_grad" if word == "grad" else word for word in words)
        if spec is not None and not isinstance(spec, str):
            values[name] = spec
    return given, values


def _required_type(type_: Type) -> Type:
    return type_.element if isinstance(type_, OptionalType) else type_


def _keys_of_text(argument: Argument, text: str | None, privateuse1: str) -> tuple[DispatchKeySet, str]:
    """Return the keys of a described argument, and notes on surprising ones."""
    keys = EMPTY
    if text is None or text == "list:":
        elements = []
    elif text.startswith("list:"):
        elements = [part.strip() for part in text.removeprefix("list:").split(",")]
    else:
        elements = [text]
    if text is not None and text.startswith("list:") and not isinstance(argument.type, ListType):
        raise ArgumentSpecError(
            f"{argument.name} is {argument.type} and no list: describe one argument, without 'list:'"
        )
    for element in elements:
        if element == "none":
            if argument.type == TENSOR:
                return UNDEFINED_TENSOR_KEYS, "None for a Tensor is an undefined one, which has keys of its own"
        elif _required_type(argument.type) == _GENERATOR:
            keys |= DispatchKeySet.of(_generator_key(element, privateuse1))
        else:
            keys |= keys_of_spec(element, privateuse1=privateuse1)
    return keys, ""


def _words(spec: ArgumentSpec) -> str:
    """Return an argument in words; for a tensor, without facts that its keys show."""
    match spec:
        case str():
            return spec
        case None:
            return "none"
        case Tensor():
            layout = "" if spec.layout is Layout.strided else f" {spec.layout}"
            return f"{spec.device}{layout}{' requires_grad' if spec.requires_grad else ''}"
        case Generator():
            return f"generator {spec.device}"
        case list() | tuple():
            return f"list:{', '.join(map(_words, spec))}"
        case _:
            raise ArgumentSpecError(
                f"expected a description such as 'cuda requires_grad', a tensor, or a list of tensors, and was given "
                f"{type(spec).__name__}; an argument that does not decide the dispatch is left out"
            )


def _keys_of_value(argument: Argument, words: str, value: ArgumentSpec) -> DispatchKeySet:
    is_list, is_generator = isinstance(value, list | tuple), isinstance(value, Generator)
    if is_list != isinstance(argument.type, ListType) or is_generator != (_required_type(argument.type) == _GENERATOR):
        raise ArgumentSpecError(f"{argument.name} is {argument.type}, and was given {words}")
    keys = EMPTY
    for element in value if isinstance(value, list | tuple) else (value,):
        if isinstance(element, Generator):
            keys |= DispatchKeySet(element.generator_bits)
        elif isinstance(element, Tensor):
            keys |= element.key_set
    return keys


def _generator_key(text: str, privateuse1: str) -> DispatchKey:
    word = text.removeprefix("generator").strip() or "cpu"
    backend = _plain_backend(word)
    return DispatchKey[backend] if backend else compute_dispatch_key(_device(word, privateuse1))


def keys_of_spec(text: str, *, privateuse1: str = "") -> DispatchKeySet:
    """Return the keys of a tensor.

    Args:
        text: words in any order: a device (default: `cpu`), a layout, `quantized`, `requires_grad` (which adds
            nothing), `conj`, `neg`, `zero`, `inference`, `python` for a subclass that intercepts calls, and names of
            dispatch keys. The key of a backend, such as `PrivateUse1` or `SparseCUDA`, means a tensor of that backend;
            so does an autograd key if no other word names a device; any other key is added.
        privateuse1: the name of the PrivateUse1 backend, which is also a device.

    Raises:
        ArgumentSpecError: a word is unknown (the message names the nearest word), or two words exclude each other.
    """
    backends: dict[str, str] = {}
    layouts: dict[Layout, str] = {}
    quantized = inference = False
    extra: list[DispatchKey] = []
    late = EMPTY
    autograd: dict[str, DispatchKey] = {}
    for word in text.split():
        key = DispatchKey.__members__.get(word)
        if word in LAYOUTS:
            layouts.setdefault(LAYOUTS[word], word)
        elif word == "quantized":
            quantized = True
        elif word == "python":
            late |= PYTHON_KEYS
        elif word in _LAZY:
            extra.append(_LAZY[word])
        elif word == "inference":
            inference = True
        elif word == "requires_grad":
            pass
        elif word in _TENSOR_KEYS:
            named = _TENSOR_KEYS[word]
            backends.setdefault(named.backend, word)
            quantized |= named.quantized
            if named.layout is not None:
                layouts.setdefault(named.layout, word)
        elif key is not None and key.is_runtime:
            if key.functionality == DispatchKey.AutogradFunctionality:
                autograd.setdefault(BACKENDS[key.backend or 0], key)
            late = late.add(key)
        elif key is not None:
            kind = "an alias key" if key.is_alias else "the functionality of several keys"
            raise ArgumentSpecError(
                f"{word} is {kind}, which no tensor has: name a key with a row in tables, such as CPU"
            )
        else:
            backends.setdefault(backend_of_device(_device(word, privateuse1)), word)
    if not backends and len(autograd) == 1:
        ((backend, key),) = autograd.items()
        backends[backend] = str(key)
    for what, words in (("backends", list(backends.values())), ("layouts", list(layouts.values()))):
        if len(words) > 1:
            raise ArgumentSpecError(f"{text!r} names two {what}, {words[0]} and {words[1]}: a tensor has one")
    backend, layout = next(iter(backends), "CPU"), next(iter(layouts), Layout.strided)
    base = _backend_key(backend, layout, DType.quint8 if quantized else None, next(iter(backends.values()), "cpu"))
    return tensor_key_set(DispatchKeySet.of(base, *extra), inference=inference) | late


@dataclass(frozen=True, slots=True)
class _TensorKey:
    backend: str
    layout: Layout | None = None
    quantized: bool = False


_TENSOR_KEYS: Mapping[str, _TensorKey] = MappingProxyType(
    {
        **{name: _TensorKey(name) for name in (*BACKENDS, "FPGA", "Vulkan", "Metal")},
        **{f"Quantized{name}": _TensorKey(name, quantized=True) for name in BACKENDS},
        **{f"Sparse{name}": _TensorKey(name, Layout.sparse) for name in BACKENDS},
        **{f"SparseCsr{name}": _TensorKey(name, Layout.sparse_csr) for name in BACKENDS},
        **{f"NestedTensor{name}": _TensorKey(name, Layout.jagged) for name in BACKENDS},
        "MkldnnCPU": _TensorKey("CPU", Layout.mkldnn),
    }
)
"""The keys that say where a tensor is and what it is like."""


def _plain_backend(word: str) -> str:
    """Return the backend whose plain tensors a key means; empty for every other word."""
    key = _TENSOR_KEYS.get(word)
    return key.backend if key is not None and key == _TensorKey(key.backend) else ""


def _backend_key(backend: str, layout: Layout, dtype: DType | None, given: str) -> DispatchKey:
    try:
        return key_of_backend(backend, layout, dtype)
    except KeyError:
        raise ArgumentSpecError(f"no dispatch key stands for a tensor of layout {layout} on {given}") from None


def _device(word: str, privateuse1: str = "") -> DeviceType:
    name, colon, index = word.partition(":")
    renamed = bool(privateuse1) and name == privateuse1
    if (renamed or name in (*DeviceType, "privateuse1")) and colon and not is_device_index(index):
        raise ArgumentSpecError(
            f"{word!r} is not a device: expected a number from 0 to 127 after the colon, as in {name}:0"
        )
    if renamed or name == "privateuse1":
        return DeviceType.PRIVATEUSE1
    if name not in tuple(DeviceType):
        known = [*map(str, DeviceType), *LAYOUTS, *_WORDS, "grad", *filter(None, [privateuse1])]
        near = did_you_mean(word, known) or did_you_mean(word, DispatchKey.__members__)
        more = near or "; say where the tensor is and what it is like, such as 'cuda requires_grad' or 'cpu sparse'"
        if "," in word:
            more = f"; put + between its words: {word.replace(',', '+')}"
        elif name in _MODES:
            more = f", it is a mode of the call; to make the call under it: --mode {name}"
        elif name in _NAMES_OF_PACKAGES or (not near and not privateuse1 and name.isidentifier()):
            more = ": if a package gives its backend this name, add --from PACKAGE, or write privateuse1"
        raise ArgumentSpecError(f"{word!r} does not describe a tensor{more}")
    return DeviceType(name)


def _options(given: Mapping[str, str], privateuse1: str) -> Options:
    given_options = [f"{name}={given[name]}" for name in ("dtype", "layout", "device") if name in given]
    if not given_options:
        return Options()
    layout = given.get("layout", "strided")
    if layout not in LAYOUTS:
        raise ArgumentSpecError(f"{layout!r} is not a layout{did_you_mean(layout, LAYOUTS)}")
    dtype = given.get("dtype")
    if dtype is not None and dtype not in DType.__members__:
        raise ArgumentSpecError(f"{dtype!r} is not a dtype{did_you_mean(dtype, DType.__members__)}")
    kind = None if dtype is None else DType[dtype]
    where = given.get("device", "cpu")
    backend = _plain_backend(where) or backend_of_device(_device(where, privateuse1))
    return Options(_backend_key(backend, LAYOUTS[layout], kind, where), ", ".join(given_options))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
