"""A tensor that writes down what is called with it: `$2 = aten.add($0, $1)`.

It has a tensor, and is one only to the dispatcher. Run this file to see a few traces.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from dispatchlab import Operator, Tensor, tensor
from dispatchlab.lab import Lab
from dispatchlab.lab.overrides import PythonDispatch, disabled, enable_reentrant_dispatch, make_wrapper_subclass


@dataclass(frozen=True, slots=True)
class Logged:
    """One call.

    Args:
        operator: with the namespace and the overload.
        inputs: each as it is written, those by name as `name=value`.
        outputs: the numbers of the tensors that came out.
    """

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def __str__(self) -> str:
        name = self.operator.replace("::", ".").split(".")
        left = f"{', '.join(self.outputs)} = " if self.outputs else ""
        return f"{left}{'.'.join(name[:2])}({', '.join(self.inputs)})"


@dataclass(slots=True)
class Log:
    """The calls of a block, in the order in which they were over, and its inputs by name."""

    calls: list[Logged] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    _seen: list[object] = field(default_factory=list)

    def input(self, name: str, value: object) -> None:
        """Give an input its number."""
        self.inputs.append(f"{self.name(value)} = input({name!r})")

    def name(self, value: object) -> str:
        """`$3` for a tensor that logs; the log keeps it, so that no other one takes its place."""
        if isinstance(value, list | tuple):
            return f"[{', '.join(map(self.name, value))}]"
        if not isinstance(value, LoggingTensor):
            return type(value).__name__ if isinstance(value, Tensor) else str(value)
        for number, known in enumerate(self._seen):
            if known is value:
                return f"${number}"
        self._seen.append(value)
        return f"${len(self._seen) - 1}"

    def add(self, func: Operator, args: Sequence[Any], kwargs: Mapping[str, Any], result: object) -> None:
        """Write a call down."""
        inputs = (*map(self.name, args), *(f"{name}={self.name(value)}" for name, value in kwargs.items()))
        results = result if isinstance(result, list | tuple) else (result,)
        outputs = tuple(self.name(one) for one in results if isinstance(one, LoggingTensor))
        self.calls.append(Logged(str(func.name), inputs, outputs))

    def __str__(self) -> str:
        return "\n".join([*self.inputs, *map(str, self.calls)])


_log: list[Log] = []


class LoggingTensor(Tensor):
    """A tensor around another one, which may be such a tensor itself.

    Args:
        elem: what it wraps.
        requires_grad: whether operations on it are recorded.
    """

    __slots__ = ("elem",)
    __torch_function__ = disabled

    elem: Tensor

    def __new__(cls, elem: Tensor, *, requires_grad: bool = False) -> LoggingTensor:
        made = make_wrapper_subclass(cls, elem, requires_grad=requires_grad)
        made.elem = elem
        return made

    def __init__(self, elem: Tensor, *, requires_grad: bool = False) -> None:
        """All is done."""

    @classmethod
    def __torch_dispatch__(
        cls, func: Operator, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        with cls.around():
            result = func(*map(_unwrapped, args), **{name: _unwrapped(one) for name, one in kwargs.items()})
        wrapped = args[0] if func.name.name.endswith("_") else _wrapped(result, cls)
        if _log:
            _log[-1].add(func, args, kwargs, wrapped)
        return wrapped

    @staticmethod
    def around() -> AbstractContextManager[object]:
        """What the call with the inner tensors runs in: nothing."""
        return nullcontext()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.elem!r})"


class ReentrantLoggingTensor(LoggingTensor):
    """A tensor that logs, around one that may need gradients or a batch of its own: its calls begin at the top."""

    __slots__ = ()

    @staticmethod
    def around() -> AbstractContextManager[object]:
        return enable_reentrant_dispatch()


def _unwrapped(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_unwrapped(one) for one in value]
    return value.elem if isinstance(value, LoggingTensor) else value


def _wrapped(value: Any, kind: type[LoggingTensor]) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_wrapped(one, kind) for one in value)
    return kind(value) if isinstance(value, Tensor) else value


@contextmanager
def logging() -> Iterator[Log]:
    """Write down every call with a tensor that logs, inside of the block."""
    _log.append(Log())
    try:
        yield _log[-1]
    finally:
        _log.pop()


def main() -> None:
    """Show three traces."""
    lab = Lab()
    with PythonDispatch(lab.dispatcher):
        with logging() as log:
            x = LoggingTensor(tensor([3.0]), requires_grad=True)
            log.input("x", x)
            y = lab.add(x, lab.exp(x), alpha=2)
            lab.backward(y)
        print(f"autograd\n{log}\n")  # noqa: T201
        with logging() as log:
            deep = LoggingTensor(LoggingTensor(tensor([1.0, 2.0])))
            lab.sum(lab.mul(deep, deep))
        print(f"a wrapper inside of a wrapper\n{log}\n")  # noqa: T201
        with logging() as log:
            lab.vmap(lab.sin)(LoggingTensor(tensor([[1.0], [2.0]])))
        print(f"batched\n{log}")  # noqa: T201


if __name__ == "__main__":
    main()
