"""The dispatch keys of a tensor, from its device, layout and dtype.

Source: c10/core/TensorImpl.cpp (the constructor), c10/core/TensorOptions.h (`computeDispatchKey`).
"""

from __future__ import annotations

from functools import cache

from dispatchlab.call.tensor_options import DeviceType, DType, Layout
from dispatchlab.model.key_set import FUNCTIONALITY_BITS, DispatchKeySet
from dispatchlab.model.keys import (
    AUTOCAST_KEY_OF_BACKEND,
    AUTOGRAD_KEY_OF_BACKEND,
    BACKENDS,
    DEVICE_OF_BACKEND,
    DispatchKey,
)

PYTHON_KEYS = DispatchKeySet.of(DispatchKey.Python, DispatchKey.PythonTLSSnapshot)
"""What a tensor of a Python subclass that intercepts calls carries, too."""

AUTOGRAD_KEYS = DispatchKeySet.of(
    DispatchKey.AutogradFunctionality, DispatchKey.AutogradOther, DispatchKey.AutogradNestedTensor
)
"""Every autograd functionality."""

_BACKENDS: dict[DeviceType, str] = {DeviceType(device): name for name, device in DEVICE_OF_BACKEND.items()}
_PREFIXES: dict[Layout, str] = {
    Layout.strided: "",
    Layout.jagged: "NestedTensor",
    Layout.sparse: "Sparse",
    **dict.fromkeys((Layout.sparse_csr, Layout.sparse_csc, Layout.sparse_bsr, Layout.sparse_bsc), "SparseCsr"),
}


@cache
def compute_dispatch_key(
    device: DeviceType, layout: Layout = Layout.strided, dtype: DType | None = None
) -> DispatchKey:
    """Return the backend key of a factory call with these options.

    Raises:
        KeyError: there is no key for such a tensor, for example for a sparse tensor on an FPGA.
    """
    return key_of_backend(_BACKENDS[device], layout, dtype)


def backend_of_device(device: DeviceType) -> str:
    """Return the name of the key of a plain tensor on a device."""
    return _BACKENDS[device]


def key_of_backend(backend: str, layout: Layout = Layout.strided, dtype: DType | None = None) -> DispatchKey:
    """Return the key of a backend, by the name of the key of its plain tensors, for a layout and dtype.

    Raises:
        KeyError: there is no key for such a tensor.
    """
    if layout == Layout.mkldnn:
        return DispatchKey[f"Mkldnn{backend}"]
    prefix = _PREFIXES[layout]
    if not prefix and dtype is not None and dtype.is_quantized:
        prefix = "Quantized"
    return DispatchKey[prefix + backend]


# Note [Undefined tensors have keys]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# None for an argument of type `Tensor` is an undefined tensor to upstream, and the one undefined tensor that there is
# was built like every other: without a backend, and so with AutogradOther and ADInplaceOrView. A call whose only tensor
# is undefined goes to AutogradOther. None for `Tensor?` is no tensor, and has no keys.


@cache
def tensor_key_set(base: DispatchKeySet, *, inference: bool = False) -> DispatchKeySet:
    """Return the final key set of a tensor that is built with the set `base`.

    Args:
        base: its backend key, and keys such as Conjugate, if any.
        inference: it is made in inference mode, and so never sees autograd.
    """
    number = base.highest_backend()
    keys = base - PYTHON_KEYS
    autocast = None if number is None else AUTOCAST_KEY_OF_BACKEND.get(BACKENDS[number])
    if autocast is not None:
        keys = keys.add(autocast)
    if inference:
        return keys - AUTOGRAD_KEYS.add(DispatchKey.ADInplaceOrView)
    autograd = DispatchKey.AutogradOther if number is None else AUTOGRAD_KEY_OF_BACKEND[number]
    keys = keys.add(DispatchKey.ADInplaceOrView).add(autograd)
    nested = DispatchKeySet.of(DispatchKey.NestedTensor)
    return keys.add(DispatchKey.AutogradNestedTensor) if base.bits & nested.bits & FUNCTIONALITY_BITS else keys


UNDEFINED_TENSOR_KEYS = tensor_key_set(DispatchKeySet())
"""What None carries where a tensor is wanted; see Note [Undefined tensors have keys]."""
