"""The registries that come with the package, by name, and files by their path."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from dispatchlab.errors import DispatchLabError, did_you_mean
from dispatchlab.registry.file import RegistryFile, open_registry
from dispatchlab.registry.file_format import SUFFIX

_DATA = Path(__file__).parent / "data"

DEFAULT = "torch-2.13"
"""The registry that is meant when none is named."""


class UnknownRegistryError(DispatchLabError):
    """No bundled registry has this name, and there is no file of it."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        known = bundled_names()
        return (
            f"there is no registry {self.text!r}: expected a file, or the name of one that comes with dispatchlab, "
            f"{' or '.join(known)}{did_you_mean(self.text, known)}"
        )


@cache
def bundled_names() -> tuple[str, ...]:
    """The names of the bundled registries, such as `torch-2.13`."""
    return tuple(sorted(path.stem for path in _DATA.glob(f"*{SUFFIX}")))


def open_bundled(name: str = DEFAULT) -> RegistryFile:
    """A bundled registry.

    Raises:
        UnknownRegistryError: none has this name.
        RegistryFileError: the file is damaged.
    """
    path = _DATA / f"{name}{SUFFIX}"
    if name != Path(name).name or not path.is_file():
        raise UnknownRegistryError(name)
    return open_registry(path)


def open_named(text: str) -> RegistryFile:
    """A bundled registry by its name, or a file by its path; a bundled one wins.

    Raises:
        UnknownRegistryError: it is neither.
        RegistryFileError: the file cannot be read, or is damaged.
    """
    if text == Path(text).name and (_DATA / f"{text}{SUFFIX}").is_file():
        return open_bundled(text)
    if not Path(text).exists():
        raise UnknownRegistryError(text)
    return open_registry(text)
