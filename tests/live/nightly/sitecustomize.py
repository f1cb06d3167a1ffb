"""A stand-in for a nightly: a backend of the installed PyTorch has another name, and its version is of the future."""

from __future__ import annotations

import importlib.metadata as metadata
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

KNOWN, NEW, VERSION = "PrivateUse3", "BrandNew", "2.99.0.dev1"
SPOKEN = (
    *("_dispatch_key_name", "_dispatch_keyset_to_string", "_dispatch_dump", "_dispatch_dump_table"),
    *("_parse_dispatch_key", "_dispatch_library", "_dispatch_has_computed_kernel_for_dispatch_key"),
)
"""The bindings that take or give names of keys."""

_version = metadata.version


def version(name: str) -> str:
    """The version of a package, as `importlib.metadata` says it."""
    return VERSION if name == "torch" else _version(name)


def renamed(binding: Callable[..., Any]) -> Callable[..., Any]:
    """The binding, of a PyTorch that has the other name."""

    def call(*arguments: Any) -> Any:
        found = binding(*(one.replace(NEW, KNOWN) if isinstance(one, str) else one for one in arguments))
        return found.replace(KNOWN, NEW) if isinstance(found, str) else found

    return call


class _Finder(MetaPathFinder):
    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        found = PathFinder.find_spec(fullname, path, target) if fullname == "torch" else None
        if found is None or found.loader is None:
            return None
        loader: Any = found.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            changed: Any = module
            for name in SPOKEN:
                setattr(changed._C, name, renamed(getattr(changed._C, name)))
            changed.__version__ = VERSION

        loader.exec_module = exec_module
        return found


metadata.version = version  # type: ignore[assignment]  # the stand-in takes no Distribution
sys.meta_path.insert(0, _Finder())
