"""The frames of a call of a structured operator in the lab, from the Python binding down to the kernel by hand.

The operator is called, and the stack is read where the kernel runs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import TypeAlias

import numpy as np

from dispatchlab.call.tensor import Tensor, tensor
from dispatchlab.codegen.emit.generated_group import Form, generated_group
from dispatchlab.codegen.emit.ufunc_loops import ufunc_loops
from dispatchlab.codegen.emit.ufunc_source import ufunc_function
from dispatchlab.codegen.kernels import by_name
from dispatchlab.codegen.kernels.lab import StructuredLayers, lab_functions
from dispatchlab.codegen.read.groups import FunctionGroup
from dispatchlab.codegen.read.native_function import NativeFunction
from dispatchlab.codegen.runtime.python_bindings import PythonFunctions
from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.schema import Argument
from dispatchlab.model.schema_types import ListType, OptionalType, SimpleType
from dispatchlab.questions.native_functions.cpp_frames import Frame, Layer


@dataclass(frozen=True, slots=True)
class LabFrame:
    """One frame of the call in the lab.

    Args:
        layer: what stands there.
        function: the Python function.
        file: the file that it is in, generated ones by the name that `codegen` writes them under.
        line: the line that calls the next frame.
    """

    layer: Layer
    function: str
    file: str
    line: int


_Line: TypeAlias = tuple[str, str, int]
"""A file, a function and a line."""


def lab_frames(name: str) -> tuple[LabFrame, ...]:
    """Call a structured operator on CPU tensors in the lab and return the frames of the call, the outermost first.

    Args:
        name: a variant by its name: `add.out`, `add.Tensor`.

    Returns:
        Nothing when the lab has no kernels for an operator of that name.
    """
    natives = lab_functions()
    variants = ((group, function) for group in natives.structured_groups for function in group.functions)
    group, function = next((pair for pair in variants if pair[1].short_name == name), (None, None))
    if group is None or function is None:
        return ()
    stack: list[_Line] = []
    lab = StructuredLayers(kernels=_watched(group, stack))
    _call(lab.dispatcher, group, function, stack)
    lab.release()
    return tuple(_frames(stack, group))


def with_lab_frames(frames: Sequence[Frame], lab: Sequence[LabFrame]) -> tuple[Frame, ...]:
    """Frames of C++, with where the lab has the same: the n-th of a layer there is the n-th here."""
    waiting = list(lab)
    placed = []
    for frame in frames:
        for number, same in enumerate(waiting):
            if same.layer is frame.layer and frame.function.endswith(_COUNTERPARTS.get(same.function, "")):
                frame = replace(frame, lab=f"{same.file}:{same.line}")
                del waiting[: number + 1]
                break
        placed.append(frame)
    return tuple(placed)


# The API and the loops have several frames of one layer in C++.
_COUNTERPARTS = {
    "call": "::call",
    "redispatch_boxed": "::redispatch",
    "cpu_kernel_vec": "::cpu_kernel_vec",
    "<lambda>": "::vectorized_loop",
}


def _watched(group: FunctionGroup, stack: list[_Line]) -> object:
    """The functions by hand; the kernel of CPU adds the stack that it is called on to `stack`."""
    kernels = by_name()
    cpu = next(
        made for made in generated_group(group).keys if made.form is Form.STRUCTURED and made.key is DispatchKey.CPU
    )
    assert cpu.kernel is not None
    loops = ufunc_loops(group)
    name = cpu.kernel.name if loops is None else ufunc_function(loops.ufuncs[0])
    kernel = getattr(kernels, name)

    def watched(*args: object) -> object:
        frame: FrameType | None = sys._getframe(1)
        code = kernel.__code__
        stack.append((code.co_filename, name, code.co_firstlineno))
        while frame is not None:
            stack.append((frame.f_code.co_filename, frame.f_code.co_name, frame.f_lineno))
            frame = frame.f_back
        return kernel(*args)

    return SimpleNamespace(**{**vars(kernels), name: watched})


def _call(dispatcher: Dispatcher, group: FunctionGroup, function: NativeFunction, stack: list[_Line]) -> None:
    python = PythonFunctions(dispatcher, lab_functions())
    given = [_sample(argument) for argument in function.parts.positional]
    named = {argument.name: _sample(argument) for argument in function.parts.keywords}
    if function is group.inplace:
        python.method(function.name.name)(*given, **named)
        return
    called = getattr(python, function.name.name)
    results = called(*given, **named)
    if function is group.out:
        stack.clear()
        several = isinstance(results, tuple)
        outs = [tensor(result.data) for result in (results if several else (results,))]
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
    ("python_bindings.py", "function", Layer.BINDING),
    ("python_bindings.py", "bound_method", Layer.BINDING),
    ("<call of", "call", Layer.API),
    ("layers/autograd.py", "kernel", Layer.AUTOGRAD),
    ("layers/views.py", "in_place_kernel", Layer.VIEWS_AND_WRITES),
    ("operators.py", "redispatch_boxed", Layer.API),
    ("<generated>", "wrapper_", Layer.WRAPPER),
    ("<generated>", "<lambda>", Layer.LOOP),
    ("pointwise_loops.py", "cpu_kernel", Layer.LOOP),
    ("<generated>", "{ufunc}_kernel", Layer.LOOP),
    ("pointwise_loops.py", "__call__", Layer.STUB),
    ("<generated>", "impl", Layer.IMPL),
)


def _frames(found: list[_Line], group: FunctionGroup) -> Iterator[LabFrame]:
    frames: list[LabFrame] = []
    file, function, line = found[0]
    frames.append(LabFrame(Layer.NATIVE, function, _shown(file), line))
    for file, function, line in found[1:]:
        for where, start, layer in _KINDS:
            if where in file and function.startswith(start.format(ufunc=group.functional.name.name)):
                frames.append(LabFrame(layer, function, _shown(file), line))
                break
    yield from reversed(frames)


def _shown(file: str) -> str:
    if file.startswith("<generated>/"):
        return file.removeprefix("<generated>/")
    if file.startswith("<"):
        return file
    path = Path(file)
    return "/".join(path.parts[path.parts.index("dispatchlab") :]) if "dispatchlab" in path.parts else path.name
