"""Key sets, kernels and tensors of calls against the running PyTorch."""

from __future__ import annotations

import importlib
import itertools
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from dispatchlab import CallError, Dispatcher, DispatchKey, DispatchKeySet, ErrorKind, Library, fallthrough
from dispatchlab.call import (
    AutoDispatchBelowADInplaceOrView,
    AutoDispatchBelowAutograd,
    DType,
    ExcludeDispatchKeyGuard,
    IncludeDispatchKeyGuard,
    InferenceMode,
    Layout,
    Tensor,
    excluded,
    included,
    operator,
    tensor,
)
from dispatchlab.call.tensor_keys import PYTHON_KEYS
from dispatchlab.layers import Lab

torch: Any = pytest.importorskip("torch", reason="compares with the installed PyTorch, and there is none")
C: Any = importlib.import_module("torch._C")

# PyTorch warns that some of its tensors are in beta, once in a process.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:", "ignore::DeprecationWarning")

OPERATORS, CALLS_EACH, SEED = 125, 16, 20260


def key(name: str) -> Any:
    return C._dispatch_key_parse(name)


def key_set(*names: str) -> Any:
    found = C.DispatchKeySet(key("Undefined"))
    for name in names:
        found = found | C.DispatchKeySet(key(name))
    return found


# -- the same tensor twice


def _two_tensor() -> Any:
    module = importlib.import_module("torch.testing._internal.two_tensor")
    return module.TwoTensor(torch.ones(2), torch.ones(2))


def _inference() -> Any:
    with torch.inference_mode():
        return torch.ones(2)


def _ours(**options: Any) -> Tensor:
    return Tensor(np.ones(2, np.float32), **options)


def _with_keys(*names: str) -> Tensor:
    return _ours(key_set=DispatchKeySet.of(*(DispatchKey[name] for name in names)))


def _our_subclass() -> Tensor:
    made = _ours()
    made.key_bits |= PYTHON_KEYS.bits
    return made


def _our_inference() -> Tensor:
    with InferenceMode():
        return _ours()


TENSORS: dict[str, tuple[Callable[[], Any], Callable[[], Tensor]]] = {
    "cpu": (lambda: torch.ones(2), _ours),
    "cpu requires_grad": (lambda: torch.ones(2, requires_grad=True), lambda: _ours(requires_grad=True)),
    "meta": (lambda: torch.ones(2, device="meta"), lambda: _ours(device="meta")),
    "sparse": (lambda: torch.ones(2, 2).to_sparse(), lambda: _ours(layout=Layout.sparse)),
    "csr": (lambda: torch.ones(2, 2).to_sparse_csr(), lambda: _ours(layout=Layout.sparse_csr)),
    "quantized": (
        lambda: torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.quint8),
        lambda: _ours(dtype=DType.quint8),
    ),
    "mkldnn": (lambda: torch.ones(2, 2).to_mkldnn(), lambda: _ours(layout=Layout.mkldnn)),
    "nested": (lambda: torch.nested.nested_tensor([torch.ones(2)]), lambda: _ours(layout=Layout.jagged)),
    "conjugate": (lambda: torch.ones(2, dtype=torch.complex64).conj(), lambda: _with_keys("CPU", "Conjugate")),
    "negative": (lambda: torch.ones(2, dtype=torch.complex64).conj().imag, lambda: _with_keys("CPU", "Negative")),
    "zero": (lambda: C._VariableFunctions._efficientzerotensor(2), lambda: _with_keys("CPU", "ZeroTensor")),
    "subclass": (_two_tensor, _our_subclass),
    "inference": (_inference, _our_inference),
}


def test_every_kind_of_tensor_carries_torchs_keys() -> None:
    pairs = {kind: (C._dispatch_keys(theirs()).raw_repr(), ours().key_bits) for kind, (theirs, ours) in TENSORS.items()}
    assert [kind for kind, (theirs, ours) in pairs.items() if theirs != ours] == []
    assert len(pairs) == 13


# -- the same guard twice

INCLUDED = ("CPU", "Meta", "SparseCPU", "AutogradCPU", "Tracer", "FuncTorchBatched", "Functionalize", "Python")
EXCLUDED = (*INCLUDED, "AutogradMeta", "AutogradOther", "BackendSelect", "ADInplaceOrView", "QuantizedCPU", "Conjugate")
Guards = Sequence[tuple[str, str]]


def _their_guard(kind: str, name: str) -> AbstractContextManager[object]:
    match kind:
        case "include":
            made: AbstractContextManager[object] = C._IncludeDispatchKeyGuard(key(name))
        case "exclude":
            made = C._ExcludeDispatchKeyGuard(key_set(name))
        case "below autograd":
            made = C._AutoDispatchBelowAutograd()
        case "below views":
            made = C._AutoDispatchBelowADInplaceOrView()
        case _:
            made = torch.inference_mode(mode=name == "on")
    return made


def _our_guard(kind: str, name: str) -> AbstractContextManager[object]:
    match kind:
        case "include":
            return IncludeDispatchKeyGuard(DispatchKey[name])
        case "exclude":
            return ExcludeDispatchKeyGuard(DispatchKey[name])
        case "below autograd":
            return AutoDispatchBelowAutograd()
        case "below views":
            return AutoDispatchBelowADInplaceOrView()
        case _:
            return InferenceMode(name == "on")


@contextmanager
def under(make: Callable[[str, str], AbstractContextManager[object]], chosen: Guards) -> Iterator[None]:
    """Inside of the guards. NB: most of PyTorch's begin when they are made, and not when they are entered."""
    with ExitStack() as stack:
        for kind, name in chosen:
            stack.enter_context(make(kind, name))
        yield


def _some_guards(rng: random.Random) -> Guards:
    chosen: list[tuple[str, str]] = []
    for _ in range(rng.choice((0, 0, 1, 1, 2, 3))):
        kind = rng.choice(("include", "exclude", "below autograd", "below views", "inference"))
        names = {"include": INCLUDED, "exclude": EXCLUDED, "inference": ("on", "off")}.get(kind, ("",))
        chosen.append((kind, rng.choice(names)))
    return chosen


def test_every_nest_of_guards_sets_torchs_two_sets() -> None:
    rng = random.Random(SEED)
    seen = set()
    for _ in range(300):
        chosen = _some_guards(rng)
        with under(_their_guard, chosen):
            expected = (
                C._dispatch_tls_local_include_set().raw_repr(),
                C._dispatch_tls_local_exclude_set().raw_repr(),
            )
        with under(_our_guard, chosen):
            found = (included().bits, excluded().bits)
        assert found == expected, chosen
        seen.add(found)
    assert len(seen) > 60


# -- the same operator twice

# Keys at which PyTorch has a C++ fallback always get a kernel of their own, so that none of those runs.
WITH_FALLBACK = (
    *("AutogradCPU", "AutogradMeta", "AutogradOther", "Python", "PythonTLSSnapshot", "Conjugate", "Negative"),
    *("ZeroTensor", "Tracer", "FuncTorchBatched", "Functionalize", "Meta"),
)
WITHOUT_FALLBACK = (
    *("CPU", "SparseCPU", "SparseCsrCPU", "QuantizedCPU", "MkldnnCPU", "NestedTensorCPU"),
    *("AutogradNestedTensor", "BackendSelect", "ADInplaceOrView"),
)
TYPES = ("Tensor", "Tensor", "Tensor?", "Tensor[]", "Tensor?[]", "int")


@dataclass
class Twins:
    """One operator in PyTorch and here, whose kernels report their key and the set that they were handed."""

    name: str
    types: tuple[str, ...]
    kernels: dict[str, bool]
    heard: list[tuple[str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        arguments = ", ".join(f"{type_} a{at}" for at, type_ in enumerate(self.types))
        schema = f"{self.name}({arguments}) -> Tensor"
        self.theirs = torch.library.Library("twins", "FRAGMENT")
        self.theirs.define(schema)
        self.dispatcher = Dispatcher("torch-2.13")
        self.ours = Library("twins", "FRAGMENT", dispatcher=self.dispatcher)
        self.ours.define(schema)
        their_result, our_result = torch.empty(0), tensor([])
        for name, is_fallthrough in self.kernels.items():
            if is_fallthrough:
                self.theirs.impl(self.name, torch.library.fallthrough_kernel, name)
                self.ours.impl(self.name, fallthrough, name)
            else:
                self.theirs.impl(self.name, self._kernel(name, their_result), name, with_keyset=True)
                self.ours.impl(self.name, self._kernel(name, our_result), name, with_keyset=True)
        self.their_call = getattr(torch.ops.twins, self.name).default
        self.our_call = operator(self.dispatcher, f"twins::{self.name}")

    def _kernel(self, name: str, result: object) -> Callable[..., object]:
        def kernel(keys: Any, *arguments: object, **named: object) -> object:
            self.heard.append((name, keys.bits if isinstance(keys, DispatchKeySet) else keys.raw_repr()))
            return result

        return kernel

    def outcome(self, call: Callable[[], object]) -> tuple[str, object]:
        """What a call comes to: a kernel and its set, or the key that has no kernel."""
        self.heard.clear()
        try:
            call()
        except CallError as error:
            return str(error.kind), error.facts["key"]
        except NotImplementedError as error:
            text = str(error)
            if "There were no tensor arguments" in text:
                return str(ErrorKind.NO_TENSOR_ARGUMENTS), "Undefined"
            found = re.search(r"from the '(\w+)' backend", text)
            assert found is not None, text
            return str(ErrorKind.MISSING_KERNEL), found[1]
        (heard,) = self.heard
        return heard


def _twins(rng: random.Random, at: int) -> Twins:
    kernels = {name: rng.random() < 0.4 for name in WITH_FALLBACK}
    for name in (*WITHOUT_FALLBACK, "CompositeExplicitAutograd", "CompositeImplicitAutograd"):
        chance = rng.random()
        if chance < (0.55 if name in WITHOUT_FALLBACK else 0.15):
            kernels[name] = name in WITHOUT_FALLBACK and chance < 0.15
    return Twins(f"op{at}", tuple(rng.choice(TYPES) for _ in range(rng.randint(1, 4))), kernels)


def _values(
    rng: random.Random, types: tuple[str, ...], made: dict[str, tuple[Any, Tensor]]
) -> tuple[list[Any], list[Any]]:
    def one(*, optional: bool) -> tuple[Any, Any]:
        return (None, None) if optional and rng.random() < 0.3 else made[rng.choice(list(made))]

    pairs: list[tuple[Any, Any]] = []
    for type_ in types:
        optional = "?" in type_
        if type_.endswith("[]"):
            elements = [one(optional=optional) for _ in range(rng.randint(0, 3))]
            pairs.append(([theirs for theirs, _ in elements], [ours for _, ours in elements]))
        elif type_ == "int":
            pairs.append((7, 7))
        else:
            pairs.append(one(optional=optional or rng.random() < 0.1))
    return [theirs for theirs, _ in pairs], [ours for _, ours in pairs]


def test_kernel_and_key_set_of_2000_generated_calls_are_torchs() -> None:
    rng = random.Random(SEED)
    made = {kind: (theirs(), ours()) for kind, (theirs, ours) in TENSORS.items()}
    outcomes: Counter[str] = Counter()
    reached: set[str] = set()
    calls = 0
    for at in range(OPERATORS):
        twins = _twins(rng, at)
        for number in range(CALLS_EACH):
            their_values, our_values = _values(rng, twins.types, made)
            chosen = _some_guards(rng)
            with under(_their_guard, chosen):
                expected = twins.outcome(lambda: twins.their_call(*their_values))  # noqa: B023 - called at once
            with under(_our_guard, chosen):
                if number % 2:
                    found = twins.outcome(lambda: twins.our_call(*our_values))  # noqa: B023 - called at once
                else:
                    found = twins.outcome(lambda: twins.our_call.call_boxed([*our_values]))  # noqa: B023 - likewise
            assert found == expected, (twins.types, twins.kernels, their_values, chosen)
            calls += 1
            outcomes["refused" if found[0].islower() else "ran"] += 1
            reached.add(str(found[0]))
    assert calls == OPERATORS * CALLS_EACH == 2000
    assert outcomes["ran"] > 1000
    assert outcomes["refused"] > 100
    assert len(reached) > 18


def test_a_bool_argument_and_alpha_take_and_refuse_what_torchs_do() -> None:
    lab = Lab()
    ours = {"float": tensor([1.0, 2.0]), "int": tensor([1, 2]), "bool": tensor([True, False])}
    theirs = {name: torch.tensor(one.numpy()) for name, one in ours.items()}

    def ended(function: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            result = function(*args, **kwargs)
        except Exception:
            return "refused"
        return result.tolist() if isinstance(result, torch.Tensor) else result.numpy().tolist()

    seen = Counter[str]()
    keepdim: Any
    for keepdim in (0, 1, 0.5, 2j, None, True, "a", [], np.int64(0), np.bool_(True)):  # noqa: FBT003
        found = ended(lab("sum.dim_IntList"), ours["float"], [0], keepdim)
        assert found == ended(torch.ops.aten.sum.dim_IntList, theirs["float"], [0], keepdim), keepdim
        seen[str(found)] += 1
    for name, one, other, alpha in itertools.product(("add", "sub"), ours, ours, (1, 2, 2.5, True, False, 2j)):
        found = ended(lab(f"{name}.Tensor"), ours[one], ours[other], alpha=alpha)
        there = ended(getattr(torch.ops.aten, name).Tensor, theirs[one], theirs[other], alpha=alpha)
        assert found == there, (name, one, other, alpha)
        seen[str(found)] += 1
    assert seen["refused"] > 40
    assert {"add", "sum", "select", "backward"} <= {*dir(lab)}
