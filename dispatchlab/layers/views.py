"""What ADInplaceOrView does: a view shares the version of its base, and a write in place raises it."""

from __future__ import annotations

from dispatchlab.call.local_key_set import AutoDispatchBelowADInplaceOrView
from dispatchlab.call.operators import Operator
from dispatchlab.call.tensor import Tensor
from dispatchlab.layers.schemas import NOT_DIFFERENTIABLE
from dispatchlab.layers.view_history import record_view
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.keys import DispatchKey

_BELOW = DispatchKeySet.full_after(DispatchKey.ADInplaceOrView)


def view_kernel(operator: Operator, keys: DispatchKeySet, stack: list[object]) -> None:
    """The boxed kernel of every operator that makes a view of its first argument."""
    base, *others = stack[-len(operator.schema.arguments) :]
    with AutoDispatchBelowADInplaceOrView():
        operator.redispatch_boxed(keys & _BELOW, stack)
    result = stack[-1]
    assert isinstance(base, Tensor)
    assert isinstance(result, Tensor)
    result.base = base if base.base is None else base.base
    result.version_counter = base.version_counter
    if operator.name.name not in NOT_DIFFERENTIABLE:
        record_view(base, result, operator, tuple(others))


def in_place_kernel(operator: Operator, keys: DispatchKeySet, stack: list[object]) -> None:
    """The boxed kernel of every operator that writes its first argument."""
    written = stack[-len(operator.schema.arguments)]
    with AutoDispatchBelowADInplaceOrView():
        operator.redispatch_boxed(keys & _BELOW, stack)
    assert isinstance(written, Tensor)
    written.version_counter.value += 1
