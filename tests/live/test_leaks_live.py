"""Leaked registrations on the running PyTorch are listed."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from dispatchlab.leaks import Watch  # noqa: E402  torch has to be there first


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
