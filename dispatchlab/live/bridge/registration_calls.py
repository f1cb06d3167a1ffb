"""Registration calls: turn a registration into calls on PyTorch's bindings, which can be made many times.

`CallBuilder.calls_of` checks a registration and builds its calls; `BindingCall.make` makes a call. If the bindings
cannot express a registration, `calls_of` raises `NotExpressibleError` before any call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeAlias

from dispatchlab.errors import ErrorKind, RegistrationError
from dispatchlab.live.bridge.call_mark import CallMark
from dispatchlab.live.bridge.expressible import (
    NotExpressibleError,
    check_def,
    check_fallback,
    check_inferred_def,
    check_unboxed_impl,
    function_of,
    has_fallbacks,
    tags_of,
)
from dispatchlab.live.bridge.running_keys import running_keys
from dispatchlab.live.bridge.torch import bindings
from dispatchlab.live.bridge.torch_library_calls import torch_library_call
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import (
    Block,
    BlockKind,
    Claim,
    Def,
    Fallback,
    Impl,
    Kernel,
    KernelForm,
    NameOnly,
    Registration,
    TorchLibraryCall,
    kernel_text,
)
from dispatchlab.model.schema import FunctionSchema, clone_with_name, source_text

# Note [One number for each call]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# Debug texts belong to the user: two kernels may have the same one, or none, and the bindings only let a library name
# a file and a line. So every call has a number here and its library says `registered at {mark}:{number}`; whoever shows
# a text puts the user's debug text back. A block becomes one library for each of its calls for the same reason; they
# are released in the order in which they were made, as one library does it.


class Library(Protocol):
    """The object that keeps the registrations of a call in force."""

    def reset(self) -> None:
        """Release the registration."""


MakeCall: TypeAlias = Callable[[], Library]
"""Makes a call; a refusal is a `RuntimeError` of PyTorch, or a `RegistrationError`."""


@dataclass(frozen=True, slots=True)
class CallOrigin:
    """The origin of a call, and the text that replaces its number in output.

    Args:
        registration: the registration, as it is written in its block.
        debug: the user's debug text.
        key: the key of its kernel; None without a key.
        kernel: its kernel, if there is one.
    """

    registration: Registration
    debug: str
    key: DispatchKey | None = None
    kernel: Kernel | None = None


@dataclass(frozen=True, slots=True)
class BindingCall:
    """One call on the bindings.

    Args:
        make: a function that makes the call.
        number: its number. See Note [One number for each call].
        origin: the registration behind the call.
        leaves: the number of an earlier call that stays in force when this one is refused, if any: upstream does
            not take a def back whose kernel is refused in the same call.
        def_number: the number in the text of the def where one call makes a def and a kernel, each with its text.
    """

    make: MakeCall
    number: int
    origin: CallOrigin
    leaves: int | None = None
    def_number: int | None = None

    @property
    def is_torch_library_call(self) -> bool:
        """True if `torch.library` makes the call, which may register several kernels."""
        registration = self.origin.registration
        return isinstance(registration, Block) and registration.made_by is not None

    @property
    def operator(self) -> OperatorName | None:
        """The operator that the call changes; None for a fallback and a claim."""
        registration = self.origin.registration
        return registration.operator if isinstance(registration, Def | Impl) else None


class NativeKernels(Protocol):
    """C++ kernels beyond those of the bindings, from an extension; see tests/live/cpp for one."""

    def signatures(self) -> tuple[str, ...]:
        """Return the C++ signatures of its kernels."""

    def impl(self, operator: str, overload: str, key: int, signature: str, debug: str, /) -> Library:
        """Register the kernel with this signature; key -1 means no key."""


class EnclosingLibrary(NamedTuple):
    """The library that contains a call; if one call of a block is refused, the library of the block is destroyed."""

    kind: str
    namespace: str | None
    key: DispatchKey | None = None
    is_block: bool = False


class CallBuilder:
    """Builds the calls of one sandbox.

    Args:
        libraries: the libraries of the sandbox.
        native: the C++ kernels of an extension.
    """

    def __init__(self, libraries: Libraries, *, native: NativeKernels | None = None) -> None:
        self._libraries, self._native = libraries, native
        self._next = 0

    def calls_of(self, registration: Registration, first: int) -> tuple[BindingCall, ...]:
        """Return the calls of a registration in order; their numbers begin at `first`.

        Raises:
            NotExpressibleError: the bindings have no call for it.
        """
        self._next = first
        return tuple(self._calls(registration))

    def _number(self) -> int:
        self._next += 1
        return self._next - 1

    def _calls(self, registration: Registration) -> Iterator[BindingCall]:
        match registration:
            case Block():
                yield from self._block(registration)
            case Claim():
                yield self._bare(registration, EnclosingLibrary("DEF", registration.namespace))
            case NameOnly():
                raise NotExpressibleError(registration, "no binding registers a name alone")
            case Def():
                alone = EnclosingLibrary("FRAGMENT", registration.operator.namespace)
                yield from self._def(registration, alone)
            case Impl():
                yield self._impl(registration, EnclosingLibrary("FRAGMENT", registration.operator.namespace))
            case Fallback():
                yield self._fallback(registration, EnclosingLibrary("IMPL", None))

    def _block(self, block: Block) -> Iterator[BindingCall]:
        if block.made_by is not None:
            yield self._torch_library(block, block.made_by)
            return
        if block.kind is BlockKind.IMPORT:
            raise NotExpressibleError(block, "import blocks are those of 2020; use DEF, FRAGMENT or IMPL")
        self._libraries.check_text(block.key, block, "a library")
        if block.kind is BlockKind.DEF or not block.registrations:
            yield self._bare(block, EnclosingLibrary(str(block.kind), block.namespace, block.key))
        kind = BlockKind.FRAGMENT if block.kind is BlockKind.DEF else block.kind
        enclosing = EnclosingLibrary(str(kind), block.namespace, block.key, is_block=True)
        for inner in block.registrations:
            own = replace(inner, debug=inner.debug or block.debug)
            match own:
                case Def():
                    yield from self._def(own, enclosing)
                case Impl():
                    yield self._impl(own, enclosing)
                case Fallback():
                    yield self._fallback(own, enclosing)

    def _bare(self, registration: Claim | Block, enclosing: EnclosingLibrary) -> BindingCall:
        number = self._number()
        make = self._libraries.library_maker(enclosing, number)
        return BindingCall(make, number, CallOrigin(registration, registration.debug))

    def _torch_library(self, block: Block, call: TorchLibraryCall) -> BindingCall:
        number = self._number()
        make = torch_library_call(block, call, self._libraries.prefix, self._libraries.mark, number)
        return BindingCall(make, number, CallOrigin(block, block.debug))

    def _def(self, registration: Def, enclosing: EnclosingLibrary) -> Iterator[BindingCall]:
        number, schema = self._number(), registration.schema
        if registration.kernel is not None and not self._libraries.takes(registration.key):
            # The key is read before the call is made, whose def would be refused, or stay, without its kernel.
            make = self._libraries.library_maker(EnclosingLibrary("IMPL", None, registration.key), number)
            yield BindingCall(make, number, CallOrigin(registration, registration.debug))
            return
        if isinstance(schema, OperatorName):
            yield self._def_name(registration, schema.within(enclosing.namespace or ""), enclosing, number)
            return
        schema = clone_with_name(schema, schema.name.within(enclosing.namespace or ""))
        text, alias, tags = (
            self._libraries.schema_text(schema),
            registration.alias,
            tags_of(registration.tags, registration),
        )
        check_def(registration)
        alias_text = str(alias)

        def define(library: Any) -> None:
            if alias is None:
                library.def_legacy(text)
            elif tags:
                library.define(text, alias_text, tags)
            else:
                library.def_(text, alias_text)

        origin = CallOrigin(replace(registration, schema=schema), registration.debug)
        yield BindingCall(self._libraries.call_on_library(define, enclosing, number), number, origin)
        if registration.kernel is not None:
            own = registration.own_impl
            assert own is not None
            call = self._impl(replace(own, operator=schema.name), enclosing)
            yield call if enclosing.is_block else replace(call, leaves=number)

    def _def_name(self, registration: Def, name: OperatorName, enclosing: EnclosingLibrary, number: int) -> BindingCall:
        check_inferred_def(registration)
        self._libraries.check_text(registration.key, registration, "an unboxed kernel")
        kernel_number = self._number()
        key, debug = self._libraries.key_text(registration.key), self._libraries.debug(kernel_number)
        text, make_library = self._libraries.name_text(name), self._libraries.library_maker(enclosing, number)

        def define() -> Library:
            library: Any = make_library()
            return library.def_name_t_t(text, key, debug)  # type: ignore[no-any-return]  # the bindings are untyped

        named = replace(registration, schema=name)
        origin = CallOrigin(named, kernel_text(registration), _stored(registration.key), registration.kernel)
        return BindingCall(define, kernel_number, origin, def_number=number)

    def _impl(self, registration: Impl, enclosing: EnclosingLibrary) -> BindingCall:
        libraries, number = self._libraries, self._number()
        operator, kernel = registration.operator.within(enclosing.namespace or ""), registration.kernel
        key = registration.key
        effective = key if key not in (None, DispatchKey.Undefined) else enclosing.key
        origin = CallOrigin(replace(registration, operator=operator), registration.debug, _stored(effective), kernel)
        if not operator.namespace:
            # NB: PyTorch does not check this, and what happens then is undefined.
            message = f"{operator} has no namespace, and the library _ has none to give it"
            refuse = _raising(ErrorKind.UNQUALIFIED_NAME, message, {"operator": str(operator)})
            return BindingCall(refuse, number, origin)
        name, debug = libraries.name_text(operator), libraries.debug(number)
        if kernel.form is not KernelForm.UNBOXED:
            function, key_value = function_of(registration), libraries.key(key)

            def boxed(library: Any) -> None:
                library.impl(name, key_value, function)

            return BindingCall(libraries.call_on_library(boxed, enclosing, number), number, origin)
        if self._native is not None and kernel.signature in self._native.signatures():
            return BindingCall(self._native_impl(operator, kernel.signature, effective, number), number, origin)
        check_unboxed_impl(registration)
        libraries.check_text(key, registration, "an unboxed kernel")
        text = libraries.key_text(key)

        def unboxed(library: Any) -> None:
            library.impl_t_t(name, text, debug)

        return BindingCall(libraries.call_on_library(unboxed, enclosing, number), number, origin)

    def _native_impl(self, operator: OperatorName, signature: str, key: DispatchKey | None, number: int) -> MakeCall:
        libraries, native = self._libraries, self._native
        assert native is not None
        name, text, debug = libraries.name_of(operator), libraries.key_text(key), libraries.debug(number)
        if not libraries.takes(key):
            # PyTorch's own refusal says that it cannot parse the key.
            return libraries.library_maker(EnclosingLibrary("IMPL", None, key), number)
        at = -1 if key is None or not text else libraries.number(key)
        return lambda: native.impl(name.qualified, name.overload, at, signature, debug)

    def _fallback(self, registration: Fallback, enclosing: EnclosingLibrary) -> BindingCall:
        number, key = self._number(), registration.key
        check_fallback(registration)
        function = function_of(registration)
        effective = key if key not in (None, DispatchKey.Undefined) else enclosing.key
        key_value, text = self._libraries.key(effective), self._libraries.key_text(effective)
        if not has_fallbacks():
            self._libraries.check_text(effective, registration, "a fallback")

        def fallback(library: Any) -> None:
            if has_fallbacks():
                library.fallback(key_value, function)
            else:
                library.fallback_fallthrough(text)

        origin = CallOrigin(registration, registration.debug, key or enclosing.key, registration.kernel)
        return BindingCall(self._libraries.call_on_library(fallback, enclosing, number), number, origin)


class Libraries:
    """The libraries of one sandbox, and the forms in which PyTorch gets the user's names, schemas and keys.

    Args:
        prefix: the prefix of every namespace, so that the sandbox has its own namespaces.
        mark: the file and line that libraries get. See Note [One number for each call].
        parse_keys: pass keys as text, as Python does, which refuses the 42 keys that PyTorch cannot parse; else as
            numbers, as C++ does.
    """

    def __init__(self, prefix: str, mark: CallMark, *, parse_keys: bool = False) -> None:
        self._c = bindings()
        self.prefix, self.mark, self.parse_keys = prefix, mark, parse_keys
        self._reused: list[Library] = []

    def library_maker(self, enclosing: EnclosingLibrary, number: int) -> MakeCall:
        """Return a call that makes a library without registrations."""
        make, mark = self._c._dispatch_library, self.mark
        kind, key = enclosing.kind, self.key_text(enclosing.key)
        namespace = "_" if enclosing.namespace is None else self.prefix + enclosing.namespace
        return lambda: make(kind, namespace, key, mark.file, mark.line(number))

    def call_on_library(self, call: Callable[[Any], None], enclosing: EnclosingLibrary, number: int) -> MakeCall:
        """Return a call on a library; the first call makes the library, and calls after a reset use it again."""
        make, library = self.library_maker(enclosing, number), None

        def make_again() -> Library:
            nonlocal library
            if library is None:
                library = make()
                self._reused.append(library)
            try:
                call(library)
            except RuntimeError:
                if enclosing.is_block:
                    library.reset()
                raise
            return library

        return make_again

    def reset(self) -> None:
        """Release all registrations of the libraries that are used again."""
        for library in self._reused:
            library.reset()

    def name_of(self, operator: OperatorName) -> OperatorName:
        """Return the operator of the sandbox for an operator of the user."""
        return replace(operator, namespace=self.prefix + operator.namespace)

    def name_text(self, name: OperatorName) -> str:
        """Return the sandbox's name of an operator; a name without a namespace gets no namespace."""
        return str(self.name_of(name) if name.namespace else name)

    def schema_text(self, schema: FunctionSchema) -> str:
        """Return a schema with the sandbox's name of the operator."""
        return source_text(clone_with_name(schema, self.name_of(schema.name)) if schema.name.namespace else schema)

    def key_text(self, key: DispatchKey | None) -> str:
        """Return a key as text; empty without a key."""
        return "" if key is None or key == DispatchKey.Undefined else str(key)

    def key(self, key: DispatchKey | None) -> Any:
        """Return a key as a key of PyTorch; as text if PyTorch refuses the key or does not have it."""
        if key is None:
            return self._c.DispatchKey.Undefined
        if not self.parse_keys and str(key) in running_keys().numbers:
            return self._c.DispatchKey(self.number(key))
        parsed = self._c._parse_dispatch_key(str(key))
        return str(key) if parsed is None else parsed

    def number(self, key: DispatchKey) -> int:
        """Return the number of a key in this PyTorch; raise KeyError if it does not have the key."""
        return running_keys().numbers[str(key)]

    def takes(self, key: DispatchKey | None) -> bool:
        """Return whether PyTorch accepts a key in the form that it gets."""
        text = self.key_text(key)
        return not text or self.can_parse(text) or (not self.parse_keys and text in running_keys().numbers)

    def check_text(self, key: DispatchKey | None, registration: Registration, what: str) -> None:
        """Check that PyTorch can parse the text of a key; PyTorch itself refuses unknown keys.

        Raises:
            NotExpressibleError: PyTorch has the key, but cannot parse it.
        """
        text = self.key_text(key)
        if text and self.takes(key) and not self.can_parse(text):
            raise NotExpressibleError(registration, f"its bindings take the key of {what} as text, and not {text}")

    def can_parse(self, key: str) -> bool:
        """Return whether PyTorch parses the text of a key."""
        return self._c._parse_dispatch_key(key) is not None

    def debug(self, number: int) -> str:
        """Return the debug text of the call with this number."""
        return self.mark.debug(number)


def _stored(key: DispatchKey | None) -> DispatchKey:
    return DispatchKey.CompositeImplicitAutograd if key in (None, DispatchKey.Undefined) else key


def _raising(kind: ErrorKind, message: str, facts: dict[str, str]) -> MakeCall:
    def refuse() -> Library:
        raise RegistrationError(kind, message, facts)

    return refuse
