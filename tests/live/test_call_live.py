"""Key sets, kernels and tensors of calls against the running PyTorch."""

from __future__ import annotations

import importlib
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import numpy as np
import pytest

from dispatchlab import DispatchKey
from dispatchlab.call import (
    AutoDispatchBelowADInplaceOrView,
    AutoDispatchBelowAutograd,
    ExcludeDispatchKeyGuard,
    IncludeDispatchKeyGuard,
    InferenceMode,
    excluded,
    included,
    tensor,
)
from dispatchlab.lab import Lab
from tests.call_sequences import LAB_KINDS
from tests.live.torch_side import KINDS

torch: Any = pytest.importorskip("torch", reason="compares with the installed PyTorch, and there is none")
C: Any = importlib.import_module("torch._C")

# PyTorch warns that some of its tensors are in beta, once in a process.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:", "ignore::DeprecationWarning")

SEED = 20260


def key(name: str) -> Any:
    return C._dispatch_key_parse(name)


def key_set(*names: str) -> Any:
    found = C.DispatchKeySet(key("Undefined"))
    for name in names:
        found = found | C.DispatchKeySet(key(name))
    return found


# -- the same tensor twice


def test_every_kind_of_tensor_carries_torchs_keys() -> None:
    pairs = {kind: (C._dispatch_keys(KINDS[kind]()).raw_repr(), ours().key_bits) for kind, ours in LAB_KINDS.items()}
    assert [kind for kind, (theirs, ours) in pairs.items() if theirs != ours] == []
    assert len(pairs) == 23


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
