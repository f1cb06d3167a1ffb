"""Watch packages being imported: what their own files register, wherever they lie."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec

from dispatchlab.live.failure.program_watch import ProgramWatch


class PackageWatch(ProgramWatch):
    """Events of the import of packages, whose files count as the user's.

    Args:
        packages: the modules that will be imported.
    """

    def __init__(self, packages: Sequence[str]) -> None:
        super().__init__(os.getcwd())
        self._roots: tuple[str, ...] = ()
        for package in packages:
            with suppress(ImportError, ValueError):
                spec = find_spec(package.partition(".")[0])
                folders = [f"{folder}{os.sep}" for folder in (spec.submodule_search_locations or ())] if spec else []
                self._roots += (*folders, *([spec.origin] if spec and spec.origin and not folders else ()))

    def is_users(self, file: str) -> bool:
        """Return whether a file belongs to the packages or the current folder."""
        return file.startswith(self._roots) or super().is_users(file)
