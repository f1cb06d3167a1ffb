"""The tiers of the tests: what a run of pytest takes, and what it says of the rest."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run pytest in a project with this one's conftest.py: two quick tests, one in each slow tier, a skipped module."""
    for name in ("EXPECTTEST_ACCEPT", "PYTEST_XDIST_WORKER"):
        monkeypatch.delenv(name, raising=False)
    shutil.copy(ROOT / "conftest.py", pytester.path)
    (pytester.path / "pytest.ini").write_text("[pytest]\ntestpaths = tests\npythonpath = .\nfilterwarnings = error\n")
    modules = {
        "effort": "percent = 15\nexample_percent = 5\n",
        "test_quick": "def test_one():\n    pass\n\n\ndef test_other():\n    pass\n",
        "deep/test_deep": "def test_deep():\n    pass\n",
        "process/test_process": "def test_process():\n    pass\n",
        "live/test_live": "import pytest\n\npytest.skip('PyTorch is not there', allow_module_level=True)\n",
    }
    for name, text in modules.items():
        path = pytester.path / "tests" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return lambda *arguments: pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments)


LEFT_OUT = "not run: tests/deep and tests/process; `pytest --all-tiers` runs everything"
WORKERS = "*worker* [[]2 items[]]"
SKIPPED = "skipped 1 modules: PyTorch is not there"


@pytest.mark.parametrize("arguments", [(), ("-n", "0"), ("-n", "2"), ("-p", "no:xdist"), ("tests",)])
def test_a_run_takes_the_quick_tier_and_lists_what_it_left_out(run: Run, arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.parseoutcomes()["passed"] == 2
    result.stdout.fnmatch_lines([SKIPPED, LEFT_OUT])


@pytest.mark.parametrize("arguments", [("-n", "0"), ("-n", "2")])
def test_all_tiers_run_when_asked(run: Run, arguments: tuple[str, ...]) -> None:
    result = run("--all-tiers", *arguments)
    assert result.parseoutcomes()["passed"] == 4
    result.stdout.no_fnmatch_line("not run:*")


@pytest.mark.parametrize("named", ["tests/deep", "tests/deep/test_deep.py", "tests/deep/test_deep.py::test_deep"])
def test_a_slow_tier_that_is_named_runs(run: Run, named: str) -> None:
    result = run(named)
    assert result.parseoutcomes()["passed"] == 1
    result.stdout.no_fnmatch_line("not run:*")


def test_a_run_of_directories_has_workers(run: Run) -> None:
    run("tests").stdout.fnmatch_lines([WORKERS])


def test_a_run_of_a_file_stays_in_its_process(run: Run) -> None:
    run("tests/test_quick.py").stdout.no_fnmatch_line(WORKERS)


def test_a_run_that_accepts_stays_in_its_process(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPECTTEST_ACCEPT", "1")
    run("tests").stdout.no_fnmatch_line(WORKERS)
