"""Generated first calls: one operator, kernels and fallbacks at random keys, and one call of it.

A program is a value that says nothing about who runs it. `on_lab` runs it on a dispatcher, `explained` asks `explain`
what it would come to, and tests/live runs it on the installed PyTorch; each answers with an `Outcome`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

import dispatchlab
from dispatchlab import (
    CallError,
    Dispatcher,
    DispatchKey,
    DispatchKeySet,
    InvariantError,
    Library,
    Tensor,
    fallthrough,
    operator,
    tensor,
)
from dispatchlab.call import DType, ExcludeDispatchKeyGuard, IncludeDispatchKeyGuard, InferenceMode, Layout
from dispatchlab.model.schema_parser import parse_name
from dispatchlab.questions.explain.argument_specs import describe_arguments
from dispatchlab.questions.explain.hops import explain, schema_of, thread_keys
from dispatchlab.questions.explain.result import CallExplanation

# -- arguments


class Handled(Tensor):
    """A tensor whose class answers calls."""

    __slots__ = ()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise HandlerRanError


class HandlerRanError(Exception):
    """A `__torch_dispatch__` was asked."""


def ones(**options: Any) -> Tensor:
    """A tensor of two ones."""
    return Tensor(np.ones(2, np.float32), **options)


def with_keys(*names: str, dtype: Any = np.complex64, requires_grad: bool = False) -> Tensor:
    """The same, built with some keys."""
    keys = DispatchKeySet.of(*(DispatchKey[name] for name in names))
    return Tensor(np.ones(2, dtype), key_set=keys, requires_grad=requires_grad)


def inference() -> Tensor:
    """The same, made in inference mode."""
    with InferenceMode():
        return ones()


KINDS: Mapping[str, Callable[[], Tensor]] = {
    "cpu": ones,
    "cpu requires_grad": lambda: ones(requires_grad=True),
    "meta": lambda: ones(device="meta"),
    "cpu sparse": lambda: ones(layout=Layout.sparse),
    "csr": lambda: ones(layout=Layout.sparse_csr),
    "cpu quantized": lambda: ones(dtype=DType.quint8),
    "mkldnn": lambda: ones(layout=Layout.mkldnn),
    "nested": lambda: ones(layout=Layout.jagged),
    "conj": lambda: with_keys("CPU", "Conjugate"),
    "neg": lambda: with_keys("CPU", "Negative"),
    "zero": lambda: with_keys("CPU", "ZeroTensor"),
    "inference": inference,
    "cpu python": lambda: Handled(np.ones(2, np.float32)),
}
"""What the CPU build of PyTorch can make, in the words of `explain`."""

ELSEWHERE: Mapping[str, Callable[[], Tensor]] = {
    "cuda": lambda: ones(device="cuda"),
    "xla requires_grad": lambda: ones(device="xla", requires_grad=True),
    "cuda sparse": lambda: ones(device="cuda", layout=Layout.sparse),
    "privateuseone": lambda: ones(device="privateuseone"),
    "fpga": lambda: ones(device="fpga"),
}
"""What it cannot make, and the lab can."""

# -- programs

BACKENDS = ("CPU", "Meta", "SparseCPU", "SparseCsrCPU", "QuantizedCPU", "MkldnnCPU", "NestedTensorCPU")
COMPOSITES = (
    *("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional"),
    *("CompositeImplicitAutogradNestedTensor", "Autograd", "FuncTorchBatchedDecomposition"),
)
FUNCTIONALITIES = (
    *("AutogradCPU", "AutogradMeta", "AutogradOther", "AutogradNestedTensor", "ADInplaceOrView", "BackendSelect"),
    *("Conjugate", "Negative", "ZeroTensor", "Functionalize", "Python", "PythonTLSSnapshot", "Tracer", "AutocastCPU"),
    *("FuncTorchBatched", "PreDispatch"),
)
FREE = ("SparseCPU", "SparseCsrCPU", "QuantizedCPU", "MkldnnCPU", "NestedTensorCPU", "AutogradNestedTensor")
"""Keys without a builtin fallback, for fallbacks of one's own."""
INCLUDED = (
    *("CPU", "Meta", "SparseCPU", "AutogradCPU", "AutogradOther", "AutogradMeta", "AutogradNestedTensor"),
    *("Conjugate", "Negative", "ZeroTensor", "Functionalize", "Python", "PythonTLSSnapshot", "PreDispatch"),
    *("FuncTorchBatched", "BatchedNestedTensor", "Batched", "FuncTorchGradWrapper", "VmapMode", "FuncTorchVmapMode"),
    *("FuncTorchDynamicLayerFrontMode", "FuncTorchDynamicLayerBackMode", "PythonDispatcher", "AutocastCPU"),
    *("DeferredInit", "Fake"),
)
EXCLUDED = (
    *("AutogradCPU", "AutogradOther", "ADInplaceOrView", "BackendSelect", "CPU", "Meta", "SparseCPU", "Conjugate"),
    *("Negative", "Python", "PythonTLSSnapshot", "AutogradNestedTensor", "QuantizedCPU"),
)
TYPES = ("Tensor", "Tensor", "Tensor", "Tensor?", "Tensor[]", "int")

Given = str | tuple[str, ...] | None
"""What an argument is: a kind of tensor, kinds of tensors in a list, or nothing."""


@dataclass(frozen=True, slots=True)
class Program:
    """An operator, what is registered for it, and a call.

    Args:
        types: the types of its arguments.
        kernels: the key of each kernel, in order, and whether it is a fallthrough.
        fallbacks: likewise for the fallbacks that come on top of the builtin ones.
        given: the arguments; a number is always 7.
        included: the keys that a guard includes.
        excluded: the keys that a guard excludes.
    """

    types: tuple[str, ...]
    kernels: tuple[tuple[str, bool], ...]
    fallbacks: tuple[tuple[str, bool], ...]
    given: tuple[Given, ...]
    included: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()

    @property
    def schema(self) -> str:
        """The schema of `f`."""
        return f"f({', '.join(f'{type_} a{at}' for at, type_ in enumerate(self.types))}) -> Tensor"

    @property
    def words(self) -> list[str]:
        """The arguments as `explain` wants them."""
        return [
            f"a{at}=list:{', '.join(given)}" if isinstance(given, tuple) else f"a{at}={given or 'none'}"
            for at, (type_, given) in enumerate(zip(self.types, self.given, strict=True))
            if type_ != "int"
        ]

    def values(self, kinds: Mapping[str, Callable[[], Any]]) -> list[Any]:
        """The arguments as values."""
        return [
            7
            if type_ == "int"
            else None
            if given is None
            else [kinds[one]() for one in given]
            if isinstance(given, tuple)
            else kinds[given]()
            for type_, given in zip(self.types, self.given, strict=True)
        ]


STALE = Program(
    ("Tensor",),
    (("CompositeImplicitAutograd", False), ("SparseCPU", False)),
    (),
    ("cpu",),
    included=("DeferredInit",),
)
"""A call without a kernel, of an operator whose AutogradOther PyTorch forgets to refresh."""

RELATED: Mapping[str, tuple[str, ...]] = {
    "cpu sparse": ("SparseCPU", "AutogradOther", "CompositeImplicitAutograd"),
    "csr": ("SparseCsrCPU", "AutogradOther", "CompositeImplicitAutograd"),
    "cpu quantized": ("QuantizedCPU", "AutogradOther", "CompositeImplicitAutograd"),
    "mkldnn": ("MkldnnCPU", "AutogradOther", "CompositeImplicitAutograd"),
    "nested": ("NestedTensorCPU", "AutogradNestedTensor", "CompositeImplicitAutogradNestedTensor"),
    "meta": ("Meta", "AutogradMeta", "CompositeExplicitAutograd"),
}
"""Keys that a call with such a tensor passes."""


def program(rng: random.Random, kinds: Mapping[str, object], *, aliases: bool = True) -> Program:
    """A random one: often a kernel where the call looks for it, often not, sometimes none at all.

    Args:
        rng: the source of everything.
        kinds: what arguments can be.
        aliases: whether kernels can be registered at alias keys.
    """
    names = list(kinds)
    types = tuple(rng.choice(TYPES) for _ in range(rng.choice((1, 1, 2, 3))))
    given = tuple(_given(rng, names, type_) for type_ in types)
    count = rng.choice((0, 1, 1, 2, 3, 4, 6))
    keys = rng.sample((*BACKENDS, *COMPOSITES, *FUNCTIONALITIES), count)
    if count and rng.random() < 0.5:  # something that this call passes
        kind = next((one for one in given if isinstance(one, str)), "")
        passed = RELATED.get(kind, ("CPU", "AutogradCPU", "CompositeImplicitAutograd"))
        keys = [*rng.sample(passed, rng.randint(1, len(passed))), *keys[2:]]
    wanted = [key for key in dict.fromkeys(keys) if aliases or not DispatchKey[key].is_alias]
    kernels = tuple((key, key not in COMPOSITES and rng.random() < 0.25) for key in wanted)
    fallbacks = tuple((key, rng.random() < 0.5) for key in rng.sample(FREE, rng.choice((0, 0, 1, 2))))
    included = tuple(rng.sample(INCLUDED, rng.choice((0, 0, 0, 0, 1, 1, 2))))
    excluded = tuple(rng.sample(EXCLUDED, rng.choice((0, 0, 0, 0, 1, 2))))
    if "Tracer" in wanted and rng.random() < 0.7:
        included = (*included, "Tracer")
    return Program(types, kernels, fallbacks, given, included, excluded)


def _given(rng: random.Random, names: list[str], type_: str) -> Given:
    if type_ == "int":
        return None
    if type_ == "Tensor[]":
        return tuple(rng.choice(names) for _ in range(rng.randint(1, 3)))
    absent = 0.3 if type_ == "Tensor?" else 0.05
    return None if rng.random() < absent else rng.choice(names)


# -- outcomes


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call comes to.

    Args:
        what: `kernel` or `fallback` for one that was registered here, `handler` for a `__torch_dispatch__`, `fails`
            for a builtin fallback that cannot do its work, `broken` for an invariant, else the kind of the error.
        key: where.
        keys: the set that the kernel was handed.
    """

    what: str
    key: str = ""
    keys: int = 0


def on_lab(one: Program, semantics: str) -> Outcome:
    """What the call comes to on a dispatcher as a user makes it."""
    dispatcher = Dispatcher(semantics)
    with ExitStack() as held:
        heard = _registered(one, dispatcher, held)
        values = one.values({**KINDS, **ELSEWHERE})
        for key in one.included:
            held.enter_context(IncludeDispatchKeyGuard(DispatchKey[key]))
        for key in one.excluded:
            held.enter_context(ExcludeDispatchKeyGuard(DispatchKey[key]))
        try:
            operator(dispatcher, "t::f")(*values)
        except CallError as error:
            return Outcome("fails" if error.kind == "other" else str(error.kind), error.facts["key"])
        except InvariantError:
            return Outcome("broken")
        except HandlerRanError:
            return Outcome("handler", "Python")
    (found,) = heard
    return found


def _registered(one: Program, dispatcher: Dispatcher, held: ExitStack) -> list[Outcome]:
    heard: list[Outcome] = []

    def hearing(what: str, key: str) -> Callable[..., Tensor]:
        def kernel(keys: DispatchKeySet, *arguments: object, **named: object) -> Tensor:
            heard.append(Outcome(what, key, keys.bits))
            return tensor([])

        return kernel

    everywhere = held.enter_context(Library("_", "IMPL", dispatcher=dispatcher))
    for key, skips in one.fallbacks:
        everywhere.fallback(fallthrough if skips else hearing("fallback", key), key, with_keyset=not skips)
    library = held.enter_context(Library("t", "FRAGMENT", dispatcher=dispatcher))
    library.define(one.schema)
    for key, skips in one.kernels:
        kernel = fallthrough if skips else hearing("kernel", key)
        library.impl("f", kernel, key, with_keyset=not skips, debug=key)
    return heard


def is_stale(one: Program) -> bool:
    """Whether PyTorch forgets to refresh a slot, which `strict` does not."""
    dispatcher = Dispatcher("torch-2.13")
    with ExitStack() as held:
        _registered(one, dispatcher, held)
        return bool(dispatcher.violations(parse_name("t::f")))


def explained(one: Program, semantics: str) -> Outcome:
    """What `explain` says that the call comes to."""
    dispatcher = Dispatcher(semantics)
    with ExitStack() as held:
        _registered(one, dispatcher, held)
        return outcome_of(explanation(one, dispatcher), one)


def explanation(one: Program, dispatcher: Dispatcher) -> CallExplanation:
    """The explanation of the call on a dispatcher that has the operator."""
    view = dispatcher.explain("t::f")
    assert view is not None
    keys = thread_keys(tuple(DispatchKey[key] for key in one.included), tuple(DispatchKey[key] for key in one.excluded))
    return explain(view, describe_arguments(schema_of(view), one.words), keys)


def explained_by_values(one: Program, semantics: str) -> Outcome:
    """What `dispatchlab.explain` says that the call comes to, of the operator and the tensors themselves."""
    dispatcher = Dispatcher(semantics)
    with ExitStack() as held:
        _registered(one, dispatcher, held)
        values = one.values({**KINDS, **ELSEWHERE})
        deciding = [value for type_, value in zip(one.types, values, strict=True) if type_ != "int"]
        found = dispatchlab.explain(operator(dispatcher, "t::f"), *deciding, include=one.included, exclude=one.excluded)
        return outcome_of(found.explanation, one)


def outcome_of(found: CallExplanation, one: Program) -> Outcome:
    """The first kernel on the way that the program registered, or how the way ends."""
    own = {key for key, _ in one.fallbacks}
    for hop in found.hops:
        if hop.refusal is not None:
            broken = "a broken invariant" in found.end
            return Outcome("broken") if broken else Outcome(str(hop.refusal), str(hop.key))
        assert hop.kernel is not None
        if hop.kernel.reason != "backend fallback":
            return Outcome("kernel", hop.kernel.debug, hop.keys.bits)
        if str(hop.key) in own:
            return Outcome("fallback", str(hop.key), hop.keys.bits)
    asked = found.end.startswith("the subclass decides")
    return Outcome("handler" if asked else "fails", str(found.hops[-1].key))
