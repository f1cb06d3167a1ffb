"""The frames of a call in C++, held to a backtrace of PyTorch's codegen walkthrough, and beside those of the lab."""

from __future__ import annotations

from importlib.resources import files
from typing import NamedTuple

import pytest

from dispatchlab.codegen.kernels.lab import FILE, lab_functions
from dispatchlab.errors import UnknownOperatorError
from dispatchlab.questions.native_functions.cpp_frames import Entry, Frame, Layer
from dispatchlab.questions.native_functions.walk_calls import Walk, find_function, walk_call

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
