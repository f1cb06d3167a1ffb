"""The `import` block of PR #35061: calls that chain, and a namespace that is filled in where a name has none.

    Import("test", dispatcher=d).def_("foo(Tensor x) -> Tensor").impl("foo", "CPU", foo_cpu)

A plain function is an unboxed kernel with the schema of its annotations; `boxed` and `fallthrough` of
`kernel` make the other kernels, and `dispatch` here ties any of them to a key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self, overload

from dispatchlab.engine import kernel
from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.engine.kernel import KernelFunction, KernelLike, call_site, key_named
from dispatchlab.engine.library import Registrations, debug_of_caller, typed_kernel
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import AliasKind, Block, BlockKind, Def, Fallback, Impl
from dispatchlab.model.schema import FunctionSchema
from dispatchlab.model.schema_parser import parse_name, parse_schema, parse_schema_or_name


@dataclass(frozen=True, slots=True)
class DeclaredSchema:
    """A schema with the alias kind that a def of it has."""

    schema: FunctionSchema
    alias: AliasKind


def schema(text: str, kind: AliasKind = AliasKind.FROM_SCHEMA) -> DeclaredSchema:
    """A schema for `def_` with an alias kind of its own.

    Raises:
        ParseError: the schema cannot be read.
    """
    return DeclaredSchema(parse_schema(text), kind)


def dispatch(key: DispatchKey | str, function: KernelLike) -> KernelFunction:
    """A kernel for one key; a device type such as `cuda` means the key of its backend.

    Raises:
        RegistrationError: the key is none, or no schema can be inferred from the function.
    """
    return kernel.dispatch(key, typed_kernel(function))


def dispatch_autograd(function: KernelLike) -> KernelFunction:
    """A kernel for the autograd keys of all backends."""
    return dispatch(DispatchKey.Autograd, function)


class Import(Registrations):
    """A block of registrations that comes down with it.

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
