"""The runtime of generated modules: they import everything that they need from here.

- structured: the functions that generated code calls, and `Kernels`, which calls the handwritten functions;
- tensor_iterator: the bases of meta classes, `MetaBase` and `TensorIteratorBase`;
- memory: tensors with strides over numpy arrays.
"""

from __future__ import annotations

from dispatchlab.call.tensor import Generator, Tensor
from dispatchlab.call.tensor_options import Device, Layout, MemoryFormat
from dispatchlab.codegen.runtime.memory import Options
from dispatchlab.codegen.runtime.structured import (
    Kernels,
    Scalar,
    ScalarType,
    Sizes,
    SymInt,
    check_inplace,
    check_same_device,
    copy_proxies,
    create_out,
    link,
    maybe_create_proxy,
    one_device,
    resize_out,
)
from dispatchlab.codegen.runtime.tensor_iterator import MetaBase, TensorIteratorBase
from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.engine.kernel import unboxed
from dispatchlab.engine.library import Library

__all__ = [
    "Device",
    "Dispatcher",
    "Generator",
    "Kernels",
    "Layout",
    "Library",
    "MemoryFormat",
    "MetaBase",
    "Options",
    "Scalar",
    "ScalarType",
    "Sizes",
    "SymInt",
    "Tensor",
    "TensorIteratorBase",
    "check_inplace",
    "check_same_device",
    "copy_proxies",
    "create_out",
    "link",
    "maybe_create_proxy",
    "one_device",
    "resize_out",
    "unboxed",
]
