"""The runtime of generated modules: they import everything that they need from here.

- structured: what generated wrappers and classes call, and `Kernels`, which reaches the functions written by hand;
- tensor_iterator: the bases of meta classes, `MetaBase` and `TensorIteratorBase`;
- pointwise_loops: the loops of kernels from `ufunc_inner_loop`; element_types: the arithmetic of their elements;
- memory: tensors with strides over numpy arrays;
- python_bindings: native functions as Python has them, with signatures, defaults, `out=` and PyTorch's messages.
"""

from __future__ import annotations

from dispatchlab.call.tensor import Generator, Tensor
from dispatchlab.call.tensor_options import Device, Layout, MemoryFormat
from dispatchlab.codegen.runtime.element_types import (
    Elements,
    Vectorized,
    not_implemented,
    opmath,
    opmath_scalar,
    scalar_to,
)
from dispatchlab.codegen.runtime.memory import Options
from dispatchlab.codegen.runtime.pointwise_loops import DispatchStub, cpu_kernel, cpu_kernel_vec, gpu_kernel
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
    "DispatchStub",
    "Dispatcher",
    "Elements",
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
    "Vectorized",
    "check_inplace",
    "check_same_device",
    "copy_proxies",
    "cpu_kernel",
    "cpu_kernel_vec",
    "create_out",
    "gpu_kernel",
    "link",
    "maybe_create_proxy",
    "not_implemented",
    "one_device",
    "opmath",
    "opmath_scalar",
    "resize_out",
    "scalar_to",
    "unboxed",
]
