"""The frames of a call in C++, held to a backtrace of PyTorch's codegen walkthrough, and beside those of the lab."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import NamedTuple

import pytest

from dispatchlab.analysis.walk_calls import Walk, find_function, walk_call
from dispatchlab.codegen.cpp_frames import Entry, Frame, Layer
from dispatchlab.codegen.kernels.lab import FILE, lab_functions
from dispatchlab.codegen.lab_frames import lab_frames
from dispatchlab.errors import UnknownOperatorError
from tests.command_line import run
from tests.effort import share

LAB = str(files("dispatchlab.codegen.kernels") / FILE)


class Shown(NamedTuple):
    """A frame as the debugger shows it: the function, the one that is inlined there, and the file."""

    function: str
    inlined: str
    file: str


WALKTHROUGH = (
    Shown("at::native::structured_ufunc_add_CPU::impl", "", "UfuncCPU_add.cpp"),
    Shown("at::(anonymous namespace)::wrapper_CPU_add_Tensor", "", "RegisterCPU.cpp"),
    Shown("c10::impl::wrap_kernel_functor_unboxed_::call", "operator()", "WrapFunctionIntoFunctor.h"),
    Shown("c10::impl::wrap_kernel_functor_unboxed_::call", "", "make_boxed_from_unboxed_functor.h"),
    Shown("c10::callUnboxedKernelFunction", "", "KernelFunction_impl.h"),
    Shown("c10::Dispatcher::redispatch", "KernelFunction::call", "KernelFunction_impl.h"),
    Shown("c10::Dispatcher::redispatch", "", "Dispatcher.h"),
    Shown("at::_ops::add_Tensor::redispatch", "c10::TypedOperatorHandle::redispatch", "Dispatcher.h"),
    Shown("at::_ops::add_Tensor::redispatch", "", "Operators_2.cpp"),
    Shown("at::redispatch::add", "", "RedispatchFunctions.h"),
    Shown("operator()", "", "VariableType_2.cpp"),
    Shown("torch::autograd::VariableType::(anonymous namespace)::add_Tensor", "", "VariableType_2.cpp"),
    Shown("c10::impl::wrap_kernel_functor_unboxed_::call", "operator()", "WrapFunctionIntoFunctor.h"),
    Shown("c10::impl::wrap_kernel_functor_unboxed_::call", "", "make_boxed_from_unboxed_functor.h"),
    Shown("c10::callUnboxedKernelFunction", "", "KernelFunction_impl.h"),
    Shown("at::_ops::add_Tensor::call", "KernelFunction::call", "KernelFunction_impl.h"),
    Shown("at::_ops::add_Tensor::call", "Dispatcher::call", "Dispatcher.h"),
    Shown("at::_ops::add_Tensor::call", "c10::TypedOperatorHandle::call", "Dispatcher.h"),
    Shown("at::_ops::add_Tensor::call", "", "Operators_2.cpp"),
    Shown("at::Tensor::add", "", "TensorBody.h"),
    Shown("operator()", "", "python_torch_functions_2.cpp"),
    Shown("torch::autograd::THPVariable_add", "", "python_torch_functions_2.cpp"),
)
"""The walkthrough's backtrace of torch.add on CPU tensors, from a build for debugging, without arguments and addresses.

Where the debugger leaves out the name of an inlined function, it is the one that the file and line are of.
"""


def shown(walk: Walk) -> list[Shown]:
    """The frames from the kernel's impl outwards, as the debugger shows them."""
    start = next(at for at, (_, frame) in enumerate(walk.numbered) if frame.layer is Layer.IMPL)
    frames = [frame for _, frame in walk.numbered][start:]
    found = []
    for at, frame in enumerate(frames):
        outer = next((one for one in frames[at:] if not one.inlined), frame)
        found.append(Shown(_name(outer, frame), _inner(frame) if frame.inlined else "", _file(frame)))
    return found


def _name(outer: Frame, frame: Frame) -> str:
    return "operator()" if "{lambda" in frame.function else outer.function


def _inner(frame: Frame) -> str:
    name = frame.function.removeprefix("c10::impl::detail::WrapFunctionIntoFunctor_::")
    return name if "TypedOperatorHandle" in name else name.removeprefix("c10::")


def _file(frame: Frame) -> str:
    # NB: the file of the kernels of CPU is cut into several now
    return frame.file.rpartition("/")[2].replace("RegisterCPU_0.cpp", "RegisterCPU.cpp")


def test_torch_add_goes_through_the_22_frames_of_the_walkthrough() -> None:
    walk = walk_call("torch.add", file=LAB)
    assert len(WALKTHROUGH) == 22
    assert shown(walk) == list(WALKTHROUGH)
    assert walk.function.short_name == "add.Tensor"
    assert [frame.function for frame in walk.frames[-10:]] == [
        *("at::native::DispatchStub::operator()", "at::native::(anonymous namespace)::add_kernel"),
        "at::native::(anonymous namespace)::add_kernel::{lambda()#1}::operator()",
        *("at::native::CPU_CAPABILITY::cpu_kernel_vec", "at::TensorIteratorBase::for_each"),
        *("at::TensorIteratorBase::serial_for_each", "c10::function_ref::callback_fn"),
        "at::native::CPU_CAPABILITY::VectorizedLoop2d::operator()",
        *("at::native::CPU_CAPABILITY::vectorized_loop", "at::native::ufunc::add"),
    ]


def test_the_lab_runs_the_same_call_and_shows_where() -> None:
    walk = walk_call("add.Tensor", file=LAB)
    lab = [(frame.layer, frame.lab.partition(":")[0]) for frame in walk.frames if frame.lab]
    assert lab == [
        (Layer.BINDING, "dispatchlab/codegen/runtime/python_bindings.py"),
        (Layer.API, "<call of aten"),
        (Layer.AUTOGRAD, "dispatchlab/layers/autograd.py"),
        (Layer.API, "dispatchlab/call/operators.py"),
        *((layer, "add_Tensor.py") for layer in (Layer.WRAPPER, Layer.IMPL)),
        (Layer.STUB, "dispatchlab/codegen/runtime/pointwise_loops.py"),
        (Layer.LOOP, "add_Tensor.py"),
        (Layer.LOOP, "dispatchlab/codegen/runtime/pointwise_loops.py"),
        (Layer.LOOP, "add_Tensor.py"),
        (Layer.NATIVE, "dispatchlab/codegen/kernels/pointwise.py"),
    ]


def test_every_frame_of_the_lab_has_one_in_cpp() -> None:
    names = [one.short_name for group in lab_functions().structured_groups for one in group.functions]
    assert len(names) == 69
    for name in names[:: len(names) // share(12)]:
        walk = walk_call(name, file=LAB)
        mine = [frame for frame in lab_frames(name) if frame.layer is not Layer.NATIVE]
        assert len([frame for frame in walk.frames if frame.lab]) >= len(mine), name
        assert {frame.layer for frame in mine} <= {frame.layer for frame in walk.frames if frame.lab}, name


def _layers(walk: Walk) -> list[str]:
    found = [str(frame.layer) for frame in walk.frames if frame.layer is not Layer.DISPATCHER]
    return [layer for at, layer in enumerate(found) if at == 0 or found[at - 1] != layer]


def test_the_arguments_decide_the_frames() -> None:
    plain = ["Python binding", "C++ API", "autograd kernel", "C++ API", "wrapper", "structured impl"]
    assert _layers(walk_call("mm", file=LAB)) == plain
    assert _layers(walk_call("mm", ("cpu requires_grad",), file=LAB)) == plain
    inference = walk_call("mm", ("inference", "inference"), file=LAB)
    assert _layers(inference) == ["Python binding", "C++ API", "wrapper", "structured impl"]
    assert len(inference.frames) == 12
    written = walk_call("Tensor.neg_", file=LAB)
    assert _layers(written) == [*plain[:4], "ADInplaceOrView kernel", *plain[3:]]
    assert [one.function for one in written.frames if "::_ops::" in one.function] == [
        *("at::_ops::neg_::call", "at::_ops::neg_::redispatch", "at::_ops::neg_::redispatch"),
    ]
    below = walk_call("Tensor.neg_", file=LAB, exclude=("ADInplaceOrView",))
    assert _layers(below) == plain
    functionalized = walk_call("mm", ("cpu python",), file=LAB)
    assert not functionalized.explained.explanation.known
    assert functionalized.frames[-1].layer is Layer.OTHER


@pytest.mark.parametrize(
    ("asked", "arguments", "name", "entry"),
    [
        ("add.Tensor", (), "add.Tensor", Entry.FUNCTION),
        ("aten::add.Tensor", (), "add.Tensor", Entry.FUNCTION),
        ("torch.add", (), "add.Tensor", Entry.FUNCTION),
        ("torch.add", ("cpu", "cpu", "out=cpu"), "add.out", Entry.FUNCTION),
        ("torch.Tensor.add", (), "add.Tensor", Entry.METHOD),
        ("Tensor.add_", (), "add_.Tensor", Entry.METHOD),
        ("add_.Tensor", (), "add_.Tensor", Entry.METHOD),
        ("at::add", (), "add.Tensor", Entry.CPP),
        ("at::add_out", (), "add.out", Entry.CPP),
        ("at::_ops::add_Tensor::call", (), "add.Tensor", Entry.CPP),
        ("at::_ops::add__Tensor::redispatch", (), "add_.Tensor", Entry.CPP),
        ("torch.ops.aten.add.Tensor", (), "add.Tensor", Entry.CPP),
    ],
)
def test_a_function_is_found_by_each_of_its_names(
    asked: str, arguments: tuple[str, ...], name: str, entry: Entry
) -> None:
    function, found = find_function(lab_functions(), asked, arguments, source="the lab")
    assert (function.short_name, found) == (name, entry)


def test_a_name_that_is_none_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownOperatorError, match=r"did you mean add"):
        walk_call("torch.ad", file=LAB)


def test_the_command_shows_a_frame_a_line_and_the_same_as_json() -> None:
    text = run("codegen", LAB, "--walk", "torch.add", "--format", "text")
    assert text.exit_code == 0
    lines = [line for line in text.stdout.splitlines() if line.startswith("#")]
    assert len(lines) == 32
    assert lines[10].split() == [
        *("#10", "structured", "impl", "at::native::structured_ufunc_add_CPU::impl", "at", "ATen/UfuncCPU_add.cpp"),
        *("(lab:", lines[10].split()[-1]),
    ]
    written = run("codegen", LAB, "--walk", "torch.add", "--arg", "inference", "--format", "json")
    assert written.exit_code == 0
    found = json.loads(written.stdout)
    assert (found["operator"], found["entry"], found["known"]) == ("aten::add.Tensor", "function", True)
    assert [one["given"] for one in found["arguments"]] == ["inference", "cpu"]
    assert found["frames"][10]["function"] == "at::native::structured_ufunc_add_CPU::impl"
    rich = run("codegen", LAB, "--walk", "torch.add", "--format", "rich")
    assert rich.exit_code == 0
    assert sum("::" in line for line in rich.stdout.splitlines()) >= 32
