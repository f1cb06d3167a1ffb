"""Ways back of views: from a changed view to the changed tensor that it is a view of.

Where views are reapplied, the way back is made of views, too; else of their copies. Some ways back scatter into the
base. Source: aten/src/ATen/FunctionalInverses.cpp, aten/src/ATen/ExpandUtils.h (`sum_to`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from dispatchlab.call.tensor import Tensor
from dispatchlab.errors import CallError, ErrorKind
from dispatchlab.layers.derivatives import Calls
from dispatchlab.layers.schemas import copy_of
from dispatchlab.model.keys import DispatchKey


@dataclass(frozen=True, slots=True)
class View:
    """A call of a view operator.

    Args:
        calls: the operators.
        name: that of the view.
        copy: the operator that gives a copy of the view.
        others: its arguments after the tensor.
        reapplied: whether views stay views.
    """

    calls: Calls
    name: str
    copy: str
    others: tuple[object, ...]
    reapplied: bool = field(kw_only=True)

    def of(self, base: Tensor) -> Tensor | list[Tensor]:
        """The view of a tensor, or its views."""
        stack: list[object] = [base, *self.others]
        self.calls(self.name if self.reapplied else self.copy).call_boxed(stack)
        (found,) = stack
        assert isinstance(found, Tensor | list)
        return found

    def result_of(self, base: Tensor, at: int) -> Tensor:
        """One of the views of a tensor.

        Raises:
            CallError: of kind `other`: an out variant wrote another shape, of which there are not so many views.
        """
        found = self.of(base)
        if not isinstance(found, list):
            return found
        if at >= len(found):
            message = f"view {at} of {self.name} is gone: the tensor that it is a view of has another shape now"
            raise CallError(ErrorKind.OTHER, message, {"operator": self.name})
        return found[at]

    def changed_base(self, base: Tensor, changed: Tensor, at: int) -> Tensor:
        """A tensor, of which one view changed.

        Raises:
            CallError: of kind `other`: there is no way back from this view.
        """
        inverse = _INVERSES.get(self.name)
        if inverse is None:
            message = f"a view that {self.name} made was written, and PyTorch has no way back from it to its base"
            raise CallError(ErrorKind.OTHER, message, {"operator": self.name})
        return inverse(self, base, changed, at)

    def call(self, name: str, *arguments: object, **keywords: object) -> Tensor:
        """The tensor that an operator gives."""
        found: Tensor = self.calls(name)(*arguments, **keywords)
        return found

    def view(self, name: str, tensor: Tensor, *arguments: object) -> Tensor:
        """Another view, or a copy of that."""
        return self.call(name if self.reapplied else copy_of(name), tensor, *arguments)


Inverse: TypeAlias = Callable[[View, Tensor, Tensor, int], Tensor]


def _undone_by(name: str) -> Inverse:
    """A view that another one undoes, with the same arguments."""
    return lambda view, base, changed, at: view.view(name, changed, *view.others)


def _scattered_by(name: str) -> Inverse:
    """A view of some elements, which are put into the base."""
    return lambda view, base, changed, at: view.call(name, base, changed, *view.others)


def _view_as_complex(view: View, base: Tensor, changed: Tensor, at: int) -> Tensor:
    if changed.key_set.has(DispatchKey.Conjugate):
        changed = view.call("clone", changed)
    return view.view("view_as_real", changed)


def _expand(view: View, base: Tensor, changed: Tensor, at: int) -> Tensor:
    return view.call("add.Tensor", base, _sum_to(view, view.call("sub.Tensor", changed, base), base.shape))


def _sum_to(view: View, tensor: Tensor, shape: Sequence[int]) -> Tensor:
    if not shape:
        return view.call("sum", tensor)
    missing = tensor.dim - len(shape)
    broadcast = (missing + at for at, size in enumerate(shape) if size == 1 != tensor.shape[missing + at])
    dims = [*range(missing), *broadcast]
    if dims:
        tensor = view.call("sum.dim_IntList", tensor, dims, keepdim=True)
    if missing:
        return view.view("view", tensor, [*shape])
    return tensor if view.reapplied else view.call("clone", tensor)


def _permute(view: View, base: Tensor, changed: Tensor, at: int) -> Tensor:
    (dims,) = view.others
    assert isinstance(dims, list)
    wrapped = [dim % len(dims) for dim in dims]
    return view.view("permute", changed, [wrapped.index(at) for at in range(len(dims))])


def _squeeze(view: View, base: Tensor, changed: Tensor, at: int) -> Tensor:
    dims = view.others[0] if view.others else [*range(base.dim)]
    assert isinstance(dims, int | list)
    for dim in sorted({one % max(base.dim, 1) for one in (dims if isinstance(dims, list) else [dims])}):
        if base.dim and base.shape[dim] == 1:
            changed = view.view("unsqueeze", changed, dim)
    return changed


def _split(view: View, base: Tensor, changed: Tensor, at: int) -> Tensor:
    size, dim = view.others
    assert isinstance(size, int)
    return _slice_scattered(view, base, changed, dim, size * at, size)


def _split_with_sizes(view: View, base: Tensor, changed: Tensor, at: int) -> Tensor:
    sizes, dim = view.others
    assert isinstance(sizes, list)
    return _slice_scattered(view, base, changed, dim, sum(sizes[:at]), sizes[at])


def _slice_scattered(view: View, base: Tensor, changed: Tensor, dim: object, start: int, length: int) -> Tensor:
    assert isinstance(dim, int)
    along = dim % base.dim
    end = min(start + length, base.shape[along])
    return view.call("slice_scatter", base, changed, along, start, end, 1)


def _unbind(view: View, base: Tensor, changed: Tensor, at: int) -> Tensor:
    (dim,) = view.others
    assert isinstance(dim, int)
    return view.call("select_scatter", base, changed, dim % base.dim, at)


def _unfold(view: View, base: Tensor, changed: Tensor, at: int) -> Tensor:
    dimension, size, step = view.others
    assert isinstance(size, int)
    assert isinstance(step, int)
    if view.reapplied and size > step:
        message = "a tensor that overlaps itself, which unfold made, was written: that is not well defined"
        raise CallError(ErrorKind.OTHER, message, {"operator": view.name})
    return view.call("unfold_backward", changed, [*base.shape], dimension, size, step)


_INVERSES: Mapping[str, Inverse] = {
    "view_as_real": _undone_by("view_as_complex"),
    "view_as_complex": _view_as_complex,
    "_conj": _undone_by("_conj"),
    "_neg_view": _undone_by("_neg_view"),
    "as_strided": _scattered_by("as_strided_scatter"),
    "diagonal": _scattered_by("diagonal_scatter"),
    "expand": _expand,
    "permute": _permute,
    "_reshape_alias": lambda view, base, changed, at: view.view(
        "_reshape_alias", changed, [*base.shape], [*base.strides]
    ),
    "select.int": _scattered_by("select_scatter"),
    "detach": lambda view, base, changed, at: changed,
    "slice.Tensor": _scattered_by("slice_scatter"),
    "slice_inverse": lambda view, base, changed, at: view.view("slice.Tensor", changed, *view.others[1:]),
    "split.Tensor": _split,
    "split_with_sizes": _split_with_sizes,
    "squeeze": _squeeze,
    "squeeze.dim": _squeeze,
    "squeeze.dims": _squeeze,
    "t": _undone_by("t"),
    "transpose.int": _undone_by("transpose.int"),
    "unsqueeze": _undone_by("squeeze.dim"),
    "unbind.int": _unbind,
    "view": lambda view, base, changed, at: view.view("view", changed, [*base.shape]),
    "view.dtype": lambda view, base, changed, at: view.view("view.dtype", changed, base.dtype),
    "unfold": _unfold,
    "alias": _undone_by("alias"),
}
"""By view. A view that is missing has no way back in PyTorch either, or is one of nested tensors."""
