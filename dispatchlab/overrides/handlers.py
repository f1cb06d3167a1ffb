"""Collect the handlers of a call's arguments and ask them in order.

From left to right, but a subclass before its superclasses. Source: torch/csrc/utils/python_arg_parser.cpp
(`append_overloaded_arg`); the rule is that of NEP 18.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dispatchlab.call.tensor import Tensor
from dispatchlab.call.torch_overrides import disabled
from dispatchlab.overrides.errors import NoImplementationError, name_of, name_of_function, passing
from dispatchlab.overrides.modes import is_torch_function_enabled, off

# Note [Where a new argument goes]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A new type goes before the first one that it is a subclass of, and that is a scan with `issubclass`. When all types
# so far are of the metaclass `type`, a superclass of the new type is in its `__mro__`; a set of the types seen tells
# at once that none is, and the scan is left out. A list of 10,000 arguments costs one look into the set for each.


def collected(arguments: Iterable[object], protocol: str) -> list[Any]:
    """The arguments whose handlers are to be asked, in that order.

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
                for place, other in enumerate(types):
                    if issubclass(kind, other):
                        at = place
                        break
        else:
            plain = type(kind) is type
        seen.add(kind)
        found.insert(at, argument)
        types.insert(at, kind)
    return found


PROTOCOL = "__torch_function__"


def ask(
    public: Callable[..., Any],
    implementation: Callable[..., Any],
    relevant: Iterable[object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
) -> Any:
    """What the first handler that does not decline returns; of the implementation, when there is no handler.

    Args:
        public: what handlers are told was called.
        implementation: what runs without them.
        relevant: the arguments whose handlers count.
        args: of the call.
        kwargs: of the call.

    Raises:
        NoImplementationError: every handler returned NotImplemented; a TypeError.
    """
    asked = collected(relevant, PROTOCOL)
    if not asked or (off and not is_torch_function_enabled()):
        return implementation(*args, **kwargs)
    types = (type(asked[0]),) if len(asked) == 1 else tuple(map(type, asked))
    one: Any = None
    try:
        for one in asked:
            if type(one) is Tensor and _declined(types):
                continue
            result = one.__torch_function__(public, types, args, kwargs)
            if result is not NotImplemented:
                return result
    except Exception as error:
        told = told_of(error, one, public)
        if told is error:
            raise
        raise told from None
    raise NoImplementationError(name_of_function(public), [name_of(kind) for kind in types])


def told_of(error: Exception, one: object, public: Callable[..., Any]) -> BaseException:
    """An error as it leaves the handler of an argument."""
    return passing(error, f"{PROTOCOL} of {name_of(type(one))} for {name_of_function(public)}")


def _declined(types: Sequence[type]) -> bool:
    """Whether the default handler of plain tensors would decline: the common answer, without the calls."""
    return any(not issubclass(Tensor, kind) for kind in types)
