"""Kernels that generated code registers in front of the backends, from BackendSelect to Functionalize.

They are boxed, so that one serves every operator. Source: torchgen/gen.py (`ComputeBackendSelect`),
torchgen/packaged/autograd/gen_variable_type.py, gen_inplace_or_view_type.py, gen_trace_type.py,
torchgen/gen_functionalization_type.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dispatchlab.call.local_key_set import AutoDispatchBelowADInplaceOrView
from dispatchlab.call.operators import Operator
from dispatchlab.call.tensor import Tensor
from dispatchlab.call.tensor_keys import compute_dispatch_key
from dispatchlab.call.tensor_options import CPU, Layout
from dispatchlab.codegen.runtime.memory import is_on_meta
from dispatchlab.codegen.runtime.structured import Kernels
from dispatchlab.engine.kernel import KernelFunction, boxed
from dispatchlab.errors import CallError, ErrorKind
from dispatchlab.layers import functional_tensors
from dispatchlab.layers.autograd import autograd_kernel
from dispatchlab.layers.derivatives import Derivative
from dispatchlab.layers.tracing import tracer_fallback
from dispatchlab.layers.views import count_write, view_kernel
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.keys import DispatchKey

_BELOW_SELECT = DispatchKeySet.full_after(DispatchKey.BackendSelect)
_BELOW_WRITES = DispatchKeySet.full_after(DispatchKey.ADInplaceOrView)


def _select_backend(operator: Operator, keys: DispatchKeySet, stack: list[object]) -> None:
    """Redispatch to the key of dtype, layout and device; tensors among the arguments add their keys."""
    arguments = operator.schema.arguments
    values = dict(zip((argument.name for argument in arguments), stack[len(stack) - len(arguments) :], strict=True))
    device, layout, dtype = (values.get(name) for name in ("device", "layout", "dtype"))
    where = getattr(CPU if device is None else device, "type")  # noqa: B009 - a Device, which the schema says
    key = compute_dispatch_key(where, layout if isinstance(layout, Layout) else Layout.strided, dtype)
    found = DispatchKeySet.of(key)
    if any(isinstance(value, Tensor) for value in values.values()):
        found = (found | keys) & _BELOW_SELECT
    operator.redispatch_boxed(found, stack)


def _count_writes(operator: Operator, keys: DispatchKeySet, stack: list[object]) -> None:
    """Redispatch, and raise the versions of what the schema says is written."""
    arguments = operator.schema.arguments
    values = stack[len(stack) - len(arguments) :]
    with AutoDispatchBelowADInplaceOrView():
        operator.redispatch_boxed(keys & _BELOW_WRITES, stack)
    for argument, value in zip(arguments, values, strict=True):
        if argument.is_written and isinstance(value, Tensor):
            count_write(value)


def _returns_self(operator: Operator, stack: list[object]) -> None:
    """The Meta kernel of an operator that writes `self`, which has no elements to write."""
    arguments = operator.schema.arguments
    at = len(stack) - len(arguments) + [argument.name for argument in arguments].index("self")
    written = stack[at]
    if not (isinstance(written, Tensor) and is_on_meta(written)):
        message = f"{operator.name} got a tensor with elements to write, and one on meta to read: clone that to meta"
        raise CallError(ErrorKind.OTHER, message)
    stack[len(stack) - len(arguments) :] = [written]


select_backend = boxed(_select_backend, with_keyset=True)
makes_view = boxed(view_kernel, with_keyset=True)
counts_writes = boxed(_count_writes, with_keyset=True)
records_call = boxed(tracer_fallback, with_keyset=True)
returns_self = boxed(_returns_self)


def wrapper(function: Callable[..., Any], kernels: Kernels) -> KernelFunction:
    """The kernel of a generated wrapper, which gets every argument, those with defaults, too.

    Args:
        function: takes `kernels`, and the arguments in the order of the schema.
        kernels: what reaches the functions by hand.
    """

    def kernel(operator: Operator, stack: list[object]) -> None:
        arguments, returns = operator.schema.arguments, operator.schema.returns
        start = len(stack) - len(arguments)
        result = function(kernels, *stack[start:])
        stack[start:] = [] if not returns else [result] if len(returns) == 1 else list(result)

    return boxed(kernel)


def autograd(
    kernels: Kernels,
    formulas: Mapping[str, Derivative],
    name: str,
    *,
    writes: bool = False,
    views: bool = False,
    detaches: bool = False,
) -> KernelFunction:
    """The autograd kernel of an operator: with its formula, or a stub whose gradient is an error.

    Args:
        kernels: what reaches operators.
        formulas: those that are generated.
        name: the operator, without namespace.
        writes: it writes its first argument.
        views: it returns a view of its first argument.
        detaches: no gradient goes through it.
    """
    kernel = autograd_kernel(
        kernels.operator, None if detaches else formulas.get(name), writes=writes, views=views, detaches=detaches
    )
    return boxed(kernel, with_keyset=True)


def functionalize_write(kernels: Kernels, functional: str, *, in_place: bool = False) -> KernelFunction:
    """The kernel of Functionalize of an operator that writes arguments.

    Args:
        kernels: what reaches operators.
        functional: the operator that returns what it would write.
        in_place: it writes `self`, so that its Meta kernel is run before.
    """
    return boxed(functional_tensors.write_kernel(kernels.operator, functional, in_place=in_place))


def functionalize_view(kernels: Kernels, view: str, copy: str, *, in_place: bool = False) -> KernelFunction:
    """The kernel of Functionalize of a view.

    Args:
        kernels: what reaches operators.
        view: the view; for one in place, the one that is not.
        copy: the operator that gives a copy of the view.
        in_place: its argument becomes the view.
    """
    return boxed(functional_tensors.view_kernel(kernels.operator, view, copy, in_place=in_place))
