"""Registrations as frozen values that know their source location.

A scenario is made of them: `Def`, `Impl`, `Fallback`, `NameOnly`, `Claim`, `Block`, which is a library with its
registrations and comes and goes as a whole, and `PythonImpl`, which Python keeps beside the dispatch tables. A value
says nothing about whether an engine will accept it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from dispatchlab._short_repr import WordEnum, short_repr
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName

if TYPE_CHECKING:
    from dispatchlab.model.schema import FunctionSchema


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """The location of a text: a file, and line and column from 1."""

    file: str
    line: int
    column: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class AliasKind(WordEnum):
    """The promise of a def about aliasing (`AliasAnalysisKind`); no value at all is upstream's default.

    >>> from dispatchlab import AliasKind, Def, parse_schema
    >>> Def(parse_schema("test::foo(Tensor x) -> Tensor"), AliasKind.PURE_FUNCTION).alias
    AliasKind.PURE_FUNCTION
    """

    CONSERVATIVE = "CONSERVATIVE"
    FROM_SCHEMA = "FROM_SCHEMA"
    PURE_FUNCTION = "PURE_FUNCTION"
    INTERNAL_SPECIAL_CASE = "INTERNAL_SPECIAL_CASE"


class BlockKind(WordEnum):
    """The kind of a library block: `TORCH_LIBRARY`, `_FRAGMENT`, `_IMPL`, or the `import` of PR #35061.

    >>> from dispatchlab import BlockKind
    >>> BlockKind("FRAGMENT")
    BlockKind.FRAGMENT
    """

    DEF = "DEF"
    FRAGMENT = "FRAGMENT"
    IMPL = "IMPL"
    IMPORT = "IMPORT"


class KernelForm(WordEnum):
    """The way to call a kernel: with typed arguments, with a stack, or not at all because calls skip it.

    >>> from dispatchlab import KernelForm, fallthrough
    >>> fallthrough.kernel.form
    KernelForm.FALLTHROUGH
    """

    UNBOXED = "unboxed"
    BOXED = "boxed"
    FALLTHROUGH = "fallthrough"


class KernelFlags(WordEnum):
    """The ways to call a kernel, in the words that a dump prints in brackets.

    `BOXED` together with an inferred schema is a typed kernel that takes symbolic integers.
    """

    UNBOXED = "boxed unboxed"
    BOXED = "boxed"
    FALLTHROUGH = "fallthrough boxed"


@dataclass(frozen=True, slots=True, repr=False)
class Kernel:
    """The facts about a kernel in a registration.

    >>> from dispatchlab import Kernel, KernelForm
    >>> Kernel(KernelForm.FALLTHROUGH).is_fallthrough
    True

    Args:
        form: how it can be called.
        inferred: the schema of its type, for unboxed kernels; boxed kernels and fallthroughs have none.
        signature: the C++ signature that calls compare, hidden from every dump; boxed kernels carry none.
        symint: True if the kernel takes symbolic integers; its signature is only compared with such kernels.
        function: the Python function behind it, if there is one.
        reference: `package.module:function`, when a file named the function.
        takes_stack: the function takes the operator and a stack of values, as a boxed kernel of C++ does; otherwise it
            takes the arguments.
        with_keyset: the function takes the key set of the call, too.
    """

    form: KernelForm = KernelForm.BOXED
    inferred: FunctionSchema | None = None
    signature: str | None = None
    symint: bool = False
    function: Callable[..., object] | None = None
    reference: str | None = None
    takes_stack: bool = False
    with_keyset: bool = False

    __repr__ = short_repr

    @property
    def is_fallthrough(self) -> bool:
        """True when calls skip the key that this kernel is at."""
        return self.form is KernelForm.FALLTHROUGH

    @property
    def flags(self) -> KernelFlags:
        """The ways to call the kernel, as a dump prints them."""
        if self.is_fallthrough:
            return KernelFlags.FALLTHROUGH
        return KernelFlags.UNBOXED if self.form is KernelForm.UNBOXED and not self.symint else KernelFlags.BOXED


class _Registration:
    """Reads a schema, a name or a key that is given as a text.

    Raises:
        ParseError: a text cannot be read.
        UnknownKeyError: no key has that name.
    """

    __slots__ = ()
    __repr__ = short_repr

    def __post_init__(self) -> None:
        for name in ("schema", "operator", "key"):
            text: object = getattr(self, name, None)
            if type(text) is str:
                from dispatchlab.model.keys import parse_key
                from dispatchlab.model.schema_parser import parse_name, parse_schema_or_name

                reads: dict[str, Callable[[str], object]]
                reads = {"schema": parse_schema_or_name, "operator": parse_name, "key": parse_key}
                object.__setattr__(self, name, reads[name](text))


@dataclass(frozen=True, slots=True, repr=False)
class Def(_Registration):
    """Defines an operator.

    >>> from dispatchlab import Def
    >>> Def("test::foo(Tensor x) -> Tensor", debug="a.cpp:3")
    Def(parse_schema('test::foo(Tensor x) -> Tensor'), debug='a.cpp:3')

    Args:
        schema: the schema, or only a name, whose schema is inferred from `kernel`; both may be a text.
        alias: the alias kind; None leaves it at upstream's default.
        tags: names of tags.
        debug: its debug text, as dumps print it.
        kernel: a kernel registered by the same call, at `key`.
        key: the key of `kernel`; None is "no key".
        location: its source location; not compared.
        kernel_debug: the debug text of the kernel, as dumps print it; empty for the same as `debug`. In PyTorch,
            `CppFunction::debug` sets the text of the kernel only, and the def has the text of its library.
    """

    schema: FunctionSchema | OperatorName
    alias: AliasKind | None = AliasKind.FROM_SCHEMA
    tags: frozenset[str] = frozenset()
    debug: str = ""
    kernel: Kernel | None = None
    key: DispatchKey | None = None
    location: SourceLocation | None = field(default=None, compare=False)
    kernel_debug: str = ""

    if TYPE_CHECKING:

        def __init__(
            self,
            schema: FunctionSchema | OperatorName | str,
            alias: AliasKind | None = ...,
            tags: frozenset[str] = ...,
            debug: str = ...,
            kernel: Kernel | None = ...,
            key: DispatchKey | str | None = ...,
            location: SourceLocation | None = ...,
            kernel_debug: str = ...,
        ) -> None: ...

    @property
    def own_impl(self) -> Impl | None:
        """The registration of its kernel, None when it has none."""
        if self.kernel is None:
            return None
        return Impl(self.operator, self.key, self.kernel, self.kernel_debug or self.debug, self.location)

    @property
    def operator(self) -> OperatorName:
        """The operator that this defines."""
        return self.schema if isinstance(self.schema, OperatorName) else self.schema.name


@dataclass(frozen=True, slots=True, repr=False)
class Impl(_Registration):
    """Registers a kernel of an operator at a key; None means no key, so CompositeImplicitAutograd.

    >>> from dispatchlab import DispatchKey, Impl, parse_name
    >>> Impl(parse_name("test::foo"), DispatchKey.CPU, debug="fn_cpu")
    Impl(parse_name('test::foo'), DispatchKey.CPU, debug='fn_cpu')
    """

    operator: OperatorName
    key: DispatchKey | None = None
    kernel: Kernel = Kernel()
    debug: str = ""
    location: SourceLocation | None = field(default=None, compare=False)

    if TYPE_CHECKING:

        def __init__(
            self,
            operator: OperatorName | str,
            key: DispatchKey | str | None = ...,
            kernel: Kernel = ...,
            debug: str = ...,
            location: SourceLocation | None = ...,
        ) -> None: ...


@dataclass(frozen=True, slots=True, repr=False)
class Fallback(_Registration):
    """Registers the kernel that every operator falls back to at a key.

    >>> from dispatchlab import Dispatcher, DispatchKey, Fallback
    >>> Dispatcher().register(Fallback(DispatchKey.SparseCPU, debug="fn"))
    <RegistrationHandle of fallback SparseCPU (fn)>
    """

    key: DispatchKey | None
    kernel: Kernel = Kernel(KernelForm.FALLTHROUGH)
    debug: str = ""
    location: SourceLocation | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, repr=False)
class NameOnly(_Registration):
    """Keeps an operator's entry alive without a schema or a kernel (`registerName`).

    >>> from dispatchlab import Dispatcher, NameOnly, parse_name
    >>> dispatcher = Dispatcher()
    >>> with dispatcher.register(NameOnly(parse_name("test::foo"))):
    ...     dispatcher.dangling_impls()
    (parse_name('test::foo'),)
    """

    operator: OperatorName
    location: SourceLocation | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, repr=False)
class Claim(_Registration):
    """A claim of a namespace, as a DEF library makes; a namespace can have only one claim at a time.

    >>> from dispatchlab import Claim, check_order
    >>> check_order([Claim("test", "a.cpp:1"), Claim("test", "b.cpp:1")]).exploration.conflicts[0].kind
    'duplicate_library'
    """

    namespace: str
    debug: str = ""
    location: SourceLocation | None = field(default=None, compare=False)


class TorchLibraryFunction(WordEnum):
    """A function of `torch.library` that registers; these have order rules of their own."""

    DEFINE = "define"
    IMPL = "impl"
    CUSTOM_OP = "custom_op"
    REGISTER_KERNEL = "register_kernel"
    REGISTER_FAKE = "register_fake"
    REGISTER_AUTOGRAD = "register_autograd"
    REGISTER_VMAP = "register_vmap"
    REGISTER_AUTOCAST = "register_autocast"
    REGISTER_TORCH_DISPATCH = "register_torch_dispatch"


TAKE_OVERRIDE = TorchLibraryFunction.IMPL, TorchLibraryFunction.REGISTER_FAKE
"""The functions that take `allow_override`."""


@dataclass(frozen=True, slots=True, repr=False)
class TorchLibraryCall:
    """A call of a function of `torch.library`, by which a block was made.

    Args:
        function: the called function.
        operator: the operator that it is about.
        on: the device types of a kernel or a cast, or the class of a torch dispatch rule as `module:name`.
        parts: the registrations on the operator object that `custom_op` returns, in order; PyTorch can release them
            with the operator only.
        debug: the debug text of a part; a block has its own.
        allow_override: the argument `allow_override` of the call; None for the default of this PyTorch.
    """

    function: TorchLibraryFunction
    operator: OperatorName
    on: tuple[str, ...] = ()
    parts: tuple[TorchLibraryCall, ...] = ()
    debug: str = ""
    allow_override: bool | None = None

    __repr__ = short_repr


@dataclass(frozen=True, slots=True, repr=False)
class Block(_Registration):
    """A library with its registrations: one registration, as a static initialiser is.

    >>> from dispatchlab import Block, BlockKind, Dispatcher, DispatchKey, Impl, parse_name
    >>> kernels = (Impl(parse_name("foo"), debug="fn_cpu"),)
    >>> Dispatcher().register(Block("test", BlockKind.IMPL, kernels, DispatchKey.CPU))
    <RegistrationHandle of library test IMPL CPU with 1 registration>

    Args:
        namespace: the namespace; None is the wildcard `_`.
        kind: the kind of library, which decides the allowed content.
        key: the key of an IMPL block.
        registrations: in the order in which they run; released in that order too.
        debug: the debug text of each `Def` and `Impl` in it that has no own text.
        made_by: the call of `torch.library` that registers all this. The running PyTorch makes that call, and the lab
            engine follows its rules where they are known; else it registers what is inside.
    """

    namespace: str | None
    kind: BlockKind
    registrations: tuple[Def | Impl | Fallback, ...] = ()
    key: DispatchKey | None = None
    debug: str = ""
    made_by: TorchLibraryCall | None = None
    location: SourceLocation | None = field(default=None, compare=False)


Registration: TypeAlias = Def | Impl | Fallback | NameOnly | Claim | Block


def defined_by(registrations: Iterable[Registration], namespace: str = "") -> Iterator[OperatorName]:
    """Return the operators that registrations define, also inside blocks.

    Args:
        registrations: the registrations.
        namespace: the namespace of names without a namespace.
    """
    for registration in registrations:
        match registration:
            case Def():
                yield registration.operator.within(namespace)
            case Block():
                yield from defined_by(registration.registrations, registration.namespace or "")
            case _:
                pass


def operators_of(registration: Registration) -> Iterator[OperatorName]:
    """Return the operators that a registration names; inside of a block, with the namespace of the block."""
    match registration:
        case Block():
            if registration.made_by is not None and not registration.registrations:
                yield registration.made_by.operator.within(registration.namespace or "")
            for inner in registration.registrations:
                for name in operators_of(inner):
                    yield name.within(registration.namespace or "")
        case Def() | Impl() | NameOnly():
            yield registration.operator
        case Fallback() | Claim():
            pass


def kernel_text(registration: Def | Impl | Fallback) -> str:
    """Return the text of a registration's kernel in dumps."""
    own = registration.own_impl if isinstance(registration, Def) else registration
    return registration.debug if own is None else own.debug


def with_kernel_text(registration: Def | Impl | Fallback, text: str) -> Def | Impl | Fallback:
    """Return the registration with this text for its kernel in dumps."""
    if isinstance(registration, Def) and registration.kernel is not None:
        return replace(registration, kernel_debug=text)
    return replace(registration, debug=text)


def inner_of(registration: Registration) -> tuple[Registration, ...]:
    """Return the registrations of a block; another registration stands for itself."""
    return registration.registrations if isinstance(registration, Block) else (registration,)


def shown_text(registration: Registration) -> str:
    """Return the debug text that distinguishes a registration: the text of its kernel if it has one; may be empty."""
    match registration:
        case NameOnly():
            return ""
        case Def() | Impl() | Fallback():
            return kernel_text(registration)
        case Claim() | Block():
            return registration.debug


def describe(registration: Registration) -> str:
    """Return a registration in one line, for people: `impl test::foo CPU (fn_cpu)`."""
    match registration:
        case Def():
            text = f"def {registration.schema}"
        case Impl():
            text = f"impl {registration.operator} {registration.key or '(no key)'}"
        case Fallback():
            text = f"fallback {registration.key or '(no key)'}"
        case NameOnly():
            text = f"name {registration.operator}"
        case Claim():
            text = f"claim {registration.namespace}"
        case Block(made_by=TorchLibraryCall(function=function, operator=operator, on=on)):
            text = f"{function} {operator.within(registration.namespace or '')}{' on ' if on else ''}{', '.join(on)}"
        case Block():
            key = f" {registration.key}" if registration.key else ""
            count = len(registration.registrations)
            inside = f"{count} registration{'' if count == 1 else 's'}"
            text = f"library {registration.namespace or '_'} {registration.kind}{key} with {inside}"
    debug = shown_text(registration)
    return f"{text} ({debug})" if debug else text
