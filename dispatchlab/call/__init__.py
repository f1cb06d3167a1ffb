"""Calls: which kernel runs, and why that one.

- `operator(dispatcher, name)`: an operator, to be called; `ops(dispatcher)`: all of them by attribute (`operators`);
- `Tensor`, `tensor`, `Generator`, `Device`, `DType`, `Layout`: what operators take (`tensor`, `values`);
- the guards, `included`, `excluded`: what this thread adds to every call and takes away (`key_state`).

A call, step by step: `tensor_keys` gives the keys of each tensor, `fallthrough` the keys that the operator skips,
`table` the kernel, `conventions` turns it into a function of all arguments, and `generate` writes the code that does
all of it for one operator. `layers` holds autograd, batching, tracing and factories, built on nothing but this.
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
