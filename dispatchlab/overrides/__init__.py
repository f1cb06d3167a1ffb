"""Overrides from Python: `__torch_function__` in front of the dispatcher, `__torch_dispatch__` behind it.

- `torch_function_dispatch`: makes a function overridable (`decorator`); `Functions`: all of a lab's (`functions`);
- `DisableTorchFunction`, `disabled`: switch handlers off, for a while or for a class (`switch`, `collect`);
- `as_subclass`: the same tensor as another class (`subclass`).

`collect` says in which order handlers are asked, `asking` asks them, `errors` is what can go wrong.
"""

from __future__ import annotations

from dispatchlab.overrides.collect import collected, disabled
from dispatchlab.overrides.decorator import torch_function_dispatch
from dispatchlab.overrides.errors import (
    HandlerError,
    HandlerRecursionError,
    NoImplementationError,
    OverrideError,
    SignatureMismatchError,
)
from dispatchlab.overrides.functions import Functions
from dispatchlab.overrides.subclass import as_subclass
from dispatchlab.overrides.switch import DisableTorchFunction, is_torch_function_enabled

__all__ = [
    "DisableTorchFunction",
    "Functions",
    "HandlerError",
    "HandlerRecursionError",
    "NoImplementationError",
    "OverrideError",
    "SignatureMismatchError",
    "as_subclass",
    "collected",
    "disabled",
    "is_torch_function_enabled",
    "torch_function_dispatch",
]
