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
from dispatchlab.call.tensor_options import device_of
from dispatchlab.errors import CallError, ErrorKind
from dispatchlab.lab.kernels import refused
from dispatchlab.lab.lab import Lab
from dispatchlab.lab.overrides.functional import adopted
from dispatchlab.lab.overrides.handlers import call_c_handlers
from dispatchlab.lab.overrides.subclass import as_subclass, unseen_by_modes
from dispatchlab.lab.overrides.torch_functions import torch_functions

Function = Callable[..., Any]

FUNCTIONS_ONLY = frozenset(("alias", "ones_like", "select_backward", "threshold_backward", "unique_dim", "zeros_like"))
"""The operators that take a tensor first and are no methods."""


def tensor_methods(
    lab: Lab,
    own: type[Tensor],
    implementations: Mapping[str, Function],
    composed: Mapping[str, Function],
    inner: Mapping[str, Function],
) -> tuple[dict[str, Function], dict[str, Function]]:
    """Return the methods that call no handlers, and the methods that call handlers themselves, by name.

    Args:
        lab: whose operators they call.
        own: the class of its tensors.
        implementations: the functions of the operators, that know of no handlers.
        composed: the functions in Python, that know of none.
        inner: functions that some of them call.
    """
    found: dict[str, Function] = {}
    for name, implementation in implementations.items():
        arguments = (implementation.__doc__ or "").partition("(")[2]
        if arguments.startswith("Tensor") and not arguments.startswith("Tensor[") and name not in FUNCTIONS_ONLY:
            found[name] = implementation
    found["__eq__"] = found["eq"]
    return {**found, **_conversions(lab), **_python_methods(lab, own, composed, inner)}, _asking(lab, own)


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
        if not self.ndim:
            raise refused("unbind expects at least one dimension")
        return tuple([lab("select.int")(self, dim, at) for at in range(self.shape[dim])])

    return {
        "__bool__": truth,
        "__complex__": lambda self: complex(self.item()),
        "__float__": lambda self: float(self.item()),
        "__index__": index,
        "__int__": lambda self: int(self.item()),
        "dim": Tensor.dim,
        "is_inference": Tensor.is_inference,
        "item": Tensor.item,
        "numpy": Tensor.numpy,
        "tolist": tolist,
        "unbind": unbind,
    }


def _python_methods(
    lab: Lab, own: type[Tensor], composed: Mapping[str, Function], inner: Mapping[str, Function]
) -> dict[str, Function]:
    """Return the methods that upstream writes in Python."""

    def length(self: Any) -> Any:
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def contains(self: Any, element: Any) -> Any:
        return bool(lab("eq.Tensor" if isinstance(element, Tensor) else "eq.Scalar")(self, element).data.any())

    def adopting(compute: Function) -> Function:
        return lambda self, other: adopted(compute(self, other), own)

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

    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = torch_functions()["Tensor.to"].parser.bind(args, kwargs).values
        like: Any = given.get("tensor", self)
        place: Any = given.get("device")
        dtype = given.get("dtype") or like.dtype
        device = like.device if place is None else device_of(place)
        if (dtype, device) == (self.dtype, self.device) and not given.get("copy"):
            return self
        named = {name: given[name] for name in ("non_blocking", "memory_format") if name in given}
        return lab("_to_copy")(self, dtype=dtype, device=device, **named)

    return {
        "__contains__": contains,
        "__format__": lambda self, spec: object.__format__(self, spec) if self.shape else format(self.item(), spec),
        "__len__": length,
        "__reduce_ex__": object.__reduce_ex__,
        "__rmatmul__": adopting(lambda self, other: inner["matmul"](other, self)),
        "__rsub__": adopting(inner["rsub"]),
        "__rtruediv__": adopting(lambda self, other: lab("div.Tensor")(other, self)),
        **{"backward": backward, "to": to, "unique": composed["unique"]},
    }


def _asking(lab: Lab, own: type[Any]) -> dict[str, Function]:
    def viewed_as(self: Any, kind: type[Tensor]) -> Any:
        """Return the same tensor as a view of another class."""
        return as_subclass(self, kind, lab.alias)

    def iterate(self: Any) -> Iterator[Any]:
        if not own.dim(self):
            raise TypeError("iteration over a 0-d tensor")
        return iter(own.unbind(self, 0))

    return {
        **_indexing(lab, own),
        "__iter__": iterate,
        "__hash__": Tensor.__hash__,
        "as_subclass": _as_method(viewed_as, "as_subclass", lab),
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
                dim += self.ndim - consumed
            elif isinstance(one, slice) and one == slice(None):
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
    """Return the function, under the name of a method."""
    function.__name__, function.__qualname__ = name, f"Tensor.{name}"
    function.__dict__["alias"] = unseen_by_modes(lab.alias)
    return function


def _flat(index: Any) -> Iterator[Any]:
    if isinstance(index, list | tuple):
        for one in index:
            yield from _flat(one)
    else:
        yield index
