"""The Python text of kernels from `ufunc_inner_loop`: the stub, the switch over dtypes, its loops and functors.

    def add_kernel(op: TensorIteratorBase, alpha: Scalar) -> None:
        match op.scalar_kind:
            case "Float":
                _s_alpha = scalar_to(alpha, "Float")
                _v_alpha = Vectorized(_s_alpha)
                cpu_kernel_vec(
                    op,
                    lambda self, other: op.kernels.ufunc_add(self, other, _s_alpha),
                    lambda self, other: op.kernels.ufunc_add(self, other, _v_alpha),
                )

They are those of torchgen's UfuncCPU_add.cpp, UfuncCPUKernel_add.cpp and UfuncCUDA_add.cu.
Source: torchgen/dest/ufunc.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dispatchlab.codegen.emit.generated_group import python_name
from dispatchlab.codegen.emit.python_text import banner, bracketed, indented, python_names, python_parameters
from dispatchlab.codegen.emit.ufunc_loops import SCALAR_TENSOR, CpuCase, CudaCase, Functor, UfuncLoops
from dispatchlab.codegen.read.schema_parts import is_tensor_like
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.schema import Argument, SimpleType

_SCALAR = SimpleType("Scalar")


def ufunc_function(name: str) -> str:
    """The function by hand of an inner loop, which upstream has in the namespace `at::native::ufunc`."""
    return python_name(f"ufunc_{name}")


def ufunc_by_hand(loops: UfuncLoops) -> Iterator[tuple[str, str]]:
    """What is written by hand for the loops: the name of each function or class, and how it is called."""
    arguments = ", ".join(python_names(loops.arguments))
    for name in loops.ufuncs:
        function = ufunc_function(name)
        yield function, f"{function}({arguments})"
    for functor in loops.functors_by_hand:
        held, taken = ", ".join(python_names(functor.held)), ", ".join(python_names(functor.taken))
        yield python_name(functor.name), f"{python_name(functor.name)}({held})({taken})"


def stub_name(loops: UfuncLoops) -> str:
    """`add_stub`."""
    return python_name(f"{loops.name}_stub")


def stub_call(loops: UfuncLoops, key: DispatchKey) -> list[str]:
    """What impl does: the CPU goes through the stub, and CUDA calls its only kernel."""
    called = stub_name(loops) if key is DispatchKey.CPU else _kernel_name(loops, key)
    return list(bracketed(f"{called}(", ["op", *python_names(loops.others)], ")"))


def _kernel_name(loops: UfuncLoops, key: DispatchKey) -> str:
    return f"{loops.name}_kernel" if key is DispatchKey.CPU else f"{loops.name}_kernel_{key}"


def ufunc_lines(loops: UfuncLoops, switches: dict[DispatchKey, str]) -> Iterator[str]:
    """Everything behind the impl classes of CPU and CUDA.

    Args:
        loops: the loops.
        switches: what the message about a dtype without a loop calls the kernel of each key.
    """
    yield from banner("ufunc: for each dtype the scalar loop and the vector loop of CPU")
    yield from _kernel_head(loops, DispatchKey.CPU)
    yield from indented(_switch(((case.kind.name, _cpu_case(loops, case)) for case in loops.cpu), switches[_CPU]), 1)
    yield ""
    yield ""
    yield f'{stub_name(loops)} = DispatchStub("{stub_name(loops)}", {{"CPU": {_kernel_name(loops, DispatchKey.CPU)}}})'
    yield ""
    yield ""
    yield from banner("ufunc: for each dtype the functors of CUDA, which compute in the wider opmath type")
    for functor in loops.functors:
        yield from _functor_class(functor, loops)
    yield from _kernel_head(loops, DispatchKey.CUDA)
    yield from indented(_switch(((case.kind.name, _cuda_case(case)) for case in loops.cuda), switches[_CUDA]), 1)
    yield ""
    yield ""


_CPU, _CUDA = DispatchKey.CPU, DispatchKey.CUDA


def _kernel_head(loops: UfuncLoops, key: DispatchKey) -> Iterator[str]:
    parameters = ["op: TensorIteratorBase", *python_parameters(loops.others)]
    yield from bracketed(f"def {_kernel_name(loops, key)}(", parameters, ") -> None:")


def _switch(cases: Iterable[tuple[str, Iterable[str]]], name: str) -> Iterator[str]:
    yield "match op.scalar_kind:"
    for kind, body in cases:
        yield f'    case "{kind}":'
        yield from indented(body, 2)
    yield "    case _:"
    yield f'        raise not_implemented("{name}", op.common_dtype)'


def _cpu_case(loops: UfuncLoops, case: CpuCase) -> Iterator[str]:
    scalars = [one for one in loops.others if one.type == _SCALAR]
    for one in scalars:
        yield f'_s_{one.name} = scalar_to({python_name(one.name)}, "{case.kind.name}")'
    forms = [(case.scalar, "_s_")]
    if case.vector:
        for one in scalars:
            yield f"_v_{one.name} = Vectorized(_s_{one.name})"
        forms.append((case.vector, "_v_"))
    tensors = ", ".join(python_names(loops.tensors))
    yield f"{'cpu_kernel_vec' if case.vector else 'cpu_kernel'}("
    yield "    op,"
    for name, prefix in forms:
        given = [f"{prefix}{one.name}" if one in scalars else python_name(one.name) for one in loops.arguments]
        yield f"    lambda {tensors}: op.kernels.{ufunc_function(name)}({', '.join(given)}),"
    yield ")"


def _functor_class(functor: Functor, loops: UfuncLoops) -> Iterator[str]:
    yield f"class {python_name(functor.name)}:"
    parameters = [
        f"{python_name(one.name)}: Scalar" if one in loops.tensors else next(iter(python_parameters([one])))
        for one in functor.held
    ]
    yield from bracketed("def __init__(", ["functor", "op: TensorIteratorBase", *parameters], ") -> None:", indent=1)
    yield "        functor.op = op"
    for one in functor.held:
        yield f"        functor.{python_name(one.name)}_ = {_widened(one, python_name(one.name))}"
    yield ""
    yield from bracketed(
        "def __call__(",
        ["functor", *(f"{name}: Elements" for name in python_names(functor.taken))],
        ") -> Elements:",
        indent=1,
    )
    given = [
        f"functor.{python_name(one.name)}_" if one in functor.held else f"opmath({python_name(one.name)})"
        for one in loops.arguments
    ]
    yield from bracketed(f"return functor.op.kernels.{ufunc_function(functor.ufunc)}(", given, ")", indent=2)
    yield ""
    yield ""


def _cuda_case(case: CudaCase) -> Iterator[str]:
    start = "if"
    for functor in case.functors:
        at = SCALAR_TENSOR[functor.key]
        depth = 0
        if at is not None:
            yield f"{start} op.is_cpu_scalar({at + 1}):"
            start, depth = "elif", 1
        elif start == "elif":
            yield "else:"
            depth = 1
        yield from indented(_gpu_call(functor, at), depth)


def _gpu_call(functor: Functor, at: int | None) -> Iterator[str]:
    held = [
        f"op.scalar_value({at + 1})" if at is not None and is_tensor_like(one.type) else python_name(one.name)
        for one in functor.held
    ]
    if functor.ufunc:
        made, given = f"{python_name(functor.name)}(", ["op", *held]
    else:
        made = f"op.kernels.{python_name(functor.name)}("
        given = [_widened(one, value) for one, value in zip(functor.held, held, strict=True)]
    if at is None:
        yield from bracketed("gpu_kernel(", ["op", f"{made}{', '.join(given)})"], ")")
        return
    yield from bracketed(f"functor = {made}", given, ")")
    yield f"op.remove_operand({at + 1})"
    yield "gpu_kernel(op, functor)"


def _widened(argument: Argument, value: str) -> str:
    """A number in the type that functors compute in; any other value as it is, as `scalar_value` is in that type."""
    return f"opmath_scalar({value}, op.scalar_kind)" if argument.type == _SCALAR else value
