"""The frames of a call of a structured operator in the lab, from the Python binding down to the kernel by hand.

The operator is called, and the stack is read where the kernel runs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import TypeAlias

import numpy as np

from dispatchlab._short_repr import WordEnum
from dispatchlab.call.tensor import Tensor, tensor
from dispatchlab.codegen.emit.generated_group import Form, generated_group
from dispatchlab.codegen.emit.ufunc_loops import ufunc_loops
from dispatchlab.codegen.emit.ufunc_source import ufunc_function
from dispatchlab.codegen.kernels import by_name
from dispatchlab.codegen.kernels.lab import FILE, StructuredLayers, lab_functions
from dispatchlab.codegen.read.groups import FunctionGroup
from dispatchlab.codegen.read.native_function import NativeFunction
from dispatchlab.codegen.runtime.python_bindings import PythonFunctions
from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.errors import UnknownOperatorError
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.schema import Argument, ListType, OptionalType, SimpleType


class Layer(WordEnum):
    """What a frame is part of."""

    BINDING = "Python binding"
    API = "call of the operator"
    AUTOGRAD = "autograd kernel"
    VIEWS_AND_WRITES = "ADInplaceOrView kernel"
    WRAPPER = "wrapper"
    IMPL = "structured impl"
    STUB = "ufunc stub"
    LOOP = "ufunc loop"
    NATIVE = "function by hand"


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a call.

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


@dataclass(frozen=True, slots=True)
class Walk:
    """A call, frame by frame.

    Args:
        function: what is called.
        frames: the outermost first.
    """

    function: NativeFunction
    frames: tuple[Frame, ...]

    @property
    def numbered(self) -> tuple[tuple[int, Frame], ...]:
        """The frames as a debugger numbers them, the innermost first."""
        return tuple(enumerate(reversed(self.frames)))


_Line: TypeAlias = tuple[str, str, int]
"""A file, a function and a line."""


def walk_call(operator: str) -> Walk:
    """Call a structured operator on CPU tensors in the lab, and find the frames of the call.

    Args:
        operator: a variant by its name, with `aten::` or `torch.` in front or without: `add.out`, `torch.add`.

    Raises:
        UnknownOperatorError: the lab has no kernels for an operator of that name.
    """
    group, function = _find(operator)
    stack: list[_Line] = []
    lab = StructuredLayers(kernels=_watched(group, stack))
    _call(lab.dispatcher, group, function, stack)
    lab.release()
    return Walk(function, tuple(_frames(stack, group)))


def _find(asked: str) -> tuple[FunctionGroup, NativeFunction]:
    """The variant of that name, or the first one that has it without its overload."""
    name = asked.removeprefix("aten::").removeprefix("torch.")
    variants = [(group, function) for group in lab_functions().structured_groups for function in group.functions]
    exact = [pair for pair in variants if pair[1].short_name == name]
    found = exact or [pair for pair in variants if pair[1].name.name == name]
    if not found:
        raise UnknownOperatorError(name, tuple(function.short_name for _, function in variants), FILE)
    return found[0]


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
    ("operators.py", "__call__", Layer.API),
    ("lab/autograd.py", "kernel", Layer.AUTOGRAD),
    ("lab/views.py", "in_place_kernel", Layer.VIEWS_AND_WRITES),
    ("operators.py", "redispatch_boxed", Layer.API),
    ("<generated>", "wrapper_", Layer.WRAPPER),
    ("<generated>", "<lambda>", Layer.LOOP),
    ("pointwise_loops.py", "cpu_kernel", Layer.LOOP),
    ("<generated>", "{ufunc}_kernel", Layer.LOOP),
    ("pointwise_loops.py", "__call__", Layer.STUB),
    ("<generated>", "impl", Layer.IMPL),
)


def _frames(found: list[_Line], group: FunctionGroup) -> Iterator[Frame]:
    frames: list[Frame] = []
    file, function, line = found[0]
    frames.append(Frame(Layer.NATIVE, function, _shown(file), line))
    for file, function, line in found[1:]:
        for where, start, layer in _KINDS:
            if where in file and function.startswith(start.format(ufunc=group.functional.name.name)):
                frames.append(Frame(layer, function, _shown(file), line))
                break
    yield from reversed(frames)


def _shown(file: str) -> str:
    if file.startswith("<generated>/"):
        return file.removeprefix("<generated>/")
    if file.startswith("<"):
        return file
    path = Path(file)
    return "/".join(path.parts[path.parts.index("dispatchlab") :]) if "dispatchlab" in path.parts else path.name
