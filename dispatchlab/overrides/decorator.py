"""The decorator that makes a public function overridable, given a function that names its relevant arguments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

from dispatchlab.call.handlers import disabled
from dispatchlab.call.tensor import Tensor
from dispatchlab.overrides.asking import ask, told_of
from dispatchlab.overrides.errors import NoImplementationError, name_of, name_of_function
from dispatchlab.overrides.signatures import verify_matching_signatures
from dispatchlab.overrides.subclass import of_subclass
from dispatchlab.overrides.switch import off
from dispatchlab.overrides.wrapper_source import wrapper_code

F = TypeVar("F", bound=Callable[..., Any])

_MISSING = object()

# Note [One type and tensors]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~
# Nearly every call that is overridden has arguments of one type with a handler, and perhaps plain tensors. The default
# handler of tensors declines then, so only the one is asked, and no order has to be found: this takes half the time.
# Two such types, a type that tensors derive from, a switch that is off somewhere, and an iterator go the general way.


def torch_function_dispatch(
    dispatcher: Callable[..., Iterable[object]],
    *,
    module: str | None = None,
    verify: bool = True,
    docs_from_dispatcher: bool = False,
) -> Callable[[F], F]:
    """Make a function overridable.

    What comes out is called as the function is. It has its name, docstring, signature and module, and the function
    itself as `_implementation`. Tensors go straight to the implementation; everything else with a
    `__torch_function__` is asked first, in the order of `collect.collected`.

    Args:
        dispatcher: takes the same arguments, with None for every default, and returns those whose handlers count.
        module: what `__module__` says; that of the function when left out.
        verify: check that the dispatcher takes the same arguments.
        docs_from_dispatcher: take the docstring of the dispatcher.

    Raises:
        SignatureMismatchError: it takes others.
    """

    def decorate(implementation: F) -> F:
        if verify:
            verify_matching_signatures(implementation, dispatcher)
        if docs_from_dispatcher:
            implementation.__doc__ = inspect.getdoc(dispatcher)
        public = _wrapped(implementation, dispatcher)
        functools.update_wrapper(public, implementation)
        if module is not None:
            public.__module__ = module
        public.__dict__["_implementation"] = implementation
        public.__dict__["_of_subclass"] = functools.partial(of_subclass, implementation)
        return cast("F", public)

    return decorate


def _wrapped(implementation: Callable[..., Any], dispatcher: Callable[..., Iterable[object]]) -> Callable[..., Any]:
    def asked(relevant: Iterable[object], args: Sequence[object], kwargs: Mapping[str, object]) -> Any:
        # See Note [One type and tensors]
        if type(relevant) is not tuple and type(relevant) is not list:
            # An iterator was used up by the look for something that is no plain tensor, so it is asked for again.
            relevant = dispatcher(*args, **kwargs)
            return ask(public, implementation, relevant, args, kwargs)
        kind: type | None = None
        one: Any = None
        tensors = 0
        for each in relevant:
            found = type(each)
            if found is Tensor:
                tensors = tensors or (1 if kind is None else 2)
            elif found is not kind:
                if kind is not None:
                    return ask(public, implementation, relevant, args, kwargs)
                one, kind = each, found
        handler = getattr(kind, "__torch_function__", None)
        if kind is None or handler is None or handler is disabled or off or (tensors and issubclass(Tensor, kind)):
            return ask(public, implementation, relevant, args, kwargs)
        if not tensors:
            types: tuple[type, ...] = (kind,)
        else:
            types = (Tensor, kind) if tensors == 1 and not issubclass(kind, Tensor) else (kind, Tensor)
        try:
            result = one.__torch_function__(public, types, args, kwargs)
        except Exception as error:
            told = told_of(error, one, public)
            if told is error:
                raise
            raise told from None
        if result is NotImplemented:
            raise NoImplementationError(name_of_function(public), [name_of(kind) for kind in types])
        return result

    def general(args: Sequence[object], kwargs: Mapping[str, object]) -> Any:
        try:
            relevant = dispatcher(*args, **kwargs)
        except TypeError as error:
            raise blamed(error, args, kwargs) from None
        try:
            arguments = iter(relevant)
        except TypeError:
            name, found = name_of_function(implementation), type(relevant).__name__
            message = (
                f"the dispatcher of {name} has to return the arguments that count, as a tuple or a list, not {found}"
            )
            raise TypeError(message) from None
        for one in arguments:
            if type(one) is not Tensor:
                return asked(relevant, args, kwargs)
        return implementation(*args, **kwargs)

    def blamed(error: TypeError, args: Sequence[object], kwargs: Mapping[str, object]) -> TypeError:
        """The error of a wrong call, in the name of the function and not of its dispatcher."""
        try:
            inspect.signature(implementation).bind(*args, **kwargs)
        except TypeError as wrong:
            return TypeError(f"{implementation.__name__}() {wrong}")
        return error

    constants: dict[str, Any] = {
        "_M": _MISSING,
        "_T": Tensor,
        "_relevant": dispatcher,
        "_implementation": implementation,
        "_asked": asked,
        "_general": general,
        "_len": len,
        "_map": map,
        "_type": type,
    }
    exec(wrapper_code(inspect.signature(implementation), implementation.__name__), constants)
    public: Callable[..., Any] = constants["public"]
    return public
