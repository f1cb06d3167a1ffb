"""How pytest runs here: the tiers of the tests, the processes that share a run, and the lines about what did not run.

Tests lie in tiers, and the directory is the tier. `pytest` runs the quick one; a slow tier runs when its directory is
named on the command line, or with `--all-tiers`.
"""

from __future__ import annotations

import gc
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dispatchlab.pytest_plugin import is_accepting

ROOT = Path(__file__).parent
SLOW_TIERS = ("tests/deep", "tests/process")

_SKIPPED = pytest.StashKey[Counter[str]]()

# expecttest takes any text for yes, "0" as well.
if not is_accepting():
    os.environ.pop("EXPECTTEST_ACCEPT", None)

# Inductor starts a process with a PyTorch of its own to compile in, which costs more than what tests have compiled.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that run every tier, and every example."""
    parser.addoption("--all-tiers", action="store_true", help=f"run the slow tiers too: {', '.join(SLOW_TIERS)}")
    parser.addoption("--whole", action="store_true", help="try all examples of each test, and not a share of them")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Spread a run of whole directories over the cores. `-n` decides otherwise, and so does `-p no:xdist`.

    The tests of a file share a core, and with it what was set up for all of them. A run of files or of single tests
    stays in this process, where a debugger and `-s` work. So does a run that accepts: expecttest rewrites test files,
    and two processes must not rewrite the same one. A worker of xdist comes here too, and starts no workers of its own.
    """
    options = config.option
    if hasattr(config, "workerinput") or "PYTEST_XDIST_WORKER" in os.environ:
        return
    if getattr(options, "numprocesses", 0) is not None or options.tx or os.environ.get("EXPECTTEST_ACCEPT"):
        return
    if all(path.is_dir() for path in _named(config)):
        options.numprocesses = "auto"
        if options.dist == "no":
            options.dist = "loadfile"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the slow tiers that were not requested: their modules are not imported either."""
    return True if collection_path in [ROOT / tier for tier in _left_out(config)] else None


def pytest_collection_finish() -> None:
    """Hide what collection made from the garbage collector: many tests collect, and need not walk all of it."""
    _hide_what_stays()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Hide what the tests of a module leave, such as opened registries: a tenth of the run walked them again."""
    if nextitem is None or nextitem.path != item.path:
        _hide_what_stays()


def _hide_what_stays() -> None:
    """Collect garbage, then keep the rest out of later collections."""
    gc.collect()
    gc.freeze()


class _Skips:
    """Counts the modules that are skipped when they are collected, by reason; workers of xdist do not report them."""

    def __init__(self, config: pytest.Config) -> None:
        self.found = config.stash.setdefault(_SKIPPED, Counter())

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.found[reason.removeprefix("Skipped: ")] += 1


def pytest_configure(config: pytest.Config) -> None:
    """Count skipped modules, and try more examples when every tier runs."""
    if config.getoption("--all-tiers") or config.getoption("--whole"):
        from tests import effort

        effort.percent = effort.example_percent = 100 if config.getoption("--whole") else effort.percent
    config.pluginmanager.register(_Skips(config), "skipped-modules")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand what a worker of xdist has counted to the process that prints the summary."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        skipped = session.config.stash[_SKIPPED]
        output["skipped"] = dict(skipped)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what a worker has counted: each has collected everything, so one is enough."""
    output = getattr(node, "workeroutput", {})
    if "skipped" in output:
        node.config.stash[_SKIPPED] = Counter(output["skipped"])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say on one line each which modules were skipped, and which slow tiers did not run."""
    for reason, modules in sorted(config.stash[_SKIPPED].items()):
        terminalreporter.write_line(f"skipped {modules} modules: {reason}", yellow=True)
    if left_out := _left_out(config):
        tiers = " and ".join(left_out)
        terminalreporter.write_line(f"not run: {tiers}; `pytest --all-tiers` runs everything", yellow=True)


def _left_out(config: pytest.Config) -> list[str]:
    """The slow tiers below what the command line names that it does not name themselves."""
    if config.getoption("--all-tiers"):
        return []
    named = _named(config)
    return [
        tier
        for tier in SLOW_TIERS
        if any((ROOT / tier).is_relative_to(path) for path in named)
        and not any(path.is_relative_to(ROOT / tier) for path in named)
    ]


def _named(config: pytest.Config) -> list[Path]:
    """The files and directories that the command line names, or else those of the configuration."""
    return [(config.invocation_params.dir / arg.partition("::")[0]).resolve() for arg in config.args]
