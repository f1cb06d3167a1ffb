"""`ModeRecorder`: the calls that a `TorchDispatchMode` sees, where hops cannot be recorded."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from time import monotonic_ns
from typing import Any, Self

from dispatchlab.live.bridge.running_keys import raw_bits
from dispatchlab.live.bridge.torch import bindings, torch
from dispatchlab.live.tracing.recorder import model_set
from dispatchlab.model.key_set import DispatchKeySet


@dataclass(slots=True)
class SeenCall:
    """A call that reached the mode.

    Args:
        operator: its name, with the overload.
        each: the keys of each argument that has any, by its name.
        began_ns, ended_ns: since the recording began; no end was seen of a call that raised.
        raised: it ended with an exception.
    """

    operator: str
    each: Mapping[str, DispatchKeySet]
    began_ns: int
    ended_ns: int | None = None
    raised: bool = False


class ModeRecorder:
    """Notes every call that reaches `__torch_dispatch__` inside of a `with` block, in the thread of the block.

    Args:
        limit: how many calls are kept; later ones are counted alone.
    """

    def __init__(self, limit: int) -> None:
        self.calls: list[SeenCall] = []
        self.dropped = 0
        self.thread = ""
        self._limit = limit
        self._started_ns = monotonic_ns()
        base: Any = import_module("torch.utils._python_dispatch").TorchDispatchMode

        def seen(_: object, *of: Any) -> object:
            return self._seen(*of)

        self._mode = type("Mode", (base,), {"__torch_dispatch__": seen})()

    def __enter__(self) -> Self:
        self.thread = threading.current_thread().name
        self._mode.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._mode.__exit__(*error)

    def _seen(
        self,
        operator: Any,
        types: object,
        arguments: tuple[object, ...] = (),
        named: Mapping[str, object] | None = None,
    ) -> object:
        named = named or {}
        if len(self.calls) >= self._limit:
            self.dropped += 1
            return operator(*arguments, **named)
        names = [argument.name for argument in operator._schema.arguments]
        values = {**dict(zip(names, arguments, strict=False)), **named}
        each = {name: keys for name, value in values.items() if (keys := _keys_of(value))}
        overload = "" if operator._overloadname == "default" else f".{operator._overloadname}"
        call = SeenCall(f"{operator._schema.name}{overload}", each, monotonic_ns() - self._started_ns)
        self.calls.append(call)
        try:
            result = operator(*arguments, **named)
        except BaseException:
            call.raised = True
            raise
        call.ended_ns = monotonic_ns() - self._started_ns
        return result


def _keys_of(value: object) -> DispatchKeySet:
    found = DispatchKeySet()
    for tensor in _tensors(value):
        found = found | model_set(raw_bits(bindings()._dispatch_keys(tensor)))
    return found


def _tensors(value: object) -> Iterator[object]:
    if isinstance(value, torch().Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for element in value:
            yield from _tensors(element)
