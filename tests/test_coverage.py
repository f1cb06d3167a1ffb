"""Coverage of a backend, and what a registration would change."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from dispatchlab.model.keys import DispatchKey, UnknownKeyError
from dispatchlab.pytorch.registry import NoStandInError
from dispatchlab.questions.coverage.blocks import coverage_view
from dispatchlab.questions.coverage.coverage_on_lab import coverage_report
from dispatchlab.questions.coverage.program_blocks import program_coverage_view
from dispatchlab.questions.coverage.program_coverage import (
    NeededKernel,
    ProgramCoverage,
    ProgramOnDevice,
    program_coverage,
)
from dispatchlab.questions.coverage.program_trace import TraceError, read_trace
from dispatchlab.records.backend_coverage import CoverageReport, NoSlotError, Way, WhatIfError, parse_what_if
from dispatchlab.records.file import open_bundled
from dispatchlab.records.model import RecordedKernel, RecordedOperator, name_of, registry_of
from dispatchlab.sources.find_sources import chosen
from tests.command_line import run, run_raising

K = DispatchKey
RECORDED = open_bundled("torch-2.13-cpu")


def report(
    key: str = "PrivateUse1",
    *,
    operators: tuple[str, ...] = (),
    listed: tuple[str, ...] = (),
    what_if: tuple[str, ...] = (),
) -> CoverageReport:
    return coverage_report(
        RECORDED,
        DispatchKey[key],
        name="torch-2.13",
        operators=tuple(chosen(RECORDED, operators)),
        listed=tuple(map(Way, listed)),
        what_if=what_if,
    )


def test_every_operator_is_covered_in_one_way() -> None:
    found = report().coverage
    counts = {way: len(found.by(way)) for way in Way}
    assert counts == {Way.DIRECT: 19, Way.COMPOSITE: 2_447, Way.FALLBACK: 0, Way.AMBIGUOUS: 0, Way.MISSING: 1_132}
    assert dict(found.sources(Way.COMPOSITE)) == {
        K.CompositeExplicitAutograd: 1_218,
        K.CompositeImplicitAutograd: 787,
        K.CompositeExplicitAutogradNonFunctional: 442,
    }


def test_autograd_keys_are_covered_by_their_fallbacks() -> None:
    found = report("AutogradCPU", operators=("aten::relu", "aten::reshape")).coverage
    assert [(each.operator, each.filled.way) for each in found.operators] == [
        ("aten::relu", Way.COMPOSITE),
        ("aten::reshape", Way.COMPOSITE),
    ]
    assert report("Tracer", operators=("c10d::barrier",)).coverage.operators[0].filled.way is Way.FALLBACK


def test_a_kernel_that_makes_autogradother_ambiguous_is_reported() -> None:
    (found,) = report(what_if=("impl aten::chunk FPGA",)).suppositions
    assert "AutogradOther becomes ambiguous: a call with a gradient raises" in found.consequences
    assert not any(text.startswith("AutogradOther loses") for text in found.consequences)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected 'impl OPERATOR KEY'"),
        ("imp aten::relu CPU", "did you mean impl?"),
        ("impl aten::relu", "expected 'impl OPERATOR KEY'"),
        ("impl aten::relo CPU", r"did you mean aten::rea?l"),
        ("impl nobody::* CPU", r"no operator matches nobody::\*; its namespaces are"),
        ("fallback Autograd", "no slot of its own"),
    ],
)
def test_a_supposition_that_cannot_be_read_says_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(WhatIfError, match=message):
        parse_what_if(text, RECORDED.names)


def test_an_unknown_key_is_refused() -> None:
    with pytest.raises(UnknownKeyError, match="did you mean PrivateUse"):
        parse_what_if("impl aten::relu PrivateUse", RECORDED.names)
    with pytest.raises(NoSlotError, match="stands for a set of keys"):
        run_raising("coverage", "--key", "Autograd")


def test_operators_are_chosen_by_tags() -> None:
    of = ("coverage", "torch-2.13-cpu", "--key", "PrivateUse1")
    assert run(*of, "--tag", "core").output.startswith("PrivateUse1 in torch-2.13-cpu: 193 operators\n")
    both = run(*of, "--tag", "core", "--tag", "pointwise", "--operator", "aten::a*", "--list", "missing").output
    assert both.splitlines()[-1] == "aten::atan2.out: missing"
    assert "no operator here has the tag cores; did you mean core?" in run(*of, "--tag", "cores").output


def test_the_text_has_counts_lists_and_consequences() -> None:
    text = coverage_view(
        report(operators=("aten::relu", "aten::reshape"), listed=("missing",), what_if=("impl relu PrivateUse1",))
    ).text()
    assert text == (
        "PrivateUse1 in torch-2.13: 2 operators\n"
        "  direct: 0\n"
        "  composite: 1 (CompositeImplicitAutograd 1)\n"
        "  missing: 1\n"
        "\n"
        "aten::relu: missing\n"
        "\n"
        "what if impl relu PrivateUse1 (aten::relu):\n"
        "  PrivateUse1 had no kernel and has one\n"
        "  PrivateUse1: nothing -> your kernel [kernel]\n"
        "\n"
        "PrivateUse1 with all of it:\n"
        "  missing -> direct: 1 operator, such as aten::relu\n"
    )


RENAMED = """\
claim: A backend renames PrivateUse1.
semantics: torch-2.13
packages: [npu_device]
python:
  - registry: privateuse1_name
    operator: python::torch.utils.rename_privateuse1_backend
    function: npu
    site: npu_device.py:50
    call: rename_privateuse1_backend
registrations:
  - def: foo(Tensor x) -> Tensor
  - {impl: foo, dispatch: PrivateUse1, debug: my_foo}
"""


def test_the_name_of_a_backend_in_a_record_is_a_name_of_its_key(tmp_path: Path) -> None:
    record = tmp_path / "npu.yaml"
    record.write_text(RENAMED, encoding="utf-8")
    assert "direct: 1" in run("coverage", str(record), "--key", "npu", "--format", "text").stdout
    explained = run("explain", "test::foo", "--arg", "npu", "--from", str(record), "--format", "text").stdout
    assert "my_foo" in explained
    assert "my_foo" in run("dump", "test::foo", "--from", str(record), "--key", "npu", "--format", "text").stdout


def kernel(operator: str, calls: int, served: str = "missing", variants: tuple[str, ...] = ()) -> NeededKernel:
    return NeededKernel(operator, f"{operator}(Tensor self) -> Tensor", calls, served, variants, is_core=False)


def needs(*kernels: NeededKernel, stops_at: str = "", fallback: bool = False) -> ProgramCoverage:
    program = ProgramOnDevice("train.py", sum(one.calls for one in kernels), stops_at, "", "")
    return ProgramCoverage("my.yaml", "npu", fallback, (program,), kernels)


def test_the_first_kernels_are_those_that_take_a_part_of_the_calls() -> None:
    found = needs(kernel("a::b", 70), kernel("a::c", 20, "fallback"), kernel("a::d", 10, "own"), kernel("a::e", 5))
    assert [one.operator for one in found.needed] == ["a::b", "a::d", "a::e"]
    assert [one.operator for one in found.missing] == ["a::b", "a::e"]
    assert [found.first_for(part) for part in (0.0, 0.8, 0.9, 0.95, 1.0)] == [0, 1, 2, 3, 3]
    assert needs().first_for(0.8) == 0


def test_what_a_program_needs_is_said_in_lines() -> None:
    text = program_coverage_view(
        needs(
            kernel("aten::add.out", 3, variants=("aten::add.Tensor",)), kernel("aten::b", 1, "own"), stops_at="aten::c"
        )
    ).text()
    assert text.splitlines() == [
        "npu with the kernels of my.yaml, without a fallback:",
        "  train.py: raises at aten::c; 4 calls in all",
        "2 kernels make this program run (1 to be written, 1 there); the first 2 of them take 80% of their calls",
        "",
        "aten::add.out: 3 calls, missing",
        "  aten::add.out(Tensor self) -> Tensor",
        "  serves aten::add.Tensor",
        "",
        "aten::b: 1 call, own",
        "  aten::b(Tensor self) -> Tensor",
    ]
    runs = program_coverage_view(needs(kernel("aten::b", 1, "fallback"), fallback=True)).text()
    assert "  train.py: runs; 1 call" in runs.splitlines()
    assert "npu with the kernels of my.yaml, with a fallback to the CPU:" in runs.splitlines()
    assert "the fallback serves every call" in runs.splitlines()
    found = needs(kernel("aten::b", 2))
    ended = replace(found, programs=(replace(found.programs[0], unserved="aten::d"),))
    lines = program_coverage_view(ended).text().splitlines()
    assert "  train.py: no kernel of the CPU can stand in for aten::d: what follows is not seen" in lines
    assert (
        "1 kernel is needed as far as is seen (all to be written); the first 1 of them take 80% of their calls" in lines
    )
    assert not any("runs; " in line or "make" in line for line in lines)
    assert "no call reaches the device" in program_coverage_view(needs()).text()


def test_programs_are_for_a_key_that_a_device_can_stand_in_for(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("raise SystemExit\n", encoding="utf-8")
    with pytest.raises(NoStandInError, match="and MPS is another key"):
        run_raising("coverage", "torch-2.13-cpu", "--key", "MPS", "--program", str(program))
    result = run("coverage", "--key", "PrivateUse1", "--device", "npu")
    assert result.exit_code == 2
    assert "--device is for --program FILE.py" in result.output


TRACED = {
    "device": "npu",
    "has_fallback": True,
    "programs": [
        {
            "program": "train.py",
            "error": "",
            "unserved": "",
            "operators": [["aten::relu", 2], ["aten::add.out", 3], ["aten::tanh", 1]],
        }
    ],
    "kernels": [
        {"operator": "aten::relu", "served_by": "own", "parts": []},
        {"operator": "aten::add.out", "served_by": "fallback", "parts": []},
        {"operator": "aten::tanh", "served_by": "missing", "parts": ["aten::relu"]},
    ],
}


def test_recorded_calls_are_served_by_the_kernels_of_another_backend(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(TRACED), encoding="utf-8")
    own = RecordedKernel(DispatchKey.PrivateUse1, "npu.cpp:1")
    registry = registry_of("2.13.0", [RecordedOperator(name_of("aten::add.out"), kernels=(own,))])
    asked = partial(program_coverage, registry, DispatchKey.PrivateUse1, (), name="mine", trace=str(path))
    found = asked(fallback=True)
    assert {one.operator: (one.served_by, one.calls) for one in found.kernels} == {
        "aten::add.out": ("own", 3),
        "aten::relu": ("fallback", 2),
        "aten::tanh": ("missing", 1),
    }
    assert (found.device, found.programs[0].stops_at, found.saved) == ("npu", "aten::tanh", ("aten::tanh",))
    assert "the calls are those of " in program_coverage_view(found).text()
    with pytest.raises(TraceError, match="the programs ran with a fallback: add --fallback"):
        asked()


def test_kernels_of_a_program_are_listed_by_the_tags_of_what_they_serve(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(TRACED), encoding="utf-8")
    asked = ("coverage", "torch-2.13-cpu", "--key", "PrivateUse1", "--trace", str(path), "--fallback")
    found = run(*asked, "--tag", "core", "--tag", "pointwise", "--format", "json").stdout
    assert [one["operator"] for one in json.loads(found)["kernels"]] == ["aten::add.out", "aten::relu", "aten::tanh"]
    lines = run(*asked, "--tag", "pointwise", "--format", "text").stdout.splitlines()
    assert (
        "1 kernel with the tag pointwise is needed (all to be written); the first 1 of them take 80% of their calls"
        in lines
    )
    assert "no kernel with the tag view_copy is needed" in run(*asked, "--tag", "view_copy", "--format", "text").stdout
    assert "no operator here has the tag cores; did you mean core?" in run(*asked, "--tag", "cores").output
    path.write_text(found, encoding="utf-8")
    assert "it lists the kernels with a tag alone" in run(*asked).output


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[]", "it is no answer of coverage --program"),
        ("{", "Expecting property name"),
        (json.dumps({**TRACED, "has_fallback": 1}), "it is no answer of coverage --program"),
        (json.dumps({**TRACED, "kernels": [[]]}), "it is no answer of coverage --program"),
        (json.dumps({**TRACED, "programs": [{"program": "x"}]}), "it is no answer of coverage --program"),
        (json.dumps(TRACED).replace(", 3]", ", -3]"), "it is no answer of coverage --program"),
    ],
)
def test_another_file_has_no_recorded_calls(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(TraceError) as raised:
        read_trace(str(path))
    assert reason in str(raised.value)
