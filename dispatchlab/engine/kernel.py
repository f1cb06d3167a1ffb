"""Kernels: functions wrapped as kernels, registered kernels, and entries of the dispatch table.

The wrappers are those of PR #35061 and of torch/library.h: a plain function is a kernel without a schema of its own
that takes the arguments, as it is to `torch.library`; `boxed` takes them on a stack; `unboxed` has the schema that its
annotations say; `dispatch` ties a kernel to a key. A `RegisteredKernel` is one registration, a `TableEntry` is what a
slot of a dispatch table holds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

from dispatchlab._short_repr import short_repr
from dispatchlab.errors import ErrorKind, NotCallableError, RegistrationError, did_you_mean
from dispatchlab.model.cpp_signature import cpp_signature, is_symint_schema
from dispatchlab.model.dump_format import AMBIGUOUS_DEBUG, Provenance, entry_text
from dispatchlab.model.keys import BACKENDS, DispatchKey, UnknownKeyError, parse_key
from dispatchlab.model.registration import AliasKind, BlockKind, Kernel, KernelForm, SourceLocation

PythonFunction: TypeAlias = Callable[..., object]


@dataclass(frozen=True, slots=True)
class KernelFunction:
    """A kernel, the key for it, and its source.

    Args:
        kernel: the kernel.
        key: its key; None if the registration names the key, or for no key.
        debug_text: its text in dumps; empty if the registration has the text.
    """

    kernel: Kernel
    key: DispatchKey | None = None
    debug_text: str = ""

    __repr__ = short_repr

    def debug(self, text: str) -> KernelFunction:
        """Return the same kernel with a debug text."""
        return replace(self, debug_text=text)


KernelLike: TypeAlias = KernelFunction | PythonFunction

fallthrough = KernelFunction(Kernel(KernelForm.FALLTHROUGH))
"""A kernel that calls skip: they go on to the next key of their set."""


def boxed(function: PythonFunction, *, with_keyset: bool = False) -> KernelFunction:
    """Return a kernel for the arguments of any operator; it has no schema.

    >>> from dispatchlab import boxed
    >>> boxed(lambda operator, stack: stack.reverse()).kernel.takes_stack
    True

    Args:
        function: called with the operator and a stack; it pops the arguments and pushes the returns.
        with_keyset: whether the kernel also gets the key set of the call, between the two.
    """
    return KernelFunction(Kernel(KernelForm.BOXED, function=function, takes_stack=True, with_keyset=with_keyset))


def unboxed(function: PythonFunction) -> KernelFunction:
    """Return a kernel with the schema of the function's annotations, without a first `DispatchKeySet`.

    >>> from dispatchlab import Tensor, unboxed
    >>> def repeat(x: Tensor, times: int) -> Tensor:
    ...     return x
    >>> str(unboxed(repeat).kernel.inferred)
    '(Tensor _0, int _1) -> Tensor _0'

    Raises:
        RegistrationError: of kind `cannot_infer_schema`, naming the parameter without a usable annotation.
    """
    from dispatchlab.model.infer_schema import infer_schema, takes_key_set

    inferred = infer_schema(function)
    signature, symint = cpp_signature(inferred), is_symint_schema(inferred)
    with_keyset = takes_key_set(function)
    return KernelFunction(Kernel(KernelForm.UNBOXED, inferred, signature, symint, function, with_keyset=with_keyset))


def dispatch(key: DispatchKey | str, function: KernelLike) -> KernelFunction:
    """Return a kernel for one key; a device type such as `cuda` means the key of its backend.

    >>> from dispatchlab import dispatch, fallthrough
    >>> dispatch("cuda", fallthrough).key
    DispatchKey.CUDA

    Raises:
        RegistrationError: of kind `unknown_key`.
    """
    devices = {name.lower(): DispatchKey[name] for name in BACKENDS}
    found = devices[key] if isinstance(key, str) and key in devices else key_named(key)
    return replace(kernel_function(function), key=found)


def dispatch_autograd(function: KernelLike) -> KernelFunction:
    """Return a kernel for the autograd keys of all backends.

    >>> from dispatchlab import dispatch_autograd, fallthrough
    >>> dispatch_autograd(fallthrough).key
    DispatchKey.Autograd
    """
    return dispatch(DispatchKey.Autograd, function)


def kernel_function(function: object, *, with_keyset: bool = False) -> KernelFunction:
    """Wrap a callable as a `KernelFunction`.

    Args:
        function: a callable, or a kernel that is wrapped already.
        with_keyset: whether a plain function takes the key set of the call first; a wrapped kernel knows this itself.

    Raises:
        NotCallableError: it cannot be called; a TypeError, too.
    """
    if isinstance(function, KernelFunction):
        return function
    if not callable(function):
        message = f"a kernel is a function, and this is {function!r}: pass something that can be called, or fallthrough"
        raise NotCallableError(ErrorKind.OTHER, message, {"kernel": type(function).__name__})
    return KernelFunction(Kernel(KernelForm.BOXED, function=function, with_keyset=with_keyset))


class RegisteredKernel:
    """One registration of a kernel, equal only to itself: two registrations of the same kernel are two entries.

    Args:
        kernel: the kernel.
        debug: its debug text, as dumps print it.
        key: the key that it is registered at; None in the catch-all bucket of `pr35061`.
        location: the call site, when it is known.
    """

    __slots__ = ("_entries", "debug", "kernel", "key", "location")

    def __init__(
        self, kernel: Kernel, debug: str, key: DispatchKey | None, location: SourceLocation | None = None
    ) -> None:
        self.kernel = kernel
        self.debug = debug
        self.key = key
        self.location = location
        self._entries: dict[Provenance, TableEntry] = {}

    def __repr__(self) -> str:
        return f"RegisteredKernel({self.key}, {self.debug!r})"

    def because(self, reason: Provenance) -> TableEntry:
        """Return this kernel in a slot, for `reason`; always the same value for the same reason."""
        held = self._entries.get(reason)
        if held is None:
            held = self._entries[reason] = TableEntry(self, reason)
        return held


class TableEntry:
    """The entry of a slot: a kernel and its reason. Equal only to itself, see `RegisteredKernel.because`."""

    __slots__ = ("_text", "reason", "registered")

    def __init__(self, registered: RegisteredKernel, reason: Provenance) -> None:
        self.registered = registered
        self.reason = reason
        self._text: str | None = None

    def __repr__(self) -> str:
        return f"TableEntry({self.text!r})"

    @property
    def text(self) -> str:
        """The row of a table without its key: `fallthrough fn_cpu [kernel]`."""
        text = self._text
        if text is None:
            kernel = self.registered.kernel
            text = self._text = entry_text(self.registered.debug, self.reason, fallthrough=kernel.is_fallthrough)
        return text


AMBIGUOUS = RegisteredKernel(Kernel(), AMBIGUOUS_DEBUG, DispatchKey.AutogradOther).because(Provenance.AMBIGUOUS)
"""What AutogradOther holds when both a composite kernel and a kernel of one of its backends could be meant."""


def key_named(text: DispatchKey | str) -> DispatchKey | None:
    """Return a key by its name; empty text means "no key".

    Raises:
        RegistrationError: of kind `unknown_key`, with the nearest name.
    """
    if isinstance(text, DispatchKey):
        return text
    if not text:
        return None
    try:
        return parse_key(text)
    except UnknownKeyError as error:
        raise RegistrationError(ErrorKind.UNKNOWN_KEY, str(error), {"key": text}) from None


E = TypeVar("E", AliasKind, BlockKind)


def choice(text: str, choices: tuple[E, ...], *, kind: ErrorKind, what: str) -> E:
    """Return the choice of this name, or raise a refusal of `kind` that lists all names."""
    for one in choices:
        if one == text:
            return one
    known = [str(one) for one in choices]
    message = f"{text!r} is not a valid {what}: expected one of {', '.join(known)}{did_you_mean(text, known)}"
    raise RegistrationError(kind, message, {"text": text})


def call_site() -> SourceLocation:
    """Return the source location of this package's caller: the innermost frame outside the package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_PACKAGE):
        frame = frame.f_back
    return SourceLocation(frame.f_code.co_filename, frame.f_lineno)


_PACKAGE = __name__.partition(".")[0] + "."
