"""Read and write the files of registries, and open the bundled ones by name."""

from __future__ import annotations

import os
import re
from functools import cache
from typing import TYPE_CHECKING

from dispatchlab.errors import DispatchLabError, did_you_mean
from dispatchlab.files import FileKind, ReadError, content_of, file_in, instead, read_file
from dispatchlab.model.profile import NEWEST, torch_name, version_of
from dispatchlab.registries.model import Recorded, Registry
from dispatchlab.registries.stored import RegistryFileError, StoredRegistry, recording_bytes

if TYPE_CHECKING:
    from dispatchlab.model.python_layer import PythonLayer


SUFFIX = ".dlreg"
"""How the names of registry files end."""

MAX_FILE = 32 << 20
"""The most bytes of a registry file."""


def registry_bytes(recorded: Recorded) -> bytes:
    """Return the file of a registry, with its Python layer if any; equal registries have equal files."""
    return recording_bytes(recorded, python_layer_of(recorded))


def open_registry(path: str | os.PathLike[str]) -> StoredRegistry:
    """Return the registry in a file; an operator is read on first use.

    Raises:
        RegistryFileError: the file cannot be read, is of another version, is cut short, or was altered.
    """
    name = str(path)
    try:
        data = read_file(name, limit=MAX_FILE, what="recorded registries")
    except IsADirectoryError:
        advice = file_in(name, SUFFIX, ".yaml", ".yml")
        raise RegistryFileError(name, f"expected a file but found a folder; {advice}") from None
    except OSError as error:
        raise RegistryFileError(name, f"it cannot be read: {error.strerror or error}") from None
    except ReadError as error:
        raise RegistryFileError(name, error.reason) from None
    other = instead(data, name, FileKind.REGISTRY)
    if other is not None:
        raise RegistryFileError(name, "; ".join(other))
    return StoredRegistry(data, name)


def is_registry_file(path: str | os.PathLike[str]) -> bool:
    """Return whether a file begins like a registry; False for an unreadable file, a pipe or a device."""
    found = content_of(path)
    return found is not None and found.kind is FileKind.REGISTRY


# A text, since importing pathlib would cost `dump` a part of its start-up.
_FOLDER = os.path.join(os.path.dirname(__file__), "data")

_OTHER_NAMES = {"torch-2.13-cuda": "torch-2.13"}
"""Names that registries had before; they still mean the same registries."""


class UnknownRegistryError(DispatchLabError):
    """No bundled registry and no file has this name."""

    text: str

    def __str__(self) -> str:
        known = bundled_names()
        version = version_of(self.text)
        is_other = self.text in NEWEST or version not in (None, *map(version_of, known))
        near = f"; the newest is {known[-1]}" if is_other else did_you_mean(self.text, known)
        if not near and self.text.isidentifier():
            near = "; install a package in its checkout with `pip install -e .`"
        return (
            f"there is no registry {self.text!r}: expected a file, an installed package, or the name of one that comes "
            f"with dispatchlab, {known[0]} to {known[-1]}{near}"
        )


def python_layer_of(recorded: Recorded) -> PythonLayer | None:
    """Return Python's registrations in the PyTorch of a registry; None when they were not recorded.

    Raises:
        RegistryFileError: it is in a file that is damaged.
    """
    return recorded.python if isinstance(recorded, (Registry, StoredRegistry)) else None


@cache
def bundled_names() -> tuple[str, ...]:
    """Return the names of the bundled registries, such as `torch-2.13`, the oldest version first."""
    names = (name.removesuffix(SUFFIX) for name in os.listdir(_FOLDER) if name.endswith(SUFFIX))
    return tuple(sorted(names, key=by_version))


def bundled_name(text: str) -> str | None:
    """Return the name of the bundled or installed registry that a text means; None when it means none."""
    text = torch_name(text)
    if not text.startswith("torch-"):  # so that nothing is read for a file of another name
        return None
    name = _OTHER_NAMES.get(text, text)
    return name if name in bundled_names() else None


def newest_bundled() -> str:
    """Return the name of the bundled registry of the newest PyTorch."""
    return bundled_names()[-1]


_opened = cache(open_registry)


def open_bundled(name: str) -> StoredRegistry:
    """Return a bundled registry, or the installed PyTorch's; the same object for the same name: it never changes.

    Raises:
        UnknownRegistryError: no registry has this name.
        RegistryFileError: its file is damaged.
    """
    known = bundled_name(name)
    if known is None:
        raise UnknownRegistryError(name)
    return _opened(os.path.join(_FOLDER, known + SUFFIX))


def open_named(text: str) -> StoredRegistry:
    """Return a bundled registry by its name, or a file by its path; the bundled one has priority.

    Raises:
        UnknownRegistryError: it is neither.
        RegistryFileError: the file cannot be read, or is damaged.
    """
    if bundled_name(text) is not None:
        return open_bundled(text)
    if not os.path.exists(text):
        raise UnknownRegistryError(text)
    return open_registry(text)


def by_version(name: str) -> tuple[tuple[int, ...], str]:
    """Return a key that sorts names such as `torch-2.4` and `torch-2.13-cpu` by version."""
    return tuple(map(int, re.findall(r"\d+", name))), name
