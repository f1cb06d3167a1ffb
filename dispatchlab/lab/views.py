"""Views: the work of ADInplaceOrView, and the history of each view, which can make the same view of another tensor.

A view shares the version of its base, and a write in place raises it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias
from weakref import WeakValueDictionary

from dispatchlab.call.local_key_set import AutoDispatchBelowADInplaceOrView, is_inference_mode
from dispatchlab.call.operators import Operator
from dispatchlab.call.tensor import Tensor, VersionCounter, is_inference_tensor
from dispatchlab.engine.semantics import NamedFunction
from dispatchlab.lab.errors import AutogradError, AutogradErrorKind
from dispatchlab.lab.grad_mode import is_grad_enabled
from dispatchlab.lab.schemas import NOT_DIFFERENTIABLE
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.keys import DispatchKey

_BELOW = DispatchKeySet.full_after(DispatchKey.ADInplaceOrView)


class CountedAllTheSame(VersionCounter):
    """The counter of a `detach` of an inference tensor outside inference mode: the result can be written there."""

    __slots__ = ()


def view_kernel(operator: Operator, keys: DispatchKeySet, stack: list[object]) -> None:
    """Run as the boxed kernel of every operator that makes a view of its first argument."""
    base, *others = stack[-len(operator.schema.arguments) :]
    with AutoDispatchBelowADInplaceOrView():
        operator.redispatch_boxed(keys & _BELOW, stack)
    result = stack[-1]
    assert isinstance(base, Tensor)
    for one in result if isinstance(result, list) else [result]:
        assert isinstance(one, Tensor)
        _become_view(base, one, operator, tuple(others), one_of_many=isinstance(result, list))


def _become_view(
    base: Tensor, result: Tensor, operator: Operator, others: tuple[object, ...], *, one_of_many: bool
) -> None:
    if is_inference_tensor(base):
        if operator.name.name == "detach" and not is_inference_mode():
            result.version_counter = CountedAllTheSame()
        return
    differentiable = operator.name.name not in NOT_DIFFERENTIABLE
    if differentiable and (result.requires_grad or result.view_history is not None):
        raise AutogradError(AutogradErrorKind.NOT_DIFFERENTIABLE, _HISTORY_OF_ITS_OWN)
    share_version(base, result)
    result.requires_grad, result.grad, result.grad_fn, result.view_history = False, None, None, None
    result.base = base if base.base is None else base.base
    if differentiable:
        record_view(base, result, operator, others, one_of_many=one_of_many)


_HISTORY_OF_ITS_OWN = (
    "the result of a view has a history of its own already: a handler that enters enable_reentrant_dispatch() must not "
    "return a tensor that was made in there, it must wrap it in a new one"
)


def share_version(tensor: Tensor, other: Tensor) -> None:
    """Count writes to two tensors together.

    Raises:
        AutogradError: the second was made in inference mode, and counts no writes.
    """
    if is_inference_tensor(other):
        message = f"{_INFERENCE}: nothing can share its version; clone it outside of inference mode, and take the clone"
        raise AutogradError(AutogradErrorKind.INFERENCE_TENSOR, message)
    other.version_counter = tensor.version_counter


_INFERENCE = "a tensor that was made in inference mode counts no writes"


def in_place_kernel(operator: Operator, keys: DispatchKeySet, stack: list[object]) -> None:
    """Run as the boxed kernel of every operator that writes its first argument."""
    written = stack[-len(operator.schema.arguments)]
    with AutoDispatchBelowADInplaceOrView():
        operator.redispatch_boxed(keys & _BELOW, stack)
    assert isinstance(written, Tensor)
    count_write(written)


def count_write(written: Tensor) -> None:
    """Increase the version of the written tensors.

    Raises:
        AutogradError: it was made in inference mode, and this is none; its elements are written by now.
    """
    if is_inference_tensor(written) and not isinstance(written.version_counter, CountedAllTheSame):
        if is_inference_mode():
            return
        message = f"{_INFERENCE}, and cannot be written outside of it: write a clone of it"
        raise AutogradError(AutogradErrorKind.INFERENCE_TENSOR, message)
    written.version_counter.value += 1


_WRITTEN_SINCE = (
    "this view was made under no_grad(), and its memory was written since, so that it has no history to go by: "
    "make the view outside of no_grad(), or after the write"
)
_WRITTEN_SINCE_ONE_OF_MANY = (
    "this view is one of several that one call made, and its memory was written since, so that it has no history to go "
    "by: make it by an operator with one result, or after the write"
)
_LEAD_TO_BASE = NamedFunction("dispatchlab.lab.autograd:lead_to_base")
ViewCall: TypeAlias = tuple[Operator, tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class ViewHistory:
    """The history of a view of another tensor.

    Args:
        base: the tensor that all of it is a view of, and that is none itself.
        calls: the operators from there to here, each with its arguments after the first.
        without_grad: whether a view was made while nothing was recorded, or is one of several views of one call.
            It requires gradients as its base does, and has no history.
        one_of_many: whether the first of these views is one of several.
    """

    base: Tensor
    calls: tuple[ViewCall, ...]
    without_grad: bool
    one_of_many: bool = False

    def follow_base(self, view: Tensor) -> None:
        """Give a view a node that leads to the present node of its base.

        Raises:
            AutogradError: it was made while nothing was recorded, or is one of several views, so there is no history to
                go by.
        """
        if view.made_by is None and not self.base.requires_grad:
            return
        if self.without_grad:
            message = _WRITTEN_SINCE_ONE_OF_MANY if self.one_of_many else _WRITTEN_SINCE
            raise AutogradError(AutogradErrorKind.NOT_DIFFERENTIABLE, message)
        _LEAD_TO_BASE(view)


def history_of(tensor: Tensor) -> ViewHistory | None:
    """Return the history of a view; None for a tensor that is not a view."""
    assert tensor.view_history is None or isinstance(tensor.view_history, ViewHistory)
    return tensor.view_history


def record_view(
    viewed: Tensor, view: Tensor, operator: Operator, others: tuple[object, ...], *, one_of_many: bool = False
) -> None:
    """Record that `view` is the operator's view of `viewed`; the base knows its views while they are alive."""
    earlier = history_of(viewed)
    base = viewed if earlier is None else earlier.base
    calls = () if earlier is None else earlier.calls
    without_grad = one_of_many or not is_grad_enabled()
    one_of_many = one_of_many and is_grad_enabled()
    if earlier is not None and earlier.without_grad:
        without_grad, one_of_many = True, earlier.one_of_many
    view.view_history = ViewHistory(base, (*calls, (operator, others)), without_grad, one_of_many)
    view.requires_grad = base.requires_grad
    view.made_by_version = base.version
    if base.live_views is None:
        base.live_views = WeakValueDictionary()
    base.live_views[id(view)] = view


def replayed(base: Tensor, calls: tuple[ViewCall, ...]) -> Tensor:
    """Return the same view of another tensor."""
    stack: list[object] = [base]
    for operator, others in calls:
        stack += others
        operator.call_boxed(stack)
    (view,) = stack
    assert isinstance(view, Tensor)
    return view
