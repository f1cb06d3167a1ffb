"""The call stack of a structured operator, from the Python binding down to the kernel by hand.

The operator is called, and the stack is read where the kernel runs. The frames are those of the exercise in PyTorch's
codegen walkthrough.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import TypeAlias

import numpy as np

from dispatchlab.call.tensor import Tensor, tensor
from dispatchlab.codegen.emit.generate import NoSuchGroupError
from dispatchlab.codegen.emit.generated_group import Form, generated_group
from dispatchlab.codegen.emit.ufunc_loops import ufunc_loops
from dispatchlab.codegen.emit.ufunc_source import ufunc_function
from dispatchlab.codegen.kernels import by_name
from dispatchlab.codegen.kernels.lab import StructuredLayers, lab_functions
from dispatchlab.codegen.read.groups import FunctionGroup
from dispatchlab.codegen.read.native_function import NativeFunction
from dispatchlab.codegen.runtime.python_bindings import PythonFunctions, signature_text
from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.schema import Argument
from dispatchlab.model.schema_types import ListType, OptionalType, SimpleType


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of the call.

    Args:
        layer: what stands there: Python binding, API, autograd kernel, redispatch, wrapper, structured impl, kernel.
        function: the function.
        file: the file that it is in, generated ones by the name that `codegen` writes them under.
        line: the line that calls the next frame.
        upstream: the file that PyTorch's build generates it into, or has it in.
    """

    layer: str
    function: str
    file: str
    line: int
    upstream: str

    def __str__(self) -> str:
        return (
            f"{self.layer:<17} {self.function}\n{'':<17}   {self.file}:{self.line}\n{'':<17}   PyTorch: {self.upstream}"
        )


@dataclass(frozen=True, slots=True)
class CallStack:
    """The frames of one call, the outermost first."""

    operator: str
    signature: str
    frames: tuple[Frame, ...]

    def text(self) -> str:
        """The frames as a debugger shows them, the innermost first, numbered."""
        lines = [f"{self.signature}, called as {self.operator}", ""]
        for number, frame in enumerate(reversed(self.frames)):
            first, *rest = str(frame).splitlines()
            lines.append(f"#{number}  {first}")
            lines += [f"    {line}" for line in rest]
        return "\n".join(lines) + "\n"


_Line: TypeAlias = tuple[str, str, int]
"""A file, a function and a line."""


def call_stack(name: str) -> CallStack:
    """Call a structured operator on CPU tensors and return the frames that the call went through.

    Args:
        name: a variant by its name: `add.out`, `add.Tensor`.

    Raises:
        NoSuchGroupError: there are no kernels for an operator of that name.
    """
    natives = lab_functions()
    bare = name.removeprefix("aten::")
    group = next((each for each in natives.structured_groups for one in each.functions if one.short_name == bare), None)
    if group is None:
        known = tuple(one.short_name for each in natives.structured_groups for one in each.functions)
        raise NoSuchGroupError(name, known, other=False)
    function = next(one for one in group.functions if one.short_name == bare)
    found: list[_Line] = []
    lab = StructuredLayers(kernels=_watched(group, found))
    _call(lab.dispatcher, group, function, found)
    lab.release()
    frames = tuple(_frames(found, group))
    return CallStack(f"aten::{bare}", signature_text(group), frames)


def _watched(group: FunctionGroup, found: list[_Line]) -> object:
    """The functions by hand; the kernel of CPU adds the stack that it is called on to `found`."""
    kernels = by_name()
    cpu = next(
        each for each in generated_group(group).keys if each.form is Form.STRUCTURED and each.key is DispatchKey.CPU
    )
    assert cpu.kernel is not None
    loops = ufunc_loops(group)
    name = cpu.kernel.name if loops is None else ufunc_function(loops.ufuncs[0])
    kernel = getattr(kernels, name)

    def watched(*args: object) -> object:
        frame: FrameType | None = sys._getframe(1)
        code = kernel.__code__
        found.append((code.co_filename, name, code.co_firstlineno))
        while frame is not None:
            found.append((frame.f_code.co_filename, frame.f_code.co_name, frame.f_lineno))
            frame = frame.f_back
        return kernel(*args)

    return SimpleNamespace(**{**vars(kernels), name: watched})


def _call(dispatcher: Dispatcher, group: FunctionGroup, function: NativeFunction, found: list[_Line]) -> None:
    python = PythonFunctions(dispatcher, lab_functions())
    given = [_sample(one) for one in function.parts.positional]
    named = {one.name: _sample(one) for one in function.parts.keywords}
    if function is group.inplace:
        python.method(function.name.name)(*given, **named)
        return
    called = getattr(python, function.name.name)
    results = called(*given, **named)
    if function is group.out:
        found.clear()
        several = isinstance(results, tuple)
        outs = [tensor(one.data) for one in (results if several else (results,))]
        called(*given, **named, out=outs if several else outs[0])


def _sample(argument: Argument) -> object:
    match argument.type:
        case SimpleType("Tensor"):
            return Tensor(np.full((2, 2), 0.5, np.float32))
        case SimpleType("Scalar") | OptionalType(SimpleType("Scalar")):
            return 1
        case SimpleType("int"):
            return 0
        case SimpleType("bool") | OptionalType(SimpleType("bool")):
            return False
        case ListType() | OptionalType(ListType()):
            return [0]
        case _:
            return None


_KINDS = (
    ("python_bindings.py", "function", "Python binding", "torch/csrc/autograd/generated/python_torch_functions_*.cpp"),
    (
        "python_bindings.py",
        "bound_method",
        "Python binding",
        "torch/csrc/autograd/generated/python_variable_methods.cpp",
    ),
    ("<call of", "call", "API", "ATen/Operators_*.cpp (at::_ops::{flat}::call)"),
    ("layers/autograd.py", "kernel", "autograd kernel", "torch/csrc/autograd/generated/VariableType_*.cpp"),
    (
        *("layers/views.py", "in_place_kernel", "ADInplaceOrView"),
        "torch/csrc/autograd/generated/ADInplaceOrViewType_*.cpp",
    ),
    ("operators.py", "redispatch_boxed", "redispatch", "ATen/Operators_*.cpp (at::_ops::{flat}::redispatch)"),
    ("<generated>", "wrapper_", "wrapper", "ATen/RegisterCPU.cpp"),
    ("<generated>", "<lambda>", "loop body", "ATen/UfuncCPUKernel_*.cpp"),
    ("pointwise_loops.py", "cpu_kernel", "loop", "aten/src/ATen/native/cpu/Loops.h"),
    ("<generated>", "{ufunc}_kernel", "kernel", "ATen/UfuncCPUKernel_*.cpp"),
    ("pointwise_loops.py", "__call__", "stub", "aten/src/ATen/native/DispatchStub.h"),
    ("<generated>", "impl", "structured impl", "ATen/NativeFunctions.h (declared), ATen/RegisterCPU.cpp (called)"),
)


def _frames(found: list[_Line], group: FunctionGroup) -> Iterator[Frame]:
    frames: list[Frame] = []
    file, function, line = found[0]
    frames.append(Frame("kernel by hand", function, _shown(file), line, "aten/src/ATen/native/*.cpp"))
    for file, function, line in found[1:]:
        for where, start, layer, upstream in _KINDS:
            if where in file and function.startswith(start.format(ufunc=group.functional.name.name)):
                flat = group.out.short_name.replace(".", "_")
                frames.append(Frame(layer, function, _shown(file), line, upstream.format(flat=flat)))
                break
    yield from reversed(frames)


def _shown(file: str) -> str:
    if file.startswith("<generated>/"):
        return file.removeprefix("<generated>/")
    if file.startswith("<"):
        return file
    path = Path(file)
    return "/".join(path.parts[path.parts.index("dispatchlab") :]) if "dispatchlab" in path.parts else path.name
