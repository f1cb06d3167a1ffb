"""Handlers of `__torch_function__`: find the handlers of a call's arguments, call them in order, switch them off.

The order is from left to right, but a subclass comes before its superclasses, and function modes come first.
Source: torch/csrc/utils/python_arg_parser.cpp (`append_overloaded_arg`), torch/overrides.py; the rule is NEP 18's.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dispatchlab.call.tensor import Tensor
from dispatchlab.call.torch_handlers import (
    FUNCTION,
    FunctionGuard,
    FunctionState,
    function_thread,
    handles,
    may_differ,
    special,
)
from dispatchlab.lab.overrides.errors import (
    HandlerError,
    NoImplementationError,
    name_of,
    name_of_function,
    with_handler,
)
from dispatchlab.lab.overrides.modes import pop_function_mode

PROTOCOL = FUNCTION

PLAIN = "_is_plain"


def is_plain(kind: type) -> bool:
    """Return whether tensors of a class override nothing: `Tensor`, and the class of `Functions` with its methods.

    A class that derives from one of these may override.
    """
    return kind is Tensor or PLAIN in kind.__dict__


# Note [Where a new argument goes]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A new type goes before the first one that it is a subclass of, and that is a scan with `issubclass`. When all types
# so far are of the metaclass `type`, a superclass of the new type is in its `__mro__`; when a set of the types seen
# has none of these, the scan is left out. A list of 10,000 arguments costs one look into the set for each.


def overloaded_args(arguments: Iterable[object], protocol: str) -> list[Any]:
    """Return the arguments with handlers to call, in the order of the calls.

    >>> from dispatchlab.lab.overrides import overloaded_args
    >>> class Length:
    ...     @classmethod
    ...     def __torch_function__(cls, func, types, args=(), kwargs=None): ...
    >>> one = Length()
    >>> overloaded_args([1.0, one, Length()], "__torch_function__") == [one]
    True

    Args:
        arguments: the arguments with possible handlers, from left to right.
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
        if not handles(argument, protocol):
            if may_differ(kind):
                last = None
            else:
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


def has_torch_function(arguments: Iterable[object]) -> bool:
    """Return whether a call with these arguments calls a handler, of an argument or of an open function mode.

    Plain tensors have no handler. A call inside of `redispatch_function` calls none.

    >>> from dispatchlab import tensor
    >>> from dispatchlab.lab.overrides import has_torch_function
    >>> has_torch_function((tensor(1.0), 2))
    False

    Raises:
        TypeError: it got no sequence.
    """
    try:
        found = [*arguments]
    except TypeError:
        raise TypeError(f"expected a sequence of arguments, not {type(arguments).__name__}") from None
    if special:
        if function_thread.skips:
            function_thread.skips = False
            return False
        if _modes_are_called():
            return True
        if function_thread.state is not FunctionState.ENABLED:
            return False
    return any(not is_plain(type(one)) and handles(one, FUNCTION) for one in found)


def handle_torch_function(
    public: Callable[..., Any], relevant: Iterable[object], /, *args: object, **kwargs: object
) -> Any:
    """Return the result of the first handler that does not decline: the innermost mode, then the arguments.

    >>> from dispatchlab.lab.overrides import handle_torch_function, has_torch_function
    >>> class Length:
    ...     @classmethod
    ...     def __torch_function__(cls, func, types, args=(), kwargs=None):
    ...         return f"{func.__name__} of {len(args)}"
    >>> def total(x, y):
    ...     if has_torch_function((x, y)):
    ...         return handle_torch_function(total, (x, y), x, y)
    ...     return x + y
    >>> total(1, 2), total(1, Length())
    (3, 'total of 2')

    Args:
        public: the function that handlers get.
        relevant: the arguments whose handlers count.
        args: of the call.
        kwargs: of the call.

    Raises:
        NoImplementationError: every handler returned NotImplemented; a TypeError.
    """
    enabled = not special or function_thread.state is FunctionState.ENABLED
    overloaded = overloaded_args(relevant, FUNCTION) if enabled else []
    types = tuple(map(type, overloaded))
    mode = None
    if special and _modes_are_called():
        with pop_function_mode() as mode:
            result = mode.__torch_function__(public, types, args, kwargs)
        if result is not NotImplemented:
            return result
    return _call_all(public, overloaded, types, (args, kwargs), mode, DeprecationWarning)


def call_handlers(
    public: Callable[..., Any],
    implementation: Callable[..., Any],
    relevant: Iterable[object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
) -> Any:
    """Return the result of `handle_torch_function`; without handlers, the result of the implementation.

    Args:
        public: the function that handlers get.
        implementation: the function that runs without handlers.
        relevant: the arguments whose handlers count.
        args: of the call.
        kwargs: of the call.

    Raises:
        NoImplementationError: every handler returned NotImplemented; a TypeError.
    """
    found = [*relevant]
    if not has_torch_function(found):
        return implementation(*args, **kwargs)
    return handle_torch_function(public, found, *args, **kwargs)


# Note [Functions of C]
# ~~~~~~~~~~~~~~~~~~~~~
# Upstream, the functions of operators are C, and functions that are composed of these are Python. Handlers of the first
# are not called for plain tensors, and these are not among the types; they get no keyword arguments when there are
# none, an argument of any parameter counts, and so does one in a list; a mode whose handler is a class method is
# refused. Handlers of the second see plain tensors among the types and always get keyword arguments.


def call_c_handlers(
    public: Callable[..., Any],
    implementation: Callable[..., Any],
    candidates: Iterable[object],
    args: tuple[object, ...],
    kwargs: dict[str, object],
    *,
    is_lone: bool = False,
) -> Any:
    """Do the work of `call_handlers` as upstream's functions of operators do; see Note [Functions of C].

    Args:
        public: the function that handlers get.
        implementation: the function that runs without handlers.
        candidates: the arguments, including those in lists.
        args: of the call.
        kwargs: of the call.
        is_lone: whether it is a method without other arguments; modes see the type of its tensor, also of a plain one.

    Raises:
        NoImplementationError: every handler returned NotImplemented; a TypeError.
        HandlerError: a mode's handler is a class method.
    """
    enabled = True
    called = False
    if special:
        if function_thread.skips:
            function_thread.skips = False
            return implementation(*args, **kwargs)
        enabled = function_thread.state is FunctionState.ENABLED
        called = _modes_are_called()
    # A plain tensor would have its subclasses come first.
    others = [one for one in candidates if not is_plain(type(one))] if enabled else []
    overloaded = overloaded_args(others, FUNCTION)
    if not overloaded and not called:
        return implementation(*args, **kwargs)
    if is_lone:
        overloaded = [args[0]]
    types = tuple(map(type, overloaded))
    given: tuple[Any, ...] = (args, kwargs) if kwargs else (args,)
    mode = None
    if called:
        with pop_function_mode() as mode:
            check_is_method(mode, FUNCTION)
            result = mode.__torch_function__(public, types, *given)
        if result is not NotImplemented:
            return result
    return _call_all(public, overloaded, types, given, mode, UserWarning)


def check_is_method(mode: object, protocol: str) -> None:
    """Refuse a mode whose handler is a class method: the handler would not know its mode.

    Raises:
        HandlerError: the result is such a value.
    """
    if getattr(getattr(mode, protocol), "__self__", None) is type(mode):
        message = f"Defining your mode's `{protocol}` as a classmethod is not supported, please make it a plain method"
        raise HandlerError(f"{message}: {name_of(type(mode))}")


def _call_all(
    public: Callable[..., Any],
    overloaded: Sequence[Any],
    types: tuple[type, ...],
    given: tuple[Any, ...],
    mode: object,
    category: type[Warning],
) -> Any:
    one: Any = None
    try:
        for one in overloaded:
            handler = one.__torch_function__
            if type(one) is Tensor and any(not issubclass(Tensor, kind) for kind in types):
                continue
            if getattr(handler, "__self__", None) is one:
                warn_of_plain_method(category)
            result = handler(public, types, *given)
            if result is not NotImplemented:
                return result
    except Exception as error:
        leaving = leaving_handler(error, one, public)
        if leaving is error:
            raise
        raise leaving from None
    tried = [*([] if mode is None else [name_of(type(mode))]), *map(name_of, types)]
    raise NoImplementationError(name_of_function(public), tried)


def warn_of_plain_method(category: type[Warning]) -> None:
    """Warn that a handler is an instance method, in PyTorch's words, which filters look for."""
    message = (
        f"Defining your `{FUNCTION}` as a plain method is deprecated and will be an error in future, "
        "please define it as a classmethod."
    )
    warnings.warn(message, category, stacklevel=4)


def leaving_handler(error: Exception, one: object, public: Callable[..., Any]) -> BaseException:
    """Return the error that leaves the handler of an argument."""
    return with_handler(error, f"{PROTOCOL} of {name_of(type(one))} for {name_of_function(public)}")


def _modes_are_called() -> bool:
    return bool(function_thread.modes) and function_thread.state is not FunctionState.ALL_DISABLED


def is_torch_function_enabled() -> bool:
    """Return whether handlers of arguments are called in this thread now."""
    return function_thread.state is FunctionState.ENABLED


def is_torch_function_all_disabled() -> bool:
    """Return whether neither handlers of arguments nor function modes are called in this thread now."""
    return function_thread.state is FunctionState.ALL_DISABLED


class DisableTorchFunction(FunctionGuard):
    """A block in which public functions go straight to their implementations; it may be entered again inside.

    >>> from dispatchlab.lab.overrides import DisableTorchFunction, is_torch_function_enabled
    >>> with DisableTorchFunction():
    ...     is_torch_function_enabled()
    False
    """

    __slots__ = ()
    _level = FunctionState.ALL_DISABLED


class enable_torch_function(FunctionGuard):
    """A block inside of a disabling block, in which handlers and modes are called again.

    >>> from dispatchlab.lab.overrides import DisableTorchFunction, enable_torch_function, is_torch_function_enabled
    >>> with DisableTorchFunction(), enable_torch_function():
    ...     is_torch_function_enabled()
    True
    """

    __slots__ = ()
    _level = FunctionState.ENABLED


def redispatch_function(
    func: Callable[..., Any],
    types: Sequence[type],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """Call the implementation of a function from its handler; its inner calls call handlers again.

    >>> from dispatchlab import Lab
    >>> from dispatchlab.lab.overrides import Functions, as_subclass, redispatch_function
    >>> functions = Functions(Lab())
    >>> class Length(functions.Tensor):
    ...     @classmethod
    ...     def __torch_function__(cls, func, types, args=(), kwargs=None):
    ...         print(func.__name__)
    ...         return redispatch_function(func, types, args, kwargs)
    >>> functions.neg(as_subclass(functions.tensor([1.0]), Length))
    neg
    tensor([-1.])

    Args:
        func: as the handler got it.
        types: as the handler got them.
        args: of the call.
        kwargs: of the call.
    """
    before = function_thread.skips
    special.append(None)
    function_thread.skips = True
    try:
        return func(*args, **(kwargs or {}))
    finally:
        function_thread.skips = before
        special.pop()
