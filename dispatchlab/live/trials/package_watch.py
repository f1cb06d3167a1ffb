"""Watch packages being imported: what their own files register, wherever they lie."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

from dispatchlab.live.failure.program_watch import ProgramWatch


class PackageWatch(ProgramWatch):
    """Events of the import of packages, whose files count as the user's.

    Args:
        packages: the modules that will be imported.
    """

    def __init__(self, packages: Sequence[str]) -> None:
        super().__init__(os.getcwd())
        self.unknown: set[str] = set()
        self.destroyed: set[str] = set()
        self._roots: tuple[str, ...] = ()
        for package in packages:
            with suppress(ImportError, ValueError):
                spec = find_spec(package.partition(".")[0])
                folders = [f"{folder}{os.sep}" for folder in (spec.submodule_search_locations or ())] if spec else []
                self._roots += (*folders, *([spec.origin] if spec and spec.origin and not folders else ()))

    def is_users(self, file: str) -> bool:
        """Return whether a file belongs to the packages or the current folder."""
        return file.startswith(self._roots) or super().is_users(file)

    def watch_library(self) -> None:
        """Note what no event says: `mutates_args="unknown"`, and what is released on purpose."""
        import torch.library

        def unknown(name: str, *_: Any, mutates_args: Any = (), **__: Any) -> None:
            self.unknown.update([name] if mutates_args == "unknown" else ())

        _before(torch.library, "custom_op", unknown)
        _before(torch.library.Library, "_destroy", lambda lib: self.destroyed.update((*lib._op_defs, *lib._op_impls)))


def _before(owner: Any, name: str, then: Callable[..., None]) -> None:
    function = getattr(owner, name)

    def patched(*args: Any, **kwargs: Any) -> Any:
        then(*args, **kwargs)
        return function(*args, **kwargs)

    setattr(owner, name, patched)
