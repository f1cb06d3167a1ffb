"""Writes in place to views and bases, generated, against the running PyTorch: what is refused, versions, gradients."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from dispatchlab import CallError, tensor
from dispatchlab.lab import AutogradError, Lab, no_grad
from dispatchlab.lab.schemas import SHORT_NAMES
from tests.effort import share

torch: Any = pytest.importorskip("torch", reason="compares with the installed PyTorch, and there is none")

_PROGRAMS = share(1_500)


@dataclass(slots=True)
class Framework:
    """One of the two: its operators, and the tensors so far."""

    op: Callable[[str], Any]
    new: Callable[..., Any]
    no_grad: Callable[[], AbstractContextManager[Any]]
    backward: Callable[[Any], None]
    pool: list[Any]
    leaves: list[Any]

    def outcome(self, call: Callable[[Framework], Any]) -> tuple[str, Any]:
        try:
            return "done", call(self)
        except (RuntimeError, IndexError, AutogradError, CallError) as error:
            return "refused", error


def _frameworks(lab: Lab) -> tuple[Framework, Framework]:
    def their_op(name: str) -> Any:
        base, _, overload = SHORT_NAMES.get(name, name).partition(".")
        return getattr(getattr(torch.ops.aten, base), overload or "default")

    def their_new(array: Any, *, requires_grad: bool = False) -> Any:
        return torch.from_numpy(np.array(array)).requires_grad_(requires_grad)

    made = (
        Framework(lambda name: lab(SHORT_NAMES.get(name, name)), tensor, no_grad, lab.backward, [], []),
        Framework(their_op, their_new, torch.no_grad, lambda one: one.backward(), [], []),
    )
    for framework in made:
        numbers = np.random.default_rng(0)
        shapes = ((2, 3), (3,), ())
        framework.leaves = [framework.new(numbers.normal(size=shape), requires_grad=True) for shape in shapes]
        framework.pool = [
            *framework.leaves,
            framework.op("sin")(framework.leaves[0]),
            framework.new(numbers.normal(size=(2, 3))),
            framework.op("clone")(framework.leaves[1]),
        ]
    return made


Step = Callable[[Framework], Any]


def _view(choose: random.Random, at: int, shape: tuple[int, ...]) -> Step:
    rank = len(shape)
    name = choose.choice(("select", "t", "view", "unsqueeze", "squeeze", "expand", "detach"))
    arguments: dict[str, tuple[Any, ...]] = {
        "select": (choose.randint(0, max(rank - 1, 0)), choose.randint(-1, 1)),
        "view": ([-1],),
        "unsqueeze": (choose.randint(0, rank),),
        "squeeze": (0,),
        "expand": ([2, *shape],),
    }
    given = arguments.get(name, ())
    return lambda framework: framework.op(name)(framework.pool[at], *given)


def _write(choose: random.Random, at: int, pool: list[Any]) -> Step:
    name = choose.choice(("add_", "sub_", "mul_", "copy_"))
    same = [n for n, one in enumerate(pool) if tuple(one.shape) in ((), tuple(pool[at].shape))]
    number = choose.choice((2, 0.5, None, None))
    source = choose.choice(same)
    return lambda framework: framework.op(name)(
        framework.pool[at], framework.pool[source] if number is None else number
    )


def _function(choose: random.Random, at: int) -> Step:
    name = choose.choice(("sin", "exp", "neg", "clone", "mul"))
    return lambda framework: framework.op(name)(*([framework.pool[at]] * (2 if name == "mul" else 1)))


def _step(choose: random.Random, pool: list[Any]) -> tuple[str, Step]:
    at = choose.randrange(len(pool))
    kind = choose.choice(("view", "view", "write", "write", "write", "function"))
    if kind == "view":
        return kind, _view(choose, at, tuple(pool[at].shape))
    return kind, _write(choose, at, pool) if kind == "write" else _function(choose, at)


def _look_at(their_tensor: Any) -> None:
    """Have a view bring its history up to date, as printing it does; until then torch takes it for a leaf.

    A tensor that became a view of something that requires gradients after the fact refuses a write when nobody has
    looked at it before, and takes it when somebody has. Ours takes it.
    """
    with suppress(RuntimeError):
        _ = their_tensor.grad_fn


def _backward_through(chosen: list[int]) -> Step:
    def run(framework: Framework) -> None:
        loss = framework.op("sum")(framework.leaves[2])
        for at in chosen:
            loss = framework.op("add")(loss, framework.op("sum")(framework.op("sin")(framework.pool[at])))
        framework.backward(loss)

    return run


def test_writes_to_views_and_bases_are_refused_and_differentiated_as_torchs() -> None:
    lab = Lab()
    refused = written = failed = differentiated = 0
    for seed in range(_PROGRAMS):
        choose = random.Random(seed)
        ours, theirs = _frameworks(lab)
        for _ in range(choose.randint(3, 9)):
            kind, step = _step(choose, theirs.pool)
            without_grad = choose.random() < 0.12
            outcomes = []
            for framework in (ours, theirs):
                with framework.no_grad() if without_grad else nullcontext():
                    outcomes.append(framework.outcome(step))
            (our_end, our_result), (their_end, their_result) = outcomes
            assert our_end == their_end, (seed, our_result, their_result)
            refused += our_end == "refused"
            if our_end == "done" and kind != "write":
                ours.pool.append(our_result)
                theirs.pool.append(their_result)
            written += our_end == "done" and kind == "write"
            for one, other in zip(ours.pool, theirs.pool, strict=True):
                _look_at(other)
                assert one.requires_grad == other.requires_grad, seed
                assert one.version == other._version, seed
                assert np.allclose(one.numpy(), other.detach().numpy()), seed
        chosen = [at for at, one in enumerate(theirs.pool) if one.requires_grad and choose.random() < 0.7]
        if not chosen:
            continue
        ends = [framework.outcome(_backward_through(chosen)) for framework in (ours, theirs)]
        assert ends[0][0] == ends[1][0], (seed, ends)
        failed += ends[0][0] == "refused"
        if ends[0][0] == "done":
            differentiated += 1
            for one, other in zip(ours.leaves, theirs.leaves, strict=True):
                assert (one.grad is None) == (other.grad is None), seed
                if one.grad is not None:
                    assert np.allclose(one.grad.numpy(), other.grad.numpy()), seed
    assert refused > share(400)
    assert written > share(1_000)
    assert failed > share(50)
    assert differentiated > share(800)
