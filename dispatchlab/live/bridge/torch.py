"""Import PyTorch, and packages that register on it; every other module of `live` reaches torch through here.

Importing this module does not import torch; the first call of `bindings` does.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from dispatchlab.errors import DispatchLabError


class TorchMissingError(DispatchLabError):
    """PyTorch cannot be imported here.

    Args:
        reason: the error of the import.
    """

    def __init__(self, reason: str = "No module named 'torch'") -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"the live engine needs PyTorch, which cannot be imported: {self.reason}. "
            "Install it with: pip install 'dispatchlab[torch]'"
        )


class ImportFailedError(DispatchLabError):
    """A package of the user cannot be imported.

    Args:
        module: the package.
        reason: the error of the import.
    """

    def __init__(self, module: str, reason: str) -> None:
        super().__init__(module, reason)
        self.module, self.reason = module, reason

    def __str__(self) -> str:
        return f"{self.module} cannot be imported: {self.reason}; install it, or leave it out"


def require_torch() -> None:
    """Find PyTorch without importing it, which takes seconds.

    Raises:
        TorchMissingError: there is none.
    """
    if find_spec("torch") is None:
        raise TorchMissingError


@cache
def torch() -> Any:
    """The `torch` module.

    Raises:
        TorchMissingError: it cannot be imported.
    """
    try:
        return import_module("torch")
    except ImportError as error:
        raise TorchMissingError(str(error)) from error


@cache
def bindings() -> Any:
    """`torch._C`, where the lowest-level registration functions are."""
    return torch()._C


def is_torch_imported() -> bool:
    """Whether somebody has imported torch as a whole; asking does not import it."""
    module = sys.modules.get("torch")
    return module is not None and hasattr(module, "library") and hasattr(module, "_C")


def import_packages(names: Iterable[str]) -> None:
    """Import packages of the user in this order, for what they register.

    Raises:
        ImportFailedError: one cannot be imported.
    """
    for name in names:
        try:
            import_module(name)
        except Exception as error:
            raise ImportFailedError(name, f"{type(error).__name__}: {error}") from error


def semantics() -> str:
    """The semantics of the installed dispatcher, such as `torch-2.13`; torch is not imported for it."""
    from importlib.metadata import PackageNotFoundError, version  # which is slow to import

    try:
        found = version("torch")
    except PackageNotFoundError:
        found = str(torch().__version__)
    return "torch-" + ".".join(found.split("+")[0].split(".")[:2])
