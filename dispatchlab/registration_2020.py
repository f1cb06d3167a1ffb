"""The registration APIs of C++ in 2020: the `import` blocks of PR #35061, and `RegisterOperators`, which they replaced.

`Import` is `torch::import`, `schema` is `torch::schema`, and `RegisterOperators` is `c10::RegisterOperators`. They
work on every dispatcher; under `pr35061` it behaves as the pull request proposed.

The namespace of a block is filled in where a name has none, and a name that has one keeps it:

    >>> from dispatchlab import Dispatcher
    >>> from dispatchlab.registration_2020 import Import, Options, RegisterOperators, dispatch_autograd, schema, unboxed
    >>> dispatcher = Dispatcher("pr35061", builtin_fallbacks=False)
    >>> block = Import("ns1", dispatcher=dispatcher, debug="a.cpp:1").def_("ns2::blah(Tensor x) -> Tensor")
    >>> dispatcher.operators()
    (parse_name('ns2::blah'),)

An impl needs no schema; `dispatch_autograd` is the kernel of all autograd keys:

    >>> def kernel(x: "Tensor") -> "Tensor": ...
    >>> block = block.impl("foo", "CPU", kernel).impl("foo", dispatch_autograd(unboxed(kernel).debug("fn_autograd")))
    >>> print(dispatcher.dump("ns1::foo"), end="")
    name: ns1::foo
    schema: (none)
    CPU: a.cpp:1 :: (Tensor _0) -> (Tensor _0) [ boxed unboxed ]
    Autograd[alias]: fn_autograd :: (Tensor _0) -> (Tensor _0) [ boxed unboxed ]

An explicit alias kind may be followed by a def without one, and not the other way round:

    >>> from dispatchlab import AliasKind
    >>> block = block.def_(schema("foo(Tensor x) -> Tensor", AliasKind.PURE_FUNCTION))
    >>> older = RegisterOperators(dispatcher=dispatcher).op("ns1::foo(Tensor x) -> Tensor", Options())
    >>> dispatcher.def_count("ns1::foo")
    2

A plain function is an unboxed kernel with the schema of its annotations; `boxed` and `fallthrough` make the other
kernels, and `dispatch` ties any of them to a key. One `op` of `RegisterOperators` is a def and an impl for each kernel
of its options, all of them or none. Source: aten/src/ATen/core/op_registration/op_registration.cpp.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self, overload

from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.engine.kernel import KernelFunction, KernelLike, call_site, choice, key_named
from dispatchlab.engine.kernel import boxed as boxed
from dispatchlab.engine.kernel import dispatch as kernel_for
from dispatchlab.engine.kernel import fallthrough as fallthrough
from dispatchlab.engine.kernel import unboxed as unboxed
from dispatchlab.engine.library import Registrations, debug_of_caller, typed_kernel
from dispatchlab.engine.lowering import LoweredRegistration, lower
from dispatchlab.engine.refusals import refuse
from dispatchlab.errors import ErrorKind
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import AliasKind, Block, BlockKind, Def, Fallback, Impl
from dispatchlab.model.schema import FunctionSchema, clone_with_name
from dispatchlab.model.schema_parser import parse_name, parse_schema, parse_schema_or_name


@dataclass(frozen=True, slots=True)
class DeclaredSchema:
    """A schema with the alias kind that a def of it has."""

    schema: FunctionSchema
    alias: AliasKind


def schema(text: str, kind: AliasKind = AliasKind.FROM_SCHEMA) -> DeclaredSchema:
    """Return a schema for `def_` with an alias kind of its own.

    Raises:
        ParseError: the schema cannot be read.
    """
    return DeclaredSchema(parse_schema(text), kind)


def dispatch(key: DispatchKey | str, function: KernelLike) -> KernelFunction:
    """Return a kernel for one key; a device type such as `cuda` means the key of its backend.

    Raises:
        RegistrationError: there is no such key, or no schema can be inferred from the function.
    """
    return kernel_for(key, typed_kernel(function))


def dispatch_autograd(function: KernelLike) -> KernelFunction:
    """Return a kernel for the autograd keys of all backends."""
    return dispatch(DispatchKey.Autograd, function)


class Import(Registrations):
    """A block of registrations that are released with it.

    Args:
        namespace: given to names that have none; without it, every name must be qualified, and fallbacks are possible.
        dispatcher: where to register.
        debug: what dumps print; `registered at FILE:LINE` of the caller when left out.
    """

    def __init__(self, namespace: str | None = None, *, dispatcher: Dispatcher, debug: str | None = None) -> None:
        super().__init__(dispatcher)
        self._block = Block(namespace, BlockKind.IMPORT, debug=debug_of_caller(debug), location=call_site())

    def def_(
        self,
        schema_or_name: str | FunctionSchema | OperatorName | DeclaredSchema,
        function: KernelLike | None = None,
        *,
        debug: str = "",
    ) -> Self:
        """Define an operator.

        Args:
            schema_or_name: text of a schema (alias kind FROM_SCHEMA), what `schema` makes, a parsed schema (the default
                kind), or with `function` a name alone (the schema is inferred, CONSERVATIVE).
            function: a kernel to register along with it.
            debug: what dumps print; the kernel's text, and then the block's, when left out.

        Raises:
            RegistrationError: the def, or the kernel, is refused.
            ParseError: the schema cannot be read.
        """
        parsed, alias = _declared(schema_or_name)
        made = None if function is None else typed_kernel(function)
        kernel, key, text = (None, None, "") if made is None else (made.kernel, made.key, made.debug_text)
        definition = Def(parsed, alias, debug=debug or text, kernel=kernel, key=key, location=call_site())
        self._hold_inside(self._block, definition, f"def {parsed}")
        return self

    @overload
    def impl(self, name: str | OperatorName, function: KernelLike, /, *, debug: str = "") -> Self: ...

    @overload
    def impl(
        self, name: str | OperatorName, key: DispatchKey | str, function: KernelLike, /, *, debug: str = ""
    ) -> Self: ...

    def impl(
        self,
        name: str | OperatorName,
        key_or_function: DispatchKey | str | KernelLike,
        function: KernelLike | None = None,
        /,
        *,
        debug: str = "",
    ) -> Self:
        """Register a kernel, `impl(name, function)` or `impl(name, key, function)`.

        Raises:
            RegistrationError: it is refused.
            ParseError: the name cannot be read.
        """
        operator = parse_name(name) if isinstance(name, str) else name
        made = typed_kernel(key_or_function if function is None else function)
        named = key_named(key_or_function) if isinstance(key_or_function, DispatchKey | str) else None
        key = made.key if named is None else named
        registration = Impl(operator, key, made.kernel, debug or made.debug_text, call_site())
        self._hold_inside(self._block, registration, f"impl {operator} {key or ''}")
        return self

    def fallback(self, function: KernelLike, *, debug: str = "") -> Self:
        """Register a kernel for all operators, at the key that `dispatch` gave it.

        Raises:
            RegistrationError: it has no key, the block has a namespace, or the key has a fallback already.
        """
        made = typed_kernel(function)
        registration = Fallback(made.key, made.kernel, debug or made.debug_text, call_site())
        self._hold_inside(self._block, registration, f"fallback {made.key or ''}")
        return self

    def __repr__(self) -> str:
        return f"<Import {self._block.namespace or '(top level)'}>"


def _declared(
    given: str | FunctionSchema | OperatorName | DeclaredSchema,
) -> tuple[FunctionSchema | OperatorName, AliasKind | None]:
    match given:
        case DeclaredSchema(parsed, kind):
            return parsed, kind
        case FunctionSchema():
            return given, None
        case _:
            read = parse_schema_or_name(given) if isinstance(given, str) else given
            return read, AliasKind.CONSERVATIVE if isinstance(read, OperatorName) else AliasKind.FROM_SCHEMA


# -- RegisterOperators

DEBUG = "registered by RegisterOperators"


@dataclass(frozen=True, slots=True)
class Options:
    """The options of an `op` besides its schema. Every call gives new options, so they can be chained and shared.

    Args:
        kernels: the kernels, each with the key that it is for; None is "every key".
        schema_or_name: the schema, or a name whose schema is inferred from the first kernel that has one.
        alias: the alias kind; None leaves it at the default.
    """

    kernels: tuple[tuple[DispatchKey | None, KernelFunction], ...] = ()
    schema_or_name: FunctionSchema | OperatorName | None = None
    alias: AliasKind | None = None

    def kernel(self, key: DispatchKey | str, function: KernelLike) -> Options:
        """Return the options with a kernel for one key.

        Raises:
            RegistrationError: of kind `unknown_key`, or the kernel is none.
        """
        return replace(self, kernels=(*self.kernels, (key_named(key), typed_kernel(function))))

    def catch_all_kernel(self, function: KernelLike) -> Options:
        """Return the options with a kernel for every key that has no kernel.

        Raises:
            RegistrationError: the kernel is none.
        """
        return replace(self, kernels=(*self.kernels, (None, typed_kernel(function))))

    def schema(self, text: str | FunctionSchema | OperatorName) -> Options:
        """Return the options with a schema, or a name alone.

        Raises:
            RegistrationError: there is one already.
            ParseError: it cannot be read.
        """
        given = parse_schema_or_name(text) if isinstance(text, str) else text
        if (old := self.schema_or_name) is not None:
            text = f"an op has one schema and two are given, {old} and {given}: pass it to op, or set it in the options"
            raise refuse(ErrorKind.OTHER, text, schema=str(given), other_schema=str(old))
        return replace(self, schema_or_name=given)

    def alias_analysis(self, kind: AliasKind | str) -> Options:
        """Return the options with an alias kind.

        Raises:
            RegistrationError: of kind `unknown_alias_kind`, or there is one already.
        """
        chosen = choice(kind, tuple(AliasKind), kind=ErrorKind.UNKNOWN_ALIAS_KIND, what="alias kind")
        if self.alias is not None:
            message = f"the options have the alias kind {self.alias} already, and {chosen} is given too: leave one out"
            raise refuse(ErrorKind.OTHER, message, alias_kind=str(chosen), other_alias_kind=str(self.alias))
        return replace(self, alias=chosen)


NO_OPTIONS = Options()


class RegisterOperators(Registrations):
    """Operators that live as long as this object.

    Args:
        dispatcher: where to register.
    """

    def __init__(self, *, dispatcher: Dispatcher) -> None:
        super().__init__(dispatcher)

    def op(
        self, schema_or_name: str | FunctionSchema | OperatorName | None = None, options: Options = NO_OPTIONS
    ) -> Self:
        """Define an operator and register its kernels.

        Args:
            schema_or_name: the schema, or a name whose schema is inferred; None when the options have it.
            options: the kernels, and other properties of the def.

        Raises:
            RegistrationError: the options contradict each other, or one is refused; then none stays.
            ParseError: the schema cannot be read.
        """
        if schema_or_name is not None:
            options = options.schema(schema_or_name)
        definition = _definition(options)
        _check_kernels(definition.schema.name, options)
        semantics = self._dispatcher.semantics
        parts: list[Def | Impl] = [definition.registration, *_impls(definition.schema.name, options)]
        primitives = [primitive for part in parts for primitive in lower(part, semantics).primitives]
        self._hold(LoweredRegistration(primitives, is_block=True), f"op {definition.schema}")
        return self

    def __repr__(self) -> str:
        return f"<RegisterOperators with {len(self._handles)} operators>"


@dataclass(frozen=True, slots=True)
class _Definition:
    schema: FunctionSchema
    registration: Def


def _definition(options: Options) -> _Definition:
    given = options.schema_or_name
    if given is None:
        message = "an op needs a schema or a name and has neither: pass one to op, or set schema in its options"
        raise refuse(ErrorKind.OTHER, message)
    schema = _inferred(given, options) if isinstance(given, OperatorName) else given
    return _Definition(schema, Def(schema, options.alias, debug=DEBUG, location=call_site()))


def _inferred(name: OperatorName, options: Options) -> FunctionSchema:
    if not options.kernels:
        message = f"the op {name} gives a name alone and no kernel to infer its schema from: write the schema"
        raise refuse(ErrorKind.CANNOT_INFER_SCHEMA, message, operator=str(name))
    found = next((made.kernel.inferred for _, made in options.kernels if made.kernel.inferred is not None), None)
    if found is None:
        message = (
            f"the op {name} gives a name alone and none of its {len(options.kernels)} kernels has a schema: write the "
            "schema, or add a kernel whose arguments are typed"
        )
        raise refuse(ErrorKind.CANNOT_INFER_SCHEMA, message, operator=str(name))
    if options.alias is AliasKind.FROM_SCHEMA:
        message = (
            f"the alias kind of the op {name} is FROM_SCHEMA and its schema is inferred, which says nothing about "
            "aliasing: write the schema, or choose another kind"
        )
        raise refuse(ErrorKind.OTHER, message, operator=str(name))
    return clone_with_name(found, name)


def _check_kernels(name: OperatorName, options: Options) -> None:
    seen: set[DispatchKey | None] = set()
    for given, _ in options.kernels:
        key = None if given == DispatchKey.Undefined else given
        if key in seen:
            what = "catch-all kernels" if key is None else f"kernels for {key}"
            message = f"one op call for {name} has two {what}: leave one out, or register it by a call of its own"
            raise refuse(ErrorKind.OTHER, message, operator=str(name), key="" if key is None else str(key))
        seen.add(key)


def _impls(name: OperatorName, options: Options) -> Iterator[Impl]:
    for key, made in options.kernels:
        yield Impl(name, key, made.kernel, made.debug_text or DEBUG, call_site())
