"""The code to generate for one structured group, as values: its keys, and the classes and wrappers of each.

Source: torchgen/dest/register_dispatch_key.py (`StructuredRegisterDispatchKey`), torchgen/api/structured.py.
"""

from __future__ import annotations

import keyword
from dataclasses import dataclass
from enum import auto

from dispatchlab._short_repr import CodeEnum
from dispatchlab.codegen.read.groups import FunctionGroup
from dispatchlab.codegen.read.native_function import (
    NATIVE_NAMESPACE,
    BackendKernel,
    DeviceCheck,
    NativeFunction,
    Precomputed,
)
from dispatchlab.codegen.read.schema_parts import is_tensor_like
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.schema import Argument

DEFAULT_BACKEND = DispatchKey.CompositeExplicitAutogradNonFunctional
GUARDED = frozenset((DispatchKey.CUDA, DispatchKey.MPS, DispatchKey.XPU, DEFAULT_BACKEND))
"""Keys whose kernels hold a guard of the device that their outputs are on."""
_CHECKED = frozenset(("CUDA", "XPU"))


class Form(CodeEnum):
    """The way in which a wrapper computes."""

    STRUCTURED = auto()
    """meta, then the impl of the key."""
    META = auto()
    """meta alone."""
    DEFAULT = auto()
    """meta, then the out variant, which dispatches anew: what every other backend falls back to."""
    PLAIN = auto()
    """one function written by hand, which does everything."""


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A registered kernel.

    Args:
        function: the variant that it is the kernel of.
        name: the name of the Python function.
        class_name: the class that it makes; empty for `PLAIN`.
        calls: the function by hand that a `PLAIN` wrapper calls.
        checks_device: whether it checks that all tensors are on one device.
    """

    function: NativeFunction
    name: str
    class_name: str
    calls: str
    checks_device: bool


@dataclass(frozen=True, slots=True)
class GeneratedKey:
    """The generated code for one key.

    Args:
        key: the key.
        form: how its wrappers compute.
        parent: the class that the output classes extend; empty for `PLAIN`.
        kernel: the kernel of the out variant.
        wrappers: functional, out, inplace, mutable, as far as there are any.
    """

    key: DispatchKey
    form: Form
    parent: str
    kernel: BackendKernel | None
    wrappers: tuple[Wrapper, ...]


@dataclass(frozen=True, slots=True)
class GeneratedGroup:
    """The generated code for one structured group.

    Args:
        group: the group.
        name: the name of its module: `add_Tensor`.
        meta_class: the class with the meta function.
        inherits: the base class of that class.
        keys: CPU and similar keys first, then Meta, the default backend, and keys that are not structured.
    """

    group: FunctionGroup
    name: str
    meta_class: str
    inherits: str
    keys: tuple[GeneratedKey, ...]

    @property
    def meta_function(self) -> str:
        """The function by hand that checks the inputs and sets shape and options of the outputs."""
        return f"meta_{self.name}"

    @property
    def impl_kernels(self) -> tuple[BackendKernel, ...]:
        """The kernels that have an impl, each name once."""
        found = {
            each.kernel.name: each.kernel
            for each in self.keys
            if each.form is Form.STRUCTURED and each.kernel is not None
        }
        return tuple(found.values())

    @property
    def meta_arguments(self) -> tuple[Argument, ...]:
        """The arguments that meta takes."""
        return self.group.functional.parts.inputs

    @property
    def impl_arguments(self) -> tuple[Argument | Precomputed, ...]:
        """The arguments that impl takes, with the values that meta computed in the place of some, and the outputs."""
        return impl_arguments(self.group.out)


def impl_arguments(out: NativeFunction) -> tuple[Argument | Precomputed, ...]:
    """Return the arguments that impl takes, with meta's values in the place of some, and the outputs."""
    replaced = {} if out.precomputed is None else dict(out.precomputed.replace)
    found: list[Argument | Precomputed] = []
    for argument in out.parts.inputs:
        found += replaced.get(argument.name, (argument,))
    return (*found, *(() if out.precomputed is None else out.precomputed.add), *out.parts.outs)


def generated_group(group: FunctionGroup) -> GeneratedGroup:
    """Return the generated code for a structured group."""
    name = python_name(group.functional.flat_name)
    meta_class = f"structured_{name}"
    out = group.out
    structured = sorted((kernel for kernel in out.dispatch if kernel.structured), key=lambda kernel: kernel.key)
    names = [kernel.name for kernel in structured]
    keys = [_structured(group, kernel, shared=names.count(kernel.name) > 1) for kernel in structured]
    keys.append(_keyed(DispatchKey.Meta, Form.META, meta_class, f"{meta_class}_meta", None, group.functions))
    without_out = tuple(function for function in group.functions if function is not out)
    keys.append(_keyed(DEFAULT_BACKEND, Form.DEFAULT, meta_class, f"{meta_class}_default_backend", None, without_out))
    taken = {each.key for each in keys}
    plain = {kernel.key for function in group.functions for kernel in function.dispatch} - taken
    for key in sorted(plain):
        wrappers = []
        for function in group.functions:
            kernel = function.kernel_at(key)
            if kernel is not None:
                label = plain_wrapper_name(key, function)
                wrappers.append(Wrapper(function, label, "", python_name(kernel.name), _checks(key, function)))
        keys.append(GeneratedKey(key, Form.PLAIN, "", out.kernel_at(key), tuple(wrappers)))
    return GeneratedGroup(group, name, meta_class, out.structured_inherits or "MetaBase", tuple(keys))


def _structured(group: FunctionGroup, kernel: BackendKernel, *, shared: bool) -> GeneratedKey:
    parent = f"structured_{kernel.name}"
    label = f"{parent}_{kernel.key}" if shared else parent
    return _keyed(kernel.key, Form.STRUCTURED, parent, label, kernel, group.functions)


def _keyed(
    key: DispatchKey,
    form: Form,
    parent: str,
    label: str,
    kernel: BackendKernel | None,
    functions: tuple[NativeFunction, ...],
) -> GeneratedKey:
    wrappers = tuple(
        Wrapper(each, _wrapper_name(key, each), f"{label}_{each.kind}", "", _checks(key, each)) for each in functions
    )
    return GeneratedKey(key, form, parent, kernel, wrappers)


def _wrapper_name(key: DispatchKey, function: NativeFunction) -> str:
    """Return torchgen's name: `wrapper_CPU_add_Tensor`, `wrapper_CPU_add_out_out`, `wrapper_CPU_add__Tensor`."""
    overload = function.name.overload
    return f"wrapper_{key}_{function.cpp_name}{f'_{overload}' if overload else ''}"


def plain_wrapper_name(key: DispatchKey, function: NativeFunction) -> str:
    """Return torchgen's name of a kernel that is not structured: `wrapper_SparseCPU_Tensor_add`, the overload first."""
    return f"wrapper_{key}_{function.name.overload}_{function.cpp_name}"


def _checks(key: DispatchKey, function: NativeFunction) -> bool:
    on_one_device = any(str(key).endswith(name) and not str(key).startswith("Autograd") for name in _CHECKED)
    return on_one_device and function.device_check is DeviceCheck.EXACT_SAME


def checked_arguments(function: NativeFunction) -> tuple[Argument, ...]:
    """Return the tensors that a device check looks at, in its order."""
    parts = function.parts
    return tuple(one for one in (*parts.outs, *parts.positional) if is_tensor_like(one.type))


def comes_from(kernel: BackendKernel) -> str:
    """Return PyTorch's C++ name of the kernel, with the namespace unless it is the usual one."""
    return kernel.name if kernel.namespace == NATIVE_NAMESPACE else f"{kernel.namespace}::{kernel.name}"


_TAKEN = frozenset(("op", "kernels", "precompute"))


def python_name(name: str) -> str:
    """Return the name, with an underscore at its end if Python or generated code already uses it.

    `op` becomes `op_` and `op_` becomes `op__`: different names stay different.
    """
    bare = name.rstrip("_")
    return f"{name}_" if keyword.iskeyword(bare) or bare in _TAKEN else name
