"""Captured inputs: calls noted while tests and programs run, kept in a file that runs no code."""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from dispatchlab.files.file_kinds import FileKind, content_of  # noqa: E402
from dispatchlab.pytorch.introspection.readiness_captures import (  # noqa: E402
    Capture,
    CapturedCalls,
    CaptureError,
    _parsed,
    captures_bytes,
    counted,
    merged,
    read_captures,
)
from dispatchlab.pytorch.introspection.readiness_inputs import Inputs, copy_of, describe, tensors_of  # noqa: E402
from tests.effort import share  # noqa: E402
from tests.live import forked  # noqa: E402

ROOT = Path(__file__).parents[2]

PACKAGE = r"""
import torch
from torch import Tensor


@torch.library.custom_op("captured::times", mutates_args=())
def times(x: Tensor, s: float = 2.0) -> Tensor:
    return x * s


@torch.library.custom_op("captured::times_backward", mutates_args=())
def times_backward(g: Tensor, s: float) -> Tensor:
    return g * s


times.register_fake(lambda x, s=2.0: torch.empty_like(x))
times_backward.register_fake(lambda g, s: torch.empty_like(g))
times.register_autograd(
    lambda ctx, g: (torch.ops.captured.times_backward(g, ctx.s), None),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "s", inputs[1]),
)
LIB = torch.library.Library("captured", "FRAGMENT")
for schema, kernel in {
    "write(Tensor(a!) x, Tensor y) -> ()": lambda x, y: (x.add_(y), None)[1],
    "raises(Tensor x) -> Tensor": lambda x: 1 / 0,
    "over(Tensor x) -> Tensor": lambda x: x * 1,
    "over.n(Tensor x, int n) -> Tensor": lambda x, n: x * n,
    "draws(Tensor x, Generator? g=None, *, ScalarType dtype=float32) -> Tensor":
        lambda x, g=None, dtype=None: torch.rand(x.shape, generator=g),
    "nested(Tensor[] xs) -> Tensor": lambda xs: torch.ops.captured.over.default(xs[0]),
}.items():
    LIB.define(schema)
    LIB.impl(schema.partition("(")[0], kernel, "CPU")
"""

TESTS = r"""
import pytest
import torch
import captured_package
from torch.utils._python_dispatch import TorchDispatchMode

OPS = torch.ops.captured


def test_plain():
    OPS.times(torch.ones(3))
    OPS.times(torch.ones(3, requires_grad=True), 3.0).sum().backward()
    captured_package.times(torch.randn(2, 3).t())


def test_arguments_are_those_before_the_call():
    x = torch.arange(6.0)
    OPS.write(x[:3], x[3:])
    assert x.tolist()[:2] == [3, 5]


def test_a_call_that_raises():
    with pytest.raises(ZeroDivisionError):
        OPS.raises(torch.ones(2))


def test_overloads():
    OPS.over(torch.ones(2))
    OPS.over(torch.ones(2), 3)
    OPS.nested([torch.ones(2, 2), torch.zeros(1)])
    OPS.draws(torch.ones(2), torch.Generator().manual_seed(5), dtype=torch.float64)


@pytest.mark.parametrize("shape", [(4, 5)])
def test_compiled(shape):
    x = torch.randn(shape, requires_grad=True)
    torch.compile(lambda x: OPS.times(x, 5.0).sin(), backend="aot_eager", fullgraph=True)(x).sum().backward()
    def breaks(x):
        y = OPS.times(x)
        print("a graph break")
        return OPS.times(y) + 1
    torch.compile(breaks, backend="eager")(x.detach().half())


def test_transforms_and_modes():
    torch.vmap(OPS.times)(torch.ones(2, 3, 4))
    seen = []
    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))
    x = torch.ones(2, dtype=torch.float64)
    with Mode():
        OPS.over(x)
    assert seen == ["captured.over.default"]
"""

EXPECTED = {
    "captured::times": {
        "(float32[3])",
        "(float32[3] needing a gradient, 3.0)",
        "(float32[3, 2] strides [1, 3])",
        "(float32[4, 5], 5.0)",
        "(float16[4, 5])",
    },
    "captured::times_backward": {"(float32[3] strides [0], 3.0)", "(float32[4, 5], 5.0)"},
    "captured::write": {"(float32[3], float32[3])"},
    "captured::over": {"(float32[2])", "(float32[2, 2])", "(float64[2])"},
    "captured::over.n": {"(float32[2], 3)"},
    "captured::nested": {"([float32[2, 2], float32[1]])"},
}


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "captured_package.py").write_text(PACKAGE)
    (folder / "test_captured.py").write_text(TESTS)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(folder)))}
    return forked.python(*arguments, folder=folder, environment=environment, having=forked.COMPILERS)


def test_the_tests_of_a_package_give_its_operators_inputs(tmp_path: Path) -> None:
    file = tmp_path / "inputs.safetensors"
    options = ("-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore", f"--dispatchlab-readiness={file}")
    done = _run(tmp_path, "-m", "pytest", "-q", *options, "test_captured.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{file}: 14 inputs of 7 operators" in done.stdout
    assert f"run them with: dispatchlab readiness PACKAGE --inputs {file}" in done.stdout
    found = read_captures(str(file))
    shown = {name: {describe(Inputs(*call)) for call in calls} for name, calls in found.items()}
    ((draws_positional, draws_named),) = found["captured::draws"]
    assert draws_named == {"dtype": torch.float64}
    assert draws_positional[1].initial_seed() == 5
    del shown["captured::draws"]
    shown["captured::times"] = {
        one.removesuffix(", s=2.0)") + ")" * (", s=2.0)" in one) for one in shown["captured::times"]
    }
    assert shown == EXPECTED
    (((one, other), _),) = found["captured::write"]
    assert one.untyped_storage()._cdata == other.untyped_storage()._cdata
    assert (one.tolist(), other.tolist()) == ([0, 1, 2], [3, 4, 5])
    read = ("readiness", "captured_package", "--inputs", str(file), "--format", "json", "--operator", "captured::write")
    ran = _run(tmp_path, "-m", "dispatchlab", *read, "--fail-on", "repeat")
    assert ran.returncode == 0, ran.stderr
    (row,) = json.loads(ran.stdout)["operators"]
    assert (row["cells"]["repeat"]["answer"], row["cells"]["fake"]["answer"]) == ("yes", "yes")
    refused = _run(
        tmp_path, "-m", "pytest", "-q", *options[:-1], "--dispatchlab-readiness=here.bin", "test_captured.py"
    )
    assert "has to end in .safetensors" in refused.stderr
    before = file.read_bytes()
    empty = _run(tmp_path, "-m", "pytest", "-q", *options, "-k", "nothing_of_this_name", "test_captured.py")
    assert f"no call of an operator was noted: nothing is written to {file}" in empty.stdout
    assert file.read_bytes() == before


PROGRAM = """
import sys, torch, captured_package
if __name__ == "__main__":
    torch.ops.captured.over(torch.ones(3, 3))
    sys.exit(3 if len(sys.argv) > 1 else 0)
"""


def test_a_program_gives_inputs_and_a_damaged_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    options: tuple[str, ...] = (
        "--from-program",
        "program.py",
        "--save-inputs",
        "kept.safetensors",
        "--write-baseline",
        "known.json",
    )
    fail_on = ("--fail-on", "fake", "--operator", "captured::over")
    done = _run(tmp_path, "-m", "dispatchlab", "readiness", "captured_package", *options, *fail_on)
    assert done.returncode == 1, done.stderr
    assert content_of(tmp_path / "kept.safetensors").kind is FileKind.INPUTS  # type: ignore[union-attr]
    kept = tmp_path / "kept.safetensors"
    assert {
        name: list(map(describe, map(Inputs._make, calls))) for name, calls in read_captures(str(kept)).items()
    } == {"captured::over": ["(float32[3, 3])"]}
    options = ("--baseline", "known.json", "--inputs", "kept.safetensors", *fail_on, "--format", "json")
    again = _run(tmp_path, "-m", "dispatchlab", "readiness", "captured_package", *options)
    assert again.returncode == 0, again.stderr
    found = json.loads(again.stdout)
    failure = {"operator": "captured::over", "column": "fake"}
    assert (found["known"], found["new_failures"], found["fixed"]) == ([failure], [], [])
    kept.write_bytes(kept.read_bytes()[:-1])
    damaged = _run(tmp_path, "-m", "dispatchlab", "readiness", "captured_package", "--inputs", "kept.safetensors")
    assert (damaged.returncode, damaged.stdout) == (2, "")
    assert "kept.safetensors: no captured inputs: the file is damaged" in damaged.stderr
    assert "Traceback" not in damaged.stderr


def _file() -> bytes:
    library = torch.library.Library("captured_here", "FRAGMENT")
    library.define("take(Tensor[] xs, Tensor? y, float s, str m, Generator? g=None, *, ScalarType? d=None) -> ()")
    library.impl("take", lambda *arguments, **named: None, "CompositeExplicitAutograd")
    base = torch.arange(12, dtype=torch.float32)
    with Capture() as capture:
        take = torch.ops.captured_here.take.default
        take([base[2:8].view(2, 3).t(), base[:4]], None, float("inf"), "mode")
        take(
            [torch.tensor([True, False])], torch.randn(3, requires_grad=True), 1.5, "", torch.Generator(), d=torch.half
        )
    return capture.file()


def test_a_file_gives_back_what_was_passed(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(_file())
    ((first, _), (second, named)) = read_captures(str(tmp_path / "a.safetensors"))["captured_here::take"]
    (transposed, start), empty, infinite, mode = first[:4]
    assert (transposed.tolist(), transposed.stride(), start.tolist()) == (
        [[2, 5], [3, 6], [4, 7]],
        (1, 3),
        [0, 1, 2, 3],
    )
    assert transposed.untyped_storage()._cdata == start.untyped_storage()._cdata
    assert (empty, infinite, mode, named) == (None, float("inf"), "mode", {"d": torch.half})
    assert (second[0][0].tolist(), second[1].requires_grad, second[1].is_leaf) == ([True, False], True, True)
    assert counted(merged([_file(), _file()])) == {"captured_here::take": 4}


def test_a_file_that_is_changed_is_refused_or_harmless(tmp_path: Path) -> None:
    data, draw, path = _file(), random.Random(0), tmp_path / "changed.safetensors"
    for _ in range(share(6000)):
        changed = bytearray(data)
        for _ in range(draw.choice((1, 1, 2, 8))):
            changed[draw.randrange(len(changed))] = draw.randrange(256)
        if draw.random() < 0.1:
            del changed[draw.randrange(len(changed)) :]
        if changed == data:
            continue
        path.write_bytes(bytes(changed))
        with pytest.raises(CaptureError):
            read_captures(str(path))


def test_a_file_with_a_right_checksum_reaches_over_no_memory(tmp_path: Path) -> None:
    calls, memory = _parsed(_file())
    draw, path, refused, read = random.Random(1), tmp_path / "made.safetensors", 0, 0
    numbers: tuple[Any, ...] = (
        0,
        1,
        2,
        3,
        5,
        7,
        64,
        2**31,
        2**40,
        2**62,
        -1,
        1.5,
        True,
        None,
        "cuda",
        "bool",
        "int64",
        "qint8",
        [],
        {},
    )
    tried = share(4000)
    for _ in range(tried):
        text = json.loads(json.dumps(calls))
        for _ in range(draw.choice((1, 1, 2))):
            holder = draw.choice([one for call in text["captured_here::take"] for one in _holders(call)])
            holder[draw.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))] = draw.choice(numbers)
        parts = [bytes(draw.randrange(256) if draw.random() < 0.1 else byte for byte in part) for part in memory]
        written = captures_bytes(CapturedCalls(text, parts, {}))
        assert _parsed(written)[1] == parts
        path.write_bytes(written)
        try:
            found = read_captures(str(path))
        except CaptureError:
            refused += 1
            continue
        read += 1
        for made in found.values():
            for call in made:
                for tensor in tensors_of(copy_of(Inputs(*call))):
                    assert tensor.numel() * tensor.element_size() < 1 << 27
                    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
                    end = (tensor.storage_offset() + last + 1) * tensor.element_size() if tensor.numel() else 0
                    assert end <= tensor.untyped_storage().nbytes()
                    assert tensor.dtype is not torch.bool or not (tensor.view(torch.uint8) > 1).any()
    assert refused >= tried / 5
    assert read >= tried / 20


def _holders(value: Any) -> list[Any]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    own = [value] if isinstance(value, (dict, list)) and value else []
    return own + [holder for one in inner for holder in _holders(one)]
