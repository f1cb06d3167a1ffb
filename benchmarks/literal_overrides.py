"""The algorithm of the design documents for `__torch_function__`, as they write it down, to measure ours against.

Source: numpy/core/overrides.py before it moved to C (NEP 18), which the design of torch/_overrides.py follows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any


class LiteralTensor:
    """A tensor with the default handler."""

    def __torch_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if not all(issubclass(one, LiteralTensor) for one in types):
            return NotImplemented
        return func._implementation(*args, **kwargs)


_TORCH_FUNCTION = LiteralTensor.__torch_function__
_TENSOR_ONLY = [LiteralTensor]


def get_overloaded_types_and_args(relevant_args: Iterable[Any]) -> tuple[list[type], list[Any]]:
    """The types, and the arguments whose handlers are called."""
    overloaded_types: list[type] = []
    overloaded_args: list[Any] = []
    for arg in relevant_args:
        arg_type = type(arg)
        if arg_type not in overloaded_types and hasattr(arg_type, "__torch_function__"):
            if overloaded_types:
                overloaded_types.append(arg_type)
                index = len(overloaded_args)
                for i, old_arg in enumerate(overloaded_args):
                    if issubclass(arg_type, type(old_arg)):
                        index = i
                        break
                overloaded_args.insert(index, arg)
            else:
                overloaded_types = [arg_type]
                overloaded_args = [arg]
    return overloaded_types, overloaded_args


def implement_torch_function(
    implementation: Callable[..., Any], public_api: Any, relevant_args: Iterable[Any], args: Any, kwargs: Any
) -> Any:
    """Call the handlers, or run the implementation."""
    types, overloaded_args = get_overloaded_types_and_args(relevant_args)
    if (
        not overloaded_args
        or types == _TENSOR_ONLY
        or all(type(arg).__torch_function__ is _TORCH_FUNCTION for arg in overloaded_args)
    ):
        return implementation(*args, **kwargs)
    for overloaded_arg in overloaded_args:
        result = overloaded_arg.__torch_function__(public_api, types, args, kwargs)
        if result is not NotImplemented:
            return result
    raise TypeError(
        f"no implementation found for {public_api} on types that implement __torch_function__: "
        f"{list(map(type, overloaded_args))}"
    )


def literal_dispatch(dispatcher: Callable[..., Iterable[Any]]) -> Callable[[Callable[..., Any]], Any]:
    """The decorator."""

    def decorator(implementation: Callable[..., Any]) -> Any:
        @functools.wraps(implementation)
        def public_api(*args: Any, **kwargs: Any) -> Any:
            relevant_args = dispatcher(*args, **kwargs)
            return implement_torch_function(implementation, public_api, relevant_args, args, kwargs)

        return public_api

    return decorator
