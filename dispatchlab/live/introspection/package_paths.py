"""Paths in debug texts, made independent of the machine: they start at the package, not at its installation folder."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable

from dispatchlab.files import module_spec
from dispatchlab.live.bridge.call_sites import CallSite

_AT = "registered at "
_VIA = " via "
_BEFORE_PATH = re.compile(f"({_AT}|{_VIA})")


def package_roots(packages: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the directories of packages on this machine, longest first, each with its separator.

    Args:
        packages: packages that are not imported yet; the finder of an editable installation may know them alone.
    """
    names = (name.partition(".")[0] for name in (*packages, *sys.modules))
    specs = filter(None, map(module_spec, dict.fromkeys(names)))
    found_by_import = (os.path.dirname(path) for spec in specs for path in spec.submodule_search_locations or ())
    folders = [*found_by_import, *(path or os.getcwd() for path in sys.path)]
    found = {os.path.join(real, "") for path in folders for real in (os.path.abspath(path), os.path.realpath(path))}
    return tuple(sorted((root for root in found if os.path.dirname(root) != root), key=lambda p: (-len(p), p)))


def package_path(path: str, roots: tuple[str, ...]) -> str:
    """Return a path that starts at its package; return a path outside of the roots unchanged.

    `/home/me/lib/python3.12/site-packages/torch/library.py:9` becomes `torch/library.py:9`.
    """
    root = next((root for root in roots if path.startswith(root)), "")
    return path[len(root) :].replace("\\", "/") if root else path


def modules_by_path(roots: tuple[str, ...]) -> dict[str, str]:
    """Return the name of each imported module by its path, which starts at its package."""
    files = ((name, str(getattr(module, "__file__", None) or "")) for name, module in list(sys.modules.items()))
    return {package_path(file, roots): name for name, file in files if file}


def site_chain(site: CallSite, roots: tuple[str, ...]) -> str:
    """Return a call site with the lines between it and the call: `my/ops.py:12 via my/utils.py:250`."""
    return _VIA.join(package_path(line, roots) for line in (str(site), *site.via))


def without_roots(text: str, roots: tuple[str, ...]) -> str:
    """Return a text in which every path behind `registered at` and its `via` starts at the package."""
    first, *rest = _BEFORE_PATH.split(text)
    return first + "".join(
        before + package_path(path, roots) for before, path in zip(rest[::2], rest[1::2], strict=True)
    )
