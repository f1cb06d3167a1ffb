"""Registration calls on the bindings: what they can express, and how each registration is made on a library object.

`steps_of` turns a registration into steps, once; a step makes its call each time it is opened. What the bindings cannot
say is a `NotExpressibleError` then, before anything has run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, NamedTuple, Protocol, TypeAlias

from dispatchlab.errors import DispatchLabError, ErrorKind, RegistrationError
from dispatchlab.live.bridge.torch import bindings, torch
from dispatchlab.live.bridge.torch_library_calls import Unmade, check, layer_opener
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import (
    AliasKind,
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
    describe,
)
from dispatchlab.model.schema import FunctionSchema, clone_with_name

# Note [One number for each call]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# Debug texts belong to the user: two kernels may have the same one, or none, and the bindings only let a library name
# a file and a line. So every call has a number here and its library says `registered at {mark}:{number}`; whoever shows
# a text puts the user's debug text back. A block becomes one library for each of its calls for the same reason; they
# are released in the order in which they were made, as one library does it.


class Library(Protocol):
    """What a step leaves behind: something that takes the registration back."""

    def reset(self) -> None:
        """Release it."""


Open: TypeAlias = Callable[[], Library]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a number comes from, and what to show in its place.

    Args:
        registration: the registration as it stands in its block.
        debug: the user's debug text.
        key: the key of its kernel, None for none.
        kernel: its kernel, if it has one.
    """

    registration: Registration
    debug: str
    key: DispatchKey | None = None
    kernel: Kernel | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One call.

    Args:
        open: makes it.
        number: its number. See Note [One number for each call].
        origin: what it was made from.
        leaves: the number of an earlier step that stays in force when this one is refused, if any: upstream does
            not take a def back whose kernel is refused in the same call.
    """

    open: Open
    number: int
    origin: Origin
    leaves: int | None = None

    @property
    def is_layered(self) -> bool:
        """Whether `torch.library` makes the call, and any number of kernels with it."""
        registration = self.origin.registration
        return isinstance(registration, Block) and registration.made_by is not None

    @property
    def operator(self) -> OperatorName | None:
        """The operator that it touches; None for a fallback and a claim."""
        registration = self.origin.registration
        return registration.operator if isinstance(registration, Def | Impl) else None


T_T = "(Tensor _0) -> Tensor _0"
"""The inferred schema of the one unboxed kernel that the bindings of PyTorch can register."""

T_T_SIGNATURE = "at::Tensor (at::Tensor const&)"


class NotExpressibleError(DispatchLabError):
    """A registration that the bindings of PyTorch cannot make, although its dispatcher could.

    Args:
        registration: the registration.
        reason: what is missing, a clause.
    """

    def __init__(self, registration: Registration, reason: str) -> None:
        super().__init__(registration, reason)
        self.registration, self.reason = registration, reason

    def __str__(self) -> str:
        location = f"{self.registration.location}: " if self.registration.location else ""
        return f"{location}{describe(self.registration)} cannot be made on the live PyTorch: {self.reason}"


def tags_of(registration: Def) -> list[object]:
    """The tags of a def, as PyTorch has them.

    Raises:
        NotExpressibleError: this PyTorch has no such tag.
    """
    known = torch().Tag.__members__
    for tag in sorted(registration.tags - known.keys()):
        raise NotExpressibleError(registration, f"it has no tag {tag}")
    return [known[tag] for tag in sorted(registration.tags)]


def check_def(registration: Def) -> None:
    """Whether a def with a schema can be made with its alias kind and its tags.

    Raises:
        NotExpressibleError: the bindings have no call for it.
    """
    if registration.alias is AliasKind.INTERNAL_SPECIAL_CASE:
        raise NotExpressibleError(registration, "its bindings cannot say INTERNAL_SPECIAL_CASE")
    if registration.alias is None and registration.tags:
        raise NotExpressibleError(registration, "its bindings give no tags to a def without an alias kind")


def check_inferred_def(registration: Def) -> None:
    """Whether a def whose schema is inferred from its kernel can be made.

    Raises:
        NotExpressibleError: the bindings have no call for it.
    """
    if registration.kernel is None or not _is_t_t(registration.kernel):
        raise NotExpressibleError(registration, f"its bindings infer a schema only from {T_T}")
    if registration.alias is not AliasKind.CONSERVATIVE or registration.tags:
        raise NotExpressibleError(registration, "its bindings give an inferred schema no tags and CONSERVATIVE only")


def check_unboxed_impl(registration: Impl) -> None:
    """Whether the bindings have the unboxed kernel of an impl.

    Raises:
        NotExpressibleError: they have not.
    """
    kernel = registration.kernel
    if not _is_t_t(kernel):
        shown = kernel.signature or kernel.inferred or "an unboxed kernel of unknown type"
        reason = f"its bindings register unboxed kernels only as {T_T_SIGNATURE}, and {shown} needs an extension"
        raise NotExpressibleError(registration, reason)


def check_fallback(registration: Fallback) -> None:
    """Whether the kernel of a fallback can serve every operator.

    Raises:
        NotExpressibleError: it cannot.
    """
    if registration.kernel.form is KernelForm.UNBOXED:
        raise NotExpressibleError(registration, "a fallback serves every operator, so its kernel is boxed")


def first_argument(*arguments: object) -> object:
    """The boxed kernel of a registration that names no function."""
    return arguments[0] if arguments else None


def function_of(registration: Impl | Fallback) -> object:
    """The function that is registered as a boxed kernel.

    Raises:
        NotExpressibleError: the reference to it leads nowhere.
    """
    kernel = registration.kernel
    if kernel.is_fallthrough:
        fallthrough: object = torch().library.fallthrough_kernel
        return fallthrough
    if kernel.function is not None:
        return kernel.function
    if kernel.reference is None:
        return first_argument
    module, _, path = kernel.reference.partition(":")
    try:
        found: object = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise NotExpressibleError(registration, f"{kernel.reference} cannot be imported: {error}") from error
    if not callable(found):
        raise NotExpressibleError(registration, f"{kernel.reference} is not callable")
    return found


def _is_t_t(kernel: Kernel) -> bool:
    return (
        kernel.form is KernelForm.UNBOXED
        and not kernel.symint
        and str(kernel.inferred) == T_T
        and kernel.signature in (None, T_T_SIGNATURE)
    )


class Enclosing(NamedTuple):
    """What a library is made with, as the user has it."""

    kind: str
    namespace: str | None
    key: DispatchKey | None = None


class Libraries:
    """The libraries of one sandbox.

    Args:
        prefix: stands before every namespace, so that the sandbox has namespaces of its own.
        mark: the file that libraries name. See Note [One number for each call].
        parse_keys: hand keys over as text, which refuses the 42 that PyTorch cannot parse; else as numbers.
    """

    def __init__(self, prefix: str, mark: str, *, parse_keys: bool = True) -> None:
        self._c = bindings()
        self.prefix, self.mark, self.parse_keys = prefix, mark, parse_keys
        self._kept: list[Library] = []

    def opened(self, enclosing: Enclosing, number: int) -> Open:
        """Make a library each time, and nothing with it."""
        make, mark = self._c._dispatch_library, self.mark
        kind, namespace, key = enclosing.kind, self._namespace(enclosing.namespace), self.key_text(enclosing.key)
        return lambda: make(kind, namespace, key, mark, number)

    def reopened(self, call: Callable[[Any], None], enclosing: Enclosing, number: int) -> Open:
        """Make a call on one library, which is made the first time and used again after each reset."""
        make, mark = self._c._dispatch_library, self.mark
        kind, namespace, key = enclosing.kind, self._namespace(enclosing.namespace), self.key_text(enclosing.key)
        library: Any = None

        def reopen() -> Library:
            nonlocal library
            if library is None:
                library = make(kind, namespace, key, mark, number)
                self._kept.append(library)
            call(library)
            return library  # type: ignore[no-any-return]  # the bindings are untyped

        return reopen

    def reset(self) -> None:
        """Take back whatever was registered on those that are used again."""
        for library in self._kept:
            library.reset()

    def name_of(self, operator: OperatorName) -> OperatorName:
        """The operator that stands for one of the user's."""
        return replace(operator, namespace=self.prefix + operator.namespace)

    def name_text(self, name: OperatorName) -> str:
        """The name of an operator; one without a namespace stays without."""
        return str(self.name_of(name) if name.namespace else name)

    def schema_text(self, schema: FunctionSchema) -> str:
        """A schema, under the name that stands for the user's."""
        return str(clone_with_name(schema, self.name_of(schema.name)) if schema.name.namespace else schema)

    def key_text(self, key: DispatchKey | None) -> str:
        """A key where text is wanted; empty for none."""
        return "" if key is None or key == DispatchKey.Undefined else str(key)

    def key(self, key: DispatchKey | None) -> object:
        """A key where a key is wanted; the text of one that is refused."""
        if key is None:
            undefined: object = self._c.DispatchKey.Undefined
            return undefined
        parsed: object = self._c._parse_dispatch_key(str(key)) if self.parse_keys else self._c.DispatchKey(int(key))
        return str(key) if parsed is None else parsed

    def can_parse(self, key: str) -> bool:
        """Whether PyTorch parses the text of a key."""
        return self._c._parse_dispatch_key(key) is not None

    def debug(self, number: int) -> str:
        """What a call with this number has for a debug text."""
        return f"registered at {self.mark}:{number}"

    def _namespace(self, namespace: str | None) -> str:
        return "_" if namespace is None else self.prefix + namespace


class NativeKernels(Protocol):
    """C++ kernels beyond those of the bindings, from an extension; see tests/live/cpp for one."""

    def signatures(self) -> tuple[str, ...]:
        """The C++ signatures that it has kernels of."""

    def impl(self, operator: str, overload: str, key: int, signature: str, debug: str, /) -> Library:
        """Register the kernel with this signature; key -1 is no key."""


class Opener:
    """Makes steps for one sandbox.

    Args:
        libraries: the libraries of the sandbox.
        native: C++ kernels of an extension.
    """

    def __init__(self, libraries: Libraries, *, native: NativeKernels | None = None) -> None:
        self._libraries, self._native = libraries, native
        self._next = 0

    def steps_of(self, registration: Registration, first: int) -> tuple[Step, ...]:
        """The calls of a registration, in order, numbered from `first`.

        Raises:
            NotExpressibleError: the bindings have no call for it.
        """
        self._next = first
        return tuple(self._steps(registration))

    def _number(self) -> int:
        self._next += 1
        return self._next - 1

    def _steps(self, registration: Registration) -> Iterator[Step]:
        match registration:
            case Block():
                yield from self._block(registration)
            case Claim():
                yield self._bare(registration, Enclosing("DEF", registration.namespace))
            case NameOnly():
                raise NotExpressibleError(registration, "no binding registers a name alone")
            case Def():
                alone = Enclosing("FRAGMENT", registration.operator.namespace)
                yield from self._def(registration, alone, in_block=False)
            case Impl():
                yield self._impl(registration, Enclosing("FRAGMENT", registration.operator.namespace))
            case Fallback():
                yield self._fallback(registration, Enclosing("IMPL", None))

    def _block(self, block: Block) -> Iterator[Step]:
        if block.made_by is not None:
            yield self._layer(block, block.made_by)
            return
        if block.kind is BlockKind.IMPORT:
            raise NotExpressibleError(block, "import blocks are those of 2020; use DEF, FRAGMENT or IMPL")
        if block.kind is BlockKind.DEF or not block.registrations:
            yield self._bare(block, Enclosing(str(block.kind), block.namespace, block.key))
        kind = BlockKind.FRAGMENT if block.kind is BlockKind.DEF else block.kind
        enclosing = Enclosing(str(kind), block.namespace, block.key)
        for inner in block.registrations:
            own = replace(inner, debug=inner.debug or block.debug)
            match own:
                case Def():
                    yield from self._def(own, enclosing)
                case Impl():
                    yield self._impl(own, enclosing)
                case Fallback():
                    yield self._fallback(own, enclosing)

    def _bare(self, registration: Claim | Block, enclosing: Enclosing) -> Step:
        number = self._number()
        return Step(self._libraries.opened(enclosing, number), number, Origin(registration, registration.debug))

    def _layer(self, block: Block, call: TorchLibraryCall) -> Step:
        number = self._number()
        try:
            check(block, call)
            made = layer_opener(block, call, self._libraries.prefix, self._libraries.mark, number)
        except Unmade as error:
            raise NotExpressibleError(block, str(error)) from None
        return Step(made, number, Origin(block, block.debug))

    def _def(self, registration: Def, enclosing: Enclosing, *, in_block: bool = True) -> Iterator[Step]:
        number, schema = self._number(), registration.schema
        if isinstance(schema, OperatorName):
            yield self._def_name(registration, schema.within(enclosing.namespace or ""), enclosing, number)
            return
        schema = clone_with_name(schema, schema.name.within(enclosing.namespace or ""))
        text, alias, tags = self._libraries.schema_text(schema), registration.alias, tags_of(registration)
        check_def(registration)
        alias_text = str(alias)

        def define(library: Any) -> None:
            if alias is None:
                library.def_legacy(text)
            elif tags:
                library.define(text, alias_text, tags)
            else:
                library.def_(text, alias_text)

        origin = Origin(replace(registration, schema=schema), registration.debug)
        yield Step(self._libraries.reopened(define, enclosing, number), number, origin)
        if registration.kernel is not None:
            impl = Impl(schema.name, registration.key, registration.kernel, registration.debug, registration.location)
            step = self._impl(impl, enclosing)
            yield step if in_block else replace(step, leaves=number)

    def _def_name(self, registration: Def, name: OperatorName, enclosing: Enclosing, number: int) -> Step:
        check_inferred_def(registration)
        key, debug = self._libraries.key_text(registration.key), self._libraries.debug(number)
        text, opened = self._libraries.name_text(name), self._libraries.opened(enclosing, number)

        def define() -> Library:
            library: Any = opened()
            return library.def_name_t_t(text, key, debug)  # type: ignore[no-any-return]  # the bindings are untyped

        named = replace(registration, schema=name)
        return Step(define, number, Origin(named, registration.debug, _stored(registration.key), registration.kernel))

    def _impl(self, registration: Impl, enclosing: Enclosing) -> Step:
        libraries, number = self._libraries, self._number()
        operator, kernel = registration.operator.within(enclosing.namespace or ""), registration.kernel
        key = registration.key
        effective = key if key not in (None, DispatchKey.Undefined) else enclosing.key
        origin = Origin(replace(registration, operator=operator), registration.debug, _stored(effective), kernel)
        if not operator.namespace:
            # NB: PyTorch does not check this, and what happens then is undefined.
            message = f"{operator} has no namespace, and the library _ has none to give it"
            return Step(_raising(ErrorKind.UNQUALIFIED_NAME, message, {"operator": str(operator)}), number, origin)
        name, debug = libraries.name_text(operator), libraries.debug(number)
        if kernel.form is not KernelForm.UNBOXED:
            function, key_value = function_of(registration), libraries.key(key)

            def boxed(library: Any) -> None:
                library.impl(name, key_value, function)

            return Step(libraries.reopened(boxed, enclosing, number), number, origin)
        if self._native is not None and kernel.signature in self._native.signatures():
            return Step(self._native_impl(operator, kernel.signature, effective, number), number, origin)
        check_unboxed_impl(registration)
        text = libraries.key_text(key)
        if text and not libraries.parse_keys and not libraries.can_parse(text):
            raise NotExpressibleError(
                registration, f"its bindings take the key of an unboxed kernel as text, not {key}"
            )

        def unboxed(library: Any) -> None:
            library.impl_t_t(name, text, debug)

        return Step(libraries.reopened(unboxed, enclosing, number), number, origin)

    def _native_impl(self, operator: OperatorName, signature: str, key: DispatchKey | None, number: int) -> Open:
        libraries, native = self._libraries, self._native
        assert native is not None
        name, text, debug = libraries.name_of(operator), libraries.key_text(key), libraries.debug(number)
        if text and libraries.parse_keys and not libraries.can_parse(text):
            return libraries.opened(Enclosing("IMPL", None, key), number)  # which says that it cannot parse the key
        at = int(key) if key is not None and text else -1
        return lambda: native.impl(name.qualified, name.overload, at, signature, debug)

    def _fallback(self, registration: Fallback, enclosing: Enclosing) -> Step:
        number, key = self._number(), registration.key
        check_fallback(registration)
        function = function_of(registration)
        key_value = self._libraries.key(key if key not in (None, DispatchKey.Undefined) else enclosing.key)

        def fallback(library: Any) -> None:
            library.fallback(key_value, function)

        origin = Origin(registration, registration.debug, key or enclosing.key, registration.kernel)
        return Step(self._libraries.reopened(fallback, enclosing, number), number, origin)


def _stored(key: DispatchKey | None) -> DispatchKey:
    return DispatchKey.CompositeImplicitAutograd if key in (None, DispatchKey.Undefined) else key


def _raising(kind: ErrorKind, message: str, facts: dict[str, str]) -> Open:
    def refuse() -> Library:
        raise RegistrationError(kind, message, facts)

    return refuse
