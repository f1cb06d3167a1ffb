"""A recorded registry as the registrations that make it: run them on any engine to have the dispatcher again.

The caller passes the engine. A registry contains all fallbacks, so replay it on a dispatcher without fallbacks.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain, groupby
from operator import attrgetter
from typing import TypeVar

from dispatchlab._gc_pause import collector_paused
from dispatchlab.errors import ParseError
from dispatchlab.model.names import OperatorName
from dispatchlab.model.printed_schema import parse_printed, parse_printed_inferred
from dispatchlab.model.registration import Def, Fallback, Impl, Kernel, KernelFlags, KernelForm, Registration
from dispatchlab.model.schema import FunctionSchema
from dispatchlab.registries.model import Recorded, RecordedFallback, RecordedKernel, RecordedOperator

# Note [What a record does not hold]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A dump shows kernels key by key, so of the order in which an operator was put together it only shows, for each key,
# which kernel came after which. Registrations of a record run in the order of the dump, the oldest of each key first,
# behind the def; every order that respects this gives the same dump and the same computed table. Nor does a dump show
# the C++ signatures of kernels: replayed kernels carry none, and an engine that compares signatures has none to
# compare. Boxed kernels have no function behind them.

# Note [Pausing the collector]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A replay makes about two hundred thousand objects, keeps them all, and leaves no cycle behind. The cycle collector
# does not know that and looks at all of them over and over: two thirds of the time of a replay. So it pauses.

Handle = TypeVar("Handle")

_UNNAMED = OperatorName("", "")


def registrations_of(recorded: Recorded) -> Iterator[Registration]:
    """Return every registration of a registry, the fallbacks first. See Note [What a record does not hold].

    The position of a fallback does not matter, but a later fallback changes every existing operator.

    Raises:
        RegistryFileError: the registry is in a file that is damaged.
    """
    yield from map(fallback_registration, recorded.fallbacks)
    yield from chain.from_iterable(map(operator_registrations, recorded))


def operator_registrations(operator: RecordedOperator) -> tuple[Def | Impl, ...]:
    """Return the registrations of one operator: its def if it has one, and its kernels, oldest first."""
    impls = tuple(
        Impl(operator.name, key, kernel_of(kernel), kernel.debug)
        for key, newest_first in groupby(operator.kernels, key=attrgetter("key"))
        for kernel in reversed(list(newest_first))
    )
    if operator.schema is None:
        return impls
    return (
        Def(_or_text(schema_of, operator.name, operator.schema), operator.alias, operator.tags, operator.debug),
        *impls,
    )


def fallback_registration(fallback: RecordedFallback) -> Fallback:
    """Return the registration of one fallback."""
    return Fallback(fallback.key, _FALLTHROUGH if fallback.fallthrough else _BOXED, fallback.debug)


def replay(recorded: Recorded, register: Callable[[Registration], Handle]) -> tuple[Handle, ...]:
    """Run every registration of a registry.

    Args:
        recorded: the registry.
        register: runs a registration, as `Dispatcher.register` and a sandbox do.

    Returns:
        The results of `register`, in the order of the registrations: keep them, because a handle without a reference is
        released. Overridden kernels are in the record, so there is no warning about them.

    Raises:
        RegistrationError: a registration is refused.
    """
    return run(registrations_of(recorded), register)


def run(registrations: Iterable[Registration], register: Callable[[Registration], Handle]) -> tuple[Handle, ...]:
    """Run registrations and keep their results, without the warnings of overrides."""
    with warnings.catch_warnings(), collector_paused():
        warnings.simplefilter("ignore", UserWarning)
        return tuple(map(register, registrations))


# Note [Schemas that print as they were recorded]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A few texts that PyTorch prints are not the canonical text of their schema: alias sets come in the order of a hash
# table (`Tensor(b|a)`), and `PyObject`, the type of opaque Python values, is printed and cannot be parsed. A replayed
# dump is to be that of PyTorch to the character, so such a schema keeps the text beside the values; what is compared
# is the values. A text that nothing reads is a schema that is opaque: it prints as it was recorded, has no arguments,
# and fits every kernel. So one operator that cannot be read costs none of the others, and of itself its arguments only.


@dataclass(frozen=True, slots=True, eq=False)
class RecordedSchema(FunctionSchema):
    """A schema with its text. See Note [Schemas that print as they were recorded]."""

    text: str = ""
    is_opaque: bool = False  # nothing but its text is known

    def __str__(self) -> str:
        return self.text if self.text.startswith(f"{self.name}(") else FunctionSchema.__str__(self)


def schema_of(text: str) -> FunctionSchema:
    """Return the schema of a recorded operator; it prints exactly as recorded.

    Raises:
        ParseError: it cannot be read.
    """
    return _printing(parse_printed(text), text)


def inferred_of(text: str) -> FunctionSchema:
    """Return the inferred schema of a recorded kernel; it has no name and prints exactly as recorded.

    Raises:
        ParseError: it cannot be read.
    """
    return _printing(parse_printed_inferred(text), text)


def _printing(schema: FunctionSchema, text: str) -> FunctionSchema:
    if str(schema) == text:
        return schema
    return RecordedSchema(schema.name, schema.arguments, schema.returns, schema.is_vararg, schema.is_varret, text)


def _or_text(read: Callable[[str], FunctionSchema], name: OperatorName, text: str) -> FunctionSchema:
    try:
        return read(text)
    except ParseError:
        return RecordedSchema(name, (), (), text=text, is_opaque=True)


_inferred = lru_cache(maxsize=1 << 13)(partial(_or_text, inferred_of))


def kernel_of(kernel: RecordedKernel) -> Kernel:
    """Return a recorded kernel that can be registered; its function is not known."""
    match kernel.flags:
        case KernelFlags.FALLTHROUGH:
            return _FALLTHROUGH
        case KernelFlags.BOXED | KernelFlags.UNBOXED if kernel.inferred is not None:
            return _typed(kernel.inferred, symint=kernel.takes_symint)
        case KernelFlags.BOXED:
            return _BOXED
        case KernelFlags.UNBOXED:
            return _UNTYPED


_FALLTHROUGH = Kernel(KernelForm.FALLTHROUGH)
_BOXED = Kernel(KernelForm.BOXED)
_UNTYPED = Kernel(KernelForm.UNBOXED)


@lru_cache(maxsize=1 << 13)
def _typed(inferred: str, *, symint: bool) -> Kernel:
    return Kernel(KernelForm.UNBOXED, _inferred(_UNNAMED, inferred), symint=symint)
