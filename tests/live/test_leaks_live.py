"""Leaked registrations on the running PyTorch are listed."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from dispatchlab.questions.leaks import Watch  # noqa: E402  torch has to be there first


@pytest.fixture
def watching() -> Iterator[Callable[[], Watch]]:
    """Begins to watch; what it began is closed after the test."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(Watch())


def line_of(function: Callable[..., object], text: str) -> str:
    """The path and line of the first line of a function that has this text, as leaks show it."""
    lines, first = inspect.getsourcelines(function)
    at = next(number for number, line in enumerate(lines, first) if text in line)
    return f"{os.path.relpath(__file__)}:{at}"


def test_leaked_kernels_operators_and_fallbacks_are_listed_and_released_ones_are_not(
    watching: Callable[[], Watch],
) -> None:
    here = test_leaked_kernels_operators_and_fallbacks_are_listed_and_released_ones_are_not
    watch = watching()
    library = torch.library.Library("dispatchlab_leaky", "DEF")
    library.define("op(Tensor x) -> Tensor")
    kernels = torch.library.Library("aten", "IMPL")
    kernels.impl("relu", lambda x: x, "PrivateUse1")
    fallbacks = torch.library.Library("_", "IMPL")
    fallbacks.fallback(torch.library.fallthrough_kernel, "PrivateUse2")
    assert [line for leak in watch.leaks() for line in leak.lines] == [
        f"fallback PrivateUse2 came: fallthrough registered at {line_of(here, 'fallbacks.fallback')}",
        f"aten::relu: kernel PrivateUse1 came: registered at {line_of(here, 'kernels.impl')} :: (none) [ boxed ]",
        "operator came: dispatchlab_leaky::op(Tensor x) -> Tensor with 0 kernels",
        f"  registered at {line_of(here, 'library.define')}",
    ]
    for each in (library, kernels, fallbacks):
        each._destroy()
    assert watch.leaks() == ()


def register_with_a_library_that_is_older(library: Any) -> None:
    """A helper, which a test calls."""
    library.impl("op", lambda x: x, "CPU")


def test_the_line_is_that_of_the_call_even_if_the_library_is_older(watching: Callable[[], Watch]) -> None:
    library = torch.library.Library("dispatchlab_leaky", "DEF")
    library.define("op(Tensor x) -> Tensor")
    watch = watching()
    register_with_a_library_that_is_older(library)
    ((line,),) = [leak.lines for leak in watch.leaks()]
    caller = test_the_line_is_that_of_the_call_even_if_the_library_is_older
    made = line_of(register_with_a_library_that_is_older, "library.impl")
    assert f"registered at {line_of(caller, '    register_with')} via {made} ::" in line
    library._destroy()
    assert [leak.lines[0] for leak in watch.leaks()] == [
        "operator went: dispatchlab_leaky::op(Tensor x) -> Tensor with 0 kernels"
    ]


def test_what_a_custom_op_registers_is_a_leak_until_it_is_released(watching: Callable[[], Watch]) -> None:
    watch = watching()
    op = torch.library.custom_op("dispatchlab_leaky::scale", scale, mutates_args=(), schema="(Tensor x) -> Tensor")
    op.register_fake(scale)
    ((leak),) = watch.leaks()
    assert leak.operator == "dispatchlab_leaky::scale"
    here = test_what_a_custom_op_registers_is_a_leak_until_it_is_released
    assert leak.lines[1:] == (f"  registered at {line_of(here, 'custom_op(')}",)
    op._lib._destroy()
    assert watch.leaks() == ()


def scale(x: Any) -> Any:
    """A kernel."""
    return x * 2.0


def test_what_a_test_leaves_in_registries_of_python_is_listed_with_its_line(watching: Callable[[], Watch]) -> None:
    from torch._decomp import decomposition_table, register_decomposition, remove_decompositions
    from torch._subclasses.fake_impls import op_implementations_dict, register_op_impl

    class Mode(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc, name-defined]
        pass

    here = test_what_a_test_leaves_in_registries_of_python_is_listed_with_its_line
    library = torch.library.Library("dispatchlab_leaky", "FRAGMENT")
    library.define("op(Tensor x) -> Tensor")
    op, key = torch.ops.dispatchlab_leaky.op.default, torch._C.DispatchKey.Functionalize
    watch = watching()
    register_decomposition(op)(scale)  # a decomposition
    decomposition_table[torch.ops.aten.bincount.default] = scale
    register_op_impl(op)(lambda mode, function, x: x)  # a fake rule
    op.py_impl(key)(scale)  # a kernel
    torch.library.register_torch_dispatch("dispatchlab_leaky::op", Mode, scale, lib=library)  # a mode rule
    torch.library.register_fake("dispatchlab_leaky::op", scale, lib=library)  # the dispatcher has it, too
    added = torch._decomp.decomposition_table.pop(torch.ops.aten.addmv.default)
    name = f"{__name__}:scale, registered at"
    listed = [line.partition(" at ")[::2] for leak in watch.leaks() for line in leak.lines]
    assert [(what, site.partition(" :: ")[0]) for what, site in listed] == [
        ("dispatchlab_leaky::op: kernel Meta came: registered", line_of(here, "register_fake")),
        (f"dispatchlab_leaky::op: decompositions post_autograd came: {name}"[:-3], line_of(here, "# a decomposition")),
        (f"aten::bincount: decompositions post_autograd came: {name}"[:-3], line_of(scale, "def scale")),
        (
            f"dispatchlab_leaky::op: fake_rules came: {__name__}:{here.__name__}.<locals>.<lambda>, registered",
            line_of(here, "# a fake rule"),
        ),
        (f"dispatchlab_leaky::op: py_kernels Functionalize came: {name}"[:-3], line_of(here, "# a kernel")),
        (
            "dispatchlab_leaky::op: torch_library torch_dispatch "
            f"{__name__}.{here.__name__}.<locals>.Mode came: {name}"[:-3],
            line_of(here, "# a mode rule"),
        ),
        (
            "aten::addmv: decompositions post_autograd went: torch._decomp.decompositions:addmv, registered",
            next(site for what, site in listed if what.startswith("aten::addmv")),
        ),
    ]
    decomposition_table[torch.ops.aten.addmv.default] = added
    remove_decompositions(decomposition_table, [op, torch.ops.aten.bincount.default])
    del op_implementations_dict[op], op.py_kernels[key]
    library._destroy()
    assert [leak.lines[0] for leak in watch.leaks()] == [
        "operator went: dispatchlab_leaky::op(Tensor x) -> Tensor with 0 kernels"
    ]


@pytest.mark.filterwarnings("ignore:.isinstance:FutureWarning")  # of torch.export
def test_what_pytorch_writes_for_itself_in_python_is_no_leak() -> None:
    """torch.export changes tables while it runs, and puts back most of what it has changed."""
    from dispatchlab.pytorch.introspection.python_journal import PythonJournal
    from dispatchlab.pytorch.introspection.python_tables import tables_now

    with PythonJournal((), tables=tables_now(), every_module=False) as journal:
        torch.export.export(torch.nn.Linear(2, 2), (torch.ones(2, 2),)).run_decompositions()
        assert list(journal.left()) == []
        assert [write for write in journal.writes if write.by_torch]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of modules of PyTorch that are read
def test_watching_registries_of_python_takes_a_fraction_of_reading_them() -> None:
    """A test that uses the fixture pays for the watch twice; both are timed on the processor that the test has."""
    from time import process_time

    from dispatchlab.pytorch.introspection.python_journal import PythonJournal
    from dispatchlab.pytorch.introspection.python_registries import read_whole_layer
    from dispatchlab.pytorch.introspection.python_tables import tables_now

    def took(action: Callable[[], object]) -> float:
        begun = process_time()
        action()
        return process_time() - begun

    def watch() -> None:
        with PythonJournal((), tables=tables_now(), every_module=False) as journal:
            assert list(journal.left()) == []

    watch()
    read_whole_layer()
    assert min(took(watch) for _ in range(5)) < min(took(read_whole_layer) for _ in range(3)) / 3
