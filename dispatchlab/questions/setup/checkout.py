"""The checkout of a package: its root, and the module that probably registers its operators."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from configparser import ConfigParser
from configparser import Error as IniError
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from dispatchlab.files import ReadError, read_configuration

ROOT_FILES = ("pyproject.toml", "setup.py", "setup.cfg")
"""A folder with one of these is the root of a checkout."""

NO_PACKAGES = frozenset(
    ("tests", "test", "testing", "docs", "doc", "examples", "example", "benchmarks", "benchmark", "scripts", "tools")
)


@dataclass(frozen=True, slots=True)
class Checkout:
    """A folder in which a package is developed.

    Args:
        root: its folder.
        modules: the modules that may register operators, the most likely one first.
        certain: whether the first module has the name of the distribution, or is the only one.
        source: the folder that has the modules, for `sys.path`.
    """

    root: Path
    modules: tuple[str, ...]
    certain: bool
    source: Path


def find_checkout(start: Path) -> Checkout:
    """Return the checkout around a folder: the nearest folder above with a project's file, else the folder itself."""
    root = _root(start)
    source = _source(root)
    named = []
    distribution = _distribution(root)
    plain = re.sub(r"[-.]+", "_", distribution)  # its modules: `a_b` for `a-b`, or `b` in the namespace `a`
    for name in dict.fromkeys([plain, plain.lower(), re.sub(r"[-_]+", ".", distribution)]):
        path = source.joinpath(*name.split("."))
        if (path / "__init__.py").is_file() or (path.parent / f"{path.name}.py").is_file():
            named.append(name)
    modules = tuple(dict.fromkeys([*named, *_packages(source)]))
    return Checkout(root, modules, bool(named) or len(modules) == 1, source)


def module_at(text: str) -> tuple[str, Path] | None:
    """Return the module at a path, and the folder to import it from; None if the text is not a path.

    Args:
        text: the text of a user: a folder with a package in it, the folder of a package, or a Python file.
    """
    path = Path(text).resolve()
    if text.isidentifier() or not path.exists():
        return None
    if path.is_dir() and not (path / "__init__.py").is_file():
        checkout = find_checkout(path)
        return (checkout.modules[0], checkout.source) if checkout.certain else None
    names = [] if path.is_dir() or path.name == "__init__.py" else [path.stem]
    folder = path if path.is_dir() else path.parent
    while (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    return ".".join(names), folder


@contextmanager
def reachable(start: Path) -> Iterator[None]:
    """Allow imports of modules of the checkout around a folder in this block; installed modules come first."""
    folder = str(_source(_root(start)))
    if folder in sys.path:
        yield
        return
    sys.path.append(folder)
    try:
        yield
    finally:
        with suppress(ValueError):
            sys.path.remove(folder)


def is_installable(root: Path) -> bool:
    """Return whether pip can install a folder: a pyproject.toml with settings of tools alone is not enough."""
    with suppress(OSError, ReadError, ValueError, RecursionError):
        project = tomllib.loads(read_configuration(root / "pyproject.toml").decode())
        if "project" in project or "build-system" in project:
            return True
    return (root / "setup.py").is_file() or (root / "setup.cfg").is_file()


def _root(start: Path) -> Path:
    start = start.resolve()
    return next(
        (folder for folder in (start, *start.parents) if any((folder / name).is_file() for name in ROOT_FILES)), start
    )


def _source(root: Path) -> Path:
    folders = [folder for folder in (root / "src", root / "python") if folder.is_dir()]  # `src` may be that of Rust
    return next(
        (folder for folder in folders if _packages(folder)), (root / "src") if root / "src" in folders else root
    )


def _packages(source: Path) -> list[str]:
    return sorted(
        path.parent.name
        for path in source.glob("*/__init__.py")
        if path.parent.name not in NO_PACKAGES and path.parent.name.isidentifier()
    )


def _distribution(root: Path) -> str:
    """Return the name of the distribution; the name of the folder if no file has it."""
    try:
        project = tomllib.loads(read_configuration(root / "pyproject.toml").decode())
        name = project.get("project", {}).get("name") or project.get("tool", {}).get("poetry", {}).get("name")
        if isinstance(name, str):
            return name
    except (OSError, ReadError, ValueError, RecursionError, AttributeError):  # a number of many digits; nested too deep
        pass
    config = ConfigParser(interpolation=None)
    try:
        config.read_string(read_configuration(root / "setup.cfg").decode())
    except FileNotFoundError:
        pass
    except (OSError, ReadError, IniError, UnicodeDecodeError):
        return root.name
    if name := config.get("metadata", "name", fallback=""):
        return name
    try:
        text = read_configuration(root / "setup.py").decode(errors="replace")
    except (OSError, ReadError):
        return root.name
    found = re.search(r"\bname\s*=\s*[\"']([\w.-]+)[\"']", text)
    return found[1] if found else root.name
