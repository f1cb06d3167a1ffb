"""The running PyTorch, typed once: every other module of `live` reaches torch through here.

Importing this module does not import torch; the first call of `bindings` does.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from dispatchlab.errors import DispatchLabError


class TorchMissingError(DispatchLabError):
    """PyTorch cannot be imported here.

    Args:
        reason: what the import said.
    """

    def __init__(self, reason: str = "No module named 'torch'") -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"the live engine needs PyTorch, and importing it says: {self.reason}. "
            "Install it with: pip install 'dispatchlab[torch]'"
        )


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


def semantics() -> str:
    """Which dispatcher this is, such as `torch-2.13`, from the installed version; torch is not imported for it."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("torch")
    except PackageNotFoundError:
        found = str(torch().__version__)
    return "torch-" + ".".join(found.split("+")[0].split(".")[:2])
