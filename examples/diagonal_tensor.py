"""A matrix that stores one number: `DiagonalTensor`, which overrides functions without being a tensor.

It is the example that PyTorch's design of `__torch_function__` began with: a class that handles the functions which it
implements, a decorator that says which these are, and a class that derives from it and handles some better.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from dispatchlab import Lab, Tensor
from dispatchlab.lab.overrides import Functions

F = TypeVar("F", bound=Callable[..., Any])

functions = Functions(Lab())


class DiagonalTensor:
    """A square matrix with one value on its diagonal.

    Args:
        size: its rows and columns.
        value: what is on the diagonal.
    """

    handled: ClassVar[dict[Callable[..., Any], Callable[..., Any]]] = {}

    def __init__(self, size: int, value: float) -> None:
        self.size, self.value = size, value

    def __repr__(self) -> str:
        return f"{type(self).__name__}(N={self.size}, value={self.value:g})"

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        if func not in cls.handled or not all(issubclass(one, (Tensor, DiagonalTensor)) for one in types):
            return NotImplemented
        return cls.handled[func](*args, **(kwargs or {}))

    def tensor(self) -> Any:
        """All its elements."""
        return functions.tensor((self.value * np.eye(self.size)).tolist())


def implements(function: Callable[..., Any]) -> Callable[[F], F]:
    """Make the decorated function what DiagonalTensor does when `function` is called with one."""

    def decorate(implementation: F) -> F:
        DiagonalTensor.handled[function] = implementation
        return implementation

    return decorate


def dense(value: Any) -> Any:
    """The elements of a matrix of either kind."""
    return value.tensor() if isinstance(value, DiagonalTensor) else value


@implements(functions.sum)
def diagonal_sum(matrix: DiagonalTensor) -> float:
    """The sum of all elements."""
    return matrix.value * matrix.size


@implements(functions.mm)
def diagonal_mm(first: Any, second: Any) -> Any:
    """The product; of two diagonal matrices a diagonal one."""
    if isinstance(first, DiagonalTensor) and isinstance(second, DiagonalTensor):
        return DiagonalTensor(first.size, first.value * second.value)
    return functions.mm(dense(first), dense(second))


@implements(functions.unique)
def diagonal_unique(matrix: DiagonalTensor, **_: Any) -> Any:
    """The elements that there are."""
    return functions.tensor(sorted({0.0, matrix.value} if matrix.size > 1 else {matrix.value}))


@implements(functions.tensordot)
def diagonal_tensordot(a: Any, b: Any, dims: Any = 2, out: Any = None) -> Any:
    """The contraction of the elements."""
    return functions.tensordot(dense(a), dense(b), dims=dims)


@implements(functions.lu)
def diagonal_lu(matrix: DiagonalTensor, pivot: bool = True, get_infos: bool = False, out: Any = None) -> Any:  # noqa: FBT001, FBT002
    """The factors: a diagonal matrix is its own U."""
    return matrix, functions.tensor(np.arange(1, matrix.size + 1, dtype=np.int32))


@implements(functions.broadcast_tensors)
def diagonal_broadcast(*tensors: Any) -> Any:
    """All, as tensors of one shape."""
    return functions.broadcast_tensors(*map(dense, tensors))


class ScaledTensor(DiagonalTensor):
    """A diagonal matrix that knows its product, and leaves all else to its superclass."""

    handled: ClassVar[dict[Callable[..., Any], Callable[..., Any]]] = {
        functions.mm: lambda first, second: "a product of scaled matrices"
    }


def main() -> None:
    """Show who handles what."""
    two, x = DiagonalTensor(2, 2.0), functions.tensor([[1.0, 2.0], [3.0, 4.0]])
    shown = {
        "sum": functions.sum(two),
        "mm": functions.mm(two, two),
        "mm with a tensor": functions.mm(x, two).tolist(),
        "unique": functions.unique(two).tolist(),
        "tensordot": functions.tensordot(x, two).tolist(),
        "lu": functions.lu(two)[0],
        "broadcast_tensors": [one.shape for one in functions.broadcast_tensors(two, functions.tensor([1.0, 1.0]))],
        "mm with a subclass": functions.mm(two, ScaledTensor(2, 3.0)),
    }
    for name, result in shown.items():
        print(f"{name}: {result}")  # noqa: T201
    try:
        functions.neg(two)
    except TypeError as error:
        print(f"neg: {str(error).partition(' on types')[0]}")  # noqa: T201


if __name__ == "__main__":
    main()
