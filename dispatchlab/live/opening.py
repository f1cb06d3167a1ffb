"""How each registration is made on PyTorch: one library object for each call, through the lowest-level bindings.

`steps_of` turns a registration into steps, once; a step makes its call each time it is opened. What the bindings cannot
say is a `NotExpressibleError` then, before anything has run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Protocol, TypeAlias

from dispatchlab.errors import DispatchLabError, ErrorKind, RegistrationError
from dispatchlab.live.layer import Unmade, check, layer_opener
from dispatchlab.live.torch import bindings, torch
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
    LayerCall,
    NameOnly,
    Registration,
    describe,
)
from dispatchlab.model.schema import FunctionSchema, clone_with_name

T_T = "(Tensor _0) -> Tensor _0"
"""The inferred schema of the one unboxed kernel that the bindings of PyTorch can register."""

T_T_SIGNATURE = "at::Tensor (at::Tensor const&)"

# Note [One number for each call]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# Debug texts belong to the user: two kernels may have the same one, or none, and the bindings only let a library name
# a file and a line. So every call has a number here and its library says `registered at {mark}:{number}`; whoever shows
# a text puts the user's debug text back. A block becomes one library for each of its calls for the same reason; they
# are released in the order in which they were made, as one library does it.


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
        place = f"{self.registration.place}: " if self.registration.place else ""
        return f"{place}{describe(self.registration)} cannot be made on the live PyTorch: {self.reason}"


class Library(Protocol):
    """What a step leaves behind: something that takes the registration back."""

    def reset(self) -> None:
        """Release it."""


class NativeKernels(Protocol):
    """C++ kernels beyond those of the bindings, from an extension; see tests/live/cpp for one."""

    def signatures(self) -> tuple[str, ...]:
        """The C++ signatures that it has kernels of."""

    def impl(self, operator: str, overload: str, key: int, signature: str, debug: str, /) -> Library:
        """Register the kernel with this signature; key -1 is no key."""


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


def first_argument(*arguments: object) -> object:
    """The boxed kernel of a registration that names no function."""
    return arguments[0] if arguments else None


class Opener:
    """Makes steps for one sandbox.

    Args:
        prefix: stands before every namespace, so that the sandbox has namespaces of its own.
        mark: the file that libraries name. See Note [One number for each call].
        parse_keys: hand keys over as text, which refuses the 42 that PyTorch cannot parse; else as numbers.
        native: C++ kernels of an extension.
    """

    def __init__(self, prefix: str, mark: str, *, parse_keys: bool = True, native: NativeKernels | None = None) -> None:
        self._c = bindings()
        self._prefix, self._mark, self._parse_keys, self._native = prefix, mark, parse_keys, native
        self._fallthrough = torch().library.fallthrough_kernel
        self._next = 0
        self.libraries: list[Library] = []

    def steps_of(self, registration: Registration, first: int) -> tuple[Step, ...]:
        """The calls of a registration, in order, numbered from `first`.

        Raises:
            NotExpressibleError: the bindings have no call for it.
        """
        self._next = first
        return tuple(self._steps(registration))

    def name_of(self, operator: OperatorName) -> OperatorName:
        """The operator that stands for one of the user's."""
        return replace(operator, namespace=self._prefix + operator.namespace)

    def _number(self) -> int:
        self._next += 1
        return self._next - 1

    def _steps(self, registration: Registration) -> Iterator[Step]:
        match registration:
            case Block():
                yield from self._block(registration)
            case Claim():
                number, namespace = self._number(), self._prefix + registration.namespace
                yield Step(
                    lambda: self._library("DEF", namespace, "", number),
                    number,
                    Origin(registration, registration.debug),
                )
            case NameOnly():
                raise NotExpressibleError(registration, "no binding registers a name alone")
            case Def():
                yield from self._def(registration, "FRAGMENT", registration.operator.namespace, None, in_block=False)
            case Impl():
                yield self._impl(registration, "FRAGMENT", registration.operator.namespace, None)
            case Fallback():
                yield self._fallback(registration, "IMPL", None, None)

    def _block(self, block: Block) -> Iterator[Step]:
        kind = str(block.kind)
        if block.made_by is not None:
            yield self._layer(block, block.made_by)
            return
        if block.kind is BlockKind.IMPORT:
            raise NotExpressibleError(block, "import blocks are those of 2020; use DEF, FRAGMENT or IMPL")
        if block.kind is BlockKind.DEF or not block.registrations:
            number = self._number()
            key, namespace = self._key_text(block.key), self._namespace(block.namespace)
            yield Step(
                lambda: self._library(kind, namespace, key, number),
                number,
                Origin(block, block.debug),
            )
        inside = "FRAGMENT" if block.kind is BlockKind.DEF else kind  # a second name: `kind` is opened with later
        for inner in block.registrations:
            own = replace(inner, debug=inner.debug or block.debug)
            match own:
                case Def():
                    yield from self._def(own, inside, block.namespace, block.key)
                case Impl():
                    yield self._impl(own, inside, block.namespace, block.key)
                case Fallback():
                    yield self._fallback(own, inside, block.namespace, block.key)

    def _layer(self, block: Block, call: LayerCall) -> Step:
        number = self._number()
        try:
            check(block, call)
            made = layer_opener(block, call, self._prefix, self._mark, number)
        except Unmade as error:
            raise NotExpressibleError(block, str(error)) from None
        return Step(made, number, Origin(block, block.debug))

    def _namespace(self, namespace: str | None) -> str:
        return "_" if namespace is None else self._prefix + namespace

    def _library(self, kind: str, namespace: str, key: str, number: int) -> Library:
        library: Library = self._c._dispatch_library(kind, namespace, key, self._mark, number)
        return library

    def _reopened(self, call: Callable[[Any], None], kind: str, where: str, key: str, number: int) -> Open:
        """Make a call on one library, which is made the first time and used again after each reset."""
        make, mark = self._c._dispatch_library, self._mark
        library: Any = None

        def reopen() -> Library:
            nonlocal library
            if library is None:
                library = make(kind, where, key, mark, number)
                self.libraries.append(library)
            call(library)
            return library  # type: ignore[no-any-return]  # the bindings are untyped

        return reopen

    def _key_text(self, key: DispatchKey | None) -> str:
        return "" if key is None or key == DispatchKey.Undefined else str(key)

    def _key(self, key: DispatchKey | None) -> object:
        if key is None:
            return self._c.DispatchKey.Undefined
        parsed: object = self._c._parse_dispatch_key(str(key)) if self._parse_keys else self._c.DispatchKey(int(key))
        return str(key) if parsed is None else parsed

    def _inside(self, name: OperatorName) -> str:
        return str(self.name_of(name) if name.namespace else name)

    def _def(
        self,
        registration: Def,
        kind: str,
        namespace: str | None,
        block_key: DispatchKey | None,
        *,
        in_block: bool = True,
    ) -> Iterator[Step]:
        kernel, schema = registration.kernel, registration.schema
        number, where, key_text = self._number(), self._namespace(namespace), self._key_text(block_key)
        if isinstance(schema, OperatorName):
            yield self._def_name(registration, schema.within(namespace or ""), (kind, where, key_text), number)
            return
        schema = clone_with_name(schema, schema.name.within(namespace or ""))
        origin = Origin(replace(registration, schema=schema), registration.debug)
        text, alias, tags = self._schema_text(schema), registration.alias, self._tags(registration)
        if alias is AliasKind.INTERNAL_SPECIAL_CASE:
            raise NotExpressibleError(registration, "its bindings cannot say INTERNAL_SPECIAL_CASE")
        if alias is None and tags:
            raise NotExpressibleError(registration, "its bindings give no tags to a def without an alias kind")

        alias_text = str(alias)

        def define(library: Any) -> None:
            if alias is None:
                library.def_legacy(text)
            elif tags:
                library.define(text, alias_text, tags)
            else:
                library.def_(text, alias_text)

        yield Step(self._reopened(define, kind, where, key_text, number), number, origin)
        if kernel is not None:
            impl = Impl(schema.name, registration.key, kernel, registration.debug, registration.place)
            step = self._impl(impl, kind, namespace, block_key)
            yield step if in_block else replace(step, leaves=number)

    def _def_name(self, registration: Def, name: OperatorName, library: tuple[str, str, str], number: int) -> Step:
        kernel, key = registration.kernel, self._key_text(registration.key)
        if kernel is None or not _is_t_t(kernel):
            raise NotExpressibleError(registration, f"its bindings infer a schema only from {T_T}")
        if registration.alias is not AliasKind.CONSERVATIVE or registration.tags:
            raise NotExpressibleError(
                registration, "its bindings give an inferred schema no tags and CONSERVATIVE only"
            )
        kind, where, block_key = library
        text, debug = self._inside(name), self._debug(number)

        def define() -> Library:
            made = self._c._dispatch_library(kind, where, block_key, self._mark, number)
            return made.def_name_t_t(text, key, debug)  # type: ignore[no-any-return]  # the bindings are untyped

        origin = Origin(replace(registration, schema=name), registration.debug, _stored(registration.key), kernel)
        return Step(define, number, origin)

    def _schema_text(self, schema: FunctionSchema) -> str:
        return str(clone_with_name(schema, self.name_of(schema.name)) if schema.name.namespace else schema)

    def _tags(self, registration: Def) -> list[object]:
        known = torch().Tag.__members__
        for tag in registration.tags - known.keys():
            raise NotExpressibleError(registration, f"it has no tag {tag}")
        return [known[tag] for tag in sorted(registration.tags)]

    def _debug(self, number: int) -> str:
        return f"registered at {self._mark}:{number}"

    def _impl(self, registration: Impl, kind: str, namespace: str | None, block_key: DispatchKey | None) -> Step:
        number, where, key_text = self._number(), self._namespace(namespace), self._key_text(block_key)
        operator, kernel, key = registration.operator.within(namespace or ""), registration.kernel, registration.key
        effective = key if key not in (None, DispatchKey.Undefined) else block_key
        stored = _stored(effective)
        origin = Origin(replace(registration, operator=operator), registration.debug, stored, kernel)
        if not operator.namespace:
            # NB: PyTorch does not check this, and what happens then is undefined.
            message = f"{operator} has no namespace, and the library _ has none to give it"
            return Step(_raising(ErrorKind.UNQUALIFIED_NAME, message, {"operator": str(operator)}), number, origin)
        name, debug = self._inside(operator), self._debug(number)
        if kernel.form is not KernelForm.UNBOXED:
            function = self._fallthrough if kernel.is_fallthrough else _function(registration, kernel)
            key_value = self._key(key)

            def boxed(library: Any) -> None:
                library.impl(name, key_value, function)

            return Step(self._reopened(boxed, kind, where, key_text, number), number, origin)
        if self._native is not None and kernel.signature in self._native.signatures():
            return Step(self._native_impl(operator, kernel.signature, effective, number), number, origin)
        if not _is_t_t(kernel):
            shown = kernel.signature or kernel.inferred or "an unboxed kernel of unknown type"
            reason = f"its bindings register unboxed kernels only as {T_T_SIGNATURE}, and {shown} needs an extension"
            raise NotExpressibleError(registration, reason)
        text = self._key_text(key)
        if text and not self._parse_keys and self._c._parse_dispatch_key(text) is None:
            raise NotExpressibleError(
                registration, f"its bindings take the key of an unboxed kernel as text, not {key}"
            )

        def unboxed(library: Any) -> None:
            library.impl_t_t(name, text, debug)

        return Step(self._reopened(unboxed, kind, where, key_text, number), number, origin)

    def _native_impl(self, operator: OperatorName, signature: str, key: DispatchKey | None, number: int) -> Open:
        native, name, text, debug = self._native, self.name_of(operator), self._key_text(key), self._debug(number)
        assert native is not None
        if text and self._parse_keys and self._c._parse_dispatch_key(text) is None:
            return lambda: self._library("IMPL", "_", text, number)  # which says that it cannot parse the key
        at = int(key) if key is not None and text else -1
        return lambda: native.impl(name.qualified, name.overload, at, signature, debug)

    def _fallback(
        self, registration: Fallback, kind: str, namespace: str | None, block_key: DispatchKey | None
    ) -> Step:
        number, where, key_text = self._number(), self._namespace(namespace), self._key_text(block_key)
        kernel, key = registration.kernel, registration.key
        if kernel.form is KernelForm.UNBOXED:
            raise NotExpressibleError(registration, "a fallback serves every operator, so its kernel is boxed")
        function = self._fallthrough if kernel.is_fallthrough else _function(registration, kernel)
        key_value = self._key(key if key not in (None, DispatchKey.Undefined) else block_key)

        def fallback(library: Any) -> None:
            library.fallback(key_value, function)

        origin = Origin(registration, registration.debug, key or block_key, kernel)
        return Step(self._reopened(fallback, kind, where, key_text, number), number, origin)


def _is_t_t(kernel: Kernel) -> bool:
    return (
        kernel.form is KernelForm.UNBOXED
        and not kernel.symint
        and str(kernel.inferred) == T_T
        and kernel.signature in (None, T_T_SIGNATURE)
    )


def _stored(key: DispatchKey | None) -> DispatchKey:
    return DispatchKey.CompositeImplicitAutograd if key in (None, DispatchKey.Undefined) else key


def _raising(kind: ErrorKind, message: str, facts: dict[str, str]) -> Open:
    def refuse() -> Library:
        raise RegistrationError(kind, message, facts)

    return refuse


def _function(registration: Impl | Fallback, kernel: Kernel) -> Callable[..., object]:
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
