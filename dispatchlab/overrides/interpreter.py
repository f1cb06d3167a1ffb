"""An interpreter: who owns Python classes, and asks their handlers when a call comes to the key Python.

The dispatcher knows only that a tensor has an interpreter; see `python_key` for the half that finds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from dispatchlab.call.handlers import DISPATCH, has_handler
from dispatchlab.call.key_state import ForceDispatchKeyGuard, excluded, included
from dispatchlab.call.operators import Operator
from dispatchlab.call.signature import NotReturnableError
from dispatchlab.call.tensor_keys import PYTHON_KEYS
from dispatchlab.call.wrapped_numbers import unwrapped_number
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.keys import DispatchKey
from dispatchlab.overrides.collect import collected
from dispatchlab.overrides.defaults import without_defaults
from dispatchlab.overrides.errors import HandlerError, NoImplementationError, name_of, passing
from dispatchlab.overrides.modes import innermost_set_aside, modes

K = TypeVar("K", bound=type)
_BELOW = DispatchKeySet.full_after(DispatchKey.Python)
_owners: WeakKeyDictionary[type, Interpreter] = WeakKeyDictionary()


class Interpreter:
    """One interpreter; what it owns, no other one asks.

    Args:
        name: for messages.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def own(self, kind: K) -> K:
        """Take a class over, and all that derive from it and are not taken by another one; a decorator."""
        _owners[kind] = self
        return kind

    def dispatch(self, operator: Operator, keys: DispatchKeySet, stack: list[object]) -> None:
        """Answer a call by its handlers: the innermost mode, then the arguments whose classes are owned here.

        Args:
            operator: what was called.
            keys: the key set of the call.
            stack: the arguments at its end, which give way to the returns.

        Raises:
            NoImplementationError: every handler returned NotImplemented.
            HandlerError: a handler returned what the operator cannot return.
        """
        count = len(operator.schema.arguments)
        start = len(stack) - count
        values = stack[start:]
        asked = [one for one in collected(elements(values), DISPATCH) if interpreter_of(type(one)) is self]
        if not asked and not modes():
            with ForceDispatchKeyGuard(included() - PYTHON_KEYS, excluded()):
                operator.redispatch_boxed(keys & _BELOW, stack)
            return
        types = tuple(map(type, asked))
        args, kwargs = without_defaults(operator.schema, [*map(unwrapped_number, values)])
        tried: list[str] = []
        if modes():
            with innermost_set_aside() as mode, _without_python_unless_modes():
                tried.append(name_of(type(mode)))
                result = self._asked(mode, operator, types, args, kwargs)
            if result is not NotImplemented:
                stack[start:] = _returns(operator, values, result, mode)
                return
        for one in asked:
            tried.append(name_of(type(one)))
            result = self._asked(one, operator, types, args, kwargs)
            if result is not NotImplemented:
                stack[start:] = _returns(operator, values, result, one)
                return
        raise NoImplementationError(str(operator.name), tried, DISPATCH)

    @staticmethod
    def _asked(one: Any, operator: Operator, types: Sequence[type], args: object, kwargs: object) -> Any:
        try:
            return one.__torch_dispatch__(operator, types, args, kwargs)
        except Exception as error:
            told = passing(error, _handler(one, operator))
            if told is error:
                raise
            raise told from None

    def __repr__(self) -> str:
        return f"<Interpreter {self.name}>"


main = Interpreter("main")
"""Who owns every class that nobody else has taken."""


def interpreter_of(kind: type) -> Interpreter | None:
    """The interpreter of a class; None for one without a `__torch_dispatch__`."""
    if not has_handler(kind, DISPATCH):
        return None
    return next((_owners[one] for one in kind.__mro__ if one in _owners), main)


def elements(values: Sequence[object]) -> list[object]:
    """All arguments, those in lists and tuples among them."""
    found: list[object] = []
    for value in values:
        if isinstance(value, list | tuple):
            found += elements(value)
        else:
            found.append(value)
    return found


def _handler(one: object, operator: Operator) -> str:
    return f"{DISPATCH} of {name_of(type(one))} for {operator.name}"


def _without_python_unless_modes() -> AbstractContextManager[object]:
    if modes():
        return nullcontext()
    return ForceDispatchKeyGuard(included() - PYTHON_KEYS, excluded())


def _returns(operator: Operator, values: Sequence[object], result: object, one: object) -> tuple[object, ...]:
    try:
        return operator.table.signature.returns(values, result)
    except NotReturnableError as error:
        message = f"a handler of {operator.name} {error}\n  {operator.schema}"
        raise HandlerError(message, (_handler(one, operator),)) from None
