"""The key Python: its fallback hands a call to an interpreter, which calls handlers without default arguments.

A handler that is older than an argument with a default does not see the argument until it is used. The
dispatcher knows only that a tensor has an interpreter, which owns the class of the tensor.
Source: aten/src/ATen/core/PythonFallbackKernel.cpp.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any, Self, TypeVar
from weakref import WeakKeyDictionary

from dispatchlab.call.call_signature import CallSignature, NotReturnableError
from dispatchlab.call.local_key_set import ExcludeDispatchKeyGuard, ForceDispatchKeyGuard, excluded, included
from dispatchlab.call.operators import Operator
from dispatchlab.call.tensor import Tensor, unwrapped_number
from dispatchlab.call.tensor_keys import PYTHON_KEYS
from dispatchlab.call.torch_handlers import DISPATCH, has_handler
from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.engine.kernel import boxed
from dispatchlab.engine.library import Library
from dispatchlab.errors import CallError, ErrorKind
from dispatchlab.lab.overrides.errors import HandlerError, NoImplementationError, OverrideError, name_of, with_handler
from dispatchlab.lab.overrides.handlers import check_is_method, overloaded_args
from dispatchlab.lab.overrides.modes import modes, pop_mode_temporarily
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.schema import FunctionSchema


@lru_cache(maxsize=4096)
def _signature(schema: FunctionSchema) -> CallSignature:
    return CallSignature(schema)


def without_defaults(schema: FunctionSchema, values: Sequence[object]) -> tuple[tuple[object, ...], dict[str, object]]:
    """Return the positional and the keyword arguments of a call, without arguments that equal their default.

    Only the last positional arguments are left out, because the others keep the positions; of keywords, any may be.

    >>> from dispatchlab import parse_schema
    >>> from dispatchlab.lab.overrides import without_defaults
    >>> without_defaults(parse_schema("test::foo(int n, int step=1) -> int"), (3, 1))
    ((3,), {})

    Args:
        schema: the operator's.
        values: a value for each argument.
    """
    positional, named = _signature(schema).as_python_call(values)
    return tuple(positional), named


def normalize(
    schema: FunctionSchema, args: Sequence[object], kwargs: Mapping[str, object] | None = None
) -> tuple[tuple[object, ...], dict[str, object]]:
    """Return every argument of an incomplete call, defaults filled in, as the operator can be called with them.

    Keyword-only arguments are passed by name, all others by position.

    >>> from dispatchlab import parse_schema
    >>> from dispatchlab.lab.overrides import normalize
    >>> normalize(parse_schema("test::foo(int n, int step=1, *, int times=1) -> int"), (3,))
    ((3, 1), {'times': 1})

    Args:
        schema: the operator's.
        args: positional arguments.
        kwargs: arguments by name.

    Raises:
        CallError: an argument without a default is missing, there are too many arguments, or a type is wrong.
    """
    values = _signature(schema).bind(args, kwargs or {})
    named = {one.name: value for one, value in zip(schema.arguments, values, strict=True) if one.kwarg_only}
    return tuple(values[: len(values) - len(named)]), named


K = TypeVar("K", bound=type)
_BELOW = DispatchKeySet.full_after(DispatchKey.Python)
_ABOVE = DispatchKeySet.full() - _BELOW.add(DispatchKey.Python)
_BELOW_SNAPSHOT = DispatchKeySet.full_after(DispatchKey.PythonTLSSnapshot)
_owners: WeakKeyDictionary[type, Interpreter] = WeakKeyDictionary()


class PythonDispatch:
    """The fallbacks of Python and PythonTLSSnapshot, registered with a dispatcher; `with` or `release` ends it.

    A dispatcher with the builtin fallbacks already calls handlers; then this does nothing.

    Args:
        dispatcher: where.

    Raises:
        RegistrationError: it has fallbacks at these keys already.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._library = Library("_", "IMPL", dispatcher=dispatcher)
        try:
            if not dispatcher.builtin_fallbacks:
                self._library.fallback(boxed(snapshot_fallback, with_keyset=True), DispatchKey.PythonTLSSnapshot)
                self._library.fallback(boxed(python_fallback, with_keyset=True), DispatchKey.Python)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Take the fallbacks out again; a second time is harmless."""
        self._library.release()

    def __repr__(self) -> str:
        return f"<PythonDispatch {self._library!r}>"

    def __enter__(self) -> PythonDispatch:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


def no_dispatch() -> ExcludeDispatchKeyGuard:
    """Return a guard that turns handlers off: calls continue below the key Python."""
    return ExcludeDispatchKeyGuard(PYTHON_KEYS)


class Interpreter:
    """An interpreter, which calls only the handlers of its own classes.

    Args:
        name: for messages.
        keywords: give arguments without their defaults, and by name where they have to be; otherwise all of them by
            position, as the first version of `__torch_dispatch__` did.
    """

    def __init__(self, name: str, *, keywords: bool = True) -> None:
        self.name = name
        self._keywords = keywords

    def own(self, kind: K) -> K:
        """Take a class over, and all its subclasses that no other interpreter has taken; a decorator."""
        _owners[kind] = self
        return kind

    def dispatch(self, operator: Operator, keys: DispatchKeySet, stack: list[object]) -> None:
        """Handle a call: ask the innermost mode, then the arguments of classes with handlers.

        Args:
            operator: the called operator.
            keys: the key set of the call.
            stack: the arguments at its end; the returns replace them.

        Raises:
            NoImplementationError: every handler returned NotImplemented.
            HandlerError: a handler returned a value that the operator cannot return.
        """
        count = len(operator.schema.arguments)
        start = len(stack) - count
        values = stack[start:]
        overloaded = [one for one in overloaded_args(elements(values), DISPATCH) if interpreter_of(type(one)) is self]
        if not overloaded and not modes():
            with ForceDispatchKeyGuard(included() - PYTHON_KEYS, excluded()):
                operator.redispatch_boxed(keys & _BELOW, stack)
            return
        types = tuple(map(type, overloaded))
        args: tuple[object, ...] = tuple(map(unwrapped_number, values))
        kwargs: dict[str, object] = {}
        if self._keywords:
            args, kwargs = without_defaults(operator.schema, args)
        tried: list[str] = []
        if modes():
            with pop_mode_temporarily() as mode, _without_python_unless_modes():
                check_is_method(mode, DISPATCH)
                tried.append(name_of(type(mode)))
                result = self._call_handler(mode, operator, types, args, kwargs)
            if result is not NotImplemented:
                stack[start:] = _returns(operator, values, result, mode)
                return
        for one in overloaded:
            tried.append(name_of(type(one)))
            result = self._call_handler(one, operator, types, args, kwargs)
            if result is not NotImplemented:
                stack[start:] = _returns(operator, values, result, one)
                return
        raise NoImplementationError(str(operator.name), tried, DISPATCH)

    def detach(self, operator: Operator, tensor: Tensor) -> Tensor:
        """Return the result of handlers for a `detach` that autograd makes itself.

        Args:
            operator: `aten::detach`.
            tensor: the tensor to detach.

        Raises:
            NoImplementationError: every handler returned NotImplemented.
            HandlerError: a handler returned no tensor.
        """
        stack: list[object] = [tensor]
        self.dispatch(operator, DispatchKeySet(), stack)
        (copied,) = stack
        assert isinstance(copied, Tensor)
        return copied

    @staticmethod
    def _call_handler(one: Any, operator: Operator, types: Sequence[type], args: object, kwargs: object) -> Any:
        try:
            return one.__torch_dispatch__(operator, types, args, kwargs)
        except Exception as error:
            leaving = with_handler(error, _handler(one, operator))
            if leaving is error:
                raise
            raise leaving from None

    def __repr__(self) -> str:
        return f"<Interpreter {self.name}>"


main = Interpreter("main")
"""The owner of every class that no other interpreter has taken."""


def interpreter_of(kind: type) -> Interpreter | None:
    """Return the interpreter of a class; None for a class without a `__torch_dispatch__`."""
    if not has_handler(kind, DISPATCH):
        return None
    return next((_owners[one] for one in kind.__mro__ if one in _owners), main)


def elements(values: Sequence[object]) -> list[object]:
    """Return all arguments, also those in lists and tuples."""
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


# Note [Handlers run below autograd]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# When a call arrives at the key Python, the keys above have had their turn, and what a handler calls is part of that
# call: the fallback of Python excludes them all while the handler runs, autograd, batching and autocast among them. So
# a handler that calls an operator with a leaf gets a tensor without history. A handler whose wrapper has a tensor that
# needs these keys once more enters `enable_reentrant_dispatch`. For that, the key PythonTLSSnapshot, above autograd,
# keeps what the thread included and excluded when the call came in. The first snapshot counts: inside of a handler the
# key is excluded, and inside of the guard calls take their own.


class _Thread(threading.local):
    entry: tuple[DispatchKeySet, DispatchKeySet] | None = None


_thread = _Thread()


def python_fallback(operator: Operator, keys: DispatchKeySet, stack: list[object]) -> None:
    """Pass the call to the interpreter of the first argument that has one; to the main one if only modes are open.

    Raises:
        CallError: no argument is a tensor, and no mode is active.
    """
    values = stack[len(stack) - len(operator.schema.arguments) :]
    if not modes() and not any(isinstance(one, Tensor) for one in elements(values)):
        message = f"a call of {operator.name} came to the key Python, and no argument is a tensor that could answer it"
        facts = {"operator": str(operator.name), "schema": str(operator.schema), "key": str(DispatchKey.Python)}
        raise CallError(ErrorKind.OTHER, message, facts)
    found = (interpreter_of(type(one)) for one in elements(values))
    interpreter = next((one for one in found if one is not None), main)
    with ExcludeDispatchKeyGuard(_ABOVE):
        interpreter.dispatch(operator, keys, stack)


def detach_by_handlers(operator: Operator, tensor: Tensor) -> Tensor | None:
    """Return a tensor that autograd keeps, copied by the handlers; None when there is none.

    They are called where autograd is, not below it.

    Args:
        operator: `aten::detach`.
        tensor: the tensor to copy.
    """
    interpreter = interpreter_of(type(tensor))
    if interpreter is None and not modes():
        return None
    with _Entry():
        return (interpreter or main).detach(operator, tensor)


def snapshot_fallback(operator: Operator, keys: DispatchKeySet, stack: list[object]) -> None:
    """Keep the state of the thread for the handler; see Note [Handlers run below autograd]."""
    with _Entry():
        operator.redispatch_boxed(keys & _BELOW_SNAPSHOT, stack)


class _Entry:
    """A block that keeps the thread's key sets for its handlers, unless they are kept already."""

    def __enter__(self) -> None:
        self._found = _thread.entry
        _thread.entry = self._found or (included(), excluded())

    def __exit__(self, *error: object) -> None:
        _thread.entry = self._found


class enable_reentrant_dispatch(ForceDispatchKeyGuard):
    """A block inside `__torch_dispatch__` in which calls begin at the top again: autograd, batching and all.

    >>> from dispatchlab import Lab, tensor
    >>> from dispatchlab.lab.overrides import DispatchMode, PythonDispatch, enable_reentrant_dispatch
    >>> class Twice(DispatchMode):
    ...     def __torch_dispatch__(self, func, types, args=(), kwargs=None):
    ...         print(func(*args).requires_grad)
    ...         with enable_reentrant_dispatch():
    ...             return func(*args)
    >>> lab = Lab()
    >>> with PythonDispatch(lab.dispatcher), Twice():
    ...     lab.neg(tensor([1.0], requires_grad=True)).requires_grad
    False
    True

    Raises:
        OverrideError: no handler runs in this thread.
    """

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        found = _thread.entry
        if found is None:
            raise OverrideError("enable_reentrant_dispatch() is for the body of a __torch_dispatch__: none runs here")
        super().__init__(*found)
        self._kept: list[tuple[DispatchKeySet, DispatchKeySet] | None] = []

    def __enter__(self) -> Self:
        super().__enter__()
        self._kept.append(_thread.entry)
        _thread.entry = None
        return self

    def __exit__(self, *error: object) -> None:
        _thread.entry = self._kept.pop()
        super().__exit__(*error)
