"""Overrides from Python: `__torch_function__` in front of the dispatcher, `__torch_dispatch__` behind it.

- torch_function: `torch_function_dispatch` makes a function overridable;
- handlers: `overloaded_args` finds the arguments whose handlers are called; `has_torch_function` and
  `handle_torch_function` are for functions that ask by themselves, `redispatch_function` is for handlers;
  `DisableTorchFunction` switches handlers off in a block and `enable_torch_function` on again, `disabled`, of
  `dispatchlab.call`, switches them off for a class;
- functions: `Functions`, all public functions of a lab;
- torch_functions: the functions of PyTorch, with the arguments of their parsers and of their handlers;
- functional: the functions that are composed of operators, such as `tensordot`;
- tensor_methods: the methods and operators of the tensors of a lab;
- subclass: `as_subclass`, and `make_wrapper_subclass` for tensors without elements of their own;
- torch_dispatch: `PythonDispatch` has a dispatcher call `__torch_dispatch__`, `no_dispatch` is a block without that,
  `enable_reentrant_dispatch` one in which calls of a handler begin at the top,
  `Interpreter` owns classes and calls their handlers; `without_defaults` and `normalize` are for arguments;
- modes: `DispatchMode`, a handler of every call in a block, `modes`, and `is_in_dispatch_mode`; `FunctionMode`, a
  handler of every public function, and `function_modes`;
- errors: `OverrideError` and its kinds, with the chain of handlers.
"""

from __future__ import annotations

from dispatchlab.call.torch_handlers import DisableTorchFunctionSubclass, disabled
from dispatchlab.lab.overrides.errors import (
    HandlerError,
    HandlerRecursionError,
    MissingHandlerError,
    NoImplementationError,
    OverrideError,
    SignatureMismatchError,
)
from dispatchlab.lab.overrides.functions import Functions
from dispatchlab.lab.overrides.handlers import (
    DisableTorchFunction,
    enable_torch_function,
    handle_torch_function,
    has_torch_function,
    is_torch_function_all_disabled,
    is_torch_function_enabled,
    overloaded_args,
    redispatch_function,
)
from dispatchlab.lab.overrides.modes import DispatchMode, FunctionMode, function_modes, is_in_dispatch_mode, modes
from dispatchlab.lab.overrides.subclass import as_subclass, make_wrapper_subclass
from dispatchlab.lab.overrides.torch_dispatch import (
    Interpreter,
    PythonDispatch,
    enable_reentrant_dispatch,
    interpreter_of,
    no_dispatch,
    normalize,
    without_defaults,
)
from dispatchlab.lab.overrides.torch_function import torch_function_dispatch

__all__ = [
    "DisableTorchFunction",
    "DisableTorchFunctionSubclass",
    "DispatchMode",
    "FunctionMode",
    "Functions",
    "HandlerError",
    "HandlerRecursionError",
    "Interpreter",
    "MissingHandlerError",
    "NoImplementationError",
    "OverrideError",
    "PythonDispatch",
    "SignatureMismatchError",
    "as_subclass",
    "disabled",
    "enable_reentrant_dispatch",
    "enable_torch_function",
    "function_modes",
    "handle_torch_function",
    "has_torch_function",
    "interpreter_of",
    "is_in_dispatch_mode",
    "is_torch_function_all_disabled",
    "is_torch_function_enabled",
    "make_wrapper_subclass",
    "modes",
    "no_dispatch",
    "normalize",
    "overloaded_args",
    "redispatch_function",
    "torch_function_dispatch",
    "without_defaults",
]
