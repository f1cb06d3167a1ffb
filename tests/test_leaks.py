"""Registrations that are left behind, and the fixture that fails a test for them."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points

import pytest

from dispatchlab import Dispatcher, Library
from dispatchlab.leaks import Watch, leaks_text
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.registration import Claim, Def, Fallback, Impl, Kernel
from dispatchlab.model.schema_parser import parse_name, parse_schema

pytest_plugins = ["pytester"]

FOO = parse_name("test::foo")
SCHEMA = parse_schema("test::foo(Tensor x) -> Tensor")


def test_what_is_released_is_no_leak() -> None:
    dispatcher = Dispatcher()
    watch = Watch()
    with dispatcher.register(Def(SCHEMA)), dispatcher.register(Impl(FOO, DispatchKey.CPU, Kernel(), "mine")):
        assert [leak.operator for leak in watch.leaks()] == ["test::foo"]
    assert watch.leaks() == ()


def test_each_sort_of_registration_is_told() -> None:
    dispatcher = Dispatcher()
    handles = [dispatcher.register(Def(SCHEMA, debug="the def"))]
    watch = Watch()
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


def test_dispatchers_that_came_later_are_nobodys_business() -> None:
    watch = Watch()
    dispatcher = Dispatcher()
    with dispatcher.register(Def(SCHEMA)):
        assert watch.leaks() == ()
        assert dispatcher.operators() == (FOO,)


def test_what_is_allowed_may_stay() -> None:
    dispatcher = Dispatcher()
    watch = Watch()
    watch.allow("other::*", "test::f*")
    with dispatcher.register(Def(SCHEMA)):
        assert watch.leaks() == ()


def test_a_library_in_a_reference_cycle_is_collected_before_it_is_blamed() -> None:
    dispatcher = Dispatcher()
    watch = Watch()

    def leave() -> None:
        library = Library("test", "FRAGMENT", dispatcher=dispatcher)
        library.define("foo(Tensor x) -> Tensor")
        cycle: list[object] = [library]
        cycle.append(cycle)

    leave()
    assert watch.leaks() == ()
    assert dispatcher.operators() == ()


def test_dumps_of_2020_are_told_line_by_line() -> None:
    dispatcher = Dispatcher("pr35061")
    handle = dispatcher.register(Def(SCHEMA))
    watch = Watch()
    with dispatcher.register(Impl(FOO, None, Kernel(), "mine")):
        (leak,) = watch.leaks()
        assert "+catchall: mine :: (none) [ boxed ]" in leak.lines
    handle.release()


# -- the fixture

Run = Callable[..., pytest.RunResult]

MODULE = """
import pytest
from dispatchlab import Dispatcher, Library

SHARED = Dispatcher()
KEPT = []

@pytest.fixture(scope="module")
def package():
    with Library("package", "FRAGMENT", dispatcher=SHARED) as library:
        library.define("op(Tensor x) -> Tensor")
        yield library

@pytest.fixture
def tidy():
    with Library("tidy", "FRAGMENT", dispatcher=SHARED) as library:
        library.define("op(Tensor x) -> Tensor")
        yield library

{marker}
def test_tidy({fixture}package, tidy):
    assert len(SHARED.operators()) == 2

{marker}
def test_leaky({fixture}package):
    library = Library("leaky", "FRAGMENT", dispatcher=SHARED)
    library.define("op(Tensor x) -> Tensor")
    KEPT.append(library)

{marker}
def test_after({fixture}package):
    pass
"""


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    """Runs pytest in a project with the plugin, in a process of its own."""
    installed = any(point.value == "dispatchlab.pytest_plugin" for point in entry_points(group="pytest11"))
    plugin = [] if installed else ["-p", "dispatchlab.pytest_plugin"]
    return lambda *arguments: pytester.runpytest_subprocess(*plugin, "-p", "no:cacheprovider", *arguments)


@pytest.mark.parametrize(
    ("ini", "marker", "fixture"),
    [
        ("", "", "dispatcher_leaks, "),
        ("", "@pytest.mark.usefixtures('dispatcher_leaks')", ""),
        ("dispatchlab_leaks = true\n", "", ""),
    ],
)
def test_a_leaky_test_fails_and_shows_what(
    run: Run, pytester: pytest.Pytester, ini: str, marker: str, fixture: str
) -> None:
    (pytester.path / "pytest.ini").write_text(f"[pytest]\nfilterwarnings = error\n{ini}")
    pytester.makepyfile(test_it=MODULE.format(marker=marker, fixture=fixture))
    result = run()
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(
        [
            "*ERROR at teardown of test_leaky*",
            "1 registration was left behind, or taken away:",
            "*operator came: leaky::op(Tensor x) -> Tensor with 0 kernels",
            "release what you register: *",
        ]
    )


def test_without_the_fixture_nothing_is_looked_at(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it="""
        import sys

        def test_own():
            assert "dispatchlab.pytest_plugin" in sys.modules
            assert not {"dispatchlab.leaks", "dispatchlab.engine", "dispatchlab.model", "torch"} & sys.modules.keys()
        """
    )
    run().assert_outcomes(passed=1)


def test_the_fixture_does_not_import_torch_or_an_engine(run: Run, pytester: pytest.Pytester) -> None:
    (pytester.path / "pytest.ini").write_text("[pytest]\ndispatchlab_leaks = true\n")
    pytester.makepyfile(
        test_it="""
        import sys

        def test_own():
            assert "dispatchlab.leaks" in sys.modules
            assert "torch" not in sys.modules
            assert "dispatchlab.engine.dispatcher" not in sys.modules
        """
    )
    run().assert_outcomes(passed=1)


def test_what_a_test_allows_may_stay(run: Run, pytester: pytest.Pytester) -> None:
    text = MODULE.format(marker="", fixture="dispatcher_leaks, ")
    pytester.makepyfile(
        test_it=text.replace("    KEPT.append", '    dispatcher_leaks.allow("leaky::*")\n    KEPT.append')
    )
    run().assert_outcomes(passed=3)
