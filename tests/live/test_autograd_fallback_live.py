"""What autograd makes of kernels that do what their schema does not say, against the running PyTorch.

Kernels below autograd, at it, or composite, which return inputs, views of inputs or new tensors, and write to inputs,
declared or not; with leaves, results of autograd, views and inference tensors; under guards and in both modes of the
fallback. Compared are the history, version and identity of every tensor, warnings, gradients, and how it ends.
"""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from dispatchlab import CallError, Dispatcher, Library, Tensor, operator, tensor
from dispatchlab.call import AutoDispatchBelowADInplaceOrView, AutoDispatchBelowAutograd, InferenceMode
from dispatchlab.lab import AutogradError, Lab, no_grad, set_autograd_fallback_mode, set_grad_enabled
from dispatchlab.lab.schemas import SHORT_NAMES
from tests.effort import share

torch: Any = pytest.importorskip("torch", reason="compares with the installed PyTorch, and there is none")

_PROGRAMS = share(1_200)
_INPUTS = (
    *("plain", "leaf", "leaf", "computed", "computed", "view of computed", "view of leaf", "view of plain"),
    *("view without grad", "int", "inference"),
)
_RESULTS = ("new", "new", "fresh", "input", "input", "view", "view", "detached", "int")
_GUARDS = ("", "", "", "", "no_grad", "inference", "no_grad grad", "below autograd", "below views")
_KEYS = ("CPU", "CPU", "CPU", "CPU", "CompositeExplicitAutograd", "CompositeImplicitAutograd", "AutogradCPU")
_RETURNS = ("Tensor", "Tensor", "Tensor", "(Tensor, Tensor)", "Tensor[]", "()", "written", "viewed")


@dataclass(frozen=True, slots=True)
class Case:
    """A program.

    Args:
        inputs: what the arguments are.
        written: the arguments that the schema says are written.
        returns: the returns of the schema; `written` and `viewed` alias the first argument.
        key: where the kernel is.
        writes: the arguments that the kernel writes.
        results: what it returns, each with the argument that it is made of.
        mode: of the fallback.
        guards: around the call.
        after: what is done with the first result before the backward pass.
    """

    inputs: tuple[str, ...]
    written: frozenset[int]
    returns: str
    key: str
    writes: tuple[int, ...]
    results: tuple[tuple[str, int], ...]
    mode: str
    guards: str
    after: str

    @property
    def schema(self) -> str:
        """The schema of `f`."""
        parts = []
        for at in range(len(self.inputs)):
            name = "abc"[at]
            alias = f"({name}!)" if at in self.written else "(a)" if at == 0 and self.returns == "viewed" else ""
            parts.append(f"Tensor{alias} x{at}")
        returns = {"written": "Tensor(a!)", "viewed": "Tensor(a)"}.get(self.returns, self.returns)
        return f"f({', '.join(parts)}) -> {returns}"


def _case(choose: random.Random) -> Case:
    count = choose.choice((1, 1, 2, 2, 3))
    returns = choose.choice(_RETURNS)
    written = {at for at in range(count) if choose.random() < 0.2}
    if returns == "written":
        written.add(0)
    elif returns == "viewed":
        written.discard(0)
    amount = {"()": 0, "(Tensor, Tensor)": 2, "Tensor[]": choose.randrange(3)}.get(returns, 1)
    return Case(
        inputs=tuple(choose.choice(_INPUTS) for _ in range(count)),
        written=frozenset(written),
        returns=returns,
        key=choose.choice(_KEYS),
        writes=tuple(at for at in range(count) if choose.random() < (0.7 if at in written else 0.1)),
        results=tuple((choose.choice(_RESULTS), choose.randrange(count)) for _ in range(amount)),
        mode=choose.choice(("warn", "warn", "warn", "nothing")),
        guards=choose.choice(_GUARDS),
        after=choose.choice(("", "", "mul", "write")),
    )


@dataclass(slots=True)
class Framework:
    """One of the two.

    Args:
        aten: an operator by its name.
        new: a tensor of an array.
        is_tensor: whether a value is one.
        came_from: the name of the node that a tensor came from.
        about: what else is compared of a tensor.
        guards: each by its name.
        operator: an operator `f` with one kernel, for the length of a block; the kernel gets the key set.
        set_mode: sets the mode of the fallback.
        backward: the backward pass from a tensor, with a gradient of ones.
    """

    aten: Callable[[str], Any]
    new: Callable[..., Any]
    is_tensor: Callable[[object], bool]
    came_from: Callable[[Any], str | None]
    about: Callable[[Any], object]
    guards: dict[str, Callable[[], AbstractContextManager[object]]]
    operator: Callable[[str, str, Callable[..., Any]], AbstractContextManager[Any]]
    set_mode: Callable[[str], None]
    backward: Callable[[Any], None]
    log: list[str] = field(default_factory=list)

    def note(self, *what: object) -> None:
        self.log.append(" ".join(map(str, what)))

    def made(self, kind: str, leaves: list[Any]) -> Any:
        if kind == "int":
            return self.new(np.array([1, 2]))
        if kind == "inference":
            with self.guards["inference"]():
                return self.new(np.array([0.5, 2.0]))
        leaf = self.new(np.array([0.5, 2.0]), grad=kind not in ("plain", "view of plain"))
        leaves.append(leaf)
        match kind:
            case "computed":
                return self.aten("exp")(leaf)
            case "view of computed":
                return self.aten("view")(self.aten("exp")(leaf), [2])
            case "view of leaf" | "view of plain":
                return self.aten("view")(leaf, [2])
            case "view without grad":
                with self.guards["no_grad"]():
                    return self.aten("view")(self.aten("exp")(leaf), [2])
        return leaf

    def result(self, what: str, given: Any) -> Any:
        match what:
            case "new":
                return self.aten("mul")(given, given)
            case "input":
                return given
            case "view":
                return self.aten("view")(given, [2])
            case "detached":
                return self.aten("detach")(given)
            case "int":
                return self.new(np.array([3, 4]))
        return self.new(np.array([3.0, 4.0]))

    def kernel(self, case: Case) -> Callable[..., Any]:
        def kernel(keys: Any, *given: Any) -> Any:
            self.note("kernel", *(self.shown(one) for one in given))
            for at in case.writes:
                self.aten("mul_")(given[at], self.new(np.array([3.0, 5.0])))
            results = [self.result(what, given[at]) for what, at in case.results]
            return None if case.returns == "()" else results if case.returns in _SEVERAL else results[0]

        return kernel

    def shown(self, value: Any) -> str:
        if not self.is_tensor(value):
            return repr(value)
        return f"<{value.requires_grad} {self.came_from(value)} {value.is_leaf} {self.about(value)}>"


_SEVERAL = ("(Tensor, Tensor)", "Tensor[]")


def _run(one: Framework, case: Case) -> str:
    one.log.clear()
    leaves: list[Any] = []
    one.set_mode(case.mode)
    try:
        given = [one.made(kind, leaves) for kind in case.inputs]
        with one.operator(case.schema, case.key, one.kernel(case)) as call:
            with ExitStack() as stack:
                for name in case.guards.split("/"):
                    for part in [name] if name in one.guards else name.split():
                        stack.enter_context(one.guards[part]())
                result = call(*given)
            results = [each for each in (result if isinstance(result, list | tuple) else [result]) if each is not None]
            same = [next((at for at, arg in enumerate(given) if arg is each), None) for each in results]
            one.note("results", *map(one.shown, results), same)
            one.note("inputs", *map(one.shown, given))
            if results:
                first = results[0]
                if case.after == "mul":
                    first = one.aten("mul")(first, first)
                elif case.after == "write":
                    one.aten("mul_")(first, one.new(np.array([7.0, 1.0])))
                    one.note("written", *map(one.shown, results), *map(one.shown, given))
                if first.requires_grad:
                    one.backward(first)
            one.note("grads", *(None if leaf.grad is None else leaf.grad.numpy().tolist() for leaf in leaves))
    except (RuntimeError, CallError, AutogradError, ValueError) as error:
        one.note(type(error).__name__ if isinstance(error, ValueError) else "error")
        return "error"
    finally:
        one.set_mode("warn")
    return "result"


def _warned(one: Framework, case: Case) -> tuple[str, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        end = _run(one, case)
    count = sum("utograd kernel" in str(each.message) for each in caught)
    return end, [*one.log, f"{count} warnings"]


@pytest.fixture(scope="module")
def frameworks() -> tuple[Framework, Framework]:
    lab = Lab(Dispatcher("torch-2.13"))
    names = iter(range(1_000_000))

    @contextmanager
    def ours(schema: str, key: str, kernel: Callable[..., Any]) -> Iterator[Any]:
        name = f"f{next(names)}"
        with Library("fallbacks", "FRAGMENT", dispatcher=lab.dispatcher) as library:
            library.define(schema.replace("f(", f"{name}(", 1))
            library.impl(name, kernel, key, with_keyset=True)
            yield operator(lab.dispatcher, f"fallbacks::{name}")

    @contextmanager
    def theirs(schema: str, key: str, kernel: Callable[..., Any]) -> Iterator[Any]:
        name = f"f{next(names)}"
        library = torch.library.Library("fallbacks", "FRAGMENT")
        try:
            library.define(schema.replace("f(", f"{name}(", 1))
            library.m.impl(name, key, kernel, True)  # noqa: FBT003 - it has no keywords
            yield getattr(torch.ops.fallbacks, name).default
        finally:
            library._destroy()

    def their_op(name: str) -> Any:
        base, _, overload = SHORT_NAMES.get(name, name).partition(".")
        return getattr(getattr(torch.ops.aten, base), overload or "default")

    return (
        Framework(
            aten=lambda name: lab(SHORT_NAMES.get(name, name)),
            new=lambda array, grad=False: tensor(np.array(array), requires_grad=grad),
            is_tensor=lambda value: isinstance(value, Tensor),
            came_from=lambda value: None if value.grad_fn is None else value.grad_fn.name,
            about=lambda value: (None if value.is_inference() else value.version, value.numpy().tolist()),
            guards={
                "no_grad": no_grad,
                "grad": lambda: set_grad_enabled(enabled=True),
                "inference": InferenceMode,
                "below autograd": AutoDispatchBelowAutograd,
                "below views": AutoDispatchBelowADInplaceOrView,
            },
            operator=ours,
            set_mode=set_autograd_fallback_mode,
            backward=lambda value: lab.backward(value, lab.ones_like(value)),
        ),
        Framework(
            aten=their_op,
            new=lambda array, grad=False: torch.from_numpy(np.array(array)).requires_grad_(grad),
            is_tensor=lambda value: isinstance(value, torch.Tensor),
            came_from=lambda value: None if value.grad_fn is None else value.grad_fn.name().rpartition("::")[2],
            about=lambda value: (None if value.is_inference() else value._version, value.tolist()),
            guards={
                "no_grad": torch.no_grad,
                "grad": torch.enable_grad,
                "inference": torch.inference_mode,
                "below autograd": torch._C._AutoDispatchBelowAutograd,
                "below views": torch._C._AutoDispatchBelowADInplaceOrView,
            },
            operator=theirs,
            set_mode=torch._C._set_autograd_fallback_mode,
            backward=lambda value: value.backward(torch.ones_like(value)),
        ),
    )


def test_kernels_that_break_their_schema_leave_what_they_leave_in_pytorch(
    frameworks: tuple[Framework, Framework],
) -> None:
    ours, theirs = frameworks
    ends: Counter[str] = Counter()
    for seed in range(_PROGRAMS):
        case = _case(random.Random(seed))
        found, expected = _warned(ours, case), _warned(theirs, case)
        assert found == expected, (seed, case)
        ends[expected[0]] += 1
        ends["warned"] += expected[1][-1] != "0 warnings"
        ends["gradients"] += any(line.startswith("grads [") for line in expected[1])
    assert ends["result"] > _PROGRAMS // 2
    assert ends["error"] > _PROGRAMS // 50
    assert ends["warned"] > _PROGRAMS // 20
    assert ends["gradients"] > _PROGRAMS // 20
