"""The slow half of an overridable function: ask the handlers of its arguments, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

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
            result = one.__torch_function__(public, types, args, kwargs)
            if result is not NotImplemented:
                return result
    except Exception as error:
        told = passing(error, f"__torch_function__ of {name_of(type(one))} for {name_of_function(public)}")
        if told is error:
            raise
        raise told from None
    raise NoImplementationError(name_of_function(public), [name_of(kind) for kind in types])
