"""The decorator that makes a public function overridable, given a function that names its relevant arguments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

from dispatchlab.call.tensor import Tensor
from dispatchlab.overrides.asking import ask
from dispatchlab.overrides.signatures import verify_matching_signatures
from dispatchlab.overrides.subclass import of_subclass
from dispatchlab.overrides.wrapper_source import wrapper_code

F = TypeVar("F", bound=Callable[..., Any])

_MISSING = object()


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
        if type(relevant) is not tuple and type(relevant) is not list:
            # An iterator was used up by the look for something that is no plain tensor, so it is asked for again.
            relevant = dispatcher(*args, **kwargs)
        return ask(public, implementation, relevant, args, kwargs)

    def general(args: Sequence[object], kwargs: Mapping[str, object]) -> Any:
        try:
            relevant = dispatcher(*args, **kwargs)
        except TypeError as error:
            raise blamed(error, args, kwargs) from None
        for one in relevant:
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
    }
    exec(wrapper_code(inspect.signature(implementation), implementation.__name__), constants)
    public: Callable[..., Any] = constants["public"]
    return public
