"""The table of the design documents' examples names what exists, and the examples that nothing else shows hold."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from dispatchlab import (
    Dispatcher,
    DispatchKey,
    DispatchKeySet,
    Library,
    Tensor,
    boxed,
    operator,
    tensor,
    trace,
    unboxed,
)
from dispatchlab.call import IncludeDispatchKeyGuard
from dispatchlab.cli import main
from dispatchlab.overrides import torch_function_dispatch

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "design" / "documents.md"

ROWS = {
    "Commits aacc722aec and e42360d56f": 11,
    "Pull request 35061": 25,
    "Pull request 25629": 13,
    "The dispatcher walkthrough": 20,
    "Codegen and structured kernels": 21,
}
"""How many examples and figures of each document the table has."""


class Row(NamedTuple):
    """A row of the table."""

    document: str
    example: str
    shown_by: tuple[str, ...]


def rows() -> Iterator[Row]:
    """The rows of the page."""
    document = ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            document = line.removeprefix("## ")
        elif line.startswith("| ") and not line.startswith(("| example", "|---")):
            example, places = line.strip("|").split(" | ")
            yield Row(document, example.strip(), tuple(re.findall(r"`([^`]+)`", places)))


@cache
def _names_in(path: Path) -> frozenset[str]:
    """The functions and methods of a Python file, `name` and `Class.name`."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return frozenset(found)


def wrong_with(place: str) -> str:
    """What is wrong with a place that a row names; empty text when it is there."""
    if place.startswith("dispatchlab "):
        name, *arguments = place.split()[1:]
        context = main.make_context("dispatchlab", ["--no-color", name], resilient_parsing=True)
        command = main.get_command(context, name)
        if command is None:
            return f"there is no command {name}"
        options = {option for parameter in command.params for option in parameter.opts}
        return ", ".join(f"{name} has no {one}" for one in arguments if one.startswith("-") and one not in options)
    file, _, name = place.partition("::")
    path = ROOT / file
    if not path.is_file():
        return f"there is no {file}"
    if not name:
        return "" if path.suffix != ".py" or "test_" not in path.name else f"{file} holds many tests: name one"
    return "" if name in _names_in(path) else f"{file} has no {name}"


def test_every_example_of_the_design_documents_is_shown_by_something_that_exists() -> None:
    counts = dict.fromkeys(ROWS, 0)
    wrong = []
    for row in rows():
        counts[row.document] += 1
        wrong += [f"{row.example}: {found}" for place in row.shown_by if (found := wrong_with(place))]
        if not row.shown_by:
            wrong.append(f"{row.example}: nothing shows it")
    assert wrong == []
    assert counts == ROWS


@pytest.mark.parametrize(
    ("place", "wrong"),
    [
        ("scenarios/basics/nothing.yaml", "there is no scenarios/basics/nothing.yaml"),
        ("tests/test_call.py::test_nothing", "tests/test_call.py has no test_nothing"),
        ("tests/test_call.py", "tests/test_call.py holds many tests: name one"),
        ("benchmarks/bench_overrides.py::TorchFunction.nothing", "benchmarks/bench_overrides.py has no TorchFunction."),
        ("dispatchlab dumb x", "there is no command dumb"),
        ("dispatchlab dump x --nothing", "dump has no --nothing"),
    ],
)
def test_a_place_that_is_not_there_is_found(place: str, wrong: str) -> None:
    assert wrong_with(place).startswith(wrong)


# -- examples that no other test shows


def _per_sample(called: Any, keys: DispatchKeySet, stack: list[Any]) -> None:
    """One boxed kernel that batches any operator: it calls it for each sample and stacks the results."""
    count = len(called.schema.arguments)
    arguments = [stack.pop() for _ in range(count)][::-1]
    below = keys & DispatchKeySet.full_after(DispatchKey.ADInplaceOrView)
    results = []
    for sample in zip(*(one.data for one in arguments), strict=True):
        inner: list[Any] = [*map(Tensor, sample)]
        called.redispatch_boxed(below, inner)
        results.append(inner.pop().data)
    stack.append(Tensor(np.stack(results)))


def _batched_operators() -> tuple[Dispatcher, Library]:
    def sin(x: Tensor) -> Tensor:
        return Tensor(np.sin(x.data))

    def add(x: Tensor, y: Tensor) -> Tensor:
        return Tensor(x.data + y.data)

    dispatcher = Dispatcher()
    library = Library("test", "DEF", dispatcher=dispatcher)
    library.define("sin(Tensor x) -> Tensor")
    library.define("add(Tensor x, Tensor y) -> Tensor")
    for name, kernel in (("sin", sin), ("add", add)):
        library.impl(name, unboxed(kernel), "CPU")
        library.impl(name, boxed(_per_sample, with_keyset=True), "Batched")
    return dispatcher, library


def test_one_boxed_kernel_batches_every_operator_as_a_stack_of_its_samples() -> None:
    dispatcher, library = _batched_operators()
    x, y = tensor([[1.0, 2.0], [3.0, 4.0]]), tensor([[10.0, 20.0], [30.0, 40.0]])
    with IncludeDispatchKeyGuard(DispatchKey.Batched), trace() as seen:
        sines, sums = operator(dispatcher, "test::sin")(x), operator(dispatcher, "test::add")(x, y)
    ran = [call.kernel and call.kernel.source for call in seen.calls]
    assert ran == ["Batched", "CPU", "CPU"] * 2
    assert np.array_equal(sums.data, np.stack([x.data[0] + y.data[0], x.data[1] + y.data[1]]))
    assert np.array_equal(sines.data, np.stack([np.sin(x.data[0]), np.sin(x.data[1])]))
    library.release()


def test_a_call_goes_from_unboxed_to_a_boxed_kernel_and_back_to_an_unboxed_one() -> None:
    dispatcher, library = _batched_operators()
    with IncludeDispatchKeyGuard(DispatchKey.Batched), trace() as seen:
        operator(dispatcher, "test::sin")(tensor([[0.0], [1.0]]))
    assert [(call.kernel and (call.kernel.source, call.kernel.conversion)) for call in seen.calls] == [
        ("Batched", "boxed"),
        ("CPU", "unboxed"),
        ("CPU", "unboxed"),
    ]
    library.release()


def test_a_handler_may_take_arguments_that_the_function_would_refuse() -> None:
    """`narrow` of a tensor takes one dimension; of a class of lists of tensors it may take several at once."""

    @torch_function_dispatch(lambda input, dim, start, length: (input,))
    def narrow(input: Any, dim: Any, start: Any, length: Any) -> str:
        return f"one dimension, {dim + start + length}"

    class Nested:
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> str:
            assert func is narrow
            return f"{len(args[1])} dimensions"

    assert narrow(tensor([1.0]), 0, 0, 1) == "one dimension, 1"
    assert narrow(Nested(), (0, 1), (0, 0), (1, 2)) == "2 dimensions"
