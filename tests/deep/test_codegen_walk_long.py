"""The long tests of tests/test_codegen_walk.py, which the quick tier leaves out."""

from __future__ import annotations

import json

from dispatchlab.codegen.kernels.lab import lab_functions
from dispatchlab.questions.native_functions.cpp_frames import Layer
from dispatchlab.questions.native_functions.lab_frames import lab_frames
from dispatchlab.questions.native_functions.walk_calls import Walk, walk_call
from tests.command_line import run
from tests.effort import share
from tests.test_codegen_walk import LAB


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
