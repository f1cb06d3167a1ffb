"""What runs inside of `__torch_dispatch__` handlers, against the running PyTorch, in generated nestings.

Wrappers around leaves and around results of autograd, in each other, modes around them and inside of handlers, and the
guards of gradients and of inference around all: the calls, what each tensor of a handler requires and came from, the
gradients, and how it ends.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from dispatchlab import CallError, Tensor, tensor
from dispatchlab.call import InferenceMode
from dispatchlab.lab import AutogradError, Lab, no_grad, set_grad_enabled
from dispatchlab.lab.overrides import DispatchMode, PythonDispatch, enable_reentrant_dispatch
from dispatchlab.lab.schemas import SHORT_NAMES
from examples.logging_tensor import LoggingTensor
from tests.effort import share
from tests.live.logging_tensors import TheirTensor, elements

torch: Any = pytest.importorskip("torch", reason="compares with the installed PyTorch, and there is none")

_PROGRAMS = share(3_000)
_OPERATORS = ("sin", "exp", "neg", "detach", "add", "mul", "add_", "mul_")
_BINARY = ("add", "mul", "add_", "mul_")
_BEHAVIOURS = ("on", "on", "reentrant", "reentrant", "no_grad", "inference", "other", "other reentrant", "mode")
_GUARDS = ("", "", "", "no_grad", "inference", "no_grad grad", "inference grad", "inference normal")


@dataclass(slots=True)
class Framework:
    """One of the two.

    Args:
        mode: the class that modes derive from.
        wrapper: the class that wrappers derive from; it has an `elem`.
        op: an operator by its name.
        new: a tensor of an array.
        name: of an operator that a handler got.
        came_from: the name of the node that a tensor came from.
        guards: each by its name.
        backward: the backward pass from a tensor, with a gradient of ones.
        log: what handlers noted.
        kept: results of handlers; PyTorch copies a gradient into a leaf when somebody else holds it, as we do always.
    """

    mode: Any
    wrapper: Any
    op: Callable[[str], Any]
    new: Callable[[Any, bool], Any]
    name: Callable[[Any], str]
    came_from: Callable[[Any], str | None]
    guards: dict[str, Callable[[], AbstractContextManager[object]]]
    backward: Callable[[Any], None]
    log: list[str] = field(default_factory=list)
    kept: list[Any] = field(default_factory=list)

    def about(self, value: Any) -> str:
        """What is seen of a tensor, and of what it wraps."""
        if not isinstance(value, torch.Tensor | Tensor):
            return repr(value)
        wrapped = f" of {self.about(value.elem)}" if isinstance(value, self.wrapper) else ""
        return f"<{value.requires_grad} {self.came_from(value)} {value.is_leaf}{wrapped}>"

    def note(self, *what: object) -> None:
        self.log.append(" ".join(map(str, what)))

    def run(self, behaviour: str, func: Any, args: Any, kwargs: Any) -> Any:
        """Go on with a call as chosen."""
        with ExitStack() as stack:
            for name in behaviour.split():
                if name == "mode":
                    stack.enter_context(self.made_mode("inside", "on"))
                elif name in self.guards:
                    stack.enter_context(self.guards[name]())
            if "other" in behaviour and self.name(func) not in ("aten::add_.Tensor", "aten::mul_.Tensor"):
                return self.op("neg")(self.op("sin")(*args[:1]))
            return func(*args, **kwargs)

    def made_mode(self, who: str, behaviour: str) -> Any:
        def handler(mode: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.note(who, self.name(func), *map(self.about, args))
            result = self.run(behaviour, func, args, kwargs or {})
            self.note(who, "->", self.about(result))
            return result

        return type(who, (self.mode,), {"__torch_dispatch__": handler})()

    def made_kind(self, who: str, behaviour: str) -> Any:
        def handler(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.note(who, self.name(func), *map(self.about, args))
            inner = [one.elem if isinstance(one, self.wrapper) else one for one in args]
            result = self.run(behaviour, func, inner, kwargs or {})
            self.note(who, "->", self.about(result))
            wrapped = args[0] if self.name(func).partition(".")[0].endswith("_") else cls(result)
            self.kept.append(wrapped)
            return wrapped

        return type(who, (self.wrapper,), {"__torch_dispatch__": classmethod(handler)})


def _program(choose: random.Random) -> Callable[[Framework], None]:
    """Tensors and wrappers around them, guards, modes, and a few calls; then, mostly, a backward pass."""
    kinds = [choose.choice(_BEHAVIOURS) for _ in range(2)]
    made = [
        (choose.random() < 0.6, choose.random() < 0.3, [(choose.randrange(2), choose.random() < 0.3) for _ in range(n)])
        for n in (choose.choice((0, 1, 1, 2, 2, 3)) for _ in range(2))
    ]
    modes = [choose.choice(_BEHAVIOURS) for _ in range(choose.choice((0, 0, 0, 1, 2)))]
    around = choose.choice(_GUARDS).split()
    calls = [(choose.choice(_OPERATORS), choose.randrange(8), choose.randrange(8)) for _ in range(choose.randint(1, 3))]

    def run(framework: Framework) -> None:
        classes = [framework.made_kind(f"Kind{number}", behaviour) for number, behaviour in enumerate(kinds)]
        leaves: list[Any] = []
        values: list[Any] = []
        for grad, moved, depth in made:
            value = framework.new([0.5, 2.0], grad)
            leaves.append(value)
            value = framework.op("exp")(value) if moved else value
            for kind, wrapper_grad in depth:
                value = classes[kind](value, requires_grad=wrapper_grad)
                leaves.append(value)
            values.append(value)
        with ExitStack() as stack:
            for name in around:
                stack.enter_context(framework.guards[name]())
            for number, behaviour in enumerate(modes):
                stack.enter_context(framework.made_mode(f"Mode{number}", behaviour))
            for name, first, second in calls:
                given = [values[first % len(values)]]
                if name in _BINARY:
                    given.append(values[second % len(values)])
                values.append(framework.op(name)(*given))
                framework.note("result", framework.about(values[-1]))
        framework.note("values", *(_digits(value) for value in values))
        if values[-1].requires_grad:
            framework.backward(values[-1])
        for leaf in leaves:
            found = leaf.grad if leaf.is_leaf else None
            framework.note("grad", None if found is None else elements(found).round(9).tolist())

    return run


def _digits(value: Any) -> list[str]:
    """The numbers without their last digits, in which libraries of functions differ."""
    return [f"{number:.12g}" for number in elements(value).ravel().tolist()]


def _end(framework: Framework, run: Callable[[Framework], None]) -> str:
    framework.log.clear()
    framework.kept.clear()
    try:
        run(framework)
    except (RuntimeError, CallError, AutogradError):
        return "error"
    return "result"


@pytest.fixture(scope="module")
def frameworks() -> Iterator[tuple[Framework, Framework]]:
    def their_op(name: str) -> Any:
        base, _, overload = SHORT_NAMES.get(name, name).partition(".")
        return getattr(getattr(torch.ops.aten, base), overload or "default")

    lab = Lab()

    def our_backward(value: Any) -> None:
        lab.backward(value, lab.ones_like(value))

    with PythonDispatch(lab.dispatcher):
        yield (
            Framework(
                mode=DispatchMode,
                wrapper=LoggingTensor,
                op=lambda name: lab(SHORT_NAMES.get(name, name)),
                new=lambda array, grad: tensor(np.array(array), requires_grad=grad),
                name=lambda func: str(func.name),
                came_from=lambda value: None if value.grad_fn is None else value.grad_fn.name,
                guards={
                    "no_grad": no_grad,
                    "grad": lambda: set_grad_enabled(enabled=True),
                    "inference": InferenceMode,
                    "normal": lambda: InferenceMode(enabled=False),
                    "reentrant": enable_reentrant_dispatch,
                },
                backward=our_backward,
            ),
            Framework(
                mode=torch.utils._python_dispatch.TorchDispatchMode,
                wrapper=TheirTensor,
                op=their_op,
                new=lambda array, grad: torch.from_numpy(np.array(array)).requires_grad_(grad),
                name=lambda func: func._schema.name + ("." + func._schema.overload_name).rstrip("."),
                came_from=lambda value: None if value.grad_fn is None else value.grad_fn.name(),
                guards={
                    "no_grad": torch.no_grad,
                    "grad": torch.enable_grad,
                    "inference": torch.inference_mode,
                    "normal": lambda: torch.inference_mode(mode=False),
                    "reentrant": torch.overrides.enable_reentrant_dispatch,
                },
                backward=lambda value: value.backward(torch.ops.aten.ones_like.default(value)),
            ),
        )


def test_handlers_see_and_leave_what_torchs_do(frameworks: tuple[Framework, Framework]) -> None:
    ours, theirs = frameworks
    ends: Counter[str] = Counter()
    for seed in range(_PROGRAMS):
        program = _program(random.Random(seed))
        with np.errstate(over="ignore", invalid="ignore"):
            our_end = _end(ours, program)
        their_end = _end(theirs, program)
        assert ours.log == theirs.log, seed
        assert our_end == their_end, seed
        ends[our_end] += 1
        ends["handled"] += sum(line.startswith(("Kind", "Mode", "inside")) for line in ours.log)
        ends["gradients"] += sum(line.startswith("grad [") for line in ours.log)
    assert ends["result"] > _PROGRAMS // 2
    assert ends["error"] > _PROGRAMS // 50
    assert ends["handled"] > 4 * _PROGRAMS
    assert ends["gradients"] > _PROGRAMS // 6
