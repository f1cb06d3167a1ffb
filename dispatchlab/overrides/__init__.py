"""Overrides from Python: `__torch_function__` in front of the dispatcher, `__torch_dispatch__` behind it.

- `torch_function_dispatch`: makes a function overridable (`decorator`); `Functions`: all of a lab's (`functions`);
- `DisableTorchFunction`, `disabled`: switch handlers off, for a while or for a class (`switch`, `call.handlers`);
- `as_subclass`, `make_wrapper_subclass`: tensors of other classes (`subclass`);
- `PythonDispatch`: has a dispatcher ask `__torch_dispatch__` (`python_key`); `no_dispatch`: not for a while;
- `DispatchMode`, `modes`: handlers of every call in a block (`modes`);
- `without_defaults`, `normalize`: arguments without their defaults, and with them again (`defaults`);
- `Interpreter`: who owns classes and asks them (`interpreter`).

`collect` says in which order handlers are asked, `asking` asks them, `errors` is what can go wrong.
"""

from __future__ import annotations

from dispatchlab.call.torch_overrides import disabled
from dispatchlab.overrides.defaults import normalize, without_defaults
from dispatchlab.overrides.errors import (
    HandlerError,
    HandlerRecursionError,
    NoImplementationError,
    OverrideError,
    SignatureMismatchError,
)
from dispatchlab.overrides.functions import Functions
from dispatchlab.overrides.handlers import collected
from dispatchlab.overrides.modes import DisableTorchFunction, DispatchMode, is_torch_function_enabled, modes
from dispatchlab.overrides.overridable import torch_function_dispatch
from dispatchlab.overrides.python_key import Interpreter, PythonDispatch, interpreter_of, no_dispatch
from dispatchlab.overrides.subclass import as_subclass, make_wrapper_subclass

__all__ = [
    "DisableTorchFunction",
    "DispatchMode",
    "Functions",
    "HandlerError",
    "HandlerRecursionError",
    "Interpreter",
    "NoImplementationError",
    "OverrideError",
    "PythonDispatch",
    "SignatureMismatchError",
    "as_subclass",
    "collected",
    "disabled",
    "interpreter_of",
    "is_torch_function_enabled",
    "make_wrapper_subclass",
    "modes",
    "no_dispatch",
    "normalize",
    "torch_function_dispatch",
    "without_defaults",
]
