"""`RegisterOperators`: the registration API of PyTorch before there were libraries.

    RegisterOperators(dispatcher=d).op("_test::dummy(Tensor x) -> ()", Options().kernel("CPU", dummy_cpu))

One `op` is a def and an impl for each kernel of its options, all of them or none.
Source: aten/src/ATen/core/op_registration/op_registration.cpp.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.engine.kernel import KernelFunction, KernelLike, call_site, choice, key_named
from dispatchlab.engine.library import Registrations, typed_kernel
from dispatchlab.engine.lowering import LoweredRegistration, lower
from dispatchlab.engine.refusals import refuse
from dispatchlab.errors import ErrorKind
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import AliasKind, Def, Impl
from dispatchlab.model.schema import FunctionSchema, clone_with_name
from dispatchlab.model.schema_parser import parse_schema_or_name

DEBUG = "registered by RegisterOperators"


@dataclass(frozen=True, slots=True)
class Options:
    """What an `op` registers besides its schema. Every call gives new options, so they can be chained and shared.

    Args:
        kernels: the kernels, each with the key that it is for; None is "every key".
        schema_or_name: the schema, or a name whose schema is inferred from the first kernel that has one.
        alias: the alias kind; None leaves it at the default.
    """

    kernels: tuple[tuple[DispatchKey | None, KernelFunction], ...] = ()
    schema_or_name: FunctionSchema | OperatorName | None = None
    alias: AliasKind | None = None

    def kernel(self, key: DispatchKey | str, function: KernelLike) -> Options:
        """With a kernel for one key.

        Raises:
            RegistrationError: of kind `unknown_key`, or the kernel is none.
        """
        return replace(self, kernels=(*self.kernels, (key_named(key), typed_kernel(function))))

    def catch_all_kernel(self, function: KernelLike) -> Options:
        """With a kernel for every key that has no other.

        Raises:
            RegistrationError: the kernel is none.
        """
        return replace(self, kernels=(*self.kernels, (None, typed_kernel(function))))

    def schema(self, text: str | FunctionSchema | OperatorName) -> Options:
        """With a schema, or a name alone.

        Raises:
            RegistrationError: there is one already.
            ParseError: it cannot be read.
        """
        given = parse_schema_or_name(text) if isinstance(text, str) else text
        if self.schema_or_name is not None:
            raise _schema_twice(self.schema_or_name, given)
        return replace(self, schema_or_name=given)

    def alias_analysis(self, kind: AliasKind | str) -> Options:
        """With an alias kind.

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
            options: kernels, and what else there is to say.

        Raises:
            RegistrationError: the options contradict themselves, or one of the registrations is refused; none is left.
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


def _schema_twice(old: FunctionSchema | OperatorName, new: FunctionSchema | OperatorName) -> Exception:
    message = f"an op has one schema and two are given, {old} and {new}: pass it to op, or set it in the options"
    return refuse(ErrorKind.OTHER, message, schema=str(new), other_schema=str(old))
