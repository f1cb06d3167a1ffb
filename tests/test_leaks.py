"""Registrations that are left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from dispatchlab import Dispatcher, Library
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.registration import Claim, Def, Fallback, Impl, Kernel
from dispatchlab.model.schema_parser import parse_name, parse_schema
from dispatchlab.questions.leaks import Watch, leaks_text

FOO = parse_name("test::foo")
SCHEMA = parse_schema("test::foo(Tensor x) -> Tensor")


@pytest.fixture
def watching() -> Iterator[Callable[[], Watch]]:
    """Begins to watch; what it began is closed after the test."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(Watch())


def test_what_is_released_is_no_leak(watching: Callable[[], Watch]) -> None:
    dispatcher = Dispatcher(builtin_fallbacks=False)
    watch = watching()
    with dispatcher.register(Def(SCHEMA)), dispatcher.register(Impl(FOO, DispatchKey.CPU, Kernel(), "mine")):
        assert [leak.operator for leak in watch.leaks()] == ["test::foo"]
    assert watch.leaks() == ()


def test_each_sort_of_registration_is_listed(watching: Callable[[], Watch]) -> None:
    dispatcher = Dispatcher(builtin_fallbacks=False)
    handles = [dispatcher.register(Def(SCHEMA, debug="the def"))]
    watch = watching()
    handles.append(dispatcher.register(Impl(FOO, DispatchKey.CPU, Kernel(), "mine")))
    handles.append(dispatcher.register(Fallback(DispatchKey.Tracer, debug="a fallback")))
    handles.append(dispatcher.register(Claim("test")))
    lines = [line.partition(": ")[2] for line in leaks_text(watch.leaks()).splitlines()[1:-1]]
    assert lines == [
        "fallback Tracer: a fallback came",
        "claim of the namespace test came",
        "test::foo: kernel CPU came: mine :: (none) [ boxed ]",
    ]
    for handle in handles[1:]:
        handle.release()
    assert watch.leaks() == ()
    handles[0].release()
    assert [str(leak).partition(": ")[2] for leak in watch.leaks()] == [
        "operator went: test::foo(Tensor x) -> Tensor with 0 kernels"
    ]


def test_dispatchers_that_came_later_are_nobodys_business(watching: Callable[[], Watch]) -> None:
    watch = watching()
    dispatcher = Dispatcher(builtin_fallbacks=False)
    with dispatcher.register(Def(SCHEMA)):
        assert watch.leaks() == ()
        assert dispatcher.operators() == (FOO,)


def test_what_is_allowed_may_stay(watching: Callable[[], Watch]) -> None:
    dispatcher = Dispatcher(builtin_fallbacks=False)
    watch = watching()
    watch.allow("other::*", "test::f*")
    with dispatcher.register(Def(SCHEMA)):
        assert watch.leaks() == ()


def test_a_library_in_a_reference_cycle_is_collected_before_it_is_blamed(watching: Callable[[], Watch]) -> None:
    dispatcher = Dispatcher(builtin_fallbacks=False)
    watch = watching()

    def leave() -> None:
        library = Library("test", "FRAGMENT", dispatcher=dispatcher)
        library.define("foo(Tensor x) -> Tensor")
        cycle: list[object] = [library]
        cycle.append(cycle)

    leave()
    assert watch.leaks() == ()
    assert dispatcher.operators() == ()


def test_dumps_of_2020_are_compared_line_by_line(watching: Callable[[], Watch]) -> None:
    dispatcher = Dispatcher.for_scenario("pr35061")
    handle = dispatcher.register(Def(SCHEMA))
    watch = watching()
    with dispatcher.register(Impl(FOO, None, Kernel(), "mine")):
        (leak,) = watch.leaks()
        assert "+catchall: mine :: (none) [ boxed ]" in leak.lines
    handle.release()
