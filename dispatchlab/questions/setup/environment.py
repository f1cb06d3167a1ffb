"""Facts about this machine that need no PyTorch: versions and optional tools."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Fact:
    """One line about this machine.

    Args:
        name: the subject.
        value: the value.
        problem: whether it is a problem for dispatchlab.
    """

    name: str
    value: str
    problem: bool = False


def facts() -> tuple[Fact, ...]:
    """Return the facts that are known without PyTorch."""
    from dispatchlab._version import __version__
    from dispatchlab.registries.file import bundled_names

    python = (
        f"{platform.python_implementation()} {platform.python_version()} on {platform.system()} {platform.machine()}"
    )
    needed = ("click", "rich", "numpy", "PyYAML")
    return (
        Fact("dispatchlab", f"{__version__} in {Path(__file__).parents[2]}"),
        Fact("Python", f"{python}, {sys.executable}"),
        *(Fact(name, distribution_version(name) or "not installed") for name in needed),
        Fact("bundled registries", ", ".join(bundled_names())),
        _pytest(),
    )


def distribution_version(name: str) -> str | None:
    """Return the version of an installed distribution, from its metadata; None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _pytest() -> Fact:
    """Return whether pytest loads the plugin of this package."""
    found = distribution_version("pytest")
    if found is None:
        return Fact("pytest", "not installed; scenarios as tests and dispatcher_leaks need it")
    if not any(point.name == "dispatchlab" for point in entry_points(group="pytest11")):
        what = f"{found}; the plugin is not registered: install dispatchlab"
        return Fact("pytest", what, problem=True)
    if "PYTEST_DISABLE_PLUGIN_AUTOLOAD" in os.environ:
        return Fact("pytest", f"{found}; PYTEST_DISABLE_PLUGIN_AUTOLOAD keeps the plugin out")
    return Fact("pytest", f"{found} with the plugin of dispatchlab")
