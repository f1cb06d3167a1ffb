"""Generated first calls on the running PyTorch, on the lab, and as `explain` predicts them."""

from __future__ import annotations

import importlib
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pytest

from dispatchlab import CallError, Dispatcher, DispatchKey, DispatchKeySet, Library, Tensor, operator, tensor
from dispatchlab.lab import no_grad
from tests.call_programs import KINDS, STALE, HandlerRanError, Outcome, Program, explained, is_stale, on_lab, program
from tests.live.torch_side import FAILURES, failure
from tests.live.torch_side import KINDS as TORCH_KINDS

torch: Any = pytest.importorskip("torch", reason="compares with the installed PyTorch, and there is none")
C: Any = importlib.import_module("torch._C")

# PyTorch warns that some of its tensors are in beta, once in a process.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:", "ignore::DeprecationWarning")

PROGRAMS, SEED = 400, 20302

# -- the same program on PyTorch


def _handled() -> Any:
    class Handled(torch.Tensor):  # type: ignore[misc]  # torch is Any
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise HandlerRanError

    return torch.Tensor._make_wrapper_subclass(Handled, (2,))


SAME_KINDS: Mapping[str, Callable[[], Any]] = {**TORCH_KINDS, "cpu python": _handled}


def on_torch(one: Program, name: str) -> Outcome:
    """What the call comes to on PyTorch; `name` is an operator that it does not have yet."""
    heard: list[Outcome] = []
    result = torch.empty(0)

    def hearing(what: str, key: str) -> Callable[..., Any]:
        def kernel(keys: Any, *arguments: Any, **named: Any) -> Any:
            heard.append(Outcome(what, key, keys.raw_repr()))
            return result

        return kernel

    values = one.values(SAME_KINDS)
    with ExitStack() as held:
        everywhere = torch.library.Library("_", "IMPL")
        held.callback(everywhere._destroy)
        for key, skips in one.fallbacks:
            if skips:
                everywhere.fallback(torch.library.fallthrough_kernel, key)
            else:
                everywhere.fallback(hearing("fallback", key), key, with_keyset=True)
        library = torch.library.Library("firstcall", "FRAGMENT")
        held.callback(library._destroy)
        library.define(one.schema.replace("f(", f"{name}(", 1))
        # NB: not `library.impl`, which does not let Meta stand beside a composite kernel, as the dispatcher does.
        for key, skips in one.kernels:
            kernel = torch.library.fallthrough_kernel if skips else hearing("kernel", key)
            library.m.impl(name, key, kernel, not skips)
        call = getattr(torch.ops.firstcall, name).default
        for key in one.included:
            held.enter_context(C._IncludeDispatchKeyGuard(C._dispatch_key_parse(key)))
        for key in one.excluded:
            held.enter_context(C._ExcludeDispatchKeyGuard(C.DispatchKeySet(C._dispatch_key_parse(key))))
        try:
            call(*values)
        except HandlerRanError:
            return Outcome("handler", "Python")
        except (NotImplementedError, RuntimeError) as error:
            what, key = failure(str(error))
            return Outcome(what, key)
    (found,) = heard
    return found


def same_words(found: Outcome) -> Outcome:
    """The outcome with the key that PyTorch's words name: several fallbacks share a message."""
    if found.what != "fails":
        return found
    return Outcome("fails", next((keys[0] for _, keys in FAILURES if found.key in keys), found.key))


LAZY = {"conj", "neg", "zero"}


def crashes_torch(one: Program) -> bool:
    """Whether PyTorch 2.13 may crash: a fallback without what it unwraps or records, or a clone under forced keys.

    The fallbacks of Conjugate and its like clone, which dispatches anew, to a kernel that does not suit the tensor.
    """
    crashing = {"Tracer", "FuncTorchDynamicLayerBackMode"}
    untraced = crashing & {*one.included} - {*dict(one.kernels)}
    lazy = any(LAZY & {*(given if isinstance(given, tuple) else (given,))} for given in one.given)
    return bool(untraced) or (lazy and bool(one.included or one.excluded))


KIND_OF_OUTCOME = (
    *("kernel", "fallback", "handler", "fails", "missing_kernel", "no_tensor_arguments", "ambiguous_autogradother"),
)


def test_generated_first_calls_come_to_the_same_on_pytorch_on_the_lab_and_in_words() -> None:
    rng = random.Random(SEED)
    different: list[tuple[Program, Outcome, Outcome, Outcome]] = []
    outcomes: Counter[str] = Counter()
    keys: set[str] = set()
    compared_with_strict = 0
    for at in range(PROGRAMS):
        one = program(rng, KINDS)
        if crashes_torch(one):
            continue
        theirs = on_torch(one, f"op{at}")
        ours, said = same_words(on_lab(one, "torch-2.13")), same_words(explained(one, "torch-2.13"))
        if not is_stale(one):
            strict = same_words(on_lab(one, "strict"))
            different += [] if strict == theirs else [(one, theirs, strict, said)]
            compared_with_strict += 1
        outcomes[ours.what] += 1
        keys.add(ours.key)
        if not theirs == ours == said:
            different.append((one, theirs, ours, said))
    assert different == []
    assert outcomes.total() > 300
    assert compared_with_strict > 280
    assert set(outcomes) - {"broken"} == {*KIND_OF_OUTCOME}
    assert outcomes["kernel"] > 80
    assert len(keys) > 25


def test_an_operator_with_a_stale_slot_reports_that_and_not_the_missing_kernel() -> None:
    assert on_torch(STALE, "stale") == on_lab(STALE, "torch-2.13") == explained(STALE, "torch-2.13")
    assert on_lab(STALE, "torch-2.13") == Outcome("broken")
    assert on_lab(STALE, "strict") == explained(STALE, "strict") == Outcome("missing_kernel", "DeferredInit")


# -- what the builtin fallbacks do to values


@contextmanager
def both(
    schema: str, their_kernel: Callable[[Any], Any], our_kernel: Callable[[Any], Any]
) -> Iterator[tuple[Any, Any]]:
    """`f` on PyTorch and on the lab, with a kernel at CPU."""
    theirs = torch.library.Library("firstvalues", "FRAGMENT")
    dispatcher = Dispatcher("torch-2.13")
    try:
        with Library("t", "FRAGMENT", dispatcher=dispatcher) as ours:
            for library, kernel in ((theirs, their_kernel), (ours, our_kernel)):
                library.define(schema)
                library.impl("f", kernel, "CPU")
            yield torch.ops.firstvalues.f.default, operator(dispatcher, "t::f")
    finally:
        theirs._destroy()


def lazy(values: list[complex], key: str) -> Tensor:
    return Tensor(np.array(values), key_set=DispatchKeySet.of(DispatchKey.CPU, DispatchKey[key]))


PAIRS: Mapping[str, tuple[Callable[[], Any], Callable[[], Tensor]]] = {
    "Conjugate": (lambda: torch.tensor([1 + 2j]).conj(), lambda: lazy([1 + 2j], "Conjugate")),
    "Negative": (lambda: torch.tensor([1 + 2j]).conj().imag, lambda: lazy([2.0], "Negative")),
    "ZeroTensor": (lambda: C._VariableFunctions._efficientzerotensor(1), lambda: lazy([9.0], "ZeroTensor")),
}


@pytest.mark.parametrize("key", list(PAIRS))
def test_a_kernel_gets_the_elements_that_pytorchs_kernel_gets(key: str) -> None:
    heard: list[list[complex]] = []

    def kernel(x: Any) -> Any:
        heard.append(x.numpy().tolist())
        return x

    with both("f(Tensor x) -> Tensor", kernel, kernel) as (theirs, ours):
        theirs(PAIRS[key][0]())
        ours(PAIRS[key][1]())
    assert heard[0] == heard[1]
    assert len(heard) == 2


def test_a_write_to_a_conjugate_tensor_leaves_what_pytorch_leaves() -> None:
    def their_fill(x: Any) -> Any:
        return x.fill_(3 + 2j)

    def our_fill(x: Tensor) -> Tensor:
        x.numpy()[...] = 3 + 2j
        return x

    with both("f(Tensor(a!) x) -> Tensor(a!)", their_fill, our_fill) as (theirs, ours):
        their_tensor, our_tensor = (make() for make in PAIRS["Conjugate"])
        assert theirs(their_tensor) is their_tensor
        assert ours(our_tensor) is our_tensor
        assert (their_tensor.is_conj(), our_tensor.key_set.has(DispatchKey.Conjugate)) == (True, True)
        assert their_tensor.conj().numpy().tolist() == our_tensor.numpy().tolist() == [3 - 2j]
        for call, zeros in zip((theirs, ours), PAIRS["ZeroTensor"], strict=True):
            with pytest.raises((RuntimeError, CallError)):
                call(zeros())


def test_a_result_of_what_requires_gradients_is_marked_as_pytorch_marks_it() -> None:
    with both("f(Tensor x) -> Tensor", lambda x: torch.ones(2), lambda x: tensor([1.0, 1.0])) as (theirs, ours):
        for grad in (False, True):
            their_result = theirs(torch.ones(2, requires_grad=grad))
            our_result = ours(tensor([1.0, 1.0], requires_grad=grad))
            assert our_result.requires_grad is their_result.requires_grad is grad
        assert re.findall(r"grad_fn=<(\w+)>", repr(their_result)) == re.findall(r"grad_fn=<(\w+)>", repr(our_result))
        with torch.no_grad(), no_grad():
            assert not theirs(torch.ones(2, requires_grad=True)).requires_grad
            assert not ours(tensor([1.0], requires_grad=True)).requires_grad
