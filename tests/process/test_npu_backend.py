"""Which kernels programs need of a backend, held to a backend in C++ that has those kernels, or some of them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from tests.command_line import run
from tests.live.npu_backend import BASE, Runs, difference, environment, same_numbers
from tests.live.npu_programs import BY_HAND, source


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    with Runs(tmp_path_factory.mktemp("npu")) as found:
        yield found


@pytest.mark.parametrize(
    "name",
    [
        *("in_place_view", "out", "convolution", "classifier", "adam", "autocast", "conjugate_backward", "zero_tensor"),
        *("unfold", "lstm", "gru", "save_and_load", "generator", "out_within"),
    ],
)
def test_a_program_runs_on_the_listed_kernels_as_on_the_cpu(runs: Runs, name: str) -> None:
    program = source(BY_HAND[name])
    needed = {operator for operator, _ in runs.predicted(program, ()).calls}
    ran = runs.on_device(program, needed)
    assert difference(ran, runs.predicted(program, needed)) == ""
    if name != "autocast":
        assert same_numbers(ran.output, runs.on_cpu(source(BY_HAND[name], "cpu")))


def test_without_any_of_the_listed_kernels_a_program_fails_at_that(runs: Runs) -> None:
    program = source(BY_HAND["index_put"])
    needed = {operator for operator, _ in runs.predicted(program, ()).calls}
    assert {"aten::_copy_from", "aten::empty_strided"} < needed
    for name in sorted(needed):
        kernels = needed - {name}
        ran = runs.on_device(program, kernels)
        assert ran.code == 1
        assert f"'{name}'" in ran.error
        assert difference(ran, runs.predicted(program, kernels)) == ""


@pytest.mark.parametrize("left_out", ["", "_copy_from", "_copy_from_and_resize", "empty_strided", "view"])
def test_what_a_fallback_needs_itself(runs: Runs, left_out: str) -> None:
    program = source("x = given(2, 3).view(3, 2); x.add_(1); show(x)")
    kernels = set(BASE) - {left_out}
    ran, predicted = runs.on_device(program, kernels, fallback=True), runs.predicted(program, kernels, fallback=True)
    assert difference(ran, predicted) == ""
    missing = next((name for name, what in predicted.calls if what == "missing"), "")
    assert missing == ("" if left_out in ("", "view") else f"aten::{left_out}")
    assert (ran.code == 0) is (missing == "")


def test_a_fallback_does_not_serve_a_convolution(runs: Runs) -> None:
    program = source(BY_HAND["grouped_convolution"])
    ran, predicted = runs.on_device(program, BASE, fallback=True), runs.predicted(program, BASE, fallback=True)
    assert ("aten::convolution_overrideable", "missing") in predicted.calls
    assert difference(ran, predicted) == ""


def test_a_conjugate_is_copied_by_a_kernel_of_copy_or_without_end(runs: Runs) -> None:
    program = source(BY_HAND["conjugate"])
    needed = {operator for operator, _ in runs.predicted(program, ()).calls}
    assert {"aten::copy_", "aten::_copy_from"} < needed
    ran = runs.on_device(program, needed - {"aten::_copy_from"})
    assert difference(ran, runs.predicted(program, needed - {"aten::_copy_from"})) == ""
    assert same_numbers(ran.output, runs.on_cpu(source(BY_HAND["conjugate"], "cpu")))
    without = needed - {"aten::copy_"}
    ran = runs.on_device(program, without)
    assert ran.code < 0
    assert difference(ran, runs.predicted(program, without)) == ""


def test_the_backend_is_renamed_and_has_a_generator(runs: Runs) -> None:
    text = "g = torch.Generator(device).manual_seed(1)\nx = torch.rand(2, device=device, generator=g)\nprint(x.device)"
    ran = runs.on_device(source(text), {"empty.memory_format", "uniform_"})
    assert (ran.code, ran.output) == (0, "npu:0\n"), ran.error


_LINT = """
from dispatchlab.pytorch.introspection.registry_reader import record_registry
from dispatchlab.questions.coverage.coverage_on_lab import Fill
from dispatchlab.questions.lint.rule import Subject
from dispatchlab.questions.lint.rules import selected
from dispatchlab.questions.lint.run import lint
from dispatchlab.sources.replay_on_lab import for_registry

registry = record_registry()
subject = Subject(registry, Fill(for_registry("torch-2.13"), registry.fallbacks))
rules = selected([f"DL0{number}" for number in range(18, 25)])
for one in lint(subject, rules, source="npu", without_own=True).findings:
    print(one.code, one.operator, one.key, one.level)
"""


_PLANTED = """
import torch

planted = torch.library.Library("planted", "DEF")
for schema in ("alias(Tensor(a) x) -> Tensor(a)", "write_(Tensor x) -> ()", "right_(Tensor(a!) x) -> ()"):
    planted.impl(planted.define(schema), lambda x: x, "PrivateUse1")
try:
    torch.func.functionalize(torch.ops.planted.alias)(torch.empty(2, device="npu"))
except RuntimeError as error:
    print("refused" if "output has alias annotations" in str(error) else error)
"""


def test_the_rules_for_backends_say_what_the_device_does(runs: Runs) -> None:
    needed = {operator for operator, _ in runs.predicted(source(BY_HAND["classifier"]), ()).calls}
    right = runs.on_device(_LINT, {*needed, "linear", "AutogradPrivateUse1 linear", "AutocastPrivateUse1"})
    assert (right.code, right.output) == (0, ""), right
    planted = (*("empty.memory_format", "_copy_from", "addmm.out", "t"), "AutogradPrivateUse1 linear")
    wrong = runs.on_device(_LINT, {*planted, "AutogradPrivateUse1 relu", "CPU neg"})
    assert wrong.output.splitlines() == [
        "DL018 aten::empty_strided PrivateUse1 warning",
        "DL020 aten::linear AutogradPrivateUse1 warning",
        "DL022 aten::neg CPU warning",
        "DL021 aten::relu AutogradPrivateUse1 warning",
    ]
    slips = runs.on_device(_PLANTED + _LINT, {"empty.memory_format", "empty_strided", "PrivateUse2 relu"})
    assert slips.output.splitlines() == [
        "refused",
        "DL024 aten::relu PrivateUse2 warning",
        "DL023 planted::alias PrivateUse1 warning",
        "DL023 planted::write_ PrivateUse1 warning",
    ]
    program = source("x = given(2, 2)\nwith torch.inference_mode({}):\n    show(torch.nn.functional.{}(x{}))")
    kernels = {*planted, "empty_strided", "as_strided", "AutogradPrivateUse1 relu"}
    recorded, inferred = (
        runs.on_device(program.format(mode, "linear", ", x"), kernels).calls for mode in ("False", "True")
    )
    assert ("aten::linear", "own") in recorded
    assert ("aten::linear", "own") not in inferred
    assert runs.on_device(program.format("False", "relu", ""), kernels).code == 0
    assert "'aten::relu'" in runs.on_device(program.format("True", "relu", ""), kernels).error


def test_the_view_of_a_fallback_is_a_copy(runs: Runs) -> None:
    kernels = {*BASE, "add_.Tensor"} - {"view"}
    found = runs.on_device(_LINT, kernels, fallback=True).output.splitlines()
    assert [line for line in found if line.endswith("warning")] == ["DL019 aten::view PrivateUse1 warning"]
    assert "DL019 aten::relu PrivateUse1 information" in found
    program = source("x = given(2, 3); y = x.clone(); y.view(3, 2).add_(1); print((x == y).all().item())")
    assert runs.on_device(program, kernels, fallback=True).output == "True\n"
    assert runs.on_device(program, {*kernels, "view"}, fallback=True).output == "False\n"


def test_the_command_lists_what_a_recorded_backend_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = ("empty.memory_format", "empty_strided", "_copy_from", "as_strided", "add.Tensor")
    folder = tmp_path / "files"
    folder.mkdir()
    for name, value in environment(folder, kernels, fallback=True).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)

    def ask(*arguments: str) -> str:
        done = run(*arguments)
        assert done.exit_code == 0, done.stderr
        return done.stdout

    ask("record", "npu_device", "--once", "-o", "npu.yaml")
    program = tmp_path / "program.py"
    program.write_text(source("x = given(2, 2); x += 1; y = x + x; y.relu_(); show(y)"), encoding="utf-8")
    explained = ask("explain", "aten::add.Tensor", "--arg", "npu", "--arg", "npu", "--from", "npu.yaml")
    assert "runs: AutogradPrivateUse1 -> PrivateUse1" in explained
    asked = ("coverage", "npu.yaml", "--key", "npu", "--program", "program.py", "--format", "json")
    found = json.loads(ask(*asked))
    assert found["device"] == "npu"
    assert found["has_fallback"] is True
    served = {one["operator"]: one["served_by"] for one in found["kernels"]}
    assert served["aten::add.Tensor"] == "own"
    assert served["aten::relu_"] == served["aten::add.out"] == "fallback"
    assert served["aten::_copy_from_and_resize"] == "missing"
    (one,) = found["programs"]
    assert one["stops_at"] == "aten::_copy_from_and_resize"
    without = json.loads(ask(*asked, "--no-fallback"))
    assert without["programs"][0]["stops_at"] == "aten::add.out"
    (add,) = (each for each in without["kernels"] if each["operator"] == "aten::add.out")
    assert add["variants"] == ["aten::add_.Tensor"]
    assert add["is_core"] is False
    (tmp_path / "trace.json").write_text(json.dumps(without), encoding="utf-8")
    traced = ("--trace", "trace.json", "--no-fallback", "--format", "json")
    assert json.loads(ask("coverage", "npu.yaml", "--key", "npu", *traced)) == {**without, "trace": "trace.json"}
    bare = json.loads(ask("coverage", "torch-2.13-cpu", "--key", "PrivateUse1", *traced))
    assert bare["device"] == "npu"
    assert {one["served_by"] for one in bare["kernels"]} == {"missing"}
    assert [one["calls"] for one in bare["kernels"]] == [one["calls"] for one in without["kernels"]]
    shown = ("coverage", "npu.yaml", "--key", "npu", *traced[:-1])
    assert "make this program run" in ask(*shown, "text")
    assert "`aten::relu_`" in ask(*shown, "markdown")


def test_a_program_that_names_no_device_is_told_so(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import torch\nprint(torch.ones(2) + 1)\n", encoding="utf-8")

    def found(*options: str) -> str:
        return run("coverage", "--key", "PrivateUse1", "--program", str(program), "--format", "text", *options).stdout

    assert "no call reaches the device" in found()
    program.write_text("import torch\nprint(torch.ones(2, dtype=torch.cfloat).conj() + 1)\n", encoding="utf-8")
    listed = found("--default-device")
    assert "kernels make this program run" in listed
    assert "\naten::copy_: " in listed
    assert "aten::_copy_from: " not in listed  # which a kernel of `copy_` makes superfluous


def test_a_pytorch_without_backends_in_python_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text(_WITHOUT, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    program = tmp_path / "program.py"
    program.write_text("print('ran')\n", encoding="utf-8")
    found = run("coverage", "--key", "PrivateUse1", "--program", str(program))
    assert found.exit_code == 2
    assert found.stdout == ""
    assert "cannot stand in for a device: coverage --program needs PyTorch 2.10 or newer" in found.stderr
    assert "ran" not in found.stderr
    assert "Traceback" not in found.stderr


_WITHOUT = """
import sys
if any("worker" in text for text in sys.orig_argv):
    import torch.utils.backend_registration
    del torch.utils.backend_registration._setup_privateuseone_for_python_backend
"""
