"""Errors of overrides: no handler takes a call, signatures differ, a handler is wrong; with the chain of handlers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dispatchlab.errors import DispatchLabError

_SHOWN = 6


class OverrideError(DispatchLabError):
    """An override went wrong.

    Attributes:
        message: the problem, the expectation, and what to do.
        chain: the handlers that were running, outermost first.
    """

    message: str
    chain: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.message}\n  {chain_text(self.chain)}" if self.chain else self.message


class NoImplementationError(OverrideError, TypeError):
    """Every handler returned NotImplemented.

    Args:
        function: the public function, or the operator.
        tried: the types whose handlers were called, in that order.
    """

    def __init__(self, function: str, tried: Sequence[str], protocol: str = "__torch_function__") -> None:
        message = (
            f"no implementation found for {function!r} on types that implement {protocol}: [{', '.join(tried)}]; "
            "each returned NotImplemented: one of them has to handle this call"
        )
        super().__init__(message)
        self.function = function
        self.tried = tuple(tried)


class SignatureMismatchError(OverrideError, TypeError):
    """The dispatcher of a function takes other arguments than its implementation."""


class MissingHandlerError(OverrideError, TypeError):
    """A wrapper subclass has no `__torch_dispatch__`."""


class HandlerError(OverrideError):
    """A handler returned a value that the operator cannot return, or cannot be a handler."""


class HandlerRecursionError(OverrideError, RecursionError):
    """A handler called itself until Python's recursion limit."""


def chain_text(chain: Sequence[str]) -> str:
    """Return `handlers: A for add > B for mul`; of a long chain the beginning and the end."""
    shown = [*chain]
    if len(shown) > 2 * _SHOWN:
        shown = [*shown[:_SHOWN], f"... {len(shown) - 2 * _SHOWN} more ...", *shown[-_SHOWN:]]
    return f"handlers: {' > '.join(shown)}"


_PREFIX = "handlers: "


def with_handler(error: BaseException, handler: str) -> BaseException:
    """Return the error that leaves a handler: the same error, with the handler at the beginning of its chain.

    A RecursionError becomes a `HandlerRecursionError`, which says what to do.
    """
    if isinstance(error, HandlerRecursionError):
        error.chain = (handler, *error.chain) if len(error.chain) < 2 * _SHOWN else error.chain
        return error
    if isinstance(error, RecursionError):
        message = (
            "a handler calls back into itself without a guard: call the function with overrides switched off, "
            "or on the tensors that it wraps"
        )
        return HandlerRecursionError(message, (handler,))
    if isinstance(error, OverrideError):
        error.chain = (handler, *error.chain)
        return error
    notes: list[str] = getattr(error, "__notes__", [])
    for at, note in enumerate(notes):
        if note.startswith(_PREFIX):
            notes[at] = f"{_PREFIX}{handler} > {note.removeprefix(_PREFIX)}"
            return error
    error.add_note(f"{_PREFIX}{handler}")
    return error


def not_innermost(mode: object, innermost: object) -> OverrideError:
    """Return the error of leaving a mode that is not the innermost one."""
    what = "no mode is open in this thread" if innermost is None else f"{name_of(type(innermost))} is inside of it"
    return OverrideError(
        f"the mode {name_of(type(mode))} cannot be left here: {what}; leave modes in the reverse order"
    )


def name_of(kind: type) -> str:
    """Return a class as messages name it."""
    return f"{kind.__module__}.{kind.__qualname__}"


def name_of_function(function: Callable[..., object]) -> str:
    """Return a function as messages name it."""
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None) or repr(function)
    return f"{module}.{name}" if module else str(name)
