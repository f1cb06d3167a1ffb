"""The dispatch keys of the running PyTorch that this package does not know, and the errors that come of them."""

from __future__ import annotations

from dispatchlab.errors import DispatchLabError
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.profile import bundled_profiles, version_of
from dispatchlab.pytorch.bridge.running_keys import running_keys
from dispatchlab.pytorch.bridge.torch import torch


class UnknownKeysError(DispatchLabError):
    """Something failed on a PyTorch that has dispatch keys which this package does not know.

    Args:
        version: its version.
        unknown: these keys.
        error: what failed.
    """

    version: str
    unknown: tuple[str, ...]
    error: str

    def __str__(self) -> str:
        keys = "a dispatch key" if len(self.unknown) == 1 else f"{len(self.unknown)} dispatch keys"
        return (
            f"PyTorch {self.version} has {keys} that dispatchlab does not know, {_some(self.unknown)}. "
            f"That ended in {self.error}. `dispatchlab doctor` shows what works with it"
        )


class OldTorchError(DispatchLabError):
    """Something failed on a PyTorch that is older than all that this package has a model of.

    Args:
        version: its version.
        oldest: the oldest one with a model.
        error: what failed.
    """

    version: str
    oldest: str
    error: str

    def __str__(self) -> str:
        return (
            f"PyTorch {self.version} is older than {self.oldest.removeprefix('torch-')}, the oldest that dispatchlab "
            f"supports. That ended in {self.error}. `dispatchlab doctor` shows what works with it"
        )


def unknown_keys() -> tuple[str, ...]:
    """The keys of the running PyTorch that this package does not know, in their order; of a release it knows all."""
    return tuple(name for name in running_keys().numbers if name not in DispatchKey.__members__)


def limits_of(unknown: tuple[str, ...]) -> str:
    """What works with a PyTorch that has these unknown keys, and what does not, in a sentence."""
    return (
        f"it has {_some(unknown)}, which dispatchlab does not know: registering, releasing and reading slots work; "
        "what is registered there cannot be recorded, written in a scenario or predicted"
    )


def with_cause(error: BaseException) -> BaseException:
    """The error, or one that says that the age of PyTorch or its keys are the likely cause.

    An error that explains itself is kept.
    """
    if isinstance(error, DispatchLabError) or not isinstance(error, Exception):
        return error
    try:
        version, oldest = str(torch().__version__), bundled_profiles()[0]
        if (version_of(version) or (99, 0)) < (version_of(oldest) or (0, 0)):
            return OldTorchError(version, oldest, f"{type(error).__name__}: {error}")
        unknown = unknown_keys()
    except Exception:
        return error
    if not unknown:
        return error
    return UnknownKeysError(str(torch().__version__), unknown, f"{type(error).__name__}: {error}")


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
