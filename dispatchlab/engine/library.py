"""`Library`: registrations of one namespace, which are released with it; `Registrations`: the base of front ends.

The names are those of `torch.library`, so that code which registers operators there reads the same here. Rules and
order of release: aten/src/ATen/core/library.cpp.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import NoReturn, Self

from dispatchlab.engine.dispatcher import Dispatcher, register_lowered
from dispatchlab.engine.handle import RegistrationHandle, forget_all, not_copied, release_all
from dispatchlab.engine.kernel import KernelFunction, KernelLike, call_site, choice, kernel_function, key_named, unboxed
from dispatchlab.engine.lowering import LoweredRegistration, lower, lower_inside
from dispatchlab.engine.refusals import unknown_key, unparsed_key
from dispatchlab.errors import ErrorKind, RegistrationError
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import AliasKind, Block, BlockKind, Def, Fallback, Impl
from dispatchlab.model.schema import FunctionSchema
from dispatchlab.model.schema_parser import parse_name, parse_schema, parse_schema_or_name


class Registrations:
    """Handles in the order in which they were made; forgetting the object releases them.

    Args:
        dispatcher: where to register.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._handles: dict[RegistrationHandle, None] = {}  # a set in the order in which they came
        self._dispatcher = dispatcher

    @property
    def handles(self) -> tuple[RegistrationHandle, ...]:
        """The handles of the registrations in force, in the order of their registration."""
        return (*self._handles,)  # `tuple` grows while it iterates, and what is collected then changes the dict

    def _hold(self, made: LoweredRegistration, what: str) -> RegistrationHandle:
        return register_lowered(self._dispatcher, made, what, home=self._handles)

    def _hold_inside(self, block: Block, registration: Def | Impl | Fallback, what: str) -> RegistrationHandle:
        made = lower_inside(block, registration, self._dispatcher.semantics)
        if self._dispatcher.semantics.is_atomic or len(made.primitives) == 1:
            return self._hold(made, what)
        return self._hold_one_by_one(made, what)

    def _hold_one_by_one(self, made: LoweredRegistration, what: str) -> RegistrationHandle:
        """Make one registration after another; keep those before a refused one, as PyTorch does."""
        parts: list[RegistrationHandle] = []
        whole = RegistrationHandle(
            lambda: release_all(parts), what, forget=lambda: forget_all(parts), home=self._handles
        )
        try:
            for one in made.primitives:
                parts.append(register_lowered(self._dispatcher, LoweredRegistration([one]), what))
        except RegistrationError:
            if not parts:
                whole.settle()
            raise
        except BaseException:
            whole.release()
            raise
        return whole

    def release(self) -> None:
        """Undo everything in the order of registration; a second release is harmless."""
        release_all(self.handles)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    def __del__(self, *, _ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not _ending():  # else the dispatcher goes too, and half of the modules are gone
            forget_all(getattr(self, "_handles", {}).copy())

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise not_copied(self)


def debug_of_caller(debug: str | None) -> str:
    """Return the debug text of a front end's registrations: the given text, or the line that opened it."""
    if debug is not None:
        return debug
    site = call_site()
    return f"registered at {site.file}:{site.line}"


def debug_of_kernel(function: object) -> str:
    """Return the debug text of a kernel without one: the line of the call, and the function's qualified name."""
    name = getattr(function, "__qualname__", "")
    return f"{debug_of_caller(None)} ({name})" if name else debug_of_caller(None)


def typed_kernel(function: object) -> KernelFunction:
    """Return a kernel as the C++ front ends make it: a plain function gets the schema of its annotations.

    Raises:
        RegistrationError: it cannot be called, or no schema can be inferred from it; `boxed` needs none.
    """
    if not isinstance(function, KernelFunction) and callable(function):
        return unboxed(function)
    return kernel_function(function)


def _definition(schema: str | FunctionSchema, *, with_kernel: bool) -> FunctionSchema | OperatorName:
    """Return the definition: a schema, or a name and a kernel; type variables need a kernel."""
    if not isinstance(schema, str):
        return schema
    return parse_schema_or_name(schema) if with_kernel else parse_schema(schema, typevars=False)


_KINDS = (BlockKind.DEF, BlockKind.FRAGMENT, BlockKind.IMPL)


class Library(Registrations):
    """A block of registrations.

    >>> from dispatchlab import Dispatcher, Library, operator, tensor
    >>> dispatcher = Dispatcher()
    >>> with Library("test", "DEF", dispatcher=dispatcher) as library:
    ...     _ = library.define("twice(Tensor x) -> Tensor")
    ...     _ = library.impl("twice", lambda x: tensor(x.numpy() * 2), "CPU")
    ...     operator(dispatcher, "test::twice")(tensor([1.0, 2.0]))
    tensor([2., 4.])

    Args:
        namespace: the namespace of its operators; `_` is the wildcard of IMPL libraries that hold fallbacks.
        kind: `DEF` claims the namespace, `FRAGMENT` extends it, `IMPL` only holds kernels.
        dispatch_key: the key of every kernel in an IMPL library; empty for none.
        dispatcher: where to register.
        debug: the debug text of its registrations; default: `registered at FILE:LINE` of each call, followed by the
            qualified name of a kernel, so that the kernels of one library have different texts.

    Raises:
        RegistrationError: of kinds `unknown_block_kind`, `unknown_key`, `wildcard_namespace`, `key_on_def_block`,
            `duplicate_library`, or `other` for defs in the reserved namespace `prim`.
    """

    def __init__(
        self,
        namespace: str,
        kind: str,
        dispatch_key: DispatchKey | str = "",
        *,
        dispatcher: Dispatcher,
        debug: str | None = None,
    ) -> None:
        super().__init__(dispatcher)
        if namespace == "prim" and kind != BlockKind.IMPL:
            message = "the namespace prim is reserved for the operators of TorchScript: choose another"
            raise RegistrationError(ErrorKind.OTHER, message, {"namespace": namespace})
        self._block = Block(
            None if namespace == "_" else namespace,
            choice(kind, _KINDS, kind=ErrorKind.UNKNOWN_BLOCK_KIND, what="kind of library"),
            key=self._key(dispatch_key),
            debug=debug_of_caller(debug),
            location=call_site(),
        )
        self._has_debug = debug is not None
        opening = lower(self._block, dispatcher.semantics)
        if opening.primitives:
            self._hold(opening, f"library {namespace} {kind}")

    def define(
        self,
        schema: str | FunctionSchema,
        function: KernelLike | None = None,
        *,
        alias_analysis: str = "",
        tags: Iterable[str] = (),
        debug: str = "",
    ) -> RegistrationHandle:
        """Define an operator.

        Args:
            schema: a schema; with `function`, a name is enough, and the schema is inferred.
            function: a kernel to register along with the def.
            alias_analysis: an alias kind; empty means FROM_SCHEMA for text, upstream's default for a parsed schema, and
                CONSERVATIVE for an inferred one.
            tags: names of tags.
            debug: the debug text of the def; default: the text of the library, or else the line of this call. The
                kernel has its own text, or else the text as for an `impl`.

        Raises:
            RegistrationError: the def, or the kernel, is refused.
            ParseError: the schema cannot be read.
        """
        kernel = None if function is None else kernel_function(function)
        # An alias kind is read before the schema, a key before the name. A def with a kernel may have type variables.
        alias: AliasKind | None = None
        if alias_analysis:
            alias = choice(alias_analysis, tuple(AliasKind), kind=ErrorKind.UNKNOWN_ALIAS_KIND, what="alias kind")
        parsed = _definition(schema, with_kernel=kernel is not None)
        if alias is None and isinstance(parsed, OperatorName):
            alias = AliasKind.CONSERVATIVE
        elif alias is None and isinstance(schema, str):
            alias = AliasKind.FROM_SCHEMA
        return self._add(
            Def(
                parsed,
                alias,
                frozenset(tags),
                self._text(debug),
                None if kernel is None else kernel.kernel,
                None if kernel is None else kernel.key,
                call_site(),
                "" if kernel is None else self._text(kernel.debug_text, kernel.kernel.function),
            ),
            f"def {parsed}",
        )

    def impl(
        self,
        name: str | OperatorName,
        function: KernelLike,
        dispatch_key: DispatchKey | str = "",
        *,
        with_keyset: bool = False,
        debug: str = "",
    ) -> RegistrationHandle:
        """Register a kernel.

        Args:
            name: the operator, `ns::name.overload`; the namespace may be left out.
            function: the kernel; `fallthrough` to have calls skip the key.
            dispatch_key: the key; empty for the library's own, and CompositeImplicitAutograd when it has none.
            with_keyset: a plain function takes the key set of the call before the arguments.
            debug: the debug text; default: the text of the kernel, or of the library, or the line and the function.

        Raises:
            RegistrationError: it is refused.
            ParseError: the name cannot be read.
        """
        kernel = kernel_function(function, with_keyset=with_keyset)
        named = self._key(dispatch_key)
        operator = parse_name(name) if isinstance(name, str) else name
        key = named if named is not None else kernel.key
        text = self._text(debug or kernel.debug_text, kernel.kernel.function)
        return self._add(Impl(operator, key, kernel.kernel, text, call_site()), f"impl {operator} {key or ''}")

    def fallback(
        self,
        function: KernelLike,
        dispatch_key: DispatchKey | str = "",
        *,
        with_keyset: bool = False,
        debug: str = "",
    ) -> RegistrationHandle:
        """Register the kernel that all operators fall back to at a key; an alias key means each of its runtime keys.

        Args:
            function: the kernel; a plain function takes the operator before the arguments.
            dispatch_key: the key; empty for the library's own.
            with_keyset: a plain function takes the key set of the call before the operator.
            debug: the debug text; default: the text of the kernel, or of the library, or the line and the function.

        Raises:
            RegistrationError: it is refused.
        """
        kernel = kernel_function(function, with_keyset=with_keyset)
        named = self._key(dispatch_key)
        key = named if named is not None else kernel.key
        text = self._text(debug or kernel.debug_text, kernel.kernel.function)
        return self._add(Fallback(key, kernel.kernel, text, call_site()), f"fallback {key or ''}")

    def _key(self, given: DispatchKey | str) -> DispatchKey | None:
        """Return a key as `torch.library` reads it, which parses a text."""
        key, semantics = key_named(given), self._dispatcher.semantics
        if key and key not in semantics.parsed:
            raise (unparsed_key if key in semantics.keys else unknown_key)(key, semantics.name)
        return key

    def _text(self, debug: str, function: object = None) -> str:
        """Return the given text, or empty text if the library has a text."""
        return debug if debug or self._has_debug else debug_of_kernel(function)

    def _add(self, registration: Def | Impl | Fallback, what: str) -> RegistrationHandle:
        return self._hold_inside(self._block, registration, what)

    def __repr__(self) -> str:
        block = self._block
        return f"<Library {block.namespace or '_'} {block.kind}{f' {block.key}' if block.key else ''}>"
