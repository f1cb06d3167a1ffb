"""One entry of native_functions.yaml as a frozen value: the operator, its kernels, and how its variants are made.

The fields are those of the file; `parts` and `kind` follow from the schema. Source: torchgen/model.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dispatchlab._short_repr import CodeEnum, WordEnum
from dispatchlab.codegen.read.schema_parts import SchemaKind, SchemaParts, innermost
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import SourceLocation
from dispatchlab.model.schema import SYM_INT, FunctionSchema, Type, clone_with_name

NATIVE_NAMESPACE = "at::native"
"""The C++ namespace of kernels that are named without one."""

STRUCTURED_KEYS = frozenset(
    (DispatchKey.CPU, DispatchKey.CUDA, DispatchKey.MPS, DispatchKey.XPU, DispatchKey.MTIA),
)
"""The keys whose kernel of a structured function is a structured one."""

UFUNC_KEYS = (DispatchKey.CPU, DispatchKey.CUDA)
"""The keys for which a kernel is made from `ufunc_inner_loop`."""

COMPOSITE_KEYS = (
    DispatchKey.CompositeExplicitAutograd,
    DispatchKey.CompositeExplicitAutogradNonFunctional,
    DispatchKey.CompositeImplicitAutograd,
    DispatchKey.CompositeImplicitAutogradNestedTensor,
)
"""The keys that support all backends."""


class Variant(WordEnum):
    """Where Python and C++ find an operator: as a function, as a method of tensors."""

    FUNCTION = "function"
    METHOD = "method"


class DeviceCheck(WordEnum):
    """Whether kernels for a device check that all tensors are on one device."""

    NO_CHECK = "NoCheck"
    EXACT_SAME = "ExactSame"


class UfuncKey(WordEnum):
    """The kind of inner loop of a pointwise kernel in `ufunc_inner_loop`."""

    CUDA_FUNCTOR = "CUDAFunctor"
    CUDA_FUNCTOR_ON_OTHER = "CUDAFunctorOnOther"
    CUDA_FUNCTOR_ON_SELF = "CUDAFunctorOnSelf"
    CPU_SCALAR = "CPUScalar"
    CPU_VECTOR = "CPUVector"
    SCALAR_ONLY = "ScalarOnly"
    GENERIC = "Generic"


class ScalarKind(CodeEnum):
    """The element types of inner loops, with torchgen's names."""

    Byte = 0
    Char = 1
    Short = 2
    Int = 3
    Long = 4
    Half = 5
    Float = 6
    Double = 7
    ComplexHalf = 8
    ComplexFloat = 9
    ComplexDouble = 10
    Bool = 11
    BFloat16 = 15
    Float8_e5m2 = 23
    Float8_e5m2fnuz = 25
    Float8_e4m3fn = 24
    Float8_e4m3fnuz = 26
    Float8_e8m0fnu = 44


@dataclass(frozen=True, slots=True)
class UfuncLoop:
    """One inner loop: its function, and the element types that it is made for, in the order of the file."""

    key: UfuncKey
    name: str
    scalar_kinds: tuple[ScalarKind, ...]


@dataclass(frozen=True, slots=True)
class Precomputed:
    """A value that meta passes to impl: `int dim`."""

    type: Type
    name: str

    def __str__(self) -> str:
        return f"{self.type} {self.name}"


@dataclass(frozen=True, slots=True)
class Precompute:
    """The values that meta hands to impl, in the place of arguments and beside them."""

    replace: tuple[tuple[str, tuple[Precomputed, ...]], ...] = ()
    add: tuple[Precomputed, ...] = ()

    @property
    def values(self) -> tuple[Precomputed, ...]:
        """All values, in the order of meta."""
        return (*(value for _, values in self.replace for value in values), *self.add)


@dataclass(frozen=True, slots=True)
class BackendKernel:
    """The kernel of one function at one key.

    Args:
        key: the key.
        name: the C++ function, or for a structured kernel the class that has `impl`.
        structured: True when it is a structured kernel.
        namespace: the C++ namespace it is in.
    """

    key: DispatchKey
    name: str
    structured: bool = False
    namespace: str = NATIVE_NAMESPACE

    @property
    def takes_symint(self) -> bool:
        """True if its name shows that it takes symbolic integers."""
        return "_symint" in self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeFunction:
    """An operator of native_functions.yaml, with the fields of the file.

    Args:
        schema: `func`, with its namespace.
        parts: the schema's arguments by purpose.
        kind: functional, inplace, out, mutable or scratch.
        dispatch: the kernels: those of the file, those of `ufunc_inner_loop`, and the composite one that a function
            without `dispatch` has.
        text: the exact text of `func`; for a function that was made from another function, the text of that function.
        location: the source location of `func`; for such a function, that of the other function.
        is_abstract: whether backends have different kernels, instead of one composite kernel.
        is_view: its result shares memory with an argument; see `shares_memory`.
    """

    schema: FunctionSchema
    parts: SchemaParts = field(repr=False, compare=False)
    kind: SchemaKind = field(compare=False)
    dispatch: tuple[BackendKernel, ...] = ()
    variants: frozenset[Variant] = frozenset((Variant.FUNCTION,))
    structured: bool = False
    structured_delegate: OperatorName | None = None
    structured_inherits: str | None = None
    precomputed: Precompute | None = None
    autogen: tuple[OperatorName, ...] = ()
    ufunc_inner_loop: tuple[UfuncLoop, ...] = ()
    manual_kernel_registration: bool = False
    manual_cpp_binding: bool = False
    python_module: str | None = None
    category_override: str | None = None
    device_guard: bool = True
    device_check: DeviceCheck = DeviceCheck.EXACT_SAME
    cpp_no_default_args: frozenset[str] = frozenset()
    use_const_ref_for_mutable_tensors: bool = False
    tags: frozenset[str] = frozenset()
    is_abstract: bool = False
    is_view: bool = False
    text: str = field(default="", repr=False, compare=False)
    location: SourceLocation | None = field(default=None, compare=False)

    @property
    def name(self) -> OperatorName:
        """The name of the operator, with its namespace."""
        return self.schema.name

    @property
    def short_name(self) -> str:
        """`add.out`: the name as the file has it."""
        return str(self.schema.name.without_namespace)

    @property
    def cpp_name(self) -> str:
        """`add_out` for add.out. Source: `name` in torchgen/api/cpp.py."""
        return f"{self.name.name}{'_out' if self.parts.outs else ''}"

    @property
    def flat_name(self) -> str:
        """`add_out` for add.out: the class in at::_ops."""
        return self.short_name.replace(".", "_")

    @property
    def own_schema(self) -> FunctionSchema:
        """The schema as a def in a library has it, without namespace."""
        return clone_with_name(self.schema, self.name.without_namespace)

    def written_at(self, file: str) -> str:
        """Return `native_functions.yaml:558`, with the name of the file."""
        return f"{file}:{self.location.line}" if self.location else file

    @property
    def is_generated(self) -> bool:
        """True when the file has no entry for it: it was made from another variant."""
        return "generated" in self.tags

    @property
    def in_structured_group(self) -> bool:
        """True when it is a structured function or delegates to one."""
        return self.structured or self.structured_delegate is not None

    @property
    def has_symint(self) -> bool:
        """True when it takes symbolic integers."""
        return any(innermost(one.type) == SYM_INT for one in self.parts.inputs)

    def kernel_at(self, key: DispatchKey) -> BackendKernel | None:
        """Return the kernel of the file at a key."""
        return next((kernel for kernel in self.dispatch if kernel.key is key), None)

    @property
    def composites(self) -> frozenset[DispatchKey]:
        """The composite keys that it has kernels at."""
        return frozenset(kernel.key for kernel in self.dispatch if kernel.key in COMPOSITE_KEYS)


def shares_memory(schema: FunctionSchema, parts: SchemaParts, tags: frozenset[str]) -> bool:
    """Return whether the result shares memory with an argument. Source: `NativeFunction.is_view_op`."""
    if any(one.alias is not None and not one.alias.is_write for one in schema.returns):
        return True
    if "inplace_view" in tags and (schema.name.name not in ("resize_", "resize_as_") or schema.name.overload):
        return True
    return parts.has_wildcard
