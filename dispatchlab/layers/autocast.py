"""Autocast: inside of it operators get their arguments in another dtype, by kernels at the Autocast keys.

Every thread excludes these keys; `autocast` takes one out of what is excluded. Each operator follows a policy: matrices
are multiplied in the lower precision, some operators compute in float32, and those that take several tensors get the
widest of them. The casts of leaves that require gradients are kept until the outermost `autocast` is left.
Source: aten/src/ATen/autocast_mode.h, autocast_mode.cpp; torch/amp/autocast_mode.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from dispatchlab.call.autocast_policies import CastPolicy, policy_of
from dispatchlab.call.local_key_set import ExcludeDispatchKeyGuard, KeyGuard, thread
from dispatchlab.call.operators import Operator
from dispatchlab.call.tensor import Tensor
from dispatchlab.call.tensor_options import DType
from dispatchlab.layers.derivatives import Calls
from dispatchlab.layers.errors import TransformError, TransformErrorKind
from dispatchlab.layers.views import history_of
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.keys import AUTOCAST_KEY_OF_BACKEND

BoxedKernel: TypeAlias = Callable[[Operator, list[object]], None]

KEY_OF_DEVICE = {device: AUTOCAST_KEY_OF_BACKEND[device.upper()] for device in ("cpu", "cuda")}
"""The key of each kind of device for which operators have kernels."""


_POLICED = {
    "cpu": ("mm", "bmm", "matmul", "stack"),
    "cuda": ("mm", "mv", "bmm", "matmul", "dot", "exp", "sum", "sum.dim_IntList"),
}

POLICIES: dict[str, dict[str, CastPolicy]] = {
    device: {name: policy_of(KEY_OF_DEVICE[device], f"aten::{name}") for name in names}
    for device, names in _POLICED.items()
}
"""The operators with a policy, by device; every other one falls through."""

_DTYPES: dict[str, tuple[DType, ...]] = {
    "cpu": (DType.bfloat16, DType.float16),
    "cuda": (DType.float16, DType.bfloat16),
}
"""The dtypes of lower precision, the first one when none is said."""


class _Thread(threading.local):
    def __init__(self) -> None:
        self.dtypes = {device: dtypes[0] for device, dtypes in _DTYPES.items()}
        self.nesting = 0
        self.caches = True
        self.casts: dict[int, tuple[Tensor, Tensor]] = {}


_thread = _Thread()


class autocast(KeyGuard):
    """Give operators their arguments in another dtype for the length of a `with` block.

    >>> from dispatchlab import Lab, tensor
    >>> from dispatchlab.call import DType
    >>> from dispatchlab.layers import autocast
    >>> lab, x = Lab(), tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> with autocast("cpu", dtype=DType.float16):
    ...     lab.mm(x, x).dtype, lab.add(x, x).dtype
    (DType.float16, DType.float32)

    Args:
        device: `cpu` or `cuda`.
        dtype: the lower precision; bfloat16 on the CPU and float16 on CUDA when left out.
        enabled: False switches it off inside of another one.
        cache_enabled: whether casts of leaves are kept.

    Raises:
        TransformError: there is no autocast for the device, or none of that dtype.
    """

    __slots__ = ("_before", "cache_enabled", "device", "dtype", "enabled")

    def __init__(
        self, device: str, dtype: DType | None = None, *, enabled: bool = True, cache_enabled: bool | None = None
    ) -> None:
        super().__init__()
        if device not in _DTYPES:
            message = f"autocast is for {' and '.join(_DTYPES)}, but got {device!r}"
            raise TransformError(TransformErrorKind.WRONG_ARGUMENT, message)
        if enabled and dtype is not None and dtype not in _DTYPES[device]:
            message = f"autocast on {device} is to {' or '.join(map(str, _DTYPES[device]))}, but got {dtype}"
            raise TransformError(TransformErrorKind.WRONG_ARGUMENT, message)
        self.device, self.dtype, self.enabled = device, dtype, enabled
        self.cache_enabled = cache_enabled
        self._before: list[tuple[DType, bool]] = []

    def __repr__(self) -> str:
        return f"<autocast {self.device} {'on' if self.enabled else 'off'}>"

    def _wanted(self) -> tuple[DispatchKeySet, DispatchKeySet, bool]:
        excluded = (
            thread.excluded.remove(KEY_OF_DEVICE[self.device])
            if self.enabled
            else thread.excluded.add(KEY_OF_DEVICE[self.device])
        )
        return thread.included, excluded, thread.inference

    def __enter__(self) -> autocast:
        super().__enter__()
        self._before.append((_thread.dtypes[self.device], _thread.caches))
        if self.dtype is not None:
            _thread.dtypes[self.device] = self.dtype
        _thread.nesting += 1
        if self.cache_enabled is not None:
            _thread.caches = self.cache_enabled
        return self

    def __exit__(self, *error: object) -> None:
        _thread.nesting -= 1
        if not _thread.nesting:
            _thread.casts.clear()
        _thread.dtypes[self.device], _thread.caches = self._before.pop()
        super().__exit__(*error)


def is_autocast_enabled(device: str) -> bool:
    """Whether operators on this kind of device get other dtypes now."""
    return not thread.excluded.has(KEY_OF_DEVICE[device])


def autocast_dtype(device: str) -> DType:
    """The lower precision of this kind of device."""
    return _thread.dtypes[device]


def autocast_kernel(calls: Calls, device: str, policy: CastPolicy) -> BoxedKernel:
    """The boxed kernel of an operator with a policy.

    Args:
        calls: the operators.
        device: `cpu` or `cuda`.
        policy: what happens to the arguments.
    """

    def kernel(called: Operator, stack: list[object]) -> None:
        start = len(stack) - len(called.schema.arguments)
        with ExcludeDispatchKeyGuard(KEY_OF_DEVICE[device]):
            match policy:
                case CastPolicy.LOWER_PRECISION:
                    wanted = _thread.dtypes[device]
                case CastPolicy.FLOAT32:
                    wanted = DType.float32
                case CastPolicy.PROMOTE:
                    wanted = _promoted(device, stack[start:])
                case CastPolicy.FLOAT32_RESULT:
                    _set_dtype(called, device, stack, start)
                    called.call_boxed(stack)
                    return
                case CastPolicy.FLOAT32_APPENDED | CastPolicy.BANNED:
                    raise AssertionError(f"no operator of the lab has the policy {policy}")
            for at in range(len(stack) - 1, start - 1, -1):  # the last first, as compilers evaluate arguments
                stack[at] = _cast(calls, device, stack[at], wanted)
            called.call_boxed(stack)

    return kernel


def _set_dtype(called: Operator, device: str, stack: list[object], start: int) -> None:
    at = next(at for at, one in enumerate(called.schema.arguments, start) if one.name == "dtype")
    if stack[at] is None and _is_eligible(device, stack[start]):
        stack[at] = DType.float32


def _promoted(device: str, values: Sequence[object]) -> DType:
    found = _thread.dtypes[device]
    for one in _tensors(values):
        if _is_floating(device, one) and one.dtype != DType.float64:
            if DType.float32 in (found, one.dtype):
                found = DType.float32
            elif one.dtype != found:
                message = f"autocast to {found} got a tensor of {one.dtype}, and neither is wider: cast it before"
                raise TransformError(TransformErrorKind.WRONG_ARGUMENT, message)
    return found


def _cast(calls: Calls, device: str, value: object, dtype: DType) -> object:
    if isinstance(value, list) and any(isinstance(one, Tensor) for one in value):
        return [_cast(calls, device, one, dtype) for one in value]
    if not isinstance(value, Tensor) or not _is_eligible(device, value) or value.dtype == dtype:
        return value
    is_weight = (
        _thread.caches
        and dtype == _thread.dtypes[device]
        and value.dtype == DType.float32
        and value.requires_grad
        and value.is_leaf
        and history_of(value) is None
    )
    known = _thread.casts.get(id(value)) if is_weight else None
    if known is not None:
        return known[1]
    cast = calls("_to_copy")(value, dtype=dtype)
    if is_weight:
        _thread.casts[id(value)] = (value, cast)
    return cast


def _is_eligible(device: str, value: object) -> bool:
    return isinstance(value, Tensor) and _is_floating(device, value) and value.dtype != DType.float64


def _is_floating(device: str, value: Tensor) -> bool:
    return str(value.device.type) == device and value.dtype.category == 2


def _tensors(values: Sequence[object]) -> Iterator[Tensor]:
    for value in values:
        yield from (one for one in (value if isinstance(value, list) else (value,)) if isinstance(one, Tensor))
