"""Lazy attributes of a package: each name is imported on first use, so that a command does not wait for all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_names(package: str, names: Mapping[str, str]) -> Callable[[str], object]:
    """Return a `__getattr__` for a package's `__init__`.

    Args:
        package: the package's `__name__`.
        names: each module, relative to the package as in `.module` -> the public names that it defines, with blanks.
    """
    homes = {name: module for module, some in names.items() for name in some.split()}

    def get(name: str) -> object:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(home, package), name)

    return get
