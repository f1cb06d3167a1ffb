"""Coverage of a backend."""

from __future__ import annotations

from pathlib import Path

import pytest

from dispatchlab.live.registry import NoStandInError
from dispatchlab.model.keys import DispatchKey, UnknownKeyError
from dispatchlab.questions.coverage.blocks import coverage_view
from dispatchlab.questions.coverage.coverage_on_lab import coverage_report
from dispatchlab.questions.sources.find_sources import chosen
from dispatchlab.registries.backend_coverage import CoverageReport, Filled, NoSlotError, Way, called_out
from dispatchlab.registries.builds import no_answer
from dispatchlab.registries.file import open_bundled
from tests.command_line import run, run_raising

K = DispatchKey
RECORDED = open_bundled("torch-2.13-cpu")


def report(
    key: str = "PrivateUse1",
    *,
    operators: tuple[str, ...] = (),
    listed: tuple[str, ...] = (),
) -> CoverageReport:
    return coverage_report(
        RECORDED,
        DispatchKey[key],
        name="torch-2.13",
        operators=tuple(chosen(RECORDED, operators)),
        listed=tuple(map(Way, listed)),
    )


def test_every_operator_is_covered_in_one_way() -> None:
    found = report().coverage
    counts = {way: len(found.by(way)) for way in Way}
    assert counts == {Way.DIRECT: 19, Way.COMPOSITE: 2_063, Way.FALLBACK: 0, Way.AMBIGUOUS: 0, Way.MISSING: 1_516}
    assert dict(found.sources(Way.COMPOSITE)) == {
        K.CompositeExplicitAutograd: 1_218,
        K.CompositeImplicitAutograd: 787,
        K.CompositeExplicitAutogradNonFunctional: 58,
    }


def test_a_generated_kernel_of_a_structured_operator_needs_the_out_overload() -> None:
    structured: list[str] = []
    without: list[str] = []
    for operator in RECORDED:
        filled = Filled(Way.COMPOSITE, K.CompositeExplicitAutogradNonFunctional)
        if operator.active_at(K.CompositeExplicitAutogradNonFunctional) is not None:
            out = called_out(RECORDED, operator, filled)
            (without if out is None else structured).append(str(operator.name))
    assert len(structured) == 439
    assert without == ["aten::as_strided_", "aten::logsumexp.out", "aten::new_empty_strided"]
    found = report(operators=("aten::add_.Tensor", "aten::as_strided_", "aten::gelu_backward")).coverage.operators
    assert [(each.filled.way, each.needs) for each in found] == [
        (Way.MISSING, "aten::add.out"),
        (Way.COMPOSITE, ""),
        (Way.MISSING, "aten::gelu_backward.grad_input"),
    ]


def test_autograd_keys_are_covered_by_their_fallbacks() -> None:
    found = report("AutogradCPU", operators=("aten::relu", "aten::reshape")).coverage
    assert [(each.operator, each.filled.way) for each in found.operators] == [
        ("aten::relu", Way.COMPOSITE),
        ("aten::reshape", Way.COMPOSITE),
    ]
    assert report("Tracer", operators=("c10d::barrier",)).coverage.operators[0].filled.way is Way.FALLBACK


def test_coverage_says_that_it_does_not_call_the_fallback() -> None:
    shown = coverage_view(report("Tracer", operators=("c10d::barrier",))).text()
    assert "the backend fallback of the key, which coverage does not call\n" in shown


def test_a_fallthrough_at_the_key_of_a_backend_leaves_no_kernel(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(
        "claim: A fallthrough.\nsemantics: torch-2.13\nregistry: torch-2.13-cpu\n"
        "registrations:\n  - {fallback: fallthrough, dispatch: PrivateUse1}\n",
        encoding="utf-8",
    )
    for operator, way in (("aten::bmm.out", "missing, falls through"), ("aten::bmm", "missing: calls aten::bmm.out")):
        shown = run("coverage", str(path), "--operator", operator, "--list", "missing", "--format", "text").stdout
        assert (f"    {operator}  {way}" in shown, shown.count("100.0 %")) == (True, 1)
    told = run("coverage", str(path), "--operator", "aten::bmm.out", "--format", "text").stdout.splitlines()
    assert told[1] == "fallthrough at PrivateUse1: 1 operator; a call raises, as no key is below PrivateUse1"
    told = run("coverage", "torch-2.13", "--operator", "aten::bmm", "--key", "ADInplaceOrView").stdout.splitlines()
    assert told[1] == "fallthrough at ADInplaceOrView: 1 operator; a call goes on to the next key"


def test_an_unknown_key_is_refused() -> None:
    with pytest.raises(UnknownKeyError, match="did you mean PrivateUse"):
        run_raising("coverage", "--key", "PrivateUse")
    with pytest.raises(NoSlotError, match="stands for a set of keys"):
        run_raising("coverage", "--key", "Autograd")


def test_the_name_of_a_device_for_a_program_is_another_option(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.touch()
    result = run("coverage", "--key", "npu", "--program", str(program))
    assert result.exit_code == 2
    assert "write PrivateUse1" in result.stderr
    assert "for the name in the program, add --device npu" in " ".join(result.stderr.split())


def test_operators_are_chosen_by_tags() -> None:
    of = ("coverage", "torch-2.13-cpu", "--key", "PrivateUse1")
    assert run(*of, "--tag", "core").output.startswith("PrivateUse1 in torch-2.13-cpu: 193 operators\n")
    both = run(*of, "--tag", "core", "--tag", "pointwise", "--operator", "aten::a*", "--list", "missing").output
    assert both.splitlines()[-2:] == [
        "    aten::atan2.out   missing",
        "    aten::atanh       missing: calls aten::atanh.out",
    ]
    assert "no operator here has the tag cores; did you mean core?" in run(*of, "--tag", "cores").output


def test_the_text_has_counts_and_lists() -> None:
    text = coverage_view(report(operators=("aten::relu", "aten::reshape"), listed=("missing",))).text()
    for part in (
        "PrivateUse1 in torch-2.13: 2 operators\n  way        operators  part    what runs\n  direct     0 ",
        "a kernel at an alias key that covers it: CompositeImplicitAutograd 1\n",
        "\nOperators\n1, missing\n",
    ):
        assert part in text


RENAMED = """\
claim: A backend renames PrivateUse1.
semantics: torch-2.13
packages: [npu_device]
python:
  - registry: privateuse1_name
    operator: python::torch.utils.rename_privateuse1_backend
    function: npu
    site: npu_device.py:50
registrations:
  - def: foo(Tensor x) -> Tensor
  - {impl: foo, dispatch: PrivateUse1, debug: my_foo}
"""


def test_the_name_of_a_backend_in_a_record_is_a_name_of_its_key(tmp_path: Path) -> None:
    record = tmp_path / "npu.yaml"
    record.write_text(RENAMED, encoding="utf-8")
    assert "direct     1 " in run("coverage", str(record), "--key", "npu", "--format", "text").stdout
    explained = run("explain", "test::foo", "npu", "--from", str(record), "--format", "text").stdout
    assert "my_foo" in explained
    assert "my_foo" in run("dump", "test::foo", "--from", str(record), "--key", "npu", "--format", "text").stdout


def test_programs_are_for_a_key_that_a_device_can_stand_in_for(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("raise SystemExit\n", encoding="utf-8")
    with pytest.raises(NoStandInError, match="but MPS is another key"):
        run_raising("coverage", "torch-2.13-cpu", "--key", "MPS", "--program", str(program))


def test_the_name_of_a_device_needs_a_program() -> None:
    result = run("coverage", "torch-2.13", "--device", "npu")
    assert result.exit_code == 2
    assert "add --program FILE.py" in result.stderr


def test_the_sentence_about_a_lacking_backend_names_pytorch_once() -> None:
    sentence = no_answer("PyTorch 2.13.0+cpu with boxes", "2.13.0+cpu", "CUDA")
    assert sentence.startswith("no answer for CUDA: PyTorch 2.13.0+cpu with boxes has no kernels for it; torch-2.13 ")
