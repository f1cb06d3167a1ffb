"""The key Python: a boxed fallback that finds an interpreter and hands the call over to it.

Source: aten/src/ATen/core/PythonFallbackKernel.cpp.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from dispatchlab.call.key_state import ExcludeDispatchKeyGuard, ForceDispatchKeyGuard, excluded, included
from dispatchlab.call.operators import Operator
from dispatchlab.call.tensor_keys import PYTHON_KEYS
from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.engine.kernel_function import boxed
from dispatchlab.engine.library import Library
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.keys import DispatchKey
from dispatchlab.overrides.interpreter import elements, interpreter_of, main

# Note [Handlers run as on entry]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# When a call arrives at the key Python, autograd has been there and has excluded itself for all that follows. What a
# handler calls is not what follows, it is new: a wrapper around a wrapper that requires gradients needs autograd again.
# So the key PythonTLSSnapshot, above autograd, keeps what the thread included and excluded when the call came in, and
# the fallback of Python puts that in force while the handler runs. The first snapshot of a call counts; inside of a
# handler there is none, so that the calls that it makes take their own.

_BELOW_SNAPSHOT = DispatchKeySet.full_after(DispatchKey.PythonTLSSnapshot)


class _Thread(threading.local):
    entry: tuple[DispatchKeySet, DispatchKeySet] | None = None


_thread = _Thread()


class PythonDispatch:
    """The fallbacks of Python and PythonTLSSnapshot, registered with a dispatcher; `with` or `release` ends it.

    Args:
        dispatcher: where.

    Raises:
        RegistrationError: it has fallbacks at these keys already.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._library = Library("_", "IMPL", dispatcher=dispatcher)
        try:
            self._library.fallback(boxed(snapshot_fallback, with_keyset=True), DispatchKey.PythonTLSSnapshot)
            self._library.fallback(boxed(python_fallback, with_keyset=True), DispatchKey.Python)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Take the fallbacks out again; a second time is harmless."""
        self._library.release()

    def __enter__(self) -> PythonDispatch:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


def python_fallback(operator: Operator, keys: DispatchKeySet, stack: list[object]) -> None:
    """Hand the call to the interpreter of the first argument that has one; to the main one, when only modes want it."""
    values = stack[len(stack) - len(operator.schema.arguments) :]
    found = (interpreter_of(type(one)) for one in elements(values))
    interpreter = next((one for one in found if one is not None), main)
    with _as_on_entry():
        interpreter.dispatch(operator, keys, stack)


def snapshot_fallback(operator: Operator, keys: DispatchKeySet, stack: list[object]) -> None:
    """Keep the state of the thread for the handler; see Note [Handlers run as on entry]."""
    found = _thread.entry
    _thread.entry = found or (included(), excluded())
    try:
        operator.redispatch_boxed(keys & _BELOW_SNAPSHOT, stack)
    finally:
        _thread.entry = found


@contextmanager
def _as_on_entry() -> Iterator[None]:
    found, _thread.entry = _thread.entry, None
    try:
        if found is None:
            yield
        else:
            with ForceDispatchKeyGuard(*found):
                yield
    finally:
        _thread.entry = found


def no_dispatch() -> ExcludeDispatchKeyGuard:
    """A guard inside of which no handler is asked: tensors count as what they are below the key Python."""
    return ExcludeDispatchKeyGuard(PYTHON_KEYS)
