"""Overrides from Python: `__torch_function__` in front of the dispatcher, `__torch_dispatch__` behind it.

- torch_function: `torch_function_dispatch` makes a function overridable;
- handlers: `overloaded_args` finds the arguments whose handlers are called; `DisableTorchFunction` switches them off
  in a block, and `disabled`, of `dispatchlab.call`, for a class;
- functions: `Functions`, all public functions of a lab;
- subclass: `as_subclass` and `make_wrapper_subclass`, tensors of other classes;
- torch_dispatch: `PythonDispatch` has a dispatcher call `__torch_dispatch__`, `no_dispatch` is a block without that,
  `enable_reentrant_dispatch` one in which calls of a handler begin at the top,
  `Interpreter` owns classes and calls their handlers; `without_defaults` and `normalize` are for arguments;
- modes: `DispatchMode`, a handler of every call in a block, and `modes`;
- errors: `OverrideError` and its kinds, with the chain of handlers.
"""

from __future__ import annotations

from dispatchlab.call.tensor_keys import disabled
from dispatchlab.overrides.errors import (
    HandlerError,
    HandlerRecursionError,
    NoImplementationError,
    OverrideError,
    SignatureMismatchError,
)
from dispatchlab.overrides.functions import Functions
from dispatchlab.overrides.handlers import DisableTorchFunction, is_torch_function_enabled, overloaded_args
from dispatchlab.overrides.modes import DispatchMode, modes
from dispatchlab.overrides.subclass import as_subclass, make_wrapper_subclass
from dispatchlab.overrides.torch_dispatch import (
    Interpreter,
    PythonDispatch,
    enable_reentrant_dispatch,
    interpreter_of,
    no_dispatch,
    normalize,
    without_defaults,
)
from dispatchlab.overrides.torch_function import torch_function_dispatch

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
    "disabled",
    "enable_reentrant_dispatch",
    "interpreter_of",
    "is_torch_function_enabled",
    "make_wrapper_subclass",
    "modes",
    "no_dispatch",
    "normalize",
    "overloaded_args",
    "torch_function_dispatch",
    "without_defaults",
]
