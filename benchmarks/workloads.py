"""The registrations that benchmarks work on."""

from __future__ import annotations

from dispatchlab.model.cpp_signature import cpp_signature
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Def, Fallback, Impl, Kernel, KernelForm, Registration
from dispatchlab.model.schema_parser import parse_inferred, parse_schema

_INFERRED = parse_inferred("(Tensor _0) -> Tensor _0")
KERNEL = Kernel(KernelForm.UNBOXED, _INFERRED, cpp_signature(_INFERRED))
FOO = OperatorName("test", "foo")


def upstreams_five() -> list[Registration]:
    """Def, and kernels at no key, CPU, Autograd and AutogradCPU: 32 sets, 160 edges, 14,400 orders."""
    keys = (None, DispatchKey.CPU, DispatchKey.Autograd, DispatchKey.AutogradCPU)
    return [_def("test::foo"), *(Impl(FOO, key, KERNEL, f"fn_{key}") for key in keys)]


def sixteen() -> list[Registration]:
    """One operator with 16 registrations: 65,536 sets, 1,048,576 edges."""
    names = (
        *("CPU", "CUDA", "Autograd", "AutogradCPU", "XLA", "Meta", "CompositeExplicitAutograd", "QuantizedCPU"),
        *("SparseCPU", "MPS", "AutogradCUDA", "Tracer", "XPU", "HPU"),
    )
    keys = (None, *(DispatchKey[name] for name in names))
    return [_def("test::foo"), *(Impl(FOO, key, KERNEL, f"fn_{key}") for key in keys)]


def many_operators(count: int) -> tuple[list[Registration], list[OperatorName]]:
    """Six registrations for each operator, and two fallbacks."""
    keys = (None, DispatchKey.CPU, DispatchKey.CUDA, DispatchKey.Autograd, DispatchKey.XLA)
    registrations: list[Registration] = []
    names = [OperatorName("test", f"op{index}") for index in range(count)]
    for name in names:
        registrations.append(_def(str(name)))
        registrations += [Impl(name, key, KERNEL, f"fn_{name}_{key}") for key in keys]
    fallthrough = Kernel(KernelForm.FALLTHROUGH)
    registrations += [
        Fallback(DispatchKey.AutogradCPU, fallthrough, "fallback_autograd"),
        Fallback(DispatchKey.Meta, Kernel(), "fallback_meta"),
    ]
    return registrations, names


def _def(name: str) -> Def:
    return Def(parse_schema(f"{name}(Tensor x) -> Tensor"), debug=f"def_{name}")
