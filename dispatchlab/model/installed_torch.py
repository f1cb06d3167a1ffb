"""The version of the installed PyTorch, read without importing it."""

from __future__ import annotations

import os
import re

_VERSION = re.compile(r"""^__version__\s*(?::\s*str\s*)?=\s*['"]([^'"\s]{1,100})['"]""", re.MULTILINE)
_HEAD = 2**16  # characters of version.py, which has a few lines


def installed_torch() -> str | None:
    """The version of the PyTorch that `import torch` would find, such as `2.13.0+cpu`; None when there is none."""
    folder = installed_torch_folder()
    return None if folder is None else _version_in(os.path.join(folder, "version.py"))


def installed_torch_folder() -> str | None:
    """The folder of the PyTorch that `import torch` would find; None when there is none."""
    from importlib.util import find_spec

    try:
        spec = find_spec("torch")
    except (ImportError, ValueError):  # a module in its place that says nothing of where it comes from
        return None
    if spec is None or spec.origin is None:
        return None
    return os.path.dirname(spec.origin)


def _version_in(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            found = _VERSION.search(stream.read(_HEAD))
    except OSError:
        return None
    return None if found is None else found[1]
