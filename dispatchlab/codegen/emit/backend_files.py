"""The code of a backend: declarations and registrations of its kernels in C++, as torchgen's `gen_backend_stubs` writes
them, a test of each operator against the CPU, and a scenario.

Source: torchgen/gen_backend_stubs.py, torchgen/dest/register_dispatch_key.py, torchgen/api/translate.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files

from dispatchlab.codegen.emit.cpp_declarations import Binding, CppFunction, joined, within_namespace
from dispatchlab.codegen.emit.registrations import inferred_schema_of
from dispatchlab.codegen.read.backend_file import BackendFile, Registered
from dispatchlab.codegen.read.groups import members_of
from dispatchlab.codegen.read.kernel_fields import native_name
from dispatchlab.codegen.read.native_function import DeviceCheck, NativeFunction
from dispatchlab.codegen.read.native_functions import NativeFunctions
from dispatchlab.codegen.read.schema_parts import SchemaKind, is_tensor_like
from dispatchlab.model.cpp_signature import cpp_signature, is_symint_schema
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.registration import Block, BlockKind, Def, Impl, Kernel, KernelForm
from dispatchlab.scenario.scenario import Scenario
from dispatchlab.scenario.write import scenario_text


def kernel_class(backend: BackendFile, natives: NativeFunctions) -> str:
    """The class whose static functions are the kernels, those of Autograd last."""
    lines: list[str] = []
    for key in backend.keys:
        kernels = [
            (function, kernel)
            for group in natives.groups
            for function in members_of(group)
            if (kernel := backend.kernels.get(function.name)) is not None and kernel.key is key
        ]
        lines += sorted(
            {
                f"static {_result(function)} {kernel.name}"
                f"({joined(CppFunction(function).dispatcher_arguments(symint=kernel.takes_symint))});"
                for function, kernel in kernels
            }
        )
    declared = "\n".join(lines)
    return f"struct {backend.class_name} {{\n\n{declared}\n\n}};\n"


def registered_wrappers(backend: BackendFile, key: DispatchKey) -> str:
    """The functions that are registered at a key, and their registration."""
    registered = [each for each in backend.registered if each.key is key]
    impls = "".join(
        f'm.impl("{each.function.short_name}",\nTORCH_FN({_wrapper_name(each.function, key)}));\n'
        for each in registered
    )
    wrappers = "".join(_wrapper(each, backend) for each in registered)
    return (
        f"namespace {{\n\n{wrappers}\nTORCH_LIBRARY_IMPL(aten, {key}, m) {{\n{impls}}}\n\n}} // anonymous namespace\n"
    )


def _result(function: NativeFunction) -> str:
    of = CppFunction(function)
    return of.style(symint=True).results(of.schema.returns)


def _wrapper_name(function: NativeFunction, key: DispatchKey) -> str:
    return f"wrapper_{key}_{function.name.overload}_{native_name(function.schema, function.parts)}"


def _wrapper(registered: Registered, backend: BackendFile) -> str:
    function, key = registered.function, registered.key
    head = f"{_result(function)} {_wrapper_name(function, key)}({joined(CppFunction(function).dispatcher_arguments())})"
    if registered.own is None:
        return f"{head} {{\n{_copied(function, registered.functional, key)}}}\n"
    name, given = registered.own, CppFunction(function).dispatcher_arguments()
    wanted = CppFunction(function).dispatcher_arguments(symint=name.takes_symint)
    passed = joined(_converted(one, each.type) for one, each in zip(given, wanted, strict=True))
    call = f"  return {name.namespace}::{backend.class_name}::{name.name}({passed});\n"
    guards = "".join(f"  {line}\n" for line in _guards(function, key)) if backend.device_guard else ""
    return f"namespace {{\n\n{head} {{\n{guards}{call}}}\n\n}} // anonymous namespace\n"


def _converted(given: Binding, wanted: str) -> str:
    name = given.name
    match given.type:
        case same if same == wanted:
            return name
        case "c10::SymInt":
            return f"{name}.guard_int(__FILE__, __LINE__)"
        case "c10::SymIntArrayRef":
            return f"C10_AS_INTARRAYREF_SLOW({name})"
        case "::std::optional<c10::SymInt>":
            value = f"{name}->guard_int(__FILE__, __LINE__)"
        case _:
            value = f"C10_AS_INTARRAYREF_SLOW(*{name})"
    return f"{name}.has_value() ? ::std::make_optional({value}) : ::std::nullopt"


def _guards(function: NativeFunction, key: DispatchKey) -> Iterator[str]:
    """The check that all tensors are on one device, and the guard that makes it the current one."""
    parts, wrapper = function.parts, _wrapper_name(function, key)
    tensors = [one.name for one in (*parts.outs, *parts.positional) if is_tensor_like(one.type)]
    if function.device_check is not DeviceCheck.NO_CHECK:
        yield "std::optional<Device> common_device = std::nullopt;"
        yield "(void)common_device; // Suppress unused variable warning"
        for name in tensors:
            yield f'c10::impl::check_and_update_common_device(common_device, {name}, "{wrapper}", "{name}");'
    if not function.device_guard:
        return
    if parts.options:
        yield "const DeviceGuard device_guard(device_or_default(device));"
    elif tensors:
        of_self = parts.self_argument is not None and is_tensor_like(parts.self_argument.type)
        yield f"const OptionalDeviceGuard device_guard(device_of({'self' if of_self else tensors[0]}));"


_OF_OUT = {"dtype": "out.scalar_type()", "layout": "out.layout()", "device": "out.device()"}


def _copied(function: NativeFunction, functional: NativeFunction, key: DispatchKey) -> str:
    """The body of a variant that is made of the functional one: its results are copied to what is written."""
    inplace = function.kind is SchemaKind.INPLACE
    copy, made = "at::_copy_from" if inplace else "at::_copy_from_and_resize", f"{_wrapper_name(function, key)}_tmp"
    there = {one.name for one in function.parts.inputs}
    options = {one.name for one in functional.parts.options}
    passed = joined(
        one.name if one.name in there or one.name not in options else _OF_OUT.get(one.name, "::std::nullopt")
        for one in CppFunction(functional).dispatcher_arguments()
    )
    written = ["self" if inplace else function.parts.outs[at].name for at in range(len(function.schema.returns))]
    returned = ""
    if len(written) == 1:
        updates, returned = f"{copy}({made}, {written[0]});", written[0]
    elif written:
        updates = "\n  ".join(f"{copy}(std::get<{at}>({made}), {name});" for at, name in enumerate(written))
        returned = f"{_result(function)}({', '.join(written)})"
    else:
        out = function.parts.outs[0]
        updates = f"{copy}({made}, {out.name});"
        if str(out.type).endswith("]"):
            updates = f"for (int64_t i = 0; i < {made}.size(); ++i) {{\n    {copy}({made}[i], {out.name}[i]);\n  }}"
    call = f"{_wrapper_name(functional, key)}({passed})"
    return f"  auto {made} = {call};\n  {updates}\n  return {returned};\n"


def backend_scenario(backend: BackendFile, file: str) -> Scenario:
    """What the C++ files register, library by library, for operators that are defined beside them.

    Args:
        backend: what is registered.
        file: what the source file is called in the texts.
    """
    functions = [each.function for each in backend.registered]
    defs = tuple(Def(each.own_schema, tags=each.tags, debug=f"schema ({file})") for each in functions)
    blocks = [
        Block(
            "aten",
            BlockKind.IMPL,
            tuple(_impl(each.function, key) for each in backend.registered if each.key is key),
            key=key,
        )
        for key in backend.keys
    ]
    return Scenario(
        claim=f"The {len(blocks) + 1} libraries of operators and kernels for {backend.key} can be loaded in any order.",
        registrations=(Block("aten", BlockKind.FRAGMENT, defs), *blocks),
        operators=tuple(each.name for each in functions),
        namespace="aten",
    )


def _impl(function: NativeFunction, key: DispatchKey) -> Impl:
    inferred = inferred_schema_of(function)
    signature, symint = cpp_signature(inferred), is_symint_schema(inferred)
    kernel = Kernel(KernelForm.UNBOXED, inferred=inferred, signature=signature, symint=symint)
    debug = f"{_wrapper_name(function, key)} (Register{key}.cpp)"
    return Impl(function.name.without_namespace, None, kernel, debug)


def backend_mark(file: str) -> str:
    """The first line of every C++ file."""
    return f"// Generated by `dispatchlab codegen --backend` from {file}; change that file and generate this one again."


def backend_files(backend: BackendFile, natives: NativeFunctions, *, file: str) -> dict[str, str]:
    """The text of every file by its name; golden files are written by who can explore.

    Args:
        backend: what the backend has kernels for.
        natives: the functions that there are.
        file: what the file of the backend is called in the texts.
    """
    mark, namespace = backend_mark(file), next(iter(backend.kernels.values())).namespace
    header = f"{backend.key}NativeFunctions.h"
    inside = within_namespace(namespace, kernel_class(backend, natives))
    made = {header: f"{mark}\n#pragma once\n\n#include <ATen/Tensor.h>\n\n{inside}"}
    for key in backend.keys:
        includes = "".join(f"#include <{each}>\n" for each in _INCLUDED)
        text = within_namespace("at", registered_wrappers(backend, key))
        made[f"Register{key}.cpp"] = f'{mark}\n{includes}\n#include "{header}"\n\n{text}'
    name = backend.key.name.lower()
    mark = mark.replace("//", "#", 1)
    made[f"test_{name}_against_cpu.py"] = f"{mark}\n{_test_text(backend)}"
    made[f"scenarios/{name}_registrations.yaml"] = f"{mark}\n{scenario_text(backend_scenario(backend, file))}"
    return made


_INCLUDED = ("ATen/DeviceGuard.h", "ATen/Functions.h", "ATen/core/op_registration/adaption.h", "torch/library.h")


def _test_text(backend: BackendFile) -> str:
    text = files("dispatchlab.codegen.emit").joinpath("against_cpu.txt").read_text(encoding="utf-8")
    names = "".join(f'    "{each.function.short_name}",\n' for each in backend.registered if each.key is backend.key)
    autograd = "".join(
        f'    "{each.function.short_name}",\n' for each in backend.registered if each.key is not backend.key
    )
    renamed = str(backend.key) == "PrivateUse1"
    device = "torch._C._get_privateuse1_backend_name()" if renamed else f'"{backend.key.name.lower()}"'
    return text.replace("@DEVICE@", device).replace("@NAMES@", names).replace("@AUTOGRAD@", autograd)
