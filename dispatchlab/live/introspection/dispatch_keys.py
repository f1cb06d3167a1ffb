"""How the dispatch keys of the running PyTorch differ from those of the model, which are PyTorch 2.13's."""

from __future__ import annotations

from dispatchlab.errors import DispatchLabError
from dispatchlab.live.bridge.torch import bindings, torch
from dispatchlab.model.keys import DispatchKey

_MARKERS = ("UnknownUnknown", "Undefined")
_MORE = 20


class OtherKeysError(DispatchLabError):
    """Something failed on a PyTorch whose dispatch keys are not those of the model.

    Args:
        version: its version.
        differences: how its keys differ, a clause each.
        error: what failed.
    """

    def __init__(self, version: str, differences: tuple[str, ...], error: str) -> None:
        super().__init__(version, differences, error)
        self.version, self.differences, self.error = version, differences, error

    def __str__(self) -> str:
        return (
            f"PyTorch {self.version} has other dispatch keys than PyTorch 2.13: {'; '.join(self.differences)}. "
            f"That ended in {self.error}. `dispatchlab doctor` shows what works with it"
        )


def key_differences() -> tuple[str, ...]:
    """How the keys differ, a clause each; empty when they are the same."""
    c = bindings()
    theirs = [str(c._dispatch_key_name(c.DispatchKey(number))) for number in range(max(DispatchKey) + _MORE)]
    known = [str(key) for key in DispatchKey]
    strange = sorted({name for name in theirs if name not in known and not name.endswith(_MARKERS)})
    missing = [name for name in known if name not in theirs]
    moved = [key for key in DispatchKey if str(key) in theirs and theirs[key] != str(key)]
    return (
        *((f"it has {_some(strange)}, which dispatchlab does not know",) if strange else ()),
        *((f"it lacks {_some(missing)}",) if missing else ()),
        *((f"{len(moved)} keys have other numbers",) if moved else ()),
    )


def with_cause(error: BaseException) -> BaseException:
    """The error, or one that says that the keys are the likely cause; an error that explains itself is kept."""
    if isinstance(error, DispatchLabError) or not isinstance(error, Exception):
        return error
    try:
        differences = key_differences()
    except Exception:
        return error
    if not differences:
        return error
    return OtherKeysError(str(torch().__version__), differences, f"{type(error).__name__}: {error}")


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
