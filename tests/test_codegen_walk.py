"""The frames of a call of a structured operator in the lab, from the Python binding to the kernel by hand."""

from __future__ import annotations

import json

import pytest

from dispatchlab.codegen.kernels.lab import lab_functions
from dispatchlab.errors import UnknownOperatorError
from dispatchlab.questions.native_functions.lab_frames import Layer, walk_call
from tests.command_line import run


def test_add_goes_through_binding_autograd_wrapper_stub_and_loops() -> None:
    walk = walk_call("torch.add")
    assert walk.function.short_name == "add.Tensor"
    assert [(frame.layer, frame.file) for frame in walk.frames] == [
        (Layer.BINDING, "dispatchlab/codegen/runtime/python_bindings.py"),
        (Layer.API, "dispatchlab/call/operators.py"),
        (Layer.AUTOGRAD, "dispatchlab/lab/autograd.py"),
        (Layer.API, "dispatchlab/call/operators.py"),
        *((layer, "add_Tensor.py") for layer in (Layer.WRAPPER, Layer.IMPL)),
        (Layer.STUB, "dispatchlab/codegen/runtime/pointwise_loops.py"),
        (Layer.LOOP, "add_Tensor.py"),
        (Layer.LOOP, "dispatchlab/codegen/runtime/pointwise_loops.py"),
        (Layer.LOOP, "add_Tensor.py"),
        (Layer.NATIVE, "dispatchlab/codegen/kernels/pointwise.py"),
    ]


def test_every_operator_of_the_lab_has_its_frames() -> None:
    expected = [Layer.BINDING, Layer.API, Layer.AUTOGRAD, Layer.API, Layer.WRAPPER]
    names = [one.short_name for group in lab_functions().structured_groups for one in group.functions]
    assert len(names) == 44
    for name in names:
        frames = [frame.layer for frame in walk_call(name).frames]
        if Layer.VIEWS_AND_WRITES in frames:
            at = frames.index(Layer.VIEWS_AND_WRITES)
            del frames[at : at + 2]
        assert frames[:5] == expected, name
        assert frames[-1] is Layer.NATIVE, name


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        *(("add.Tensor", "add.Tensor"), ("aten::add.out", "add.out"), ("torch.mm", "mm"), ("add_", "add_.Tensor")),
        ("sum", "sum.dim_IntList"),
    ],
)
def test_an_operator_is_found_by_its_names(asked: str, name: str) -> None:
    assert walk_call(asked).function.short_name == name


def test_a_name_that_is_none_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownOperatorError, match=r"did you mean add"):
        walk_call("torch.ad")


def test_the_command_shows_a_frame_a_line_and_the_same_as_json() -> None:
    text = run("codegen", "--walk", "torch.add", "--format", "text")
    lines = [line.split() for line in text.stdout.splitlines() if line.startswith("#")]
    assert (text.exit_code, len(lines)) == (0, 11)
    assert lines[5][:5] == ["#5", "structured", "impl", "impl", "at"]
    found = json.loads(run("codegen", "--walk", "torch.add", "--format", "json").stdout)
    assert (found["operator"], len(found["frames"])) == ("aten::add.Tensor", 11)
    assert found["frames"][5]["layer"] == "structured impl"
