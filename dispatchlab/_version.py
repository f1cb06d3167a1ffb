"""The version of this code: from the file that its build wrote, else from its metadata."""

from __future__ import annotations

from importlib import import_module

UNKNOWN = "0+unknown"
"""The version of a checkout that was never built nor installed."""


def _version() -> str:
    # Every build writes the file, see [tool.hatch.build.hooks.vcs]. It comes first: it belongs to this very code, while
    # metadata may be that of another installation; and it is read in no time.
    try:
        return str(import_module("dispatchlab._built_version").version)
    except ModuleNotFoundError:
        pass
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("dispatchlab")
    except PackageNotFoundError:
        return UNKNOWN


__version__ = _version()
