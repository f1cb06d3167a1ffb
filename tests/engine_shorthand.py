"""Shorthand for registrations, states and refusals, for the tests of the engine."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dispatchlab.engine.dispatcher import Dispatcher, OverrideWarning
from dispatchlab.engine.state import StateVariable
from dispatchlab.errors import ErrorKind, RegistrationError
from dispatchlab.model.cpp_signature import cpp_signature, is_symint_schema
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import (
    AliasKind,
    Block,
    BlockKind,
    Def,
    Fallback,
    Impl,
    Kernel,
    KernelForm,
    Registration,
)
from dispatchlab.model.schema import FunctionSchema, clone_with_name
from dispatchlab.model.schema_parser import parse_schema

K = DispatchKey
FOO = OperatorName("test", "foo")
BAR = OperatorName("test", "bar")
ALL_SEMANTICS = ("strict", "torch-2.13", "pr35061")

each_semantics = pytest.mark.parametrize("semantics", ALL_SEMANTICS)


def inferred(text: str) -> FunctionSchema:
    """The schema that a kernel's type gives: `(Tensor _0) -> Tensor _0`."""
    return clone_with_name(parse_schema(f"_{text}"), OperatorName("", ""))


def typed(text: str = "(Tensor _0) -> Tensor _0", signature: str | None = None) -> Kernel:
    """An unboxed kernel."""
    schema = inferred(text)
    return Kernel(KernelForm.UNBOXED, schema, signature or cpp_signature(schema), is_symint_schema(schema))


TYPED = typed()
BOXED = Kernel(KernelForm.BOXED)
FALLTHROUGH = Kernel(KernelForm.FALLTHROUGH)


def define(text: str = "test::foo(Tensor x) -> Tensor", debug: str = "", alias: AliasKind | None = None) -> Def:
    """A def."""
    return Def(parse_schema(text), alias, debug=debug)


def impl(key: DispatchKey | None = None, debug: str = "", kernel: Kernel = BOXED, operator: OperatorName = FOO) -> Impl:
    """A kernel."""
    return Impl(operator, key, kernel, debug)


def fallback(key: DispatchKey | None, debug: str = "", kernel: Kernel = BOXED) -> Fallback:
    """A backend fallback."""
    return Fallback(key, kernel, debug)


def block(
    kind: BlockKind,
    *inside: Def | Impl | Fallback,
    namespace: str | None = "test",
    key: DispatchKey | None = None,
    debug: str = "",
) -> Block:
    """A library."""
    return Block(namespace, kind, inside, key, debug)


@contextmanager
def overrides_allowed() -> Iterator[None]:
    """Let kernels override each other without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OverrideWarning)
        yield


def refused(dispatcher: Dispatcher, registration: Registration) -> RegistrationError:
    """The error that a registration is refused with."""
    with pytest.raises(RegistrationError) as caught:
        dispatcher.register(registration)
    return caught.value


def kind_of(dispatcher: Dispatcher, registration: Registration) -> ErrorKind | None:
    """The kind of refusal, None when it is accepted (and then released again)."""
    try:
        dispatcher.register(registration).release()
    except RegistrationError as error:
        return error.kind
    return None


def state(dispatcher: Dispatcher) -> dict[StateVariable, object]:
    """The whole state, as it is now."""
    return dict(dispatcher.state)


def overwrite(dispatcher: Dispatcher, variable: StateVariable, value: object) -> None:
    """Write into the state behind the dispatcher's back."""
    assert isinstance(dispatcher.state, dict)
    dispatcher.state[variable] = value


def rows(dispatcher: Dispatcher, *keys: DispatchKey, operator: OperatorName = FOO) -> dict[str, str]:
    """Rows of the computed table; all when no key is given."""
    table = dict(line.split(": ", 1) for line in dispatcher.dump_table(operator).splitlines())
    return {str(key): table[str(key)] for key in keys if str(key) in table} if keys else table


def slots(dispatcher: Dispatcher, *keys: DispatchKey, operator: OperatorName = FOO) -> dict[str, str]:
    """What calls really use."""
    held = dict(line.split(": ", 1) for line in dispatcher.dump_slots(operator).splitlines())
    return {str(key): held[str(key)] for key in keys if str(key) in held} if keys else held
