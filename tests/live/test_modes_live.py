"""Modes and wrappers in generated nestings, against the running PyTorch: which are called, and how it ends."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from dispatchlab import CallError, tensor
from dispatchlab.lab import Lab
from dispatchlab.lab.overrides import DispatchMode, Functions, PythonDispatch
from dispatchlab.lab.schemas import SHORT_NAMES
from examples.logging_tensor import LoggingTensor
from tests.effort import share
from tests.live.logging_tensors import TheirTensor, elements

torch: Any = pytest.importorskip("torch", reason="compares with the installed PyTorch, and there is none")

_PROGRAMS = share(3_000)
_BEHAVIOURS = ("on", "on", "on", "other", "decline", "raise", "answer")


@dataclass(slots=True)
class Framework:
    """One of the two.

    Args:
        mode: the class that modes derive from.
        wrapper: the class that wrappers derive from; it has an `elem`.
        op: an operator by its name.
        new: a plain tensor of an array.
        name: of an operator that a handler got.
    """

    mode: Any
    wrapper: Any
    op: Callable[[str], Any]
    new: Callable[[Any], Any]
    name: Callable[[Any], str]
    log: list[str] = field(default_factory=list)
    answer: Any = None

    def __post_init__(self) -> None:
        self.answer = self.new([9.0])

    def behave(self, who: str, behaviour: str, func: Any, args: Any, kwargs: Any) -> Any:
        """Note the call, and behave as chosen."""
        self.log.append(f"{who} {self.name(func)} {len(args)} {sorted(kwargs)}")
        match behaviour:
            case "decline":
                return NotImplemented
            case "raise":
                raise KeyError(who)
            case "answer":
                return self.answer
            case "other":
                return self.op("neg")(self.op("sin")(*args[:1]))
            case _:
                return func(*args, **kwargs)

    def made_mode(self, who: str, behaviour: str) -> Any:
        def handler(mode: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return self.behave(who, behaviour, func, args, kwargs or {})

        return type(who, (self.mode,), {"__torch_dispatch__": handler})()

    def made_kind(self, who: str, behaviour: str, base: type) -> Any:
        def handler(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            inner = [one.elem if isinstance(one, self.wrapper) else one for one in args]
            return self.behave(f"{who} {len(types)}", behaviour, func, inner, kwargs or {})

        return type(who, (base,), {"__torch_dispatch__": classmethod(handler)})


def _program(choose: random.Random) -> Callable[[Framework], Any]:
    """Modes around each other, wrappers of two classes, and one call."""
    modes = [choose.choice(_BEHAVIOURS) for _ in range(choose.randint(0, 3))]
    kinds = [(choose.choice(_BEHAVIOURS), choose.random() < 0.5) for _ in range(2)]
    name = choose.choice(("sin", "add", "add", "mul", "detach", "empty"))
    count = {"empty": 0, "add": 2, "mul": 2}.get(name, 1)
    wrapped = [choose.choice((None, 0, 1)) for _ in range(count)]
    named: dict[str, Any] = {"alpha": choose.choice((1, 2))} if name == "add" and choose.random() < 0.5 else {}

    def run(framework: Framework) -> Any:
        made: list[Any] = []
        for number, (behaviour, derives) in enumerate(kinds):
            base = made[0] if derives and made else framework.wrapper
            made.append(framework.made_kind(f"Kind{number}", behaviour, base))
        values = [framework.new([1.0, 2.0]) if at is None else made[at](framework.new([1.0, 2.0])) for at in wrapped]
        with ExitStack() as stack:
            for number, behaviour in enumerate(modes):
                stack.enter_context(framework.made_mode(f"Mode{number}", behaviour))
            return framework.op(name)(*(values or [[2]]), **named)

    return run


def _end(framework: Framework, run: Callable[[Framework], Any]) -> tuple[str, Any]:
    framework.log.clear()
    try:
        result = run(framework)
    except KeyError as error:
        return "raised", error.args
    except TypeError:
        return "nobody", None
    except (RuntimeError, CallError):
        return "wrong call", None
    return type(result).__name__, elements(result)


@pytest.fixture(scope="module")
def frameworks() -> Iterator[tuple[Framework, Framework]]:
    def their_op(name: str) -> Any:
        base, _, overload = SHORT_NAMES.get(name, name).partition(".")
        return getattr(getattr(torch.ops.aten, base), overload or "default")

    lab = Lab()
    with PythonDispatch(lab.dispatcher):
        yield (
            Framework(
                mode=DispatchMode,
                wrapper=LoggingTensor,
                op=lambda name: lab(SHORT_NAMES.get(name, name)),
                new=lambda array: tensor(np.array(array)),
                name=lambda func: str(func.name),
            ),
            Framework(
                mode=torch.utils._python_dispatch.TorchDispatchMode,
                wrapper=TheirTensor,
                op=their_op,
                new=lambda array: torch.from_numpy(np.array(array)),
                name=lambda func: func._schema.name + ("." + func._schema.overload_name).rstrip("."),
            ),
        )


def test_modes_and_wrappers_are_called_in_torchs_order(frameworks: tuple[Framework, Framework]) -> None:
    ours, theirs = frameworks
    ends: list[str] = []
    calls = 0
    for seed in range(_PROGRAMS):
        program = _program(random.Random(seed))
        our_end, our_result = _end(ours, program)
        their_end, their_result = _end(theirs, program)
        assert ours.log == theirs.log, seed
        assert our_end.replace("Tensor", "") == their_end.replace("Tensor", ""), seed
        if isinstance(our_result, np.ndarray) and not any("empty" in line for line in ours.log):
            assert np.allclose(our_result, their_result) or not ours.log, seed
        ends.append(our_end)
        calls += len(ours.log)
    assert calls > _PROGRAMS // 3
    assert min(ends.count(end) for end in ("raised", "nobody", "Tensor")) > _PROGRAMS // 75


def test_a_dispatch_mode_sees_the_options_that_functions_of_torch_fill_in() -> None:
    def noted(framework: Any, mode: Any, x: Any) -> list[list[str]]:
        seen: list[list[str]] = []

        def handler(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append([f"{name}={value}" for name, value in (kwargs or {}).items()])
            return func(*args, **(kwargs or {}))

        with type("Noting", (mode,), {"__torch_dispatch__": handler})():
            for name in ("empty", "zeros", "randn"):
                getattr(framework, name)([2])
            framework.empty_strided([2], [1], device="cpu", pin_memory=False)
            framework.zeros_like(x)
            framework.ones_like(x)
        return seen

    lab = Lab()
    with PythonDispatch(lab.dispatcher):
        functions = Functions(lab)
        ours = noted(functions, DispatchMode, functions.tensor([1.0]))
    theirs = noted(torch, torch.utils._python_dispatch.TorchDispatchMode, torch.ones(1))
    assert ours == theirs == [["device=cpu", "pin_memory=False"]] * 4 + [["pin_memory=False"]] * 2
