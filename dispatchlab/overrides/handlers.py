"""Handlers of `__torch_function__`: find those of a call's arguments, call them in order, switch them off.

The order is from left to right, but a subclass before its superclasses. Source: torch/csrc/utils/python_arg_parser.cpp
(`append_overloaded_arg`); the rule is that of NEP 18.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from dispatchlab.call.tensor import Tensor
from dispatchlab.call.tensor_keys import disabled
from dispatchlab.overrides.errors import NoImplementationError, name_of, name_of_function, with_handler

PROTOCOL = "__torch_function__"

# Note [Where a new argument goes]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A new type goes before the first one that it is a subclass of, and that is a scan with `issubclass`. When all types
# so far are of the metaclass `type`, a superclass of the new type is in its `__mro__`; when a set of the types seen
# has none of these, the scan is left out. A list of 10,000 arguments costs one look into the set for each.


def overloaded_args(arguments: Iterable[object], protocol: str) -> list[Any]:
    """The arguments whose handlers are called, in that order.

    >>> from dispatchlab.overrides import overloaded_args
    >>> class Length:
    ...     @classmethod
    ...     def __torch_function__(cls, func, types, args=(), kwargs=None): ...
    >>> one = Length()
    >>> overloaded_args([1.0, one, Length()], "__torch_function__") == [one]
    True

    Args:
        arguments: those that count, from left to right.
        protocol: the name of the handler, such as `__torch_function__`.
    """
    seen: set[type] = set()
    found: list[Any] = []
    types: list[type] = []
    plain = True
    last: type | None = None
    for argument in arguments:
        kind = type(argument)
        if kind is last or kind in seen:
            continue
        last = kind
        handler = getattr(kind, protocol, None)
        if handler is None or handler is disabled:
            seen.add(kind)
            continue
        at = len(found)
        if at:
            plain = plain and type(kind) is type
            # See Note [Where a new argument goes]
            if not plain or not seen.isdisjoint(kind.__mro__):
                for position, other in enumerate(types):
                    if issubclass(kind, other):
                        at = position
                        break
        else:
            plain = type(kind) is type
        seen.add(kind)
        found.insert(at, argument)
        types.insert(at, kind)
    return found


def call_handlers(
    public: Callable[..., Any],
    implementation: Callable[..., Any],
    relevant: Iterable[object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
) -> Any:
    """Return what the first handler returns that does not decline; without handlers, what the implementation returns.

    Args:
        public: what handlers get as the function that was called.
        implementation: what runs without them.
        relevant: the arguments whose handlers count.
        args: of the call.
        kwargs: of the call.

    Raises:
        NoImplementationError: every handler returned NotImplemented; a TypeError.
    """
    overloaded = overloaded_args(relevant, PROTOCOL)
    if not overloaded or (disabled_blocks and not is_torch_function_enabled()):
        return implementation(*args, **kwargs)
    types = (type(overloaded[0]),) if len(overloaded) == 1 else tuple(map(type, overloaded))
    one: Any = None
    try:
        for one in overloaded:
            if type(one) is Tensor and _declined(types):
                continue
            result = one.__torch_function__(public, types, args, kwargs)
            if result is not NotImplemented:
                return result
    except Exception as error:
        leaving = leaving_handler(error, one, public)
        if leaving is error:
            raise
        raise leaving from None
    raise NoImplementationError(name_of_function(public), [name_of(kind) for kind in types])


def leaving_handler(error: Exception, one: object, public: Callable[..., Any]) -> BaseException:
    """The error as it leaves the handler of an argument."""
    return with_handler(error, f"{PROTOCOL} of {name_of(type(one))} for {name_of_function(public)}")


def _declined(types: Sequence[type]) -> bool:
    """Whether the default handler of plain tensors would decline: the common case, without the calls."""
    return any(not issubclass(Tensor, kind) for kind in types)


def is_torch_function_enabled() -> bool:
    """Whether handlers are called in this thread now."""
    return not _thread.depth


class DisableTorchFunction:
    """A block in which public functions go straight to their implementations; it may be entered again inside.

    >>> from dispatchlab.overrides import DisableTorchFunction, is_torch_function_enabled
    >>> with DisableTorchFunction():
    ...     is_torch_function_enabled()
    False
    """

    def __repr__(self) -> str:
        return "<DisableTorchFunction>"

    def __enter__(self) -> Self:
        disabled_blocks.append(None)
        _thread.depth += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _thread.depth -= 1
        disabled_blocks.pop()


class _Thread(threading.local):
    depth: int = 0


_thread = _Thread()

disabled_blocks: list[None] = []
"""One item for each `DisableTorchFunction` block in any thread; while it is empty, `_thread` need not be read."""
