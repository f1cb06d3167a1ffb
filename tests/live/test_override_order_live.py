"""In which order handlers are called, and with what, against the running PyTorch."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from dispatchlab import Tensor, tensor
from dispatchlab.lab import Lab
from dispatchlab.lab.overrides import Functions, as_subclass, torch_function_dispatch
from tests.handler_orders import Implementation, compare_orders

torch: Any = pytest.importorskip("torch", reason="compares with the installed PyTorch, and there is none")


def _body(record: Any) -> dict[str, Any]:
    return {"__torch_function__": classmethod(lambda cls, func, types, args=(), kwargs=None: record(types))}


def _function(values: Any) -> Any:
    return "implementation"


def _theirs(values: Any) -> Any:
    if torch.overrides.has_torch_function(values):
        return torch.overrides.handle_torch_function(_theirs, values, values)
    return _function(values)


def test_the_order_of_handlers_is_torchs_for_2000_hierarchies() -> None:
    theirs = Implementation(torch.Tensor, _body, lambda kind: torch.zeros(1).as_subclass(kind))
    ours = Implementation(Tensor, _body, lambda kind: as_subclass(tensor([0.0]), kind))
    compare_orders((theirs, _theirs), (ours, torch_function_dispatch(lambda values: values)(_function)))


def _kinds(seed: int, root: type) -> list[type]:
    """The root and a few classes that derive from it and have no handler."""
    choose = random.Random(seed)
    kinds = [root]
    for number in range(choose.randint(1, 5)):
        bases = choose.sample(kinds, min(len(kinds), choose.randint(1, 2)))
        try:
            kinds.append(type(f"C{number}", tuple(bases), {}))
        except TypeError:
            continue  # no consistent order of bases
    return kinds


def _kind_of_result(call: Callable[..., Any], *values: Any) -> str:
    try:
        result = call(*values)
    except TypeError:
        return "TypeError"
    return type(result).__name__ + (f" of {type(result[0]).__name__}" if isinstance(result, list | tuple) else "")


def test_the_class_of_a_result_is_torchs_for_500_hierarchies() -> None:
    functions = Functions(Lab())
    seen = []
    for seed in range(500):
        their_kinds, our_kinds = _kinds(seed, torch.Tensor), _kinds(seed, Tensor)
        choose = random.Random(-seed)
        chosen = [choose.randrange(len(our_kinds)) for _ in range(3)]
        theirs = [torch.ones(2).as_subclass(their_kinds[at]) for at in chosen]
        ours: list[Any] = [as_subclass(tensor([1.0, 1.0]), our_kinds[at]) for at in chosen]
        for their_call, our_call, count in (
            (torch.neg, functions.neg, 1),
            (torch.add, functions.add, 2),
            (torch.mul, functions.mul, 2),
            (lambda *values: torch.stack(values), lambda *values: functions.stack([*values]), 3),
        ):
            expected = _kind_of_result(their_call, *theirs[:count])
            assert _kind_of_result(our_call, *ours[:count]) == expected, (seed, chosen)
            seen.append(expected)
    assert seen.count("TypeError") > 200
    assert sum(kind.startswith("C") for kind in seen) > 900
    assert seen.count("Tensor") > 100
