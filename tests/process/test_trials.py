"""Trials of operators: what is wrong is found for its reason, and what is right is not condemned."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("torch")

from dispatchlab.live.bridge.torch import ImportFailedError
from dispatchlab.model.failure import Raised
from dispatchlab.model.trial_run import TrialRun
from dispatchlab.questions.check.trials import Run, TrialRequest, TrialsFailedError, trial_process, trials_answer
from dispatchlab.questions.lint.rule import Finding, Level, grouped
from dispatchlab.questions.why.diagnose import Answer

Try = Callable[..., list[Run]]


@pytest.fixture
def tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Try:
    """Return a function that writes modules and runs the trials of their operators."""
    monkeypatch.chdir(tmp_path)

    def run(*sources: str, inputs: str = "", whole: bool = False, seed: int = 0, limit_s: float = 300) -> list[Run]:
        names = tuple(f"module{at}" for at in range(len(sources)))
        for name, source in zip(names, sources, strict=True):
            (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
        if inputs:
            (tmp_path / "inputs.py").write_text(inputs, encoding="utf-8")
        file = str(tmp_path / "inputs.py") if inputs else ""
        request = TrialRequest(names, (str(tmp_path), *sys.path), file, whole, seed)
        with trial_process(request) as process:
            with suppress(ImportFailedError):
                process.facts()
            return process.runs(limit_s)

    return run


def findings(answer: list[Run]) -> list[Finding]:
    """Return the findings that fail a check, where lint reports each missing fake."""
    reported = {("DL006", run.operator) for run, _ in answer}
    found = trials_answer(answer, ("module0",), whole=False, reported=reported).findings
    return [finding for finding in found if finding.level is not Level.INFORMATION]


def said(answer: list[Run]) -> set[tuple[str, str]]:
    """Return the operators and causes of the findings that fail a check."""
    return {(finding.operator, finding.code) for finding in findings(answer)}


def runs(answer: list[Run]) -> dict[tuple[str, str], TrialRun]:
    """Return the runs by operator and trial."""
    return {(run.operator, run.trial): run for run, _ in answer}


SIGNATURES = """
import torch
lib = torch.library.Library("own", "DEF")
lib.define("norm(Tensor x, Tensor? w=None, *, float eps=1e-5) -> Tensor")
def norm(x, w): return x / (x.norm() + 1e-5)
lib.impl("norm", norm, "CPU")
lib.impl("norm", lambda x, w=None: torch.empty_like(x), "Meta")
lib.define("pair(Tensor x) -> (Tensor, Tensor)")
lib.impl("pair", lambda x: x * 2, "CPU")
lib.define("nothing(Tensor x) -> Tensor")
def nothing(x): x * 2
lib.impl("nothing", nothing, "CPU")
@torch.library.custom_op("own::rope", mutates_args=())
def rope(x: torch.Tensor, dim: int = 2, *, scale: float = 1.0) -> torch.Tensor:
    return x * scale
def fake_rope(x, dim): return torch.empty_like(x)
rope.register_fake(fake_rope)
def setup(ctx, inputs, output): pass
rope.register_autograd(lambda ctx, g: g, setup_context=setup)
"""


def test_functions_that_do_not_take_the_schema_are_named(tried: Try) -> None:
    answer = tried(SIGNATURES)
    assert said(answer) == {
        ("own::norm", "WHY211"),
        ("own::pair", "WHY212"),
        ("own::nothing", "WHY212"),
        ("own::rope", "WHY211"),
        ("own::rope", "WHY402"),
    }
    (norm,) = [each for each in findings(answer) if each.operator == "own::norm"]
    assert norm.message.startswith(
        "the CPU kernel of own::norm at module0.py:5 takes (x, w), but must take (x, w=None, *, eps="
    )
    assert "def norm(x, w=None, *, eps=1e-05): ..." in norm.fix
    assert norm.owners == ("registered at module0.py:5",)
    rope, fake = sorted((e for e in findings(answer) if e.operator == "own::rope"), key=lambda e: e.code)
    assert "the fake kernel of own::rope at" in fake.message
    assert "setup_context of own::rope at module0.py:18 takes (ctx, inputs, output)" in rope.message
    assert "def setup(ctx, inputs, keyword_only_inputs, output)" in rope.fix


ALIASES = """
import torch
lib = torch.library.Library("own", "DEF")
lib.define("same(Tensor x) -> Tensor")
lib.impl("same", lambda x: x.view(-1), "CPU")
lib.impl("same", lambda x: x.new_empty(x.numel()), "Meta")
@torch.library.custom_op("own::same_custom", mutates_args=())
def same_custom(x: torch.Tensor) -> torch.Tensor:
    return x
@torch.library.custom_op("own::twice", mutates_args=())
def twice(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x * 2
    return y, y
@torch.library.custom_op("own::writes", mutates_args=())
def writes(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    y.add_(1)
    return x * 2
@torch.library.custom_op("own::nothing", mutates_args="unknown")
def nothing(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x * y
"""


def test_aliases_and_writes_are_found_and_take_the_fake_down(tried: Try) -> None:
    answer = tried(ALIASES)
    assert said(answer) == {
        ("own::same", "WHY612"),
        ("own::same_custom", "WHY612"),
        ("own::twice", "WHY612"),
        ("own::writes", "WHY421"),
        ("own::nothing", "WHY431"),
    }
    assert runs(answer)["own::same", "fake"].status == "failed"


FAKES = """
import torch
@torch.library.custom_op("own::mask", mutates_args=())
def mask(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).contiguous()
mask.register_fake(lambda x: torch.empty_like(x))
@torch.library.custom_op("own::half", mutates_args=())
def half(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.float16)
half.register_fake(lambda x: torch.empty_like(x))
@torch.library.custom_op("own::rows", mutates_args=())
def rows(x: torch.Tensor) -> torch.Tensor:
    return x.sum(0)
rows.register_fake(lambda x: x.new_empty(x.shape[0]))
"""


def test_a_fake_that_gives_something_else_is_found_on_transposed_inputs_too(tried: Try) -> None:
    answer = tried(FAKES, inputs='import torch\nINPUTS = {"own::rows": [torch.ones(2, 3)]}')
    assert said(answer) == {("own::mask", "WHY403"), ("own::half", "WHY403"), ("own::rows", "WHY403")}
    assert runs(answer)["own::mask", "fake"].inputs == "(float32[3, 4] strides [1, 3])"
    assert (
        "dtype torch.float32 where the kernel gives torch.float16" in runs(answer)["own::half", "fake"].raised[0].text
    )
    assert {finding.operator: finding.fix for finding in findings(answer)} == {
        "own::half": 'torch.library.register_fake("own::half", lambda x: torch.empty_like(x, dtype=torch.float16))',
        "own::mask": 'torch.library.register_fake("own::mask", lambda x: x.new_empty(x.shape))',
        "own::rows": 'torch.library.register_fake("own::rows", lambda x: x.new_empty(x.shape[1:]))',
    }


SHORT = """
import torch
@torch.library.custom_op("own::damp", mutates_args=())
def damp(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x if factor == 1.0 else x * factor
damp.register_fake(lambda x, factor: torch.empty_like(x))
@torch.library.custom_op("own::window", mutates_args=())
def window(x: torch.Tensor, size: int) -> torch.Tensor:
    return x.unfold(-1, size, size).sum(-1)
window.register_fake(lambda x, size: x.new_empty(*x.shape[:-1], -(-x.shape[-1] // size)))
@torch.library.custom_op("own::right", mutates_args=())
def right(x: torch.Tensor, size: int, factor: float) -> torch.Tensor:
    return x.unfold(-1, size, size).sum(-1) * factor
right.register_fake(lambda x, size, factor: x.new_empty(*x.shape[:-1], x.shape[-1] // size))
"""


def test_numbers_are_tried_for_which_a_kernel_returns_its_argument_or_a_fake_rounds_otherwise(tried: Try) -> None:
    answer = tried(SHORT)
    assert {name for name, _ in said(answer)} == {"own::damp", "own::window"}
    assert runs(answer)["own::damp", "schema"].inputs == "(float32[3, 4], 1.0)"
    assert runs(answer)["own::window", "fake"].inputs == "(float32[3, 4], 3)"


GONE = """
import torch
kept = torch.library.Library("own", "DEF")
kept.define("kernel_gone(Tensor x) -> Tensor")
def install():
    torch.library.Library("own", "IMPL").impl("kernel_gone", lambda x: x * 2, "CPU")
    torch.library.Library("own", "IMPL").impl("without_def", lambda x: x * 2, "CPU")
    torch.library.Library("own", "FRAGMENT").define("def_gone(Tensor x) -> Tensor")
install()
with torch.library._scoped_library("own", "FRAGMENT") as scoped:
    scoped.define("meant(Tensor x) -> Tensor")
@torch.library.custom_op("own::same", mutates_args=())
def same(x: torch.Tensor) -> torch.Tensor:
    return x + 1
"""
AGAIN = """
import torch
@torch.library.custom_op("own::same", mutates_args=("x",))
def same(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x.clone()
"""


def test_what_was_collected_or_replaced_is_found(tried: Try) -> None:
    answer = tried(GONE, AGAIN)
    assert said(answer) == {
        ("own::kernel_gone", "WHY102"),
        ("own::without_def", "WHY102"),
        ("own::def_gone", "WHY102"),
        ("own::same", "WHY233"),
    }


def test_only_the_chosen_operators_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "module0.py").write_text(GONE, encoding="utf-8")
    request = TrialRequest(("module0",), (str(tmp_path), *sys.path), operators=("own::same",))
    with trial_process(request) as process:
        process.facts()
        assert {run.operator for run, _ in process.runs(300)} == {"own::same"}


def test_a_function_that_recurses_is_one_finding_for_all_operators_that_call_it(tried: Try) -> None:
    source = """
import torch
def helper(x): return helper(x) + 1
for name in ("first", "second"):
    def kernel(x: torch.Tensor) -> torch.Tensor: return helper(x)
    torch.library.custom_op(f"own::{name}", kernel, mutates_args=())
"""
    (group,) = grouped(findings(tried(source)))
    assert [(one.code, one.operator) for one in group.findings] == [("WHY919", "own::first"), ("WHY919", "own::second")]
    assert group.first.owners == ("registered at module0.py:3",)
    assert group.first.fix == (
        "call the function that does the work in this line, not the function that contains the line"
    )


TWO_KERNELS = """
import torch
@torch.library.custom_op("own::twice", mutates_args=(), device_types="cuda")
def twice(x: torch.Tensor) -> torch.Tensor: return x * 2
twice.register_fake(torch.empty_like)
def save(ctx, inputs, output): pass
twice.register_autograd(lambda ctx, g: g * 2, setup_context=save)
twice.register_kernel("cpu", lambda x: x * 2)
"""
REPLACES = """
from module0 import twice
@twice.register_kernel(["cuda", "cpu"])
def other(x):
    return (x * 3).double()
"""


def test_a_kernel_that_another_module_replaced_is_named_where_backward_and_fake_do_not_fit(tried: Try) -> None:
    assert said(tried(TWO_KERNELS)) == set()
    answer = tried(TWO_KERNELS, REPLACES)
    assert said(answer) == {("own::twice", "WHY822"), ("own::twice", "WHY532"), ("own::twice", "WHY403")}
    for code in ("WHY532", "WHY403"):
        (found,) = [each for each in findings(answer) if each.code == code]
        assert "kernel at module1.py:3 (which replaced the one at module0.py:8)" in found.message
        assert f"keep one of the two kernels, the one {'that the fake' if code == 'WHY403' else 'whose'}" in found.fix
    (kernel,) = [each for each in findings(answer) if each.code == "WHY822"]
    assert kernel.message == (
        "own::twice got a kernel for CPU at module0.py:8 and another at module1.py:3: the later one wins"
    )
    assert (kernel.level, kernel.owners) == (Level.WARNING, ("registered at module1.py:3",))


def test_every_input_of_the_user_that_raises_is_a_failure_and_a_crash_costs_its_own_trial(tried: Try) -> None:
    source = """
import os, sys, torch
lib = torch.library.Library("own", "DEF")
lib.define("raises(Tensor x) -> Tensor")
def raises(x): raise ValueError("no such x")
lib.impl("raises", raises, "CPU")
lib.define("aborts(Tensor x) -> Tensor")
def aborts(x):
    sys.stderr.write("terminate called\\n  what():  broken in C++\\n")
    sys.stderr.flush()
    os.abort()
lib.impl("aborts", aborts, "CPU")
lib.define("recurses(Tensor x) -> Tensor")
lib.impl("recurses", lambda x: torch.ops.own.recurses(x), "CPU")
"""
    answer = tried(source, inputs='import torch\nINPUTS = {"own::raises": [((torch.ones(2),), {})]}')
    found = runs(answer)
    assert found["own::raises", "call"].error == "ValueError: no such x"
    assert found["own::aborts", "call"].error == "RuntimeError: broken in C++"
    assert found["own::aborts", "signature"].status == "passed"
    assert found["own::recurses", "call"].raised[0].name == "RecursionError"
    assert {operator for operator, _ in said(answer)} == {"own::raises", "own::aborts", "own::recurses"}


def test_a_kernel_that_aborts_on_a_generated_input_without_an_exception_is_open(tried: Try) -> None:
    source = """
import os, torch
lib = torch.library.Library("own", "DEF")
lib.define("picky(Tensor x, int size) -> Tensor")
def picky(x, size):
    print("unexpected size", flush=True)
    os.abort()
lib.impl("picky", picky, "CPU")
"""
    answer = tried(source)
    assert said(answer) == set()
    assert (runs(answer)["own::picky", "call"].status, len(answer)) == ("open", 2)


def test_inputs_are_taken_from_calls_that_tests_made(tried: Try, tmp_path: Path) -> None:
    source = """
import torch
@torch.library.custom_op("own::named", mutates_args=())
def named(x: torch.Tensor, kind: str) -> torch.Tensor:
    if kind != "of one kind": raise ValueError(kind)
    return x * 2
named.register_fake(lambda x, kind: torch.empty_like(x))
"""
    assert runs(tried(source))["own::named", "call"].status == "no input"
    test = "import module0, torch\ndef test(): torch.ops.own.named(torch.ones(2, 3), 'of one kind')\n"
    (tmp_path / "test_named.py").write_text(test, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "dispatchlab.pytest_plugin", "--why", "test_named.py"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), *sys.path))}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = runs(tried(source))
    assert [found["own::named", trial].status for trial in ("call", "schema", "fake")] == ["passed"] * 3


def test_inputs_that_cannot_be_read_are_an_error(tried: Try) -> None:
    with pytest.raises(TrialsFailedError, match="it has no dictionary such as INPUTS"):
        tried("import torch", inputs="INPUTS = {}")
    source = """import torch
@torch.library.custom_op("own::rows", mutates_args=())
def rows(x: torch.Tensor) -> torch.Tensor:
    return x.clone()
"""
    with pytest.raises(TrialsFailedError, match=r"there is no operator own::row; did you mean own::rows\?"):
        tried(source, inputs='INPUTS = {"own::row": []}')


def test_inputs_of_tests_are_taken_in_place_of_generated_ones(tried: Try, tmp_path: Path) -> None:
    source = """import torch
@torch.library.custom_op("own::heads", mutates_args=())
def heads(x: torch.Tensor, count: int) -> torch.Tensor:
    return x.reshape(count, -1).clone()
@heads.register_fake
def _(x, count):
    return x.new_empty(*((count, x.numel() // count) if count < 4 else (1, x.numel())))
"""
    torch = pytest.importorskip("torch")
    assert not findings(tried(source))  # with a small count the fake is right
    noted = tmp_path / ".pytest_cache" / "d" / "dispatchlab" / "inputs.pt"
    noted.parent.mkdir(parents=True)
    torch.save({"own::heads": [((torch.ones(4, 6), 4), {})]}, noted)
    (found,) = findings(tried(source))
    assert (found.code, found.owners) == ("WHY403", ("registered at module0.py:5",))


def test_inputs_of_tests_that_cannot_be_loaded_are_left_out_with_a_sentence(tried: Try, tmp_path: Path) -> None:
    noted = tmp_path / ".pytest_cache" / "d" / "dispatchlab" / "inputs.pt"
    noted.parent.mkdir(parents=True)
    noted.write_bytes(b"")
    source = """import torch
@torch.library.custom_op("own::same", mutates_args=())
def same(x: torch.Tensor) -> torch.Tensor:
    return x.clone()
"""
    answer = trials_answer(tried(source), ("module0",), whole=False)
    assert [one.code for one in answer.findings] == ["WHY401"]
    why = "the stored inputs of your tests cannot be loaded, so inputs are generated: EOFError"
    assert answer.notes[0] == f".pytest_cache/d/dispatchlab/inputs.pt: {why}"
    assert answer.text.startswith("1 operator: ")


def test_a_finding_without_a_frame_has_the_line_that_registered_the_operator(tried: Try) -> None:
    source = """import torch
library = torch.library.Library("own", "DEF")
library.define("plain(Tensor x) -> Tensor")
library.impl("plain", lambda x: x + 1, "CPU")
"""
    found = trials_answer(tried(source), ("module0",), whole=False).findings
    assert {one.code: (one.owners, one.level) for one in found}["WHY401"] == (
        ("registered at module0.py:3",),
        Level.WARNING,
    )


IN_CPP = """
import torch
low = torch._C._dispatch_library("DEF", "own", "", "own.cpp", 34)
low.define("same(Tensor x) -> Tensor", "")
low.define("double_it(Tensor x) -> Tensor", "")
kernels = torch._C._dispatch_library("IMPL", "own", "CPU", "own.cpp", 45)
kernels.impl("same", "CPU", lambda x: x)
kernels.impl("double_it", "CPU", lambda x: x.mul_(2).clone())
@torch.library.register_fake("own::double_it")
def fake(x): return torch.empty_like(x)
"""


def test_a_kernel_in_cpp_is_named_by_its_own_line_and_fixed_in_cpp(tried: Try) -> None:
    found = {one.code: one for one in trials_answer(tried(IN_CPP), ("module0",), whole=False).findings}
    alias, write = found["WHY612"], found["WHY421"]
    assert alias.owners == write.owners == ("registered at own.cpp:45",)
    assert alias.message.startswith("own::same returns x, or a view of it, defined at own.cpp:34: ")
    assert write.fix == 'm.def("double_it(Tensor(a!) x) -> Tensor") in TORCH_LIBRARY(own, m)'


GRADIENTS = """
import torch
@torch.library.custom_op("own::cube", mutates_args=())
def cube(x: torch.Tensor) -> torch.Tensor:
    return x ** 3
def save(ctx, inputs, output): ctx.save_for_backward(*inputs)
cube.register_autograd(lambda ctx, g: g * ctx.saved_tensors[0] ** 2 * 2, setup_context=save)
lib = torch.library.Library("own", "FRAGMENT")
lib.define("loss(Tensor x) -> Tensor")
lib.impl("loss", lambda x: x * 2, "CPU")
class Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return torch.ops.own.loss(x)
    @staticmethod
    def backward(ctx, g): return g * 2
lib.impl("loss", lambda x: Loss.apply(x), "Autograd")
aten = torch.library.Library("aten", "IMPL")
aten.impl("linear", lambda x, w, b=None: torch.mm(x, w.t()), "CPU")
"""


def test_gradients_are_compared_with_finite_differences_and_composite_overrides_are_found(tried: Try) -> None:
    answer = tried(GRADIENTS)
    assert said(answer) == {("own::cube", "WHY532"), ("own::loss", "WHY307"), ("aten::linear", "WHY310")}
    (loss,) = [each for each in findings(answer) if each.operator == "own::loss"]
    assert "the Autograd kernel of own::loss at module0.py:16 calls own::loss itself" in loss.message
    (linear,) = [each for each in findings(answer) if each.operator == "aten::linear"]
    assert "calls aten::linear_backward, which has no kernel for CPU" in linear.message


def test_a_kernel_that_hides_the_formula_is_an_error_and_its_removal_the_fix(tried: Try) -> None:
    source = """import torch
lib = torch.library.Library("own", "DEF")
lib.define("sq(Tensor x) -> Tensor")
lib.impl("sq", lambda x: x * x, "CPU")
def hiding(x):
    with torch._C._AutoDispatchBelowAutograd():
        return torch.ops.own.sq(x)
lib.impl("sq", hiding, "AutogradCPU")
torch.library.register_fake("own::sq", torch.empty_like, lib=lib)
torch.library.register_autograd(
    "own::sq",
    lambda ctx, g: 2 * ctx.saved_tensors[0] * g,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
    lib=lib,
)
"""
    (found,) = findings(tried(source))
    assert (found.code, found.level) == ("WHY508", Level.ERROR)
    assert found.message == (
        "calls run the AutogradCPU kernel of own::sq at module0.py:8 in place of the formula of register_autograd, and "
        "that kernel records no gradient: gradients end there (no grad_fn); found by the trial backward with "
        "(float32[3, 4])"
    )
    assert found.fix == (
        'remove lib.impl("sq", ..., "AutogradCPU") at module0.py:8: calls then run the formula of register_autograd'
    )
    assert findings(tried(source.replace('lib.impl("sq", hiding, "AutogradCPU")\n', ""))) == []


RECORDED = """
import torch
def save(ctx, inputs, output): ctx.save_for_backward(*inputs)
def formula(ctx, g): return g * 2 * ctx.saved_tensors[0]
lib = torch.library.Library("own", "DEF")
@torch.library.custom_op("other::two", mutates_args=())
def two(x: torch.Tensor) -> torch.Tensor: return x ** 2
two.register_autograd(formula, setup_context=save)
two.register_autograd(lambda ctx, g: g, setup_context=save)
@torch.library.custom_op("other::hidden", mutates_args=())
def hidden(x: torch.Tensor) -> torch.Tensor: return x ** 2
hidden.register_autograd(formula, setup_context=save)
other = torch.library.Library("other", "IMPL")
other.impl("hidden", lambda x: x.detach() * x, "AutogradCPU")
lib.define("part(Tensor x) -> Tensor")
lib.impl("part", lambda x: x * x.detach(), "CompositeImplicitAutograd")
lib.define("loss(Tensor x) -> Tensor")
lib.impl("loss", lambda x: x * 3, "CPU")
lib.impl("loss", lambda x: x * 2 + x.detach(), "Autograd")
"""


def test_a_wrong_gradient_names_the_function_that_makes_it(tried: Try) -> None:
    found = [each for each in findings(tried(RECORDED)) if each.code == "WHY532"]
    of = {each.operator: each.message for each in found}
    (fix,) = [each.fix for each in found if each.operator == "other::two"]
    backward = "in backward at module0.py:9 (which replaced the one at module0.py:4), return grad_x"
    assert fix == f"{backward}: the derivative of the kernel at module0.py:6"
    assert "backward of other::two at module0.py:9 (which replaced the one at module0.py:4) is not" in of["other::two"]
    hides = "the AutogradCPU kernel of other::hidden at module0.py:14 runs in place of its backward at module0.py:4"
    assert of["other::hidden"].startswith(hides)
    assert of["own::part"].startswith("own::part has no backward, so autograd records what its kernel at module0.py:16")
    assert "the Autograd kernel of own::loss at module0.py:19 are not the derivative" in of["own::loss"]


SWAPPED = """
import torch
@torch.library.custom_op("own::mix", mutates_args=())
def mix(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor: return 2 * x + 3 * w + b
mix.register_fake(lambda x, w, b: torch.empty_like(x))
mix.register_autograd(lambda ctx, g: (g * 3, g * 2, g))
"""


def test_a_wrong_gradient_names_the_arguments_whose_gradients_are_wrong(tried: Try) -> None:
    (found,) = findings(tried(SWAPPED))
    assert (found.code, ", by its gradient for x and w; found by" in found.message) == ("WHY532", True)


OPTIONAL = """
import torch
def save(ctx, inputs, output): ctx.save_for_backward(*inputs)
def affine(x: torch.Tensor, w: torch.Tensor | None = None) -> torch.Tensor:
    return x * 2 if w is None else x * w
few = torch.library.custom_op("own::few", affine, mutates_args=())
few.register_autograd(lambda ctx, g: (g * 2, None) if ctx.saved_tensors[1] is None else g, setup_context=save)
def right(ctx, g):
    x, w = ctx.saved_tensors
    return (g * 2, None) if w is None else (g * w, g * x)
other = torch.library.custom_op("own::right", affine, mutates_args=())
other.register_autograd(right, setup_context=save)
"""


def test_a_backward_that_returns_too_few_gradients_for_an_optional_tensor_is_found(tried: Try) -> None:
    (found,) = findings(tried(OPTIONAL))
    assert (found.operator, found.code) == ("own::few", "WHY506")
    assert (
        "returns 1 gradient, but must return 2: one for each argument of forward; found by the trial backward with "
        "(float32[3, 4], " in found.message
    )


TRANSFORMS = """
import torch
lib = torch.library.Library("own", "DEF")
lib.define("bump_(Tensor(a!) x) -> Tensor(a!)")
lib.impl("bump_", lambda x: x.add_(1), "CPU")
lib.impl("bump_", lambda x: x, "Meta")
@torch.library.custom_op("own::batched", mutates_args=())
def batched(x: torch.Tensor) -> torch.Tensor:
    return x - x.sum()
@batched.register_vmap
def _(info, in_dims, x): return x - x.sum(), in_dims[0]
lib.define("casts(Tensor x) -> Tensor")
lib.impl("casts", lambda x: x * 2, "CPU")
lib.impl("casts", lambda x: torch.ops.own.casts(x.bfloat16()), "AutocastCPU")
"""


def test_functionalization_vmap_and_autocast_are_tried(tried: Try) -> None:
    answer = tried(TRANSFORMS)
    assert said(answer) == {("own::bump_", "WHY611"), ("own::batched", "WHY608"), ("own::casts", "WHY623")}
    assert runs(answer)["own::batched", "vmap"].status == "failed"
    assert runs(answer)["own::casts", "autocast"].raised[0].name == "RecursionError"


ENDLESS = """
import time, torch
def used(seconds):
    while time.process_time() < seconds: pass
@torch.library.custom_op("own::slow", mutates_args=())
def slow(x: torch.Tensor) -> torch.Tensor:
    used(time.process_time() + 3)
    return x * 2
@torch.library.custom_op("own::wrong", mutates_args=())
def wrong(x: torch.Tensor) -> torch.Tensor:
    return x
"""


def test_a_trial_on_generated_inputs_ends_after_five_seconds_of_processor_time(tried: Try) -> None:
    found = tried(ENDLESS)
    (slow,) = [run for run, _ in found if run.operator == "own::slow" and run.status == "open"]
    assert (slow.trial, slow.why) == ("call", "there is no answer in time")
    assert said(found) == {("own::wrong", "WHY612")}


PATIENT = """
import torch
from dispatchlab.live.trials import trials
trials._LIMIT_S = 0.0
@torch.library.custom_op("own::compiled", mutates_args=())
def compiled(x: torch.Tensor) -> torch.Tensor:
    return x * 2
"""


def test_trials_on_given_inputs_wait_for_an_answer(tried: Try) -> None:
    found = tried(PATIENT, inputs="import torch\nINPUTS = {'own::compiled': [((torch.ones(3),), {})]}")
    assert runs(found)["own::compiled", "call"].status == "passed"
    assert "open" not in {run.status for run, _ in found}


MANY = """
import time, torch
def made(at):
    @torch.library.custom_op(f"own::op{at:02}", mutates_args=())
    def op(x: torch.Tensor) -> torch.Tensor:
        time.sleep(60 * (at == 7))
        return (x * 2).half() if at == 11 else x * 2
    op.register_fake(lambda x: torch.empty_like(x))
for at in range(45):
    made(at)
"""


def test_of_many_operators_the_most_telling_trials_are_run_and_the_others_named(tried: Try) -> None:
    found = tried(MANY)
    assert said(found) == {("own::op11", "WHY403")}
    by_status = Counter(run.status for run, _ in found)
    assert (by_status["passed"], by_status["failed"], by_status["open"], by_status["not tried"]) == (176, 1, 1, 225)
    answer = trials_answer(found, ("module0",), whole=False)
    assert answer.text == "45 operators: 176 trials passed, 1 failed, 225 not tried"
    assert answer.notes[0] == (
        "not tried, since there are many operators: autograd registration, backward, vmap, autocast, functionalize of "
        "45 operators: dispatchlab check module0 --run"
    )
    assert "call has no result: there is no answer in time: own::op07" in answer.notes


def test_a_failure_that_lint_reports_too_is_named_by_its_rule(tried: Try) -> None:
    source = """
import torch
@torch.library.custom_op("own::plain", mutates_args=())
def plain(x: torch.Tensor) -> torch.Tensor:
    return x * 2
"""
    answer = trials_answer(tried(source), ("module0",), whole=False, reported={("DL006", "own::plain")})
    assert answer.findings == ()
    assert re.fullmatch(r"1 operator: \d trials passed, 1 failed \(DL006 below\)", answer.text), answer.text


def test_a_misspelled_fake_that_ends_the_import_is_fixed_in_its_own_line(tried: Try) -> None:
    source = """import torch
lib = torch.library.Library("own", "DEF")
lib.define("voxel(Tensor x) -> Tensor")
torch.library.register_fake("own::voxell", torch.empty_like)
"""
    (found,) = findings(tried(source))
    assert (found.code, found.level, found.owners) == ("WHY103", Level.ERROR, ("registered at module0.py:4",))
    assert found.fix == '"own::voxel"  # this operator has a def'


def test_an_operator_without_a_kernel_for_this_machine_needs_no_input(tried: Try) -> None:
    source = """import torch
lib = torch.library.Library("own", "DEF")
lib.define("tail(Tensor x) -> Tensor")
lib.define("head(Tensor x) -> Tensor")
lib.impl("head", torch.empty_like, "Meta")
lib.define("strict(Tensor x) -> Tensor")
def strict(x): raise ValueError("x has five dimensions")
lib.impl("strict", strict, "CPU")
"""
    notes = trials_answer(tried(source), ("module0",), whole=False).notes
    assert notes[:2] == (
        "no input for own::strict: run pytest --why once, or dispatchlab check module0 --inputs FILE.py",
        "no kernel for a device of this machine: own::head, own::tail",
    )


def test_a_misspelled_kernel_is_named_by_lint_alone() -> None:
    raised = (Raised("builtins.AttributeError", "'_OpNamespace' 'own' object has no attribute 'scael'"),)
    run = TrialRun(operator="own::scael", trial="signature", status="failed", raised=raised)
    cause = Answer(code="WHY103", title="an operator with a similar name", cause="own::scael is not defined")
    answer = trials_answer([(run, cause)], ("module0",), whole=False, reported={("DL001", "own::scael")})
    assert (answer.findings, answer.text) == ((), "1 operator: 0 trials passed, 1 failed (DL001 below)")


def test_a_custom_op_of_two_modules_is_one_finding() -> None:
    raised = (Raised("builtins.AssertionError", "own::op is made twice"),)
    run = TrialRun(operator="own::op", trial="registrations", status="failed", raised=raised)
    cause = Answer(code="WHY233", title="a custom_op that replaces another", cause="own::op is made twice")
    answer = trials_answer([(run, cause)], ("module0",), whole=False, reported={("order", "own::op")})
    assert (answer.findings, answer.text) == ((), "1 operator: 0 trials passed, 1 failed (order below)")


def test_an_alias_that_functionalization_refuses_is_named_by_lint_alone() -> None:
    raised = (Raised("builtins.RuntimeError", "the output has alias annotations"),)
    run = TrialRun(operator="own::op_", trial="functionalize", status="failed", raised=raised)
    cause = Answer(code="WHY611", title="an output that aliases an input", cause="functionalization refuses own::op_")
    answer = trials_answer([(run, cause)], ("module0",), whole=False, reported={("DL023", "own::op_")})
    assert (answer.findings, answer.text) == ((), "1 operator: 0 trials passed, 1 failed (DL023 below)")


BACKEND = """
import numpy
import torch
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend
_setup_privateuseone_for_python_backend("npu")
class Npu(torch.Tensor):
    @staticmethod
    def __new__(cls, data):
        out = torch._C._acc.create_empty_tensor(data.shape, torch.from_numpy(data).dtype)
        out.__class__ = Npu
        out.data_np = data
        return out
    def __init__(self, data): pass
def made(size, dtype=None): return Npu(numpy.empty(size, torch.empty(0, dtype=dtype).numpy().dtype))
def copy(src, dst, non_blocking=False):
    if dst.device.type == "npu":
        dst.data_np = src.detach().numpy().astype(dst.data_np.dtype).reshape(dst.shape)
        return dst
    return dst.copy_(torch.from_numpy(numpy.array(src.data_np)))
lib = torch.library.Library("aten", "IMPL")
lib.impl("empty.memory_format", lambda size, *, dtype=None, **_: made(size, dtype), "PrivateUse1")
lib.impl("empty_strided", lambda size, stride, *, dtype=None, **_: made(size, dtype), "PrivateUse1")
lib.impl("_copy_from", copy, "PrivateUse1")
def add(a, b, alpha=1): ADD
lib.impl("add.Tensor", add, "PrivateUse1")
lib.impl("sub.Tensor", lambda a, b, alpha=1: Npu(a.data_np - b.data_np), "PrivateUse1")
lib.impl("mul.Tensor", lambda a, b: Npu(a.data_np * b.data_np), "PrivateUse1")
lib.impl("relu", lambda x: x, "XLA")
"""


def test_the_kernels_of_a_backend_run_on_its_device(tried: Try) -> None:
    right = BACKEND.replace("ADD", "return Npu(a.data_np + alpha * b.data_np)")
    found = tried(right)
    status = {name: run.status for (name, trial), run in runs(found).items() if trial == "call"}
    assert status == {
        "aten::_copy_from": "no input",
        "aten::add.Tensor": "passed",
        "aten::empty.memory_format": "passed",
        "aten::empty_strided": "failed",
        "aten::mul.Tensor": "passed",
        "aten::relu": "no input",
        "aten::sub.Tensor": "failed",
    }
    strided, finding = findings(found)
    assert strided.message.startswith("aten::empty_strided gives strides [4, 1] on npu and strides [1, 1] on the CPU")
    assert finding.message.startswith("aten::sub.Tensor gives other values on npu than on the CPU; found by")
    assert "found by the trial call on npu with" in finding.message
    answer = trials_answer(found, ("module0",), whole=False)
    calls = {run.operator: (run.status, run.device) for run in answer.trials if run.trial == "call"}
    assert calls["aten::sub.Tensor"] == ("failed", "npu")
    assert answer.text == "7 operators: 3 trials passed (3 on npu), 2 failed, 2 operators not run"
    assert answer.notes[:2] == (
        "no input on XLA for aten::relu: run pytest --why once, or dispatchlab check module0 --inputs FILE.py",
        "no input on npu for aten::_copy_from: run pytest --why once, or dispatchlab check module0 --inputs FILE.py",
    )
    assert answer.notes[2].startswith(
        "not run on the device of the package: what makes tensors on the CPU alone (schema"
    )
    broken = findings(tried(BACKEND.replace("ADD", 'raise RuntimeError("broken")')))
    operators = {"aten::add.Tensor", "aten::empty_strided", "aten::sub.Tensor"}
    assert {finding.operator for finding in broken} == operators
    on_cpu = findings(tried(BACKEND.replace("ADD", "return torch.from_numpy(a.data_np + alpha * b.data_np)")))
    (finding,) = [finding for finding in on_cpu if finding.operator == "aten::add.Tensor"]
    assert finding.code == "WHY212"
    assert finding.message.startswith(
        "the kernel of aten::add.Tensor at module0.py:24 returned a tensor on cpu, but its input is on npu; found by"
    )


OWN_ON_NPU = """
own = torch.library.Library("own", "DEF")
for name in ("alone", "both", "cpu_only", "wrong", "elsewhere", "refuses", "both_refuses"):
    own.define(f"{name}(Tensor x) -> Tensor")
def refuse(x): raise RuntimeError("no such input")
own.impl("alone", lambda x: Npu(x.data_np * 2), "PrivateUse1")
own.impl("both", lambda x: Npu(x.data_np * 3), "PrivateUse1")
own.impl("both", lambda x: x * 3, "CPU")
own.impl("cpu_only", lambda x: x * 3, "CPU")
own.impl("wrong", lambda x: Npu(x.data_np * 4), "PrivateUse1")
own.impl("wrong", lambda x: x * 3, "CPU")
own.impl("elsewhere", lambda x: torch.from_numpy(x.data_np * 4), "PrivateUse1")
own.impl("refuses", refuse, "PrivateUse1")
own.impl("both_refuses", refuse, "PrivateUse1")
own.impl("both_refuses", lambda x: x * 3, "CPU")
"""


def test_own_operators_of_a_backend_are_called_on_its_device(tried: Try) -> None:
    found = tried(BACKEND.replace("ADD", "return Npu(a.data_np + alpha * b.data_np)") + OWN_ON_NPU)
    calls = {name: (run.status, run.device) for (name, trial), run in runs(found).items() if trial == "call"}
    assert {name: call for name, call in calls.items() if name.startswith("own::")} == {
        "own::alone": ("passed", "npu"),
        "own::both": ("passed", "npu"),
        "own::both_refuses": ("passed", "cpu"),
        "own::cpu_only": ("passed", "cpu"),
        "own::elsewhere": ("failed", "npu"),
        "own::refuses": ("no input", ""),
        "own::wrong": ("failed", "npu"),
    }
    (wrong,) = [each for each in findings(found) if each.operator == "own::wrong"]
    assert "own::wrong gives other values on npu than on the CPU; found by the trial call on npu with" in wrong.message


def test_a_fallback_of_a_backend_is_called(tried: Try) -> None:
    backend = BACKEND.replace("ADD", "return Npu(a.data_np + alpha * b.data_np)")
    fallback = """
everything = torch.library.Library("_", "IMPL")
def again(op, *args, **kwargs): RUN
everything.fallback(again, "PrivateUse1")
"""
    found = tried(backend + fallback.replace("RUN", "return op(*args, **kwargs)"))
    (finding,) = [each for each in findings(found) if each.operator == "aten::trace"]
    assert finding.code == "WHY307"
    assert finding.message.startswith("the fallback for PrivateUse1, registered with module0.py:31, calls the operator")
    assert finding.fix.startswith("def again(op, *args, **kwargs):\n")
    moving = "return torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.cpu(), op(*[t.cpu() for t in args]))"
    (finding,) = [
        each for each in findings(tried(backend + fallback.replace("RUN", moving))) if "trace" in each.operator
    ]
    assert finding.code == "WHY212"
    refusing = runs(tried(backend + fallback.replace("RUN", 'raise NotImplementedError(f"no {op}")')))
    assert refusing["aten::trace", "call"].status == "no input"


VIEW = "{} on npu where the CPU returns {}: a write to the result shows the difference"
DIFFERS: dict[str, str] = {
    "aten::add.out": "does not write to its argument on npu: out",
    "aten::clone": f"returns {VIEW.format('a view', 'a copy')}",
    "aten::cumsum.out": "does not write to its argument on npu: out",
    "aten::cat.out": "does not write to its argument on npu: out",
    "aten::eq.Tensor": "gives dtype torch.float32 on npu and dtype torch.bool on the CPU",
    "aten::masked_fill_.Scalar": "does not write to its argument on npu: self",
    "aten::mul_.Tensor": "does not write to its argument on npu: self",
    "aten::sub.Tensor": "gives other values on npu than on the CPU",
    "aten::sum.dim_IntList": "gives shape [] on npu and shape [1, 1, 1] on the CPU",
    "aten::transpose.int": f"returns {VIEW.format('a copy', 'a view')}",
    "aten::zeros": "returns a tensor on cpu for device='npu'",
}


def test_each_planted_defect_of_a_backend_is_one_finding(tried: Try) -> None:
    source = (Path(__file__).parent / "planted_backend.txt").read_text(encoding="utf-8")
    inputs = """import torch, module0
x = torch.ones(2, 7).to("npu")
INPUTS = {"own::broken": [((torch.ones(2, 3),), {})], "aten::sigmoid_": [((x,), {})], "aten::flip": [((x, [0]), {})]}
"""
    found = tried(source, inputs=inputs)
    answer = trials_answer(found, ("module0",), whole=False, reported={("DL022", "aten::neg")})
    failures = [finding for finding in answer.findings if finding.level is not Level.INFORMATION]
    messages = {finding.operator: finding.message.partition("; found by")[0] for finding in failures}
    assert {name: messages[name] for name in DIFFERS} == {name: f"{name} {text}" for name, text in DIFFERS.items()}
    assert messages.pop("own::clamp").startswith("own::clamp mutates x, which its schema does not mark with (a!)")
    assert "returns" not in messages["aten::eq.Tensor"]
    groups = [{finding.operator for finding in group.findings} for group in grouped(failures)]
    assert {"own::broken", "aten::exp", "aten::sin", "aten::tanh"} in groups
    assert {"aten::masked_fill_.Scalar", "aten::cumsum.out", "aten::cat.out"} in groups
    assert {each for group in groups for each in group} == {
        *DIFFERS, "own::clamp", "own::broken", "aten::exp", "aten::sin", "aten::tanh"
    }  # fmt: skip
    assert len(groups) == 11
    file = next(
        note for note in answer.notes if note.endswith("because no kernel of the package serves these operators")
    )
    assert file.endswith(
        "inputs.py: inputs of aten::sigmoid_ are not used, because no kernel of the package serves these operators"
    )
    assert (
        "the fallback was called for 10 operators: aten::cat.out, aten::cumsum.out, aten::equal and 7 more; "
        "it raises in each call of aten::nonzero"
    ) in answer.notes


def test_stored_calls_of_a_device_are_read_without_the_device(tmp_path: Path) -> None:
    source = (Path(__file__).parent / "planted_backend.txt").read_text(encoding="utf-8")
    (tmp_path / "program.py").write_text(f"""
import pathlib
from dispatchlab.live.failure.program_watch import ProgramWatch
from dispatchlab.live.failure.torch_watch import save_calls, start
watch = ProgramWatch({str(tmp_path)!r})
start(watch)
{source}
try:
    torch.ops.own.broken(torch.ones(2, 3).to("npu").requires_grad_())
except ValueError:
    pass
save_calls(watch, pathlib.Path("inputs.pt"))
""")
    subprocess.run([sys.executable, "program.py"], cwd=tmp_path, check=True, timeout=120)
    script = "import torch; print(torch.load('inputs.pt', weights_only=True)['own::broken'])"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, timeout=120, capture_output=True)
    text = "[((tensor([[1., 1., 1.],\n        [1., 1., 1.]], requires_grad=True),), {})]"
    assert done.stdout.decode().strip() == text


def test_a_kernel_for_an_operator_of_others_is_tried_where_a_call_reaches_it(tried: Try) -> None:
    source = """
import torch
lib = torch.library.Library("aten", "IMPL")
lib.impl("cosh", lambda x: torch.ops.aten.sinh(x), "Meta")
lib.impl("tanh", lambda x: 1 / 0, "CPU")
"""
    found = runs(tried(source))
    assert found["aten::cosh", "call"].status == "no input"
    assert found["aten::cosh", "fake"].status == "passed"
    assert found["aten::tanh", "call"].status != "passed"


def test_compiled_graphs_are_tried_when_asked_for(tried: Try) -> None:
    source = """
import torch
lib = torch.library.Library("own", "DEF")
lib.define("same(Tensor x) -> Tensor")
lib.impl("same", lambda x: x.view(-1), "CPU")
lib.impl("same", lambda x: x.new_empty(x.numel()), "Meta")
@torch.library.custom_op("own::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2
twice.register_fake(lambda x: torch.empty_like(x))
"""
    inputs = 'import torch\nINPUTS = {f"own::{name}": [torch.ones(2, 3)] for name in ("same", "twice")}'
    found = runs(tried(source, inputs=inputs, whole=True))
    for trial in ("AOT", "compile with a consumer", "compile before a write"):
        assert (found["own::same", trial].status, found["own::twice", trial].status) == ("failed", "passed")


def test_each_planted_defect_is_found_by_its_trial(tried: Try, tmp_path: Path) -> None:
    source = (Path(__file__).parent / "planted_operators.txt").read_text(encoding="utf-8")
    source += "import json, pathlib\npathlib.Path('expected.json').write_text(json.dumps(EXPECTED))\n"
    found = runs(tried(source, inputs="from module0 import CALLS"))
    expected = json.loads((tmp_path / "expected.json").read_text(encoding="utf-8"))
    assert len(expected) == 59
    assert [(name, trial) for name, (trial, *_) in expected.items() if found[name, trial].status != "failed"] == []


@pytest.mark.parametrize("seed", range(5))
def test_right_operators_are_not_condemned(tried: Try, seed: int) -> None:
    answer = tried((Path(__file__).parent / "right_operators.py").read_text(encoding="utf-8"), seed=seed)
    found = runs(answer)
    assert [run for run in found.values() if run.status == "failed"] == []
    calls = [run for run in found.values() if run.trial == "call"]
    assert (len(calls), sum(run.status == "passed" for run in calls)) == (31, 31)
    assert sum(run.status == "passed" for run in found.values()) > 200


def test_a_finding_names_the_file_from_its_package_and_the_arguments_that_the_function_lacks(
    tried: Try, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.syspath_prepend(str(tmp_path))
    source = """import torch
library = torch.library.Library("own", "DEF")
library.define("few(Tensor q, Tensor? b=None, float p=0.0) -> Tensor")
def few(q): return q + 1
library.impl("few", few, "CPU")
"""
    (found,) = [one for one in findings(tried(source)) if one.code == "WHY211"]
    assert found.owners == ("registered at module0.py:4",)
    assert found.message.startswith(
        "the CPU kernel of own::few at module0.py:4 takes (q), but must take (q, b=None, p=0.0)"
    )
    assert found.message.endswith(", the arguments of the schema: takes no argument for b and p")


FLAGS = """
import torch
library = torch.library.Library("own", "DEF")
def make(name, kernel, fake):
    library.define(f"{name}(Tensor x, *, float eps=0.5, bool keep={name != 'defaults'}, bool up=False) -> Tensor")
    library.impl(name, kernel, "CPU")
    library.impl(name, fake, "Meta")
def total(x, *, eps=0.5, keep=True, up=False):
    return x.sum(-1, keepdim=keep).to(torch.float64 if up else torch.float32)
def no_shape(x, *, eps=0.5, keep=True, up=False):
    return x.new_empty((*x.shape[:-1], 1), dtype=torch.float64 if up else torch.float32)
def no_dtype(x, *, eps=0.5, keep=True, up=False): return total(x, keep=keep)
def picky(x, *, eps=0.5, keep=True, up=False):
    assert keep and not up
    return x.sum(-1, keepdim=True)
make("shape", total, no_shape)
make("dtype", total, no_dtype)
make("right", total, total)
make("picky", picky, lambda x, *, eps=0.5, keep=True, up=False: x.new_empty((*x.shape[:-1], 1)))
make("raises", total, picky)
"""


def test_a_fake_that_ignores_a_flag_is_found_and_one_that_never_gets_the_other_value_is_not(tried: Try) -> None:
    found = {one.operator: one for one in findings(tried(FLAGS)) if one.code not in ("WHY401", "WHY531")}
    assert {operator: one.code for operator, one in found.items()} == {"own::shape": "WHY403", "own::dtype": "WHY403"}
    assert "shape [3, 1] where the kernel gives [3]" in found["own::shape"].message
    assert "dtype torch.float32 where the kernel gives torch.float64" in found["own::dtype"].message


WRITES = """
import torch
library = torch.library.Library("own", "DEF")
for key in ("CPU", "CompositeExplicitAutograd", "CompositeImplicitAutograd"):
    library.define(f"{key}(Tensor x) -> Tensor")
    library.impl(key, lambda x: x.mul_(2) * 1, key)
@torch.library.custom_op("own::graded", mutates_args=())
def graded(x: torch.Tensor) -> torch.Tensor:
    return x.mul_(2) * 1
graded.register_fake(torch.empty_like)
graded.register_autograd(lambda ctx, grad: grad * 2)
"""


def test_a_fake_of_another_size_is_found_though_it_is_right_on_empty_tensors(tried: Try) -> None:
    source = """
import torch
lib = torch.library.Library("own", "DEF")
kernels = {"halve": lambda x: x[::2].clone(), "twice": lambda x: torch.cat([x, x]), "same": lambda x: x.clone()}
for name, kernel in kernels.items():
    lib.define(f"{name}(Tensor x) -> Tensor")
    lib.impl(name, kernel, "CPU")
    torch.library.register_fake(f"own::{name}", lambda x: torch.empty_like(x), lib=lib)
"""
    found = runs(tried(source))
    assert {name: found[f"own::{name}", "fake"].status for name in ("halve", "twice", "same")} == {
        "halve": "failed",
        "twice": "failed",
        "same": "passed",
    }


def test_a_fake_that_is_right_for_small_or_square_tensors_alone_is_found(tried: Try) -> None:
    source = """
import torch
lib = torch.library.Library("own", "DEF")
def make(name, arguments, kernel, fake):
    lib.define(f"{name}({arguments}) -> Tensor")
    lib.impl(name, kernel, "CPU")
    torch.library.register_fake(f"own::{name}", fake, lib=lib)
for rows in range(2, 5):
    make(f"first{rows}", "Tensor x", lambda x: x * 2, lambda x, rows=rows: torch.empty_like(x[:rows]))
make("product", "Tensor x, Tensor y", lambda x, y: x @ y, lambda x, y: x.new_empty(x.shape))
columns = lambda x: x.new_empty(len(x), 4)
make("boxes", "Tensor x", lambda x: x.contiguous() * 2, columns)  # it may be meant for four columns alone
make("scaled", "Tensor x, Tensor y", lambda x, y: x * y.sum(), lambda x, y: torch.empty_like(y))  # for one shape
"""
    found = runs(tried(source))
    failed = {
        one.operator.removeprefix("own::") for one in found.values() if (one.trial, one.status) == ("fake", "failed")
    }
    assert failed == {"first2", "first3", "first4", "product"}
    assert found["own::first4", "fake"].inputs == "(float32[9, 12])"
    assert found["own::product", "fake"].inputs == "(float32[4, 4], float32[4, 8])"


def test_an_undeclared_write_is_one_finding_whatever_else_fails_for_it(tried: Try) -> None:
    answer = tried(WRITES)
    assert {(each.operator, each.code) for each in findings(answer)} == {
        (f"own::{name}", "WHY421")
        for name in ("CPU", "CompositeExplicitAutograd", "CompositeImplicitAutograd", "graded")
    }
    assert re.search(r" \d+ failed \(4 findings below\)", trials_answer(answer, ("module0",), whole=False).text)


UNFIT = """
import torch
@torch.library.custom_op("own::halve", mutates_args=())
def halve(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x * y).sum(-1)
halve.register_fake(lambda x, y: x.new_empty(x.shape[:-1]))
def backward(ctx, grad):
    return grad, None
halve.register_autograd(backward)
"""


def test_a_backward_that_does_not_fit_is_an_error_at_its_own_line(tried: Try) -> None:
    (found,) = [one for one in findings(tried(UNFIT)) if one.code == "WHY506"]
    assert (found.level, found.owners) == (Level.ERROR, ("registered at module0.py:7",))


SLOW = """
import os, signal, time, torch
TRIALS = 0
os.register_at_fork(after_in_child=lambda: globals().update(TRIALS=os.getppid()))
@torch.library.custom_op("own::a_fast", mutates_args=())
def a_fast(x: torch.Tensor) -> torch.Tensor: return x * 2
@torch.library.custom_op("own::b_slow", mutates_args=())
def b_slow(x: torch.Tensor) -> torch.Tensor:
    time.sleep(1)
    os.kill(TRIALS, signal.SIGNAL)
    return x * 2
"""


@pytest.mark.parametrize(
    ("signal", "limit_s", "reason"),
    [
        pytest.param("SIGSTOP", 20, "there is no answer within 20 s", id="time"),
        pytest.param("SIGKILL", 60, "their process ended with SIGKILL: ", id="dies"),
    ],
)
def test_keeps_results_before_end(tried: Try, signal: str, limit_s: float, reason: str) -> None:
    """Keeps the results so far if the trials take too long or their process ends, and says what was not tried."""
    answer = tried(SLOW.replace("SIGNAL", signal), limit_s=limit_s)
    found = runs(answer)
    assert found["own::a_fast", "call"].status == "passed"
    assert found["own::b_slow", "call"].status == "not tried"
    assert found["own::b_slow", "call"].why == reason
    notes = trials_answer(answer, ("module0",), whole=False).notes
    assert any(note.startswith(f"not tried, since {reason}: signature, call, ") for note in notes)
