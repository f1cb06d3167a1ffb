"""The methods and operators of tensors: arithmetic, comparisons, indexing, iteration, conversions and `backward`.

Each is overridable. Which function a handler gets for an operator is PyTorch's choice: `x + y` is `Tensor.add`, `1 - x`
is `Tensor.__rsub__`. Source: tools/autograd/templates/python_variable_methods.cpp, torch/_tensor.py,
torch/csrc/autograd/python_variable_indexing.cpp.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dispatchlab.call.tensor import NUMBERS, Tensor
from dispatchlab.errors import CallError, ErrorKind
from dispatchlab.layers.kernels import refused
from dispatchlab.layers.lab import Lab
from dispatchlab.layers.schemas import COMPARISONS
from dispatchlab.overrides.functional import Wrap, adopted, composed_functions, python_overridable
from dispatchlab.overrides.handlers import call_c_handlers, handle_torch_function, has_torch_function
from dispatchlab.overrides.subclass import as_subclass, unseen_by_modes

Function = Callable[..., Any]

FUNCTIONS_ONLY = frozenset(
    ("alias", "linalg_lu_factor_ex", "ones_like", "select_backward", "threshold_backward", "unique_dim", "zeros_like")
)
"""The operators that take a tensor first and are no methods."""

_FORWARD = {"add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "matmul": "matmul"}
_REFLECTED = {"radd": "add", "rmul": "mul"}
_IN_PLACE = {"iadd": "add_", "isub": "sub_", "imul": "mul_"}


def tensor_methods(
    lab: Lab,
    own: type[Tensor],
    implementations: Mapping[str, Function],
    wrap: Wrap,
    inner: Mapping[str, Function],
) -> dict[str, Function]:
    """The members of the class of tensors of a lab, by name.

    Args:
        lab: whose operators they call.
        own: the class.
        implementations: the functions of the operators, that know of no handlers.
        wrap: makes one overridable, with that name.
        inner: functions that some of them call.
    """
    members: dict[str, Any] = {}
    for name, implementation in implementations.items():
        arguments = (implementation.__doc__ or "").partition("(")[2]
        if arguments.startswith("Tensor") and not arguments.startswith("Tensor[") and name not in FUNCTIONS_ONLY:
            members[name] = wrap(implementation, f"Tensor.{name}")
    for name, implementation in _conversions(lab).items():
        members[name] = wrap(implementation, f"Tensor.{name}")
    for form, name in {**_FORWARD, **_REFLECTED, **_IN_PLACE, **{name: name for name in COMPARISONS}}.items():
        members[f"__{form}__"] = _left_to_the_other(members[name], f"__{form}__")
    members["__neg__"] = members["neg"]
    members["__hash__"] = Tensor.__hash__
    members |= _python_methods(lab, own, members, inner)
    members |= _indexing(lab, own)
    return members


def _left_to_the_other(method: Function, name: str) -> Function:
    """An operator, which is left to its other operand when it cannot be computed here."""

    def attempt(self: Any, other: Any) -> Any:
        return _or_not_implemented(method, self, other)

    attempt.__name__, attempt.__qualname__ = name, f"Tensor.{name}"
    return attempt


def _or_not_implemented(function: Function, *args: Any) -> Any:
    try:
        return function(*args)
    except TypeError:
        return NotImplemented
    except CallError as error:
        if error.kind is ErrorKind.WRONG_TYPE:
            return NotImplemented
        raise


def _conversions(lab: Lab) -> dict[str, Function]:
    def truth(self: Tensor) -> bool:
        if self.data.size != 1:
            raise refused(f"the truth value of a tensor of shape {list(self.shape)} is ambiguous: it needs one element")
        return bool(self.item())

    def index(self: Tensor) -> int:
        if self.dtype.category > 1 or self.data.size != 1:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return operator.index(self.data.item())

    def tolist(self: Tensor) -> Any:
        return self.data.tolist()

    def unbind(self: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
        if not self.dim:
            raise refused("unbind expects at least one dimension")
        return tuple([lab("select.int")(self, dim, at) for at in range(self.shape[dim])])

    return {
        "__bool__": truth,
        "__complex__": lambda self: complex(self.item()),
        "__float__": lambda self: float(self.item()),
        "__index__": index,
        "__int__": lambda self: int(self.item()),
        "item": Tensor.item,
        "numpy": Tensor.numpy,
        "tolist": tolist,
        "unbind": unbind,
    }


def _python_methods(
    lab: Lab, own: type[Tensor], members: Mapping[str, Function], inner: Mapping[str, Function]
) -> dict[str, Function]:
    """What upstream writes in Python."""

    def reflected(name: str, compute: Function) -> Function:
        def method(self: Any, other: Any) -> Any:
            if has_torch_function((self, other)):
                return _or_not_implemented(handle_torch_function, method, (self, other), self, other)
            return adopted(_or_not_implemented(compute, self, other), own)

        return _as_method(method, name, lab)

    def length(self: Any) -> Any:
        if has_torch_function((self,)):
            return handle_torch_function(length, (self,), self)
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def contains(self: Any, element: Any) -> Any:
        if has_torch_function((self,)):
            return handle_torch_function(contains, (self,), self, element)
        return bool(lab("eq.Tensor" if isinstance(element, Tensor) else "eq.Scalar")(self, element).data.any())

    def viewed_as(self: Any, kind: type[Tensor]) -> Any:
        """The same tensor as one of another class, a view."""
        return as_subclass(self, kind, lab.alias)

    def iterate(self: Any) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("iteration over a 0-d tensor")
        return iter(members["unbind"](self, 0))

    composed = composed_functions(lab, inner)

    def unique(
        self: Any,
        sorted: bool = True,  # noqa: FBT001, FBT002 - upstream's parameters
        return_inverse: bool = False,  # noqa: FBT001, FBT002
        return_counts: bool = False,  # noqa: FBT001, FBT002
        dim: int | None = None,
    ) -> Any:
        named: dict[str, Any] = {"return_inverse": return_inverse, "return_counts": return_counts, "dim": dim}
        return composed["unique"](self, sorted=sorted, **named)

    def lu(self: Any, pivot: bool = True, get_infos: bool = False) -> Any:  # noqa: FBT001, FBT002
        results = inner["_lu_with_info"](self, pivot=pivot, check_errors=not get_infos)
        return results if get_infos else (results[0], results[1])

    def backward(
        self: Any,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,  # noqa: FBT001
        create_graph: bool = False,  # noqa: FBT001, FBT002
        inputs: Any = None,
    ) -> None:
        if inputs is not None:
            raise refused("backward adds to the gradient of every leaf here: leave inputs=None")
        lab.backward(self, gradient, retain_graph=bool(retain_graph), create_graph=create_graph)

    found: dict[str, Function] = {
        "__contains__": contains,
        "__len__": length,
        **{one.__name__: python_overridable(one, 1, lab) for one in (backward, lu, unique)},
    }
    viewed_as.__name__, viewed_as.__qualname__ = "as_subclass", "Tensor.as_subclass"
    for name, method in found.items():
        _as_method(method, name, lab)
    for name, compute in {
        "__rsub__": inner["rsub"],
        "__rtruediv__": lambda self, other: lab("div.Tensor")(other, self),
        "__rmatmul__": lambda self, other: inner["matmul"](other, self),
    }.items():
        found[name] = reflected(name, compute)
    return {
        **found,
        "__iter__": iterate,
        "as_subclass": viewed_as,
    }


# -- indexing


def _indexing(lab: Lab, own: type[Tensor]) -> dict[str, Function]:
    def viewed(self: Tensor, index: Any) -> Tensor:
        result, dim = self, 0
        indices = index if isinstance(index, tuple) else (index,)
        consumed = sum(one is not None and one is not Ellipsis for one in indices)
        for one in indices:
            if one is None:
                result, dim = lab("unsqueeze")(result, dim), dim + 1
            elif one is Ellipsis:
                dim += self.dim - consumed
            elif one == slice(None):
                dim += 1
            elif isinstance(one, int):
                result = lab("select.int")(result, dim, one)
            else:
                raise refused(f"an index is a number, None, ... or :, and this is {one!r}: there is no operator for it")
        return lab.alias(result) if result is self else result

    def getitem(self: Any, index: Any) -> Any:
        def run(self: Tensor, index: Any) -> Any:
            return adopted(viewed(self, index), own)

        return call_c_handlers(getitem, run, (self, *_flat(index)), (self, index), {})

    def setitem(self: Any, index: Any, value: Any) -> Any:
        def run(self: Tensor, index: Any, value: Any) -> None:
            if not isinstance(value, (Tensor, *NUMBERS)):
                message = f"a tensor or a number can be assigned to elements, and this is {type(value).__name__}"
                raise CallError(ErrorKind.WRONG_TYPE, message)
            lab("copy_")(viewed(self, index), value)

        call_c_handlers(setitem, run, (self, *_flat(index), value), (self, index, value), {})

    return {
        name: _as_method(member, name, lab) for name, member in (("__getitem__", getitem), ("__setitem__", setitem))
    }


def _as_method(function: Function, name: str, lab: Lab) -> Function:
    """The function, under the name of a method."""
    function.__name__, function.__qualname__ = name, f"Tensor.{name}"
    function.__dict__["alias"] = unseen_by_modes(lab.alias)
    return function


def _flat(index: Any) -> Iterator[Any]:
    if isinstance(index, list | tuple):
        for one in index:
            yield from _flat(one)
    else:
        yield index
