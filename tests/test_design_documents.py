"""The tables of the design documents' statements name what exists, and the examples that nothing else shows hold."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, NamedTuple

import numpy as np
import pytest

from benchmarks.literal_overrides import literal_dispatch
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
from dispatchlab.codegen.read.native_function import NativeFunction
from dispatchlab.overrides import PythonDispatch, as_subclass, no_dispatch, torch_function_dispatch
from tools import boxing_sizes, document_pictures, pictures

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "design" / "documents.md"

STATEMENTS = {
    "Commits aacc722aec and e42360d56f": 33,
    "Pull request 35061": 70,
    "Pull request 25629": 56,
    "The dispatcher walkthrough": 72,
    "Codegen and structured kernels": 73,
}
"""How many statements of each document there are."""

STATES = ("works", "differs", "outside", "open")
"""What became of a statement; the page says what each means."""


class Row(NamedTuple):
    """A statement of a document."""

    document: str
    statement: str
    state: str
    shown_by: tuple[str, ...]
    why: str


def rows() -> Iterator[Row]:
    """The rows of the page."""
    document = ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            document = line.removeprefix("## ")
        elif line.startswith("| ") and not line.startswith("| statement"):
            statement, state, places, why = (one.strip() for one in re.split(r" \|(?= )", line[1:-1]))
            yield Row(document, statement, state, tuple(re.findall(r"`([^`]+)`", places)), why)


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


def wrong_in(row: Row) -> str:
    """What is wrong with a row; empty text when nothing is."""
    if row.state not in STATES:
        return f"there is no state {row.state}"
    if bool(row.shown_by) != (row.state in ("works", "differs")) and row.state != "open":
        return f"{row.state}, and shown by {', '.join(row.shown_by) or 'nothing'}"
    if bool(row.why) != (row.state != "works"):
        return f"{row.state}, and the reason is {row.why!r}"
    return ", ".join(filter(None, map(wrong_with, row.shown_by)))


def test_every_statement_of_the_design_documents_has_evidence_that_exists_or_a_reason() -> None:
    found = [*rows()]
    assert [f"{row.statement}: {wrong}" for row in found if (wrong := wrong_in(row))] == []
    assert Counter(row.document for row in found) == STATEMENTS
    assert len({(row.document, row.statement) for row in found}) == len(found)
    counts = Counter(row.state for row in found)
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    said = f"{counts['works']} work, {counts['differs']} differ, {counts['outside']} are outside, {counts['open']}"
    assert f"Of the {len(found)} statements {said}" in text


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        (Row("", "", "maybe", (), ""), "there is no state maybe"),
        (Row("", "", "works", (), ""), "works, and shown by nothing"),
        (Row("", "", "outside", ("asv.conf.json",), "a link"), "outside, and shown by asv.conf.json"),
        (Row("", "", "differs", ("asv.conf.json",), ""), "differs, and the reason is ''"),
        (Row("", "", "open", (), ""), "open, and the reason is ''"),
        (Row("", "", "works", ("asv.conf.yaml",), ""), "there is no asv.conf.yaml"),
    ],
)
def test_a_row_that_says_too_little_is_found(row: Row, wrong: str) -> None:
    assert wrong_in(row) == wrong


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


@pytest.mark.parametrize("name", document_pictures.GRAPHS)
def test_a_figure_is_drawn_from_the_code_of_today(name: str) -> None:
    """If this fails: `python tools/document_pictures.py`."""
    drawn = (document_pictures.FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    assert f"from {pictures.mark(pictures.source(name, document_pictures.GRAPHS[name]()))} -->" in drawn
    assert f"(../pictures/documents/{name}.svg)" in PAGE.with_name("figures.md").read_text(encoding="utf-8")


def test_the_page_of_sizes_is_the_one_that_the_tool_writes() -> None:
    """If this fails: `python tools/boxing_sizes.py`."""
    text = boxing_sizes.PAGE.read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    sizes = {form: [int(one.replace(",", "")) for one in given] for form, _, *given in rows[1:]}
    assert boxing_sizes.page(sizes, text.splitlines()[-1].removesuffix(".")) == text
    assert len({*sizes["boxed"]}) == 1
    assert sizes["unboxed"][-1] > 50 * sizes["unboxed"][0]


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


def test_the_literal_algorithm_calls_the_handlers_that_ours_calls() -> None:
    class Named:
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> str:
            return f"{func.__name__} of {cls.__name__} of {len(types)}"

    class Sub(Named): ...

    def total(*values: Any) -> str:
        return f"implementation of {len(values)}"

    ours, literal = (made(lambda *values: values)(total) for made in (torch_function_dispatch, literal_dispatch))
    calls: list[list[Any]] = [[1, 2], [Named()], [Named(), Sub()], [Sub(), 3, Named(), Sub()]]
    assert [ours(*one) for one in calls] == [literal(*one) for one in calls]
    assert literal(Named(), Sub()) == "total of Sub of 2"


def test_what_codegen_reads_and_makes_is_frozen() -> None:
    packages = [import_module(f"dispatchlab.codegen.{name}") for name in ("read", "emit")]
    modules = [import_module(f"{one.__name__}.{each.name}") for one in packages for each in iter_modules(one.__path__)]
    classes = {one for module in modules for one in vars(module).values() if isinstance(one, type)}
    found = [one for one in classes if is_dataclass(one) and one.__module__.startswith("dispatchlab.codegen")]
    assert NativeFunction in found
    assert [one for one in found if not one.__dataclass_params__.frozen] == []  # type: ignore[attr-defined]


def test_a_subclass_is_lost_where_a_kernel_goes_by_the_elements_and_kept_where_it_calls_operators() -> None:
    """The limitation of the first version: code of operators that was not adjusted."""

    class Kept(Tensor):
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            with no_dispatch():
                return as_subclass(func(*args), cls)

    dispatcher = Dispatcher()
    library = Library("test", "DEF", dispatcher=dispatcher)
    for name in ("inner", "by_operators", "by_elements"):
        library.define(f"{name}(Tensor x) -> Tensor")
    inner = operator(dispatcher, "test::inner")

    def by_elements(x: Tensor) -> Tensor:
        return Tensor(2 * x.data)

    def by_operators(x: Tensor) -> Tensor:
        result: Tensor = inner(x)
        return result

    library.impl("inner", unboxed(by_elements), "CPU")
    library.impl("by_operators", unboxed(by_operators), "CompositeImplicitAutograd")
    library.impl("by_elements", unboxed(by_elements), "CompositeImplicitAutograd")
    with PythonDispatch(dispatcher):
        x = as_subclass(tensor([1.0, 2.0]), Kept)
        kept, lost = (operator(dispatcher, f"test::{name}")(x) for name in ("by_operators", "by_elements"))
    assert (type(kept), type(lost)) == (Kept, Tensor)
    assert np.array_equal(kept.data, lost.data)
    library.release()
