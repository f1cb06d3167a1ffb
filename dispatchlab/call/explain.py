"""Explain a call without running it: argument specs, the key set of each hop, its kernel, and what lost to it.

The first hop is exact: it is what calls compute. What a kernel redispatches to is up to the kernel: the hops after the
first follow the rules of kernels whose code is known, and end at one of which nobody knows what it does. Source:
tools/autograd/gen_variable_type.py, tools/autograd/gen_inplace_or_view_type.py, torchgen/gen.py (BackendSelect).
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeAlias

from dispatchlab.call.autocast_policies import AUTOCAST_KEYS
from dispatchlab.call.dispatch_table import masks
from dispatchlab.call.local_key_set import DEFAULT_EXCLUDED, DEFAULT_INCLUDED, masks_of
from dispatchlab.call.tensor import Generator, Tensor
from dispatchlab.call.tensor_keys import (
    AUTOGRAD_KEYS,
    PYTHON_KEYS,
    UNDEFINED_TENSOR_KEYS,
    backend_of_device,
    compute_dispatch_key,
    key_of_backend,
    tensor_key_set,
)
from dispatchlab.call.tensor_options import DeviceType, DType, Layout, is_device_index
from dispatchlab.call.transform_rules import (
    FRONT_AND_BACK,
    FUNCTIONALIZE,
    GRAD,
    VMAP,
    TransformKeys,
    batch_refused,
    slices_refused,
)
from dispatchlab.engine.builtin_fallbacks import is_builtin
from dispatchlab.errors import DispatchLabError, ErrorKind, did_you_mean
from dispatchlab.model.dump_format import Provenance, parse_entry
from dispatchlab.model.key_set import FUNCTIONALITY_BITS, DispatchKeySet
from dispatchlab.model.keys import BACKENDS, PER_BACKEND_FUNCTIONALITIES, RUNTIME_KEYS, DispatchKey
from dispatchlab.model.operator_view import NO_KERNEL, Beaten, OperatorView, TableRow
from dispatchlab.model.printed_schema import parse_printed
from dispatchlab.model.schema import Argument, FunctionSchema
from dispatchlab.model.schema_types import TENSOR, ListType, OptionalType, SimpleType, Type
from dispatchlab.model.slot_set import keys_of, slots_of, slots_of_key

EMPTY = DispatchKeySet()


@dataclass(frozen=True, slots=True)
class ArgumentKeys:
    """An argument that decides the dispatch.

    Args:
        name: its name in the schema.
        type: its type there.
        given: its spec, as it was given.
        keys: the keys that it adds to the call.
        note: what is surprising about these; often empty.
    """

    name: str
    type: str
    given: str
    keys: DispatchKeySet
    note: str = ""


@dataclass(frozen=True, slots=True)
class ThreadKeys:
    """What the thread adds to a call and takes away: the sets that every thread starts from, and those of guards."""

    global_included: DispatchKeySet
    global_excluded: DispatchKeySet
    local_included: DispatchKeySet = EMPTY
    local_excluded: DispatchKeySet = EMPTY

    @property
    def included(self) -> DispatchKeySet:
        """All that is included."""
        return self.global_included | self.local_included

    @property
    def excluded(self) -> DispatchKeySet:
        """All that is excluded."""
        return self.global_excluded | self.local_excluded


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A key that a call does not go to although it is in its set.

    Args:
        key: the key.
        why: `excluded by every thread`, `excluded by a guard`, or `fallthrough`.
        debug: where the fallthrough comes from; empty for an excluded key.
        reason: its provenance.
    """

    key: DispatchKey
    why: str
    debug: str = ""
    reason: Provenance | None = None


@dataclass(frozen=True, slots=True)
class Chosen:
    """The kernel in the slot of a key.

    Args:
        debug: where it comes from.
        reason: its provenance.
        source: the key that it is registered at; empty where that is not known.
        fallthrough: it is a fallthrough, which cannot run.
        beaten: the candidates that lost, best first, each with what it lost to.
        stale: the slot should hold something else, namely this; None when all is well.
    """

    debug: str
    reason: Provenance
    source: str
    fallthrough: bool = False
    beaten: tuple[Beaten, ...] = ()
    stale: str | None = None


@dataclass(frozen=True, slots=True)
class Hop:
    """One look-up.

    Args:
        kind: `call` or `redispatch`.
        why: where its set comes from.
        start: the set before anything is left out.
        left_out: the keys that are, highest priority first.
        keys: the final set.
        key: its highest key, which is gone to.
        kernel: what is there; None when nothing is.
        refusal: what kind of error the call ends in; None when a kernel runs.
    """

    kind: str
    why: str
    start: DispatchKeySet
    left_out: tuple[LeftOut, ...]
    keys: DispatchKeySet
    key: DispatchKey
    kernel: Chosen | None
    refusal: ErrorKind | None = None

    @property
    def order(self) -> tuple[DispatchKey, ...]:
        """The keys of the final set, highest priority first."""
        return by_priority(self.keys)


@dataclass(frozen=True, slots=True)
class CallExplanation:
    """A call, from its arguments to the kernel that redispatches no further.

    Args:
        operator: its name.
        schema: its schema.
        arguments: those that decide the dispatch.
        of_arguments: all their keys.
        thread: what the thread adds and takes away.
        hops: the call, and each redispatch that follows from it.
        end: why there is no further hop.
        known: whether it is known what the last kernel does; when it is not, it may redispatch.
    """

    operator: str
    schema: str
    arguments: tuple[ArgumentKeys, ...]
    of_arguments: DispatchKeySet
    thread: ThreadKeys
    hops: tuple[Hop, ...]
    end: str
    known: bool = True


def by_priority(keys: DispatchKeySet) -> tuple[DispatchKey, ...]:
    """The runtime keys of a set, highest priority first."""
    return tuple(reversed(list(keys)))


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


ArgumentSpec: TypeAlias = str | Tensor | Generator | Sequence[Tensor | None] | None
"""An argument that decides the dispatch: a description of it, or the value itself."""


def describe_arguments(schema: FunctionSchema, specs: Sequence[ArgumentSpec], *, privateuse1: str = "") -> Described:
    """What the arguments of a call add to its key set.

    Args:
        schema: the operator's.
        specs: each argument that decides the dispatch, in order: a description or the value; or `NAME=DESCRIPTION` for
            any of them and for `device`, `layout` and `dtype`. A tensor that must be given and is not described is on
            the CPU.
        privateuse1: the name that the PrivateUse1 backend was given, which is a device as well.

    Raises:
        ArgumentSpecError: a spec cannot be read, or no argument is left for it.
    """
    deciding = {one.name: one for one in _deciding(schema)}
    settings = {one.name: one for one in schema.arguments if one.name in ("device", "layout", "dtype")}
    given: dict[str, str] = {}
    values: dict[str, ArgumentSpec] = {}
    waiting = list(deciding)
    for spec in specs:
        text = _words(spec)
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
        if spec is not None and not isinstance(spec, str):
            values[name] = spec
        if name in waiting:
            waiting.remove(name)
    required = [
        name for name in waiting if deciding[name].default is None and not isinstance(deciding[name].type, OptionalType)
    ]
    arguments = tuple(
        _argument(one, given.get(name, "cpu" if name in required else None), privateuse1)
        if name not in values
        else _argument_of(one, given[name], values[name])
        for name, one in deciding.items()
    )
    grad = any("requires_grad" in text.replace(",", " ").replace(":", " ").split() for text in given.values())
    return Described(arguments, _options(given, privateuse1), grad)


def _deciding(schema: FunctionSchema) -> list[Argument]:
    dispatched = schema.dispatch_arguments()
    return [
        argument
        for at, argument in enumerate(schema.arguments)
        if dispatched >> at & 1 or _bare(argument.type) == _GENERATOR
    ]


def _bare(type_: Type) -> Type:
    return type_.element if isinstance(type_, OptionalType) else type_


def _argument(argument: Argument, given: str | None, privateuse1: str) -> ArgumentKeys:
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
            keys |= DispatchKeySet.of(_generator_key(element, privateuse1))
        else:
            keys |= keys_of_spec(element, privateuse1=privateuse1)
    return ArgumentKeys(name, str(type_), given, keys)


def _words(spec: ArgumentSpec) -> str:
    """An argument in words, those of a tensor without what only its keys show."""
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


def _argument_of(argument: Argument, words: str, value: ArgumentSpec) -> ArgumentKeys:
    """What the value of an argument adds."""
    name, type_ = argument.name, argument.type
    is_generator = _bare(type_) == _GENERATOR
    if isinstance(value, list | tuple) is not isinstance(type_, ListType) or isinstance(value, Generator) is not (
        is_generator
    ):
        raise ArgumentSpecError(f"{name} is {type_}, and was given {words}")
    keys = DispatchKeySet()
    for one in value if isinstance(value, list | tuple) else (value,):
        if isinstance(one, Generator):
            keys |= DispatchKeySet(one.generator_bits)
        elif isinstance(one, Tensor):
            keys |= one.key_set
    return ArgumentKeys(name, str(type_), words, keys)


def _generator_key(text: str, privateuse1: str) -> DispatchKey:
    word = text.removeprefix("generator").strip() or "cpu"
    named = _TENSOR_KEYS.get(word)
    if named is not None and named == _TensorKey(named.backend):
        return DispatchKey[named.backend]
    return compute_dispatch_key(_device(word, privateuse1))


def keys_of_spec(text: str, *, privateuse1: str = "") -> DispatchKeySet:
    """The keys of a tensor.

    Args:
        text: words in any order: a device (`cpu` when left out), a layout, `quantized`, `requires_grad` (which adds
            nothing), `conj`, `neg`, `zero`, `inference`, `python` for a subclass that intercepts calls, and names of
            dispatch keys. That of a backend, such as `PrivateUse1` or `SparseCUDA`, is a tensor of that backend; that
            of an autograd key is one as well where nothing else says where the tensor is; any other is added.
        privateuse1: the name that the PrivateUse1 backend was given, which is a device as well.

    Raises:
        ArgumentSpecError: a word is not known, and the message names the nearest; or two words exclude each other.
    """
    backends: dict[str, str] = {}
    layouts: dict[Layout, str] = {}
    quantized = inference = False
    extra: list[DispatchKey] = []
    late = DispatchKeySet()
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
            described = _TENSOR_KEYS[word]
            backends.setdefault(described.backend, word)
            quantized |= described.quantized
            if described.layout is not None:
                layouts.setdefault(described.layout, word)
        elif key is not None and key.functionality == DispatchKey.AutogradFunctionality and key.is_runtime:
            autograd.setdefault(BACKENDS[key.backend or 0], key)
            late = late.add(key)
        elif key is not None and key.is_runtime:
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


def _backend_key(backend: str, layout: Layout, dtype: DType | None, given: str) -> DispatchKey:
    try:
        return key_of_backend(backend, layout, dtype)
    except KeyError:
        raise ArgumentSpecError(f"no dispatch key stands for a tensor of layout {layout} on {given}") from None


def _device(word: str, privateuse1: str = "") -> DeviceType:
    name, colon, index = word.partition(":")
    renamed = bool(privateuse1) and name == privateuse1
    if (renamed or name in tuple(DeviceType)) and colon and not is_device_index(index):
        raise ArgumentSpecError(
            f"{word!r} is not a device: expected a number from 0 to 127 after the colon, as in {name}:0"
        )
    if renamed:
        return DeviceType.PRIVATEUSE1
    if name not in tuple(DeviceType):
        known = [*map(str, DeviceType), *LAYOUTS, *_OTHERS]
        known += [privateuse1] if privateuse1 else []
        near = did_you_mean(word, known) or did_you_mean(word, DispatchKey.__members__)
        more = near or "; say where the tensor is and what it is like, such as 'cuda requires_grad' or 'cpu sparse'"
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
    named = _TENSOR_KEYS.get(where)
    plain = named is not None and named == _TensorKey(named.backend)
    backend = where if plain else backend_of_device(_device(where, privateuse1))
    return Options(_backend_key(backend, LAYOUTS[layout], kind, where), ", ".join(given_options))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


_FOR_ALL_BACKENDS = (Provenance.DEFAULT_BACKEND, Provenance.CATCH_ALL)
_BELOW_AUTOGRAD = DispatchKeySet.full_after(DispatchKey.AutogradOther)


class NotCallableError(DispatchLabError):
    """An operator that has no schema cannot be called."""

    def __init__(self, operator: str) -> None:
        super().__init__(operator)
        self.operator = operator

    def __str__(self) -> str:
        if self.operator.startswith("higher_order::"):
            return (
                f"{self.operator} is a higher-order operator, which has no schema and no dispatch table: "
                f"`dispatchlab dump {self.operator}` shows the rule for each key and mode"
            )
        return f"{self.operator} has kernels and no def, so it cannot be called: define it with a schema first"


def thread_keys(include: tuple[DispatchKey, ...] = (), exclude: tuple[DispatchKey, ...] = ()) -> ThreadKeys:
    """The sets of a thread with guards for these keys; an alias key stands for its runtime keys."""
    return ThreadKeys(DEFAULT_INCLUDED, DEFAULT_EXCLUDED, _expanded(include), _expanded(exclude))


def _expanded(keys: tuple[DispatchKey, ...]) -> DispatchKeySet:
    found = DispatchKeySet()
    for key in keys:
        each = keys_of(slots_of_key(key)) if key.is_alias else (key,)
        found |= DispatchKeySet.of(*each)
    return found


def schema_of(view: OperatorView) -> FunctionSchema:
    """The schema of an operator.

    Raises:
        NotCallableError: it has none.
        ParseError: it is one that cannot be read.
    """
    if view.schema is None:
        raise NotCallableError(view.name)
    return parse_printed(view.schema)


def explain(
    view: OperatorView, described: Described, thread: ThreadKeys, transforms: Sequence[TransformKeys] = ()
) -> CallExplanation:
    """Follow a call from its arguments to the kernel that ends it.

    Args:
        view: the operator, with its table.
        described: its arguments, as they are outside of the transforms.
        thread: what the thread includes and excludes.
        transforms: the transforms that the call is made in, the outermost first. Each tensor belongs to all of them.

    Raises:
        NotCallableError: the operator has no schema.
    """
    schema = schema_of(view)
    table = _Table.of(view)
    current = start = _inside_of(transforms, described, thread)
    hops = [_first_hop(table, start.keys, start.thread)]
    while True:
        after = _after(hops[-1], current, schema, view.by_rule)
        if _works_alone(view.name, hops[-1]):
            after = f"the kernel of {view.name} for {hops[-1].key} does the work, and redispatches no further"
        if isinstance(after, str | _Unknown):
            break
        if isinstance(after, _Anew):
            current = after.caller
            hops.append(replace(_first_hop(table, current.keys, current.thread), why=after.why))
            continue
        hops.append(_hop(table, "redispatch", after.why, after.keys, (), start=after.keys))
    end = after if isinstance(after, str) else after.end
    if hops[-1].refusal is ErrorKind.MISSING_KERNEL:
        end += f", as {view.name} has no kernel for {hops[-1].key}; {_kernels_there(view)}"
    if hops[-1].refusal is not None and hops[-1].kernel is None and view.violations:
        end += f", reported as a broken invariant, since those are checked first: {view.violations[0]}"
    return CallExplanation(
        view.name,
        str(schema),
        start.described.arguments,
        start.keys,
        start.thread,
        tuple(hops),
        end,
        known=isinstance(after, str),
    )


def _kernels_there(view: OperatorView) -> str:
    keys = tuple(dict.fromkeys(row.key for row in view.kernels if row.active and "fallthrough" not in row.flags))
    return f"it has kernels for {', '.join(keys)}" if keys else "it has no kernels at all"


# -- the table that calls use


@dataclass(frozen=True, slots=True)
class _Table:
    """What each slot holds now, and the keys that calls skip."""

    held: Mapping[DispatchKey, Chosen]
    skipped: frozenset[DispatchKey]

    @classmethod
    def of(cls, view: OperatorView) -> _Table:
        held = {DispatchKey[row.key]: chosen for row in view.table if (chosen := _chosen(row)) is not None}
        fallthroughs = {key for key, chosen in held.items() if chosen.fallthrough}
        return cls(held, frozenset(fallthroughs.union(DispatchKey[key] for key in view.skipped)))

    def skipped_from(self, base: DispatchKeySet) -> DispatchKeySet:
        """The final set: without the keys at which the operator falls through."""
        return DispatchKeySet(masks(slots_of(self.skipped)).applied(base.bits))


def _chosen(row: TableRow) -> Chosen | None:
    if row.stale is None:
        return None if row.reason is None else Chosen(row.debug, row.reason, row.source, row.fallthrough, row.beaten)
    if row.stale == NO_KERNEL:
        return None
    held = parse_entry(row.stale)
    return Chosen(held.debug, held.provenance, "", held.fallthrough, row.beaten, row.text or NO_KERNEL)


# -- the hops


def _first_hop(table: _Table, of_arguments: DispatchKeySet, thread: ThreadKeys) -> Hop:
    everything = of_arguments | thread.included
    applied = masks_of(thread.included, thread.excluded)
    base = DispatchKeySet((of_arguments.bits | applied.included) & applied.kept)
    keys = table.skipped_from(base)
    left_out = sorted((*_excluded(everything, base, thread), *_fallthroughs(table, base, keys)), key=_priority)
    why = "the keys of the arguments and those that the thread includes, without those that it excludes"
    return _hop(table, "call", why, keys, tuple(left_out), start=everything)


def _excluded(everything: DispatchKeySet, base: DispatchKeySet, thread: ThreadKeys) -> Iterator[LeftOut]:
    for key in _gone(everything, base):
        by_guard = thread.local_excluded.bits & DispatchKeySet.of(key.functionality).bits
        yield LeftOut(key, "excluded by a guard" if by_guard else "excluded by every thread")


def _fallthroughs(table: _Table, base: DispatchKeySet, keys: DispatchKeySet) -> Iterator[LeftOut]:
    backend = base.highest_backend()
    for key in _gone(base, keys):
        # Which fallthrough counts is up to the highest backend of the call alone.
        if key.functionality in PER_BACKEND_FUNCTIONALITIES and key.backend != (backend or 0):
            continue
        chosen = table.held.get(key)
        if chosen is None or not chosen.fallthrough:
            yield LeftOut(key, "fallthrough", reason=Provenance.FALLBACK)
        else:
            yield LeftOut(key, "fallthrough", chosen.debug, chosen.reason)


def _gone(before: DispatchKeySet, after: DispatchKeySet) -> list[DispatchKey]:
    return [key for key in before if not after.bits & DispatchKeySet.of(key.functionality).bits]


def _priority(one: LeftOut) -> int:
    return -one.key.slot


def _hop(
    table: _Table,
    kind: str,
    why: str,
    keys: DispatchKeySet,
    left_out: tuple[LeftOut, ...],
    *,
    start: DispatchKeySet,
) -> Hop:
    kernel = table.held.get(RUNTIME_KEYS[keys.slot()])
    refusal = None
    if kernel is None:
        nothing = keys.highest() == DispatchKey.Undefined
        refusal = ErrorKind.NO_TENSOR_ARGUMENTS if nothing else ErrorKind.MISSING_KERNEL
    elif kernel.reason is Provenance.AMBIGUOUS:
        refusal = ErrorKind.AMBIGUOUS_AUTOGRADOTHER
    elif kernel.fallthrough:
        refusal = ErrorKind.FALLTHROUGH_EXECUTED
    elif keys.highest() == DispatchKey.Meta and is_builtin_fallback(DispatchKey.Meta, kernel):
        refusal = ErrorKind.MISSING_KERNEL  # all that the builtin fallback does is to raise this
    return Hop(kind, why, start, left_out, keys, keys.highest(), kernel, refusal)


# -- who calls


@dataclass(frozen=True, slots=True)
class _Caller:
    """What a call depends on.

    Args:
        described: the arguments.
        thread: what the thread includes and excludes.
        transform: the innermost transform; None outside of all.
        outer: the caller when the transform is left; None outside of all.
    """

    described: Described
    thread: ThreadKeys
    transform: TransformKeys | None = None
    outer: _Caller | None = None

    @property
    def keys(self) -> DispatchKeySet:
        """The keys of all arguments."""
        found = DispatchKeySet()
        for argument in self.described.arguments:
            found |= argument.keys
        return found

    def has_tensors(self) -> bool:
        """Whether an argument is a tensor, or a list of tensors that may be empty."""
        return any("Tensor[" in one.type or ("Tensor" in one.type and one.keys) for one in self.described.arguments)


def _inside_of(transforms: Sequence[TransformKeys], described: Described, thread: ThreadKeys) -> _Caller:
    caller = _Caller(described, thread)
    active = replace(thread, local_included=thread.local_included | FRONT_AND_BACK)
    for transform in transforms:
        inside = replace(
            caller.described,
            arguments=tuple(_inside(one, transform) for one in caller.described.arguments),
            requires_grad=transform is GRAD,
        )
        caller = _Caller(inside, active, transform, caller)
    return caller


def _inside(argument: ArgumentKeys, transform: TransformKeys) -> ArgumentKeys:
    """An argument that belongs to a transform; None for a tensor stays what it is."""
    if "Tensor" not in argument.type or not argument.keys or argument.keys == UNDEFINED_TENSOR_KEYS:
        return argument
    return replace(argument, keys=transform.tensor_keys(argument.keys))


def _entered(caller: _Caller, transform: TransformKeys) -> _Anew:
    thread = caller.thread
    inside = replace(
        thread,
        local_included=thread.local_included | transform.also_included,
        local_excluded=transform.excluded(thread.local_excluded),
    )
    return _Anew(
        replace(caller, thread=inside),
        f"its fallback enters {transform.name}, where only the keys of that are left in, and calls the operator anew",
    )


def _left(caller: _Caller, transform: TransformKeys, outer: _Caller) -> _Anew | str:
    checked = transform is FUNCTIONALIZE or (transform is VMAP and outer.transform is None)
    if checked and any(one.keys.has(transform.of_tensor) for one in caller.described.arguments):
        return (
            f"the call fails: {transform.of_tensor} falls through, so a tensor of {transform.name} gets out of it, "
            "and PyTorch asserts that none does"
        )
    where = "outside of all transforms" if outer.transform is None else f"in {outer.transform.name}, the next one"
    return _Anew(
        outer,
        f"its fallback leaves {transform.name}: it calls the operator anew, {where}, with the tensors that those of "
        f"{transform.name} stand for",
    )


def _without(caller: _Caller, key: DispatchKey) -> _Caller:
    thread = caller.thread
    return replace(caller, thread=replace(thread, local_excluded=thread.local_excluded.add(key)))


# -- what comes after a kernel


@dataclass(frozen=True, slots=True)
class _Anew:
    """A new call of the operator, and why it is made."""

    caller: _Caller
    why: str


@dataclass(frozen=True, slots=True)
class _Next:
    keys: DispatchKeySet
    why: str


@dataclass(frozen=True, slots=True)
class _Unknown:
    """Nobody knows what comes next.

    Args:
        end: a sentence about the kernel.
    """

    end: str


# Note [The hop after a kernel]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# Nothing in a registry says what a kernel does, but PyTorch's own kernels are generated and follow rules by key. An
# autograd kernel redispatches with `ks & after_autograd_keyset`, which is everything below AutogradOther, from whatever
# autograd key it was reached by; one for ADInplaceOrView with everything below that, and one that traces with
# everything below Tracer. `custom_op` makes kernels of the first two kinds. BackendSelect computes a new set from
# dtype, layout and device: the thread's sets and the keys of tensors enter into it only when there are tensors. The
# fallbacks for Conjugate, Negative, ZeroTensor, Tracer and PythonTLSSnapshot redispatch to everything below themselves;
# that of Functionalize calls anew. A composite kernel does not redispatch at all: it calls other operators, and a
# Python key hands over to code that nobody has seen.
#
# Where a kernel comes from shows in its debug text: the file in the source tree of PyTorch, whatever the machine that
# built it, or the module of `torch` that registered it. The layers of the lab follow the same rules. Every other
# kernel above the backends may do anything: an autograd kernel of a package often calls another operator, and never
# the kernel that the package registered for the CPU. So the explanation ends there, and says that it does.

_RULES: Mapping[DispatchKey, re.Pattern[str]] = MappingProxyType(
    {
        key: re.compile(rf"(?:^|[ /])(?:{files}):\d+")
        for key, files in {
            DispatchKey.AutogradFunctionality: r"torch/csrc/autograd/(?:generated/VariableType(?:_\d+|Everything)?"
            r"|VariableTypeManual)\.cpp|torch/_library/custom_ops\.py",
            DispatchKey.ADInplaceOrView: r"torch/csrc/autograd/(?:generated/ADInplaceOrViewType(?:_\d+|Everything)?"
            r"|VariableTypeManual)\.cpp|torch/_library/custom_ops\.py",
            DispatchKey.Tracer: r"torch/csrc/autograd/generated/TraceType(?:_\d+|Everything)?\.cpp",
            DispatchKey.BackendSelect: r"aten/src/ATen/RegisterBackendSelect\.cpp",
        }.items()
    }
)
"""Where the kernels that follow a rule are registered; one key stands for all autograd keys."""


def _follows_rule(key: DispatchKey, kernel: Chosen, by_rule: Container[str]) -> bool:
    """Whether a kernel is one of PyTorch's, or of the lab's layers, that redispatches as those at its key do."""
    is_autograd = AUTOGRAD_KEYS.bits & DispatchKeySet.of(key.functionality).bits
    rule = _RULES.get(DispatchKey.AutogradFunctionality if is_autograd else key.functionality)
    return rule is not None and (str(key) in by_rule or rule.search(kernel.debug) is not None)


def _after(
    hop: Hop, caller: _Caller, schema: FunctionSchema, by_rule: Container[str]
) -> _Next | _Anew | str | _Unknown:
    """The next set, the new call, why there is neither, or that nobody knows.

    See Note [The hop after a kernel].
    """
    kernel, key, keys = hop.kernel, hop.key, hop.keys
    if hop.refusal is not None or kernel is None:
        return f"the call fails: {hop.refusal}"
    if kernel.reason is Provenance.MATH:
        return "a composite kernel: it redispatches no further, and what it calls dispatches anew"
    functionality, described = key.functionality, caller.described
    in_transform = _after_in_transform(hop, kernel, caller, schema)
    if in_transform is not None:
        return in_transform
    if functionality <= DispatchKey.NestedTensor:
        if kernel.reason is Provenance.FALLBACK:
            return f"the {kernel.reason} of {key}: it serves every operator that has no kernel there"
        if kernel.reason in _FOR_ALL_BACKENDS:
            return "a kernel for all backends: it redispatches no further, and what it calls dispatches anew"
        return "a backend kernel: it does the work and redispatches no further"
    builtin = is_builtin_fallback(key, kernel)
    if builtin and key in _VMAP and not caller.has_tensors():
        return _Anew(_without(caller, key), _ANEW.format(key=key))
    if builtin and key == DispatchKey.Python and not caller.has_tensors():
        return "the builtin fallback of Python fails where no argument is a tensor and no mode is active"
    if builtin and key in _OUTSIDE:
        return f"the builtin fallback of {key} {_OUTSIDE[key]}"
    if builtin and key == DispatchKey.Functionalize:
        if any(one.alias is not None for one in schema.returns):
            return "the builtin fallback of Functionalize refuses an operator whose results alias its arguments"
        return _Anew(_without(caller, key), _ANEW.format(key=key))
    if key in AUTOCAST_KEYS and (str(key) in by_rule or _CASTS.search(kernel.debug)):
        return _Anew(
            _without(caller, key), f"the kernel casts what has to be cast, and calls the operator anew, without {key}"
        )
    if builtin and key == DispatchKey.Python and not any(one.keys.has(key) for one in described.arguments):
        why = "no argument and no mode has a __torch_dispatch__, so the builtin fallback redispatches below Python"
        return _Next(_below(functionality, keys), why)
    if functionality == DispatchKey.Python and builtin:
        return _Unknown("the subclass decides: its __torch_dispatch__ is called with the operator")
    below = _below(functionality, keys)
    if not builtin and not _follows_rule(key, kernel, by_rule):
        if not below.bits & FUNCTIONALITY_BITS:
            return f"nothing is left below {key}, so its kernel does the work"
        return _Unknown(
            "what comes next is not known: this kernel is none of PyTorch's own, and nothing shows what it calls; "
            f"{_next_key(functionality, keys)} is next only if it redispatches below {key}"
        )
    if AUTOGRAD_KEYS.bits & DispatchKeySet.of(functionality).bits:
        records = "records the call in the autograd graph"
        if not described.requires_grad:
            records = "has nothing to record, as no argument requires grad"
        elif builtin:
            records = "knows no formula, and marks the results so that backward warns"
        why = f"the autograd kernel {records}, and redispatches with keys & full_after(AutogradOther)"
        return _Next(keys & _BELOW_AUTOGRAD, why)
    if functionality == DispatchKey.BackendSelect and _is_factory(schema):
        return _Next(*_selected(described, caller.thread))
    if not below.bits & FUNCTIONALITY_BITS and not builtin:
        return f"nothing is left below {key}, so its kernel does the work"
    return _Next(below, f"the kernel redispatches with keys & full_after({functionality})")


def _after_in_transform(
    hop: Hop, kernel: Chosen, caller: _Caller, schema: FunctionSchema
) -> _Anew | str | _Unknown | None:
    """What comes after a kernel that is there for transforms alone; None for every other kernel."""
    transform, outer, key = caller.transform, caller.outer, hop.key
    if transform is None or outer is None:
        return None
    builtin = is_builtin_fallback(key, kernel)
    if key == DispatchKey.FuncTorchDynamicLayerFrontMode and builtin:
        return _entered(caller, transform)
    if key == DispatchKey.FuncTorchDynamicLayerBackMode and (builtin or _LEAVES.search(kernel.debug)):
        return _left(caller, transform, outer)
    if key == DispatchKey.FuncTorchBatched and builtin:
        refused = batch_refused(schema) if caller.has_tensors() else slices_refused(schema)
        if refused:
            return f"the slow fallback of vmap refuses the operator: {refused}"
        slices = "for each slice of the batch, and stacks what they give" if caller.has_tensors() else "as it is"
        return _Anew(
            _without(replace(caller, described=outer.described), key),
            f"no batching rule is registered, so the slow fallback of vmap calls the operator anew {slices}",
        )
    if (
        key == DispatchKey.Functionalize
        and builtin
        and not any(one.alias is not None for one in (*schema.arguments, *schema.returns))
    ):
        return _Anew(
            _without(replace(caller, described=outer.described), key),
            "the operator writes nothing and makes no view, so the builtin fallback of Functionalize calls it anew "
            "with the values of the functional tensors",
        )
    if key in _OF_TRANSFORMS:
        if builtin:
            return f"the builtin fallback of {key} refuses an operator that writes an argument or returns a view"
        return f"what the kernel at {key} calls dispatches anew, and leaves {transform.name} in its turn"
    return None


_OF_TRANSFORMS = (
    DispatchKey.FuncTorchDynamicLayerFrontMode,
    DispatchKey.FuncTorchVmapMode,
    DispatchKey.FuncTorchBatched,
    DispatchKey.BatchedNestedTensor,
    DispatchKey.Functionalize,
)
_LEAVES = re.compile(r"(?:^|[ /])aten/src/ATen/functorch/DynamicLayer\.cpp:\d+")
"""Where kernels at FuncTorchDynamicLayerBackMode are registered that do what its fallback does."""
_CASTS = re.compile(
    r"(?:^|[ /])(?:aten/src/ATen/autocast_mode\.cpp|torch/_library/custom_ops\.py|torch/library\.py):\d+"
)
"""Where kernels at an autocast key are registered that call the operator again without that key."""


_CALLS_ANEW = re.compile(
    r"(?:^|[ /])aten/src/ATen/(?:functorch/\w+|autocast_mode|LegacyBatchingRegistrations)\.cpp:\d+"
)
"""Where kernels are registered that exclude their key and call the operator again: batching rules and autocast."""


def goes_on_by(key: DispatchKey, kernel: Chosen, by_rule: Container[str] = ()) -> str:
    """How a kernel hands its operator on to a lower key, if it does.

    Args:
        key: where it is.
        kernel: the kernel.
        by_rule: the keys whose kernels are known to follow PyTorch's rules.

    Returns:
        `redispatch` or `call` for a kernel of PyTorch that does so; empty when that is not known.
    """
    if not is_builtin_fallback(key, kernel):
        if _CALLS_ANEW.search(kernel.debug):
            return "call"
        return "redispatch" if _follows_rule(key, kernel, by_rule) else ""
    anew = key in _OUTSIDE or key in _VMAP or key in (DispatchKey.Python, DispatchKey.Functionalize)
    return "call" if anew else "redispatch"


def _next_key(functionality: DispatchKey, keys: DispatchKeySet) -> DispatchKey:
    """The key that is next when a kernel redispatches as PyTorch's do."""
    is_autograd = AUTOGRAD_KEYS.bits & DispatchKeySet.of(functionality).bits
    return (keys & _BELOW_AUTOGRAD if is_autograd else _below(functionality, keys)).highest()


_ANEW = "the builtin fallback calls the operator anew, without {key}"
_VMAP = (DispatchKey.FuncTorchBatched, DispatchKey.BatchedNestedTensor)
_OUTSIDE: Mapping[DispatchKey, str] = {
    DispatchKey.Batched: "calls the operator for each element of a batch, and fails where no argument is batched",
    DispatchKey.FuncTorchBatched: "calls the operator for each element of a batch, and fails outside of vmap",
    DispatchKey.BatchedNestedTensor: "calls the operator for each element of a batch, and fails outside of vmap",
    DispatchKey.FuncTorchGradWrapper: "unwraps tensors of a functorch transform that is over, and fails without them",
    DispatchKey.FuncTorchDynamicLayerFrontMode: "enters the transform of functorch, and fails where none is active",
    DispatchKey.FuncTorchDynamicLayerBackMode: "leaves the transform of functorch, and fails where none is active",
    DispatchKey.PythonDispatcher: "calls the Python dispatcher of the thread, and fails where there is none",
}
"""What the builtin fallbacks do that run no kernel by themselves."""


_ALONE = frozenset(
    (
        ("aten::detach_", DispatchKey.AutogradFunctionality),
        ("aten::_fw_primal", DispatchKey.ADInplaceOrView),
        ("aten::_make_dual", DispatchKey.ADInplaceOrView),
    )
)
"""The kernels of VariableTypeManual.cpp that do not redispatch: no backend can do what they do."""


def _works_alone(operator: str, hop: Hop) -> bool:
    if hop.refusal is not None or hop.kernel is None or "VariableTypeManual" not in hop.kernel.debug:
        return False
    is_autograd = AUTOGRAD_KEYS.bits & DispatchKeySet.of(hop.key.functionality).bits
    return (operator, DispatchKey.AutogradFunctionality if is_autograd else hop.key) in _ALONE


def is_builtin_fallback(key: DispatchKey, kernel: Chosen) -> bool:
    """Whether a kernel is the backend fallback that PyTorch has at a key."""
    return kernel.reason == Provenance.FALLBACK and is_builtin(key, kernel.debug)


def _below(functionality: DispatchKey, keys: DispatchKeySet) -> DispatchKeySet:
    return keys & DispatchKeySet.full_after(functionality)


def _is_factory(schema: FunctionSchema) -> bool:
    """Whether an operator takes the options of a tensor that it makes."""
    return {"dtype", "layout", "device"} <= {argument.name for argument in schema.arguments}


def _selected(described: Described, thread: ThreadKeys) -> tuple[DispatchKeySet, str]:
    options = described.options
    chosen = DispatchKeySet.of(options.backend)
    why = f"BackendSelect chooses {options.backend} for {options.given}"
    tensors = [one for one in described.arguments if "Tensor" in one.type]
    if not tensors:
        return chosen, f"{why}, and redispatches with that key alone"
    for one in tensors:
        chosen |= one.keys
    kept = (chosen | thread.included) - thread.excluded
    return _below(
        DispatchKey.BackendSelect, kept
    ), f"{why}, adds the keys of the tensors, and redispatches below itself"
