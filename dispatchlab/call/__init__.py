"""Calls: the kernel that runs, how it is found, and how to see that.

- `operators`: `operator(dispatcher, name)`, an operator to be called; `ops(dispatcher)`, all of them by attribute;
- `call_signature`: a schema made ready to check arguments and to compute key sets;
- `python_arg_parser`: the parser of the arguments of Python functions, with PyTorch's messages;
- `dispatch_table`: the kernel for each key set, the keys that calls skip, and errors of calls that find no kernel;
- `calling_conventions`: any kernel as a function of all arguments;
- `local_key_set`: the guards, and the keys that this thread includes and excludes;
- `tensor`: `Tensor`, `tensor`, `Generator`, strides, and Python numbers where tensors are wanted;
- `tensor_keys`: the dispatch keys of a tensor;
- `torch_handlers`: whether a class has `__torch_function__` or `__torch_dispatch__`, and whether this thread calls it;
- `tensor_options`: dtype, device, layout and memory format;
- `call_observer`: observers of calls;
- `trace`: records of calls, redispatches and guards;

Autograd, batching and factories are in `dispatchlab.lab`, which uses only this package.
"""

from __future__ import annotations

from dispatchlab.call.local_key_set import (
    AutoDispatchBelowADInplaceOrView,
    AutoDispatchBelowAutograd,
    ExcludeDispatchKeyGuard,
    ForceDispatchKeyGuard,
    IncludeDispatchKeyGuard,
    InferenceMode,
    excluded,
    included,
    is_inference_mode,
)
from dispatchlab.call.operators import Operator, Operators, operator, ops
from dispatchlab.call.tensor import Generator, Tensor, tensor
from dispatchlab.call.tensor_options import Device, DType, Layout, MemoryFormat

__all__ = [
    "AutoDispatchBelowADInplaceOrView",
    "AutoDispatchBelowAutograd",
    "DType",
    "Device",
    "ExcludeDispatchKeyGuard",
    "ForceDispatchKeyGuard",
    "Generator",
    "IncludeDispatchKeyGuard",
    "InferenceMode",
    "Layout",
    "MemoryFormat",
    "Operator",
    "Operators",
    "Tensor",
    "excluded",
    "included",
    "is_inference_mode",
    "operator",
    "ops",
    "tensor",
]
