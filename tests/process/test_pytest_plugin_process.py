"""The plugin in projects whose pytest is a process: what it imports, and the fixture that fails tests for leaks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.plugin_options import PLUGIN_OPTIONS
from tests.scenario_texts import FIVE

pytest_plugins = ["pytester"]

Run = Callable[..., pytest.RunResult]

MODULE = """
import pytest
from dispatchlab import Dispatcher, Library

SHARED = Dispatcher(builtin_fallbacks=False)
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
    return lambda *arguments: pytester.runpytest_subprocess(*PLUGIN_OPTIONS, "-p", "no:cacheprovider", *arguments)


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
            "registrations were not released, or removed:",
            "*leaky::op: + schema: leaky::op(Tensor x) -> Tensor",
            "release what you register: *",
        ]
    )


def test_without_the_fixture_nothing_is_imported(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it="""
        import sys

        def test_own():
            assert "dispatchlab.pytest_plugin" in sys.modules
            unwanted = {"dispatchlab.questions.leaks", "dispatchlab.engine", "dispatchlab.model", "torch"}
            assert not unwanted & sys.modules.keys()
        """
    )
    run().assert_outcomes(passed=1)


def test_the_fixture_does_not_import_torch_or_an_engine(run: Run, pytester: pytest.Pytester) -> None:
    (pytester.path / "pytest.ini").write_text("[pytest]\ndispatchlab_leaks = true\n")
    pytester.makepyfile(
        test_it="""
        import sys

        def test_own():
            assert "dispatchlab.questions.leaks" in sys.modules
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


def test_a_project_that_does_not_opt_in_pays_nothing(run: Run, pytester: pytest.Pytester) -> None:
    (pytester.path / "pytest.ini").write_text("[pytest]\n")
    (pytester.path / "five.yaml").write_text(FIVE)
    pytester.makepyfile(
        test_own="""
        import sys

        def test_own():
            names = {name for name in sys.modules if name.startswith("dispatchlab")}
            plugin = {"dispatchlab", "dispatchlab._lazy", "dispatchlab.pytest_plugin", "dispatchlab_pytest"}
            assert names <= plugin, names
        """
    )
    run().assert_outcomes(passed=1)
