"""`torch_function_dispatch` makes a function overridable: the check of signatures, and the wrapper."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MethodType
from typing import Any, TypeVar, cast

from dispatchlab.call.tensor import Tensor
from dispatchlab.call.torch_handlers import disabled, special
from dispatchlab.lab.overrides.errors import NoImplementationError, SignatureMismatchError, name_of, name_of_function
from dispatchlab.lab.overrides.handlers import PLAIN, call_handlers, leaving_handler, warn_of_plain_method

F = TypeVar("F", bound=Callable[..., Any])

# Note [One type and tensors]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~
# Nearly every call that is overridden has arguments of one type with a handler, and perhaps plain tensors. The default
# handler of tensors declines then, so only the one is called, and no order has to be found: this takes half the time.
# Two such types, a type that tensors derive from, a guard or a mode in any thread, and an iterator go the general way.


def torch_function_dispatch(
    dispatcher: Callable[..., Iterable[object]],
    *,
    module: str | None = None,
    verify: bool = True,
    docs_from_dispatcher: bool = False,
) -> Callable[[F], F]:
    """Make a function overridable.

    The result is called as the function is. It has its name, docstring, signature and module, and the function itself
    as `_implementation`. Plain tensors go straight to the implementation; of all other arguments the
    `__torch_function__` is called first, in the order of `overloaded_args`.

    >>> from dispatchlab.lab.overrides import torch_function_dispatch
    >>> @torch_function_dispatch(lambda values: values)
    ... def total(values):
    ...     return sum(values)
    >>> class Shy:
    ...     @classmethod
    ...     def __torch_function__(cls, func, types, args=(), kwargs=None):
    ...         return "I would rather not"
    >>> total([1, 2]), total([1, Shy()])
    (3, 'I would rather not')

    Args:
        dispatcher: takes the same arguments, with None for every default, and returns those with possible handlers.
        module: its `__module__`; default: that of the function.
        verify: check that the dispatcher takes the same arguments.
        docs_from_dispatcher: take the docstring of the dispatcher.

    Raises:
        SignatureMismatchError: it takes others.
    """

    def decorate(implementation: F) -> F:
        if verify:
            _verify_matching_signatures(implementation, dispatcher)
        if docs_from_dispatcher:
            implementation.__doc__ = inspect.getdoc(dispatcher)
        public = _wrapped(implementation, dispatcher)
        functools.update_wrapper(public, implementation)
        if module is not None:
            public.__module__ = module
        public.__dict__["_implementation"] = implementation
        return cast("F", public)

    return decorate


def _wrapped(implementation: Callable[..., Any], dispatcher: Callable[..., Iterable[object]]) -> Callable[..., Any]:
    def public(*args: Any, **kwargs: Any) -> Any:
        try:
            relevant: Any = dispatcher(*args, **kwargs) if kwargs else dispatcher(*args)
            len(relevant)
        except TypeError:
            return general(args, kwargs)
        if special:
            return call_handlers(public, implementation, relevant, args, kwargs)
        for one in relevant:
            if type(one) is not Tensor:
                return overridden(relevant, args, kwargs)
        return implementation(*args, **kwargs) if kwargs else implementation(*args)

    def general(args: Sequence[object], kwargs: Mapping[str, object]) -> Any:
        """Return the result of a call whose arguments do not fit, or whose dispatcher returns an iterator."""
        try:
            relevant = dispatcher(*args, **kwargs)
        except TypeError as error:
            raise blamed(error, args, kwargs) from None
        try:
            arguments = [*relevant]
        except TypeError:
            name, found = name_of_function(implementation), type(relevant).__name__
            message = (
                f"the dispatcher of {name} has to return the arguments that count, as a tuple or a list, not {found}"
            )
            raise TypeError(message) from None
        return call_handlers(public, implementation, arguments, args, kwargs)

    def overridden(relevant: Iterable[object], args: Sequence[object], kwargs: Mapping[str, object]) -> Any:
        # See Note [One type and tensors]
        kind: type | None = None
        one: Any = None
        tensors = 0
        for each in relevant:
            found = type(each)
            if found is Tensor:
                tensors = tensors or (1 if kind is None else 2)
            elif found is not kind:
                if kind is not None or PLAIN in found.__dict__:
                    return call_handlers(public, implementation, relevant, args, kwargs)
                one, kind = each, found
        handler = getattr(kind, "__torch_function__", None)
        if kind is None or handler is None or handler is disabled or (tensors and issubclass(Tensor, kind)):
            return call_handlers(public, implementation, relevant, args, kwargs)
        if not tensors:
            types: tuple[type, ...] = (kind,)
        else:
            types = (Tensor, kind) if tensors == 1 and not issubclass(kind, Tensor) else (kind, Tensor)
        try:
            handler = one.__torch_function__
            if type(handler) is MethodType and handler.__self__ is one:
                warn_of_plain_method(DeprecationWarning)
            result = handler(public, types, args, kwargs)
        except Exception as error:
            leaving = leaving_handler(error, one, public)
            if leaving is error:
                raise
            raise leaving from None
        if result is NotImplemented:
            raise NoImplementationError(name_of_function(public), [name_of(kind) for kind in types])
        return result

    def blamed(error: TypeError, args: Sequence[object], kwargs: Mapping[str, object]) -> TypeError:
        """Return the error of a wrong call, in the name of the function and not of its dispatcher."""
        try:
            inspect.signature(implementation).bind(*args, **kwargs)
        except TypeError as wrong:
            return TypeError(f"{implementation.__name__}() {wrong}")
        return error

    return public


def _verify_matching_signatures(implementation: Callable[..., Any], dispatcher: Callable[..., Any]) -> None:
    """Check that a dispatcher takes exactly the arguments of its implementation, with None for every default.

    Raises:
        SignatureMismatchError: it does not; the message shows both signatures and the first difference.
    """
    wanted, found = inspect.signature(implementation), inspect.signature(dispatcher)
    difference = _difference(wanted, found)
    if difference:
        message = (
            f"the dispatcher of {name_of_function(implementation)} does not take what the implementation takes: "
            f"{difference}\n  implementation: {wanted}\n  dispatcher:     {found}"
        )
        raise SignatureMismatchError(message)


def _difference(wanted: inspect.Signature, found: inspect.Signature) -> str:
    ours, theirs = [*wanted.parameters.values()], [*found.parameters.values()]
    for one, other in zip(ours, theirs, strict=False):
        if one.name != other.name:
            return f"it has {other.name!r} where {one.name!r} stands"
        if one.kind != other.kind:
            return f"{one.name!r} is {other.kind.description} there and {one.kind.description} here"
        if (one.default is one.empty) != (other.default is other.empty):
            which = "no default" if other.default is other.empty else "a default"
            return f"{one.name!r} has {which} there"
        if other.default is not other.empty and other.default is not None:
            return f"the default of {one.name!r} has to be None there, and is {other.default!r}"
    if len(ours) != len(theirs):
        missing = len(ours) > len(theirs)
        names = [one.name for one in (ours if missing else theirs)[min(len(ours), len(theirs)) :]]
        return f"{', '.join(map(repr, names))} {'missing' if missing else 'too many'}"
    return ""
