"""BackendSelect kernels of factories, which have no tensor to go by: dtype, layout and device decide."""

from __future__ import annotations

from collections.abc import Callable

from dispatchlab.call.operators import Operator
from dispatchlab.call.tensor import Tensor
from dispatchlab.call.tensor_keys import compute_dispatch_key
from dispatchlab.call.tensor_options import CPU, Device, DType, Layout
from dispatchlab.model.key_set import DispatchKeySet


def backend_select(operator: Operator) -> Callable[..., object]:
    """The BackendSelect kernel of a factory: redispatch to the backend key of its options."""

    def kernel(
        *sizes: list[int],
        dtype: DType | None = None,
        layout: Layout | None = None,
        device: Device | None = None,
        **others: object,
    ) -> object:
        where = CPU if device is None else device
        key = compute_dispatch_key(where.type, Layout.strided if layout is None else layout, dtype)
        keys = DispatchKeySet.of(key)
        return operator.redispatch(keys, *sizes, dtype=dtype, layout=layout, device=device, **others)

    return kernel


def randn_kernel(empty: Operator, normal_: Operator) -> Callable[..., Tensor]:
    """`randn` for every backend: an empty tensor, filled."""

    def randn(size: list[int], **options: object) -> Tensor:
        made: Tensor = empty(size, **options)
        filled: Tensor = normal_(made)
        return filled

    return randn
