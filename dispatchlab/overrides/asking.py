"""The slow half of an overridable function: ask the handlers of its arguments, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dispatchlab.call.tensor import Tensor
from dispatchlab.overrides.collect import collected
from dispatchlab.overrides.errors import NoImplementationError, name_of, name_of_function, passing
from dispatchlab.overrides.switch import is_torch_function_enabled, off

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
