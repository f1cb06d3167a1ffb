"""How each registration is made on PyTorch: one library object for each call, through the lowest-level bindings.

`steps_of` turns a registration into steps, once; a step makes its call each time it is opened. What the bindings cannot
say is a `NotExpressibleError` then, before anything has run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Protocol

from dispatchlab.errors import ErrorKind, RegistrationError
from dispatchlab.live.expressible import (
    NotExpressibleError,
    check_def,
    check_fallback,
    check_inferred_def,
    check_unboxed_impl,
    function_of,
    tags_of,
)
from dispatchlab.live.layer import Unmade, check, layer_opener
from dispatchlab.live.libraries import Enclosing, Libraries
from dispatchlab.live.step import Library, Open, Origin, Step
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import (
    Block,
    BlockKind,
    Claim,
    Def,
    Fallback,
    Impl,
    KernelForm,
    LayerCall,
    NameOnly,
    Registration,
)
from dispatchlab.model.schema import clone_with_name


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

    def _layer(self, block: Block, call: LayerCall) -> Step:
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
            impl = Impl(schema.name, registration.key, registration.kernel, registration.debug, registration.place)
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
