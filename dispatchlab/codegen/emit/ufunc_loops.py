"""The kernels that `ufunc_inner_loop` makes, as values: the loops of each dtype on CPU, and the functors of CUDA.

Source: torchgen/dest/ufunc.py, torchgen/api/ufunc.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from dispatchlab.codegen.read.groups import FunctionGroup
from dispatchlab.codegen.read.native_function import NativeFunction, ScalarKind, UfuncKey, UfuncLoop
from dispatchlab.codegen.read.schema_parts import is_tensor_like
from dispatchlab.errors import DispatchLabError
from dispatchlab.model.schema import TENSOR, Argument, ListType, OptionalType, SimpleType, Type


class UfuncLoopError(DispatchLabError):
    """No kernel can be made of the inner loops of a function.

    Args:
        function: the out variant, which has them.
        reason: what is wrong.
    """

    function: NativeFunction
    reason: str

    def __str__(self) -> str:
        where = f"{self.function.location}: " if self.function.location else ""
        return f"{where}no kernel can be made of the ufunc_inner_loop of {self.function.short_name}: {self.reason}"


@dataclass(frozen=True, slots=True)
class CpuCase:
    """The loops of one dtype on CPU.

    Args:
        kind: the dtype.
        scalar: the function of the loop over single elements.
        vector: that of the loop over vectors; empty where there is none.
    """

    kind: ScalarKind
    scalar: str
    vector: str


@dataclass(frozen=True, slots=True)
class Functor:
    """What CUDA calls for each element.

    Args:
        key: which one it is.
        name: its class.
        ufunc: the function that it calls; empty when the class is written by hand.
        held: the arguments that it is made with: numbers, and a tensor that is a CPU scalar.
        taken: the tensors that it is called with.
    """

    key: UfuncKey
    name: str
    ufunc: str
    held: tuple[Argument, ...]
    taken: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class CudaCase:
    """The functors of one dtype on CUDA: those for a CPU scalar first, and the one for everything else."""

    kind: ScalarKind
    functors: tuple[Functor, ...]


@dataclass(frozen=True, slots=True)
class UfuncLoops:
    """The kernels of one group.

    Args:
        name: the operator, after which the stub and the kernels are called.
        arguments: what the functions by hand take, in this order.
        cpu: by dtype, in the order of the switch.
        cuda: by dtype, in the order of the switch.
        functors: the classes that are generated.
    """

    name: str
    arguments: tuple[Argument, ...]
    cpu: tuple[CpuCase, ...]
    cuda: tuple[CudaCase, ...]
    functors: tuple[Functor, ...]

    @property
    def tensors(self) -> tuple[Argument, ...]:
        """The arguments that are tensors, which the TensorIterator has."""
        return tuple(argument for argument in self.arguments if is_tensor_like(argument.type))

    @property
    def others(self) -> tuple[Argument, ...]:
        """The other arguments, which the stub takes."""
        return tuple(argument for argument in self.arguments if not is_tensor_like(argument.type))

    @property
    def ufuncs(self) -> tuple[str, ...]:
        """The functions by hand, each once."""
        names = [name for case in self.cpu for name in (case.scalar, case.vector) if name]
        names += [functor.ufunc for functor in self.functors]
        return tuple(dict.fromkeys(names))

    @property
    def functors_by_hand(self) -> tuple[Functor, ...]:
        """The classes written by hand, each name once."""
        found = {one.name: one for case in self.cuda for one in case.functors if not one.ufunc}
        return tuple(found.values())


SCALAR_TENSOR: Mapping[UfuncKey, int | None] = {
    UfuncKey.CUDA_FUNCTOR_ON_OTHER: 0,
    UfuncKey.CUDA_FUNCTOR_ON_SELF: 1,
    UfuncKey.CUDA_FUNCTOR: None,
}
"""Which tensor a functor of CUDA holds, in the order in which a kernel tries them."""
_TENSOR_NAMES = ("self", "other")
_MADE_IN_ORDER = (UfuncKey.CUDA_FUNCTOR_ON_SELF, UfuncKey.CUDA_FUNCTOR_ON_OTHER, UfuncKey.CUDA_FUNCTOR)


def ufunc_loops(group: FunctionGroup) -> UfuncLoops | None:
    """What `ufunc_inner_loop` makes for a group; None when it has none.

    Raises:
        UfuncLoopError: a dtype has no loop of a kind that its kernel needs, or an argument is of no type for a loop.
    """
    out = group.out
    if not out.ufunc_inner_loop:
        return None
    arguments = group.functional.parts.inputs
    for one in arguments:
        if not _is_taken(one.type):
            raise UfuncLoopError(out, f"{one.name} is {one.type}, which no inner loop takes")
    loops = {loop.key: loop for loop in out.ufunc_inner_loop}
    tensors = tuple(argument for argument in arguments if is_tensor_like(argument.type))
    cuda, functors = _cuda(out, loops, arguments, tensors)
    cpu = tuple(_cpu(out, loops))
    for one in arguments:
        # NB: torchgen's functors of CUDA hold any value, and its lambdas of CPU numbers alone
        if cpu and one.type not in (TENSOR, SimpleType("Scalar")):
            raise UfuncLoopError(out, f"{one.name} is {one.type}, and the loops of CPU take tensors and Scalars")
    return UfuncLoops(group.functional.name.name, arguments, cpu, cuda, functors)


def _is_taken(type_: Type) -> bool:
    """Source: `ufunc_type` and `valuetype_type` in torchgen's api."""
    match type_:
        case OptionalType(element):
            return element not in (TENSOR, SimpleType("Scalar")) and _is_taken(element)
        case ListType(element, size):
            return element == SimpleType("bool") and size is not None
        case _:
            return type_ != SimpleType("Generator")


def _cpu(out: NativeFunction, loops: Mapping[UfuncKey, UfuncLoop]) -> Iterator[CpuCase]:
    scalar = _by_kind(loops, UfuncKey.CPU_SCALAR, UfuncKey.SCALAR_ONLY, UfuncKey.GENERIC)
    vector = _by_kind(loops, UfuncKey.CPU_VECTOR, UfuncKey.GENERIC)
    for kind in dict.fromkeys((*scalar, *vector)):
        if kind not in scalar:
            raise UfuncLoopError(out, f"{kind.name} has a vector loop on CPU and no scalar loop, which it ends with")
        yield CpuCase(kind, scalar[kind], vector.get(kind, ""))


def _by_kind(loops: Mapping[UfuncKey, UfuncLoop], *keys: UfuncKey) -> dict[ScalarKind, str]:
    """The function of each dtype; where several loops have the dtype, that of the first key."""
    found: dict[ScalarKind, str] = {}
    for loop in _present(loops, keys):
        for kind in loop.scalar_kinds:
            found.setdefault(kind, loop.name)
    return found


def _present(loops: Mapping[UfuncKey, UfuncLoop], keys: Iterable[UfuncKey]) -> Iterator[UfuncLoop]:
    return (loops[key] for key in keys if key in loops)


def _cuda(
    out: NativeFunction,
    loops: Mapping[UfuncKey, UfuncLoop],
    arguments: tuple[Argument, ...],
    tensors: tuple[Argument, ...],
) -> tuple[tuple[CudaCase, ...], tuple[Functor, ...]]:
    binary = len(tensors) == 2
    found: dict[ScalarKind, dict[UfuncKey, Functor]] = {}
    made: list[Functor] = []
    for key in _MADE_IN_ORDER:
        if key is not UfuncKey.CUDA_FUNCTOR and not binary:
            if key in loops:
                raise UfuncLoopError(out, f"{key} is for functions of two tensors, and this one has {len(tensors)}")
            continue
        if key in loops:
            functor = _functor(key, loops[key].name, "", arguments, tensors)
            kinds: Iterable[ScalarKind] = loops[key].scalar_kinds
        else:
            sources = tuple(_present(loops, (UfuncKey.SCALAR_ONLY, UfuncKey.GENERIC)))
            if not sources:
                raise UfuncLoopError(out, f"CUDA needs {key}, ScalarOnly or Generic, and there is none of them")
            if len({loop.name for loop in sources}) > 1:
                raise UfuncLoopError(out, "ScalarOnly and Generic name two functions, and CUDA takes one for both")
            functor = _functor(key, f"{key}_{sources[0].name}", sources[0].name, arguments, tensors)
            kinds = dict.fromkeys(kind for loop in sources for kind in loop.scalar_kinds)
            made.append(functor)
        for kind in kinds:
            found.setdefault(kind, {})[key] = functor
    if binary and tuple(tensor.name for tensor in tensors) != _TENSOR_NAMES:
        names = " and ".join(tensor.name for tensor in tensors)
        raise UfuncLoopError(out, f"the tensors of a binary function are called self and other, and these are {names}")
    for kind, functors in found.items():
        if UfuncKey.CUDA_FUNCTOR not in functors:
            raise UfuncLoopError(out, f"{kind.name} has functors for CPU scalars on CUDA, and no CUDAFunctor")
    cases = tuple(
        CudaCase(kind, tuple(functors[key] for key in SCALAR_TENSOR if key in functors))
        for kind, functors in found.items()
    )
    return cases, tuple(made)


def _functor(
    key: UfuncKey, name: str, ufunc: str, arguments: tuple[Argument, ...], tensors: tuple[Argument, ...]
) -> Functor:
    at = SCALAR_TENSOR[key]
    held_tensor = None if at is None else tensors[at]
    held = tuple(argument for argument in arguments if argument is held_tensor or argument not in tensors)
    return Functor(key, name, ufunc, held, tuple(tensor for tensor in tensors if tensor is not held_tensor))
