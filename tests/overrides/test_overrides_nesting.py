"""Logging, batching and autograd around each other, in every order: traces, keys, results and gradients."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from dispatchlab import (
    DispatchKey,
    DispatchKeySet,
    Tensor,
    tensor,
    trace,
)
from dispatchlab.lab import Lab
from examples import logging_tensor
from examples.logging_tensor import Logged, LoggingTensor, ReentrantLoggingTensor, logging
from tests.overrides.wrappers import Silent, unwrapped


def _function(lab: Lab, x: Any, y: Any) -> Any:
    return lab.sum(lab.mul(lab.sin(x), y))


def _rows(lab: Lab, wrap: Callable[[Any], Any], x: Any, y: Any) -> Any:
    def row(one: Any) -> Any:
        return unwrapped(_function(lab, wrap(one), y))

    return lab.vmap(row)(x)


def _leaf(array: Any) -> Tensor:
    return tensor(array, requires_grad=True)


_ORDERS: dict[str, Callable[[Lab, Any, Any], Any]] = {
    "batching autograd logging": lambda lab, x, y: _rows(
        lab, lambda row: row, ReentrantLoggingTensor(tensor(x), requires_grad=True), y
    ),
    "batching logging autograd": lambda lab, x, y: _rows(lab, lambda row: row, ReentrantLoggingTensor(_leaf(x)), y),
    "logging batching autograd": lambda lab, x, y: _rows(lab, ReentrantLoggingTensor, _leaf(x), y),
    "autograd logging batching": lambda lab, x, y: _rows(
        lab, lambda row: ReentrantLoggingTensor(row, requires_grad=True), tensor(x), y
    ),
    "autograd batching logging": lambda lab, x, y: _rows(
        lab, lambda row: Silent(row, requires_grad=True), ReentrantLoggingTensor(tensor(x)), y
    ),
    "logging autograd batching": lambda lab, x, y: _rows(
        lab, lambda row: ReentrantLoggingTensor(Silent(row, requires_grad=True)), tensor(x), y
    ),
}


_PYTHON, _ELEMENT = ["PythonTLSSnapshot", "AutogradCPU", "Python"], ["AutogradCPU", "CPU"]
_KEYS_OF_SIN: dict[str, list[str]] = {
    "batching autograd logging": ["Batched", *2 * (_PYTHON + _ELEMENT)],
    "batching logging autograd": ["Batched", *2 * (_PYTHON + _ELEMENT)],
    "logging batching autograd": [*_PYTHON, "Batched", *2 * _ELEMENT],
    "autograd logging batching": [*_PYTHON, "Batched", *2 * _ELEMENT],
    "autograd batching logging": [*_PYTHON, "Batched", *2 * (_PYTHON + _ELEMENT)],
    "logging autograd batching": [*_PYTHON, *_PYTHON, "Batched", *2 * _ELEMENT],
}
"""Every tensor has autograd's key; which of them requires gradients is not seen in the keys."""


@pytest.mark.parametrize("order", _ORDERS)
def test_logging_batching_and_autograd_nest_in_every_order(lab: Lab, order: str) -> None:
    x, y = np.array([[0.5, 1.0], [1.5, 2.0]]), tensor(np.array([3.0, 4.0]))
    with logging() as log, trace() as seen:
        result: Any = _ORDERS[order](lab, x, y)
    assert np.allclose(unwrapped(result).numpy(), (np.sin(x) * [3.0, 4.0]).sum(1))
    assert {"aten::sin", "aten::mul.Tensor", "aten::sum"} <= {one.operator for one in log.calls}
    calls = [call for call in seen.calls if call.operator == "aten::sin"]
    descents: list[list[DispatchKey]] = []
    for call in calls:
        if call.kind in ("[call]", "[callBoxed]"):
            descents.append([])
        descents[-1].append(call.keys.highest())
    functionality = [[DispatchKeySet.of(key).slot() for key in one] for one in descents]
    assert all(first > second for one in functionality for first, second in pairwise(one))
    assert [str(key) for one in descents for key in one] == _KEYS_OF_SIN[order]


def _inside(lab: Lab, wrap: Callable[[Any], tuple[Any, Any]], x: Any, y: Any) -> Any:
    """The gradient of every row, taken inside of the batch; `wrap` makes an argument, and the leaf in it."""

    def row(one: Any) -> Any:
        argument, leaf = wrap(one)
        result = _function(lab, argument, y)
        lab.backward(result if leaf is argument else result.elem)
        return unwrapped(leaf.grad)

    return lab.vmap(row)(x)


def _outside(lab: Lab, leaf: Any, result: Any) -> Any:
    lab.backward(lab.sum(result))
    return leaf.grad


def _both(wrapped: Any) -> tuple[Any, Any]:
    return wrapped, wrapped


def _logging_around(leaf: Any) -> tuple[Any, Any]:
    return ReentrantLoggingTensor(leaf), leaf


def _gradient_inside_of_logging(lab: Lab, x: Any, y: Any) -> Any:
    leaf = _leaf(x)
    return _outside(lab, leaf, _rows(lab, lambda row: row, ReentrantLoggingTensor(leaf), y).elem)


def _gradient_outside(lab: Lab, leaf: Any, wrap: Callable[[Any], Any], y: Any) -> Any:
    return _outside(lab, leaf, _rows(lab, wrap, leaf, y))


_GRADIENTS: dict[str, Callable[[Lab, Any, Any], Any]] = {
    "batching autograd logging": lambda lab, x, y: _gradient_outside(
        lab, ReentrantLoggingTensor(tensor(x), requires_grad=True), lambda row: row, y
    ),
    "batching logging autograd": _gradient_inside_of_logging,
    "logging batching autograd": lambda lab, x, y: _gradient_outside(lab, _leaf(x), ReentrantLoggingTensor, y),
    "autograd logging batching": lambda lab, x, y: _inside(
        lab, lambda row: _both(ReentrantLoggingTensor(row, requires_grad=True)), tensor(x), y
    ),
    "autograd batching logging": lambda lab, x, y: _inside(
        lab, lambda row: _both(Silent(row, requires_grad=True)), ReentrantLoggingTensor(tensor(x)), y
    ),
    "logging autograd batching": lambda lab, x, y: _inside(
        lab, lambda row: _logging_around(Silent(row, requires_grad=True)), tensor(x), y
    ),
}


@pytest.mark.parametrize("order", _GRADIENTS)
def test_gradients_through_every_nesting_equal_the_plain_ones(lab: Lab, order: str) -> None:
    assert set(_GRADIENTS) == set(_ORDERS)
    x, y = np.array([[0.5, 1.0], [1.5, 2.0]]), tensor(np.array([3.0, 4.0]))
    with logging() as log:
        gradient = _GRADIENTS[order](lab, x, y)
    seen = {one.operator for one in log.calls}
    # What is around autograd sees the call alone, what is inside of it sees those of the formula, too.
    order_of = order.split()
    assert ("aten::cos" in seen) == (order_of.index("logging") > order_of.index("autograd"))
    assert "aten::sin" in seen
    assert np.allclose(unwrapped(gradient).numpy(), np.cos(x) * [3.0, 4.0])


def test_a_wrapper_inside_a_wrapper_logs_once_for_each_depth(lab: Lab) -> None:
    for depth in range(1, 12):
        x: Tensor = tensor([1.0])
        for _ in range(depth):
            x = LoggingTensor(x)
        with logging() as log:
            y: Any = lab.add(x, x)
        assert [one.operator for one in log.calls] == ["aten::add.Tensor"] * depth
        for _ in range(depth):
            y = y.elem
        assert y.numpy().tolist() == [2.0]


def test_the_trace_is_written_with_numbers(lab: Lab) -> None:
    with logging() as log:
        x, y = LoggingTensor(tensor([1.0])), LoggingTensor(tensor([2.0]))
        log.input("x", x)
        log.input("y", y)
        lab.stack([lab.add(x, y, alpha=3), y], 0)
        lab.add_(x, y)
    assert str(log).splitlines() == [
        "$0 = input('x')",
        "$1 = input('y')",
        "$2 = aten.add($0, $1, alpha=3)",
        "$3 = aten.stack([$2, $1])",
        "$0 = aten.add_($0, $1)",
    ]
    assert log.calls[0] == Logged("aten::add.Tensor", ("$0", "$1", "alpha=3"), ("$2",))


def test_the_example_shows_autograd_nesting_and_batching(capsys: pytest.CaptureFixture[str]) -> None:
    logging_tensor.main()
    printed = capsys.readouterr().out
    assert "$3 = aten.add($0, $1, alpha=2)\n" in printed
    assert "$1 = aten.mul($0, $0)\n$3 = aten.mul($2, $2)\n" in printed
    assert printed.endswith(
        "batched\n$1 = aten.select($0, 0, 0)\n$2 = aten.sin($1)\n$3 = aten.select($0, 0, 1)\n"
        "$4 = aten.sin($3)\n$5 = aten.stack([$2, $4])\n"
    )


def test_a_trace_of_calls_shows_the_hops_through_the_python_key(lab: Lab) -> None:
    x = LoggingTensor(tensor([1.0]))
    with trace() as seen:
        lab.sin(x)
    assert [(call.kind, str(call.keys.highest())) for call in seen.calls] == [
        ("[call]", "PythonTLSSnapshot"),
        ("[redispatchBoxed]", "AutogradCPU"),
        ("[redispatchBoxed]", "Python"),
        ("[call]", "CPU"),
    ]
