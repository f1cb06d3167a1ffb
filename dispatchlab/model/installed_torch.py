"""The installed PyTorch: its version, and the nearest PyTorch that has a bundled model."""

from __future__ import annotations

import os
import re
from functools import cache

from dispatchlab.model.keys import FORMER_KEYS, DispatchKey
from dispatchlab.model.profile import TORCH, bundled_profile, bundled_profiles, nearest_profile, version_of

_VERSION = r"""^__version__\s*(?::\s*str\s*)?=\s*['"]([^'"\s]{1,100})['"]"""
_HEAD = 2**16  # characters of version.py, which has a few lines


def installed_torch() -> str | None:
    """Return the version of the PyTorch that `import torch` would find, such as `2.13.0+cpu`; None for none."""
    folder = _installed_torch_folder()
    return None if folder is None else _version_in(os.path.join(folder, "version.py"))


def _installed_torch_folder() -> str | None:
    """Return the folder of the PyTorch that `import torch` would find; None when there is none."""
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
            found = re.search(_VERSION, stream.read(_HEAD), re.MULTILINE)
    except OSError:
        return None
    return None if found is None else found[1]


def model_for(torch: str | None) -> str:
    """Return the profile for a PyTorch: of its version, or of the nearest version; without a version, the newest.

    Args:
        torch: its version, such as `2.13.0+cpu`, or a semantics, such as `torch-2.13`.
    """
    version = None if torch is None else version_of(torch)
    if version is None:
        return bundled_profiles()[-1]
    name = "torch-{}.{}".format(*version)
    return name if name in bundled_profiles() else nearest_profile(version)


@cache
def other_keys_of_calls(name: str) -> tuple[str, ...]:
    """Return the keys that a profile adds, lacks or orders differently from the key sets of calls."""
    from difflib import ndiff

    found = ndiff([key.name for key in DispatchKey if key not in FORMER_KEYS], [*bundled_profile(name).keys])
    return tuple(dict.fromkeys(line[2:] for line in found if line[0] in "+-"))


def resolved_semantics(name: str) -> str:
    """Return the semantics of a name; `torch` means the model of the installed PyTorch, else the newest."""
    if name != TORCH:
        return name
    return model_for(installed_torch())
