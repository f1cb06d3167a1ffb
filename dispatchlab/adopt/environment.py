"""Facts about this machine that need no PyTorch: versions, the terminal, completion, and optional tools."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from dispatchlab.files.bounded_read import ReadError, read_configuration

_REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)\s*>=\s*([0-9.]+)\s*$")


@dataclass(frozen=True, slots=True)
class Fact:
    """One line about this machine.

    Args:
        group: what it is about.
        name: the subject.
        value: what was found.
        problem: whether dispatchlab does not work well because of it.
    """

    group: str
    name: str
    value: str
    problem: bool = False


def facts() -> tuple[Fact, ...]:
    """Everything that can be found out without PyTorch."""
    return (*_versions(), *_terminal(), _pytest(), _dot())


def distribution_version(name: str) -> str | None:
    """The version of an installed distribution, by its metadata; None when there is none."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _versions() -> list[Fact]:
    from dispatchlab._version import __version__
    from dispatchlab.records.file import bundled_names

    home = Path(__file__).parents[1]
    system = (
        f"{platform.python_implementation()} {platform.python_version()} on {platform.system()} {platform.machine()}"
    )
    return [
        Fact("versions", "dispatchlab", f"{__version__} in {home}"),
        Fact("versions", "Python", f"{system}, {sys.executable}"),
        *(_requirement(name, lowest) for name, lowest in _requirements()),
        Fact("versions", "bundled registries", ", ".join(bundled_names())),
    ]


def _requirements() -> list[tuple[str, str]]:
    """What the metadata of this package requires: each name with its lowest version. Empty without metadata."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        texts = requires("dispatchlab") or []
    except PackageNotFoundError:
        return []
    found = (_REQUIREMENT.match(text) for text in texts)
    return [(match[1], match[2]) for match in found if match is not None]


def _requirement(name: str, lowest: str) -> Fact:
    version = distribution_version(name)
    if version is None:
        return Fact("versions", name, f"not installed; dispatchlab needs {lowest} or later", problem=True)
    if _numbers(version) < _numbers(lowest):
        return Fact("versions", name, f"{version}; dispatchlab needs {lowest} or later", problem=True)
    return Fact("versions", name, version)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0]))


def _terminal() -> list[Fact]:
    streams = {"standard output": sys.stdout, "standard error": sys.stderr}
    shown = [f"{name} is {'a terminal' if stream.isatty() else 'no terminal'}" for name, stream in streams.items()]
    columns = shutil.get_terminal_size().columns
    variables = [
        f"{name}={os.environ[name]}"
        for name in ("TERM", "COLUMNS", "NO_COLOR", "FORCE_COLOR", "PAGER", "PYTHONIOENCODING")
        if name in os.environ
    ]
    return [
        Fact("terminal", "streams", ", ".join(shown)),
        Fact("terminal", "width", f"{columns} columns"),
        Fact("terminal", "encoding", str(getattr(sys.stdout, "encoding", "") or "unknown")),
        Fact("terminal", "environment", ", ".join(variables) or "nothing that changes the output is set"),
        Fact("terminal", "completion", _completion()),
    ]


def _completion() -> str:
    """Whether a file that the shell reads when it starts mentions the completion script."""
    shell = Path(os.environ.get("SHELL", "")).name
    home = Path.home()
    files = {
        "bash": (".bashrc", ".bash_profile", ".profile", ".bash_completion"),
        "zsh": (".zshrc", ".zprofile"),
        "fish": (".config/fish/config.fish", ".config/fish/completions/dispatchlab.fish"),
    }
    if shell not in files:
        return f"there is no script for {shell or 'an unknown shell'}: there are bash, zsh and fish"
    for name in files[shell]:
        with_script = home / name
        try:
            text = read_configuration(with_script).decode(errors="replace")
        except (OSError, ReadError):
            continue
        if "dispatchlab completion" in text or "_DISPATCHLAB_COMPLETE" in text or name.endswith("dispatchlab.fish"):
            return f"~/{name} loads the script for {shell}"
    return f"no start file of {shell} loads the script; see dispatchlab completion --help"


def _dot() -> Fact:
    use = "draws the .dot files of permute --graph"
    where = shutil.which("dot")
    return Fact("optional tools", "dot", f"{where}, {use}" if where else f"not found; {use}")


def _pytest() -> Fact:
    """pytest, and whether it loads the plugin of this package."""
    from importlib.metadata import entry_points

    version = distribution_version("pytest")
    if version is None:
        return Fact("optional tools", "pytest", "not installed; scenarios as tests and dispatcher_leaks need it")
    plugin = any(point.name == "dispatchlab" for point in entry_points(group="pytest11"))
    disabled = "PYTEST_DISABLE_PLUGIN_AUTOLOAD" in os.environ
    if not plugin:
        return Fact(
            "optional tools", "pytest", f"{version}; the plugin is not registered: install dispatchlab", problem=True
        )
    if disabled:
        return Fact("optional tools", "pytest", f"{version}; PYTEST_DISABLE_PLUGIN_AUTOLOAD keeps the plugin out")
    return Fact("optional tools", "pytest", f"{version} with the plugin of dispatchlab")
