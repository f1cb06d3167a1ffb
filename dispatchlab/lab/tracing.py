"""Tracing: a boxed fallback at the key Tracer that records every call and lets it go on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from dispatchlab.call.local_key_set import ExcludeDispatchKeyGuard, IncludeDispatchKeyGuard
from dispatchlab.call.operators import Operator
from dispatchlab.call.tensor import Tensor
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.keys import DispatchKey

_BELOW = DispatchKeySet.full_after(DispatchKey.Tracer)


@dataclass(frozen=True, slots=True)
class Recorded:
    """One call.

    Args:
        operator: its name.
        inputs: each argument: `%0` for a tensor, its text for everything else.
        outputs: the names of the results.
    """

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def __str__(self) -> str:
        left = f"{', '.join(self.outputs)} = " if self.outputs else ""
        return f"{left}{self.operator}({', '.join(self.inputs)})"


@dataclass(slots=True)
class Recording:
    """The calls of one block, in order; tensors are numbered as they are met."""

    calls: list[Recorded] = field(default_factory=list)
    _tensors: list[Tensor] = field(default_factory=list)

    def name(self, value: object) -> str:
        """How a value is written: a tensor keeps its number, for the recording keeps the tensor."""
        if isinstance(value, list):
            return f"[{', '.join(map(self.name, value))}]"
        if not isinstance(value, Tensor):
            return repr(value) if isinstance(value, str) else str(value)
        for number, known in enumerate(self._tensors):
            if known is value:
                return f"%{number}"
        self._tensors.append(value)
        return f"%{len(self._tensors) - 1}"

    def __str__(self) -> str:
        return "\n".join(map(str, self.calls))


class _Thread(threading.local):
    recording: Recording | None = None


_thread = _Thread()


def tracer_fallback(operator: Operator, keys: DispatchKeySet, stack: list[object]) -> None:
    """The boxed fallback of the key Tracer; what a kernel calls in turn is not written down."""
    recording = _thread.recording
    schema = operator.schema
    inputs = tuple(map(recording.name, stack[len(stack) - len(schema.arguments) :])) if recording is not None else ()
    with ExcludeDispatchKeyGuard(DispatchKey.Tracer):
        operator.redispatch_boxed(keys & _BELOW, stack)
    if recording is not None:
        outputs = tuple(map(recording.name, stack[len(stack) - len(schema.returns) :]))
        recording.calls.append(Recorded(str(schema.name), inputs, outputs))


@contextmanager
def recording() -> Iterator[Recording]:
    """Write down every call of this thread inside of the block.

    >>> from dispatchlab import Lab, tensor
    >>> from dispatchlab.lab import recording
    >>> lab, x = Lab(), tensor([1.0])
    >>> with recording() as calls:
    ...     _ = lab.neg(lab.sin(x))
    >>> print(calls)
    %1 = aten::sin(%0)
    %2 = aten::neg(%1)
    """
    found, _thread.recording = _thread.recording, Recording()
    try:
        with IncludeDispatchKeyGuard(DispatchKey.Tracer):
            yield _thread.recording
    finally:
        _thread.recording = found
