"""A record stands on a registry: commands answer for both together, and report what the record adds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dispatchlab import certify
from dispatchlab.model.keys import DispatchKey
from dispatchlab.questions.sources.find_sources import own_operators, recorded_from
from dispatchlab.registries.builds import bundled_for
from dispatchlab.registries.file import UnknownRegistryError, newest_bundled, open_bundled
from dispatchlab.registries.model import RecordedKernel, RecordedOperator, registry_of
from dispatchlab.registries.overlay import Overlay
from dispatchlab.registries.stored import _read_operator
from dispatchlab.scenario.load import ScenarioError, load_scenario, parse_scenario
from dispatchlab.scenario.write import scenario_text
from tests.command_line import run, run_raising
from tests.registry_cases import BAR, FOO, SMALL, save_registry

RECORD = """\
claim: What importing mine registers does not depend on its order.
namespace: mine
registry: torch-2.13-cpu
packages: [mine]
registrations:
  - def: aten::mul.Tensor(Tensor self, Tensor other) -> Tensor
    debug: registered at /__w/pytorch/pytorch/build/aten/src/ATen/RegisterSchema.cpp:6
  - impl: aten::mul.Tensor
    dispatch: PrivateUse1
    debug: registered at mine/ops.py:3
  - def: odd(Tensor! out, Tensor(a)?[] xs, int[] n=[1, 1]) -> ()
    debug: registered at mine/ops.py:4
  - impl: odd
    dispatch: CPU
    debug: registered at mine/ops.py:5
"""


@pytest.fixture
def record(tmp_path: Path) -> str:
    (tmp_path / "mine.yaml").write_text(RECORD)
    return str(tmp_path / "mine.yaml")


@pytest.fixture
def operators_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operators that are read from registry files meanwhile."""
    seen: list[str] = []

    def counted(name: str, row: Any) -> RecordedOperator:
        seen.append(name)
        return _read_operator(name, row)

    monkeypatch.setattr("dispatchlab.registries.stored._read_operator", counted)
    return seen


def test_a_record_is_laid_over_its_registry(record: str) -> None:
    found = recorded_from(record)
    assert isinstance(found, Overlay)
    alone = found.beneath
    assert len(found.names) == len(alone.names) + 1
    assert [str(one.name) for one in found.over] == ["aten::mul.Tensor", "mine::odd"]
    old, new = alone.operator("aten::mul.Tensor"), found.operator("aten::mul.Tensor")
    assert old is not None
    assert new is not None
    assert {*new.kernels} - {*old.kernels} == {new.active_at(DispatchKey.PrivateUse1)}
    assert (new.schema, new.debug, new.tags) == (old.schema, old.debug, old.tags)
    assert found.operator("aten::add.Tensor") == alone.operator("aten::add.Tensor")
    assert [str(one.name) for one in found] == list(found.names)


def test_lint_reports_what_the_package_does_to_operators_of_pytorch_and_knows_their_kernels(record: str) -> None:
    """Over the registry a kernel for the CPU overrides PyTorch's; alone, it is the operator's only one."""
    text = RECORD.replace("PrivateUse1", "CPU")
    for body, more, expected in (
        (text, (), [("DL002", "aten::mul.Tensor")]),
        (text, ("--against", "torch-2.13-cpu"), [("DL002", "aten::mul.Tensor")]),
        (text.replace("registry: torch-2.13-cpu\n", ""), (), [("DL010", "aten::mul.Tensor")]),
    ):
        Path(record).write_text(body)
        arguments = ("check", record, "--select", "DL001,DL002,DL006,DL007,DL010", *more, "--format", "json")
        value = json.loads(run(*arguments).stdout)
        assert [(each["code"], each["operator"]) for each in value["answers"][0]["findings"]] == expected
        assert value["registered"] == "2 operators" or more


def test_a_record_without_a_registry_is_taken_alone_and_says_so(record: str) -> None:
    alone = Path(record).with_name("alone.yaml")
    alone.write_text(RECORD.replace("registry: torch-2.13-cpu\n", ""))
    assert load_scenario(alone).registry is None
    assert recorded_from(str(alone)).names == ("aten::mul.Tensor", "mine::odd")
    said = run("check", str(alone)).stderr
    none = "names no registry, so aten::mul.Tensor has none of PyTorch's kernels here: add"
    assert f"{none} `registry: {newest_bundled()}`" in said
    assert "names no registry" not in run("check", record).stderr


def test_explain_of_one_operator_reads_one_block_for_it_and_each_operator_of_the_record(
    record: str, operators_read: list[str]
) -> None:
    result = run("explain", "mul.Tensor", "--from", record, "PrivateUse1", "PrivateUse1")
    assert result.exit_code == 0, result.output
    assert "registered at mine/ops.py:3" in result.stdout
    assert len(operators_read) <= 6
    operators_read.clear()
    result = run("explain", "aten::add.Tensor", "--from", record)
    assert "RegisterCPU" in result.stdout
    assert len(operators_read) <= 6


def test_explain_and_dump_of_a_schema_that_no_parser_reads(record: str) -> None:
    printed = "mine::odd(Tensor($0! -> ) out, Tensor?(a)[] xs, int[] n=1) -> ()"
    assert run("explain", "odd", "--from", record).stdout.startswith(f"{printed}\n")
    assert f"schema: {printed}\n" in run("dump", "odd", "--from", record, "--format", "text").stdout


def test_steps_of_a_record_are_run_over_its_registry(record: str) -> None:
    before = run("dump", "aten::mul.Tensor", "--from", record, "--after", "+0", "--format", "text").stdout
    after = run("dump", "aten::mul.Tensor", "--from", record, "--after", "+0 +1", "--format", "text").stdout
    assert "mine/ops.py" not in before
    assert "PrivateUse1: registered at mine/ops.py:3 [kernel]\n" in after
    alone = run("dump", "aten::mul.Tensor", "--format", "text").stdout
    assert before == alone


def test_diff_with_the_registry_has_what_the_record_adds(record: str) -> None:
    found = json.loads(run("diff", "torch-2.13-cpu", record, "--format", "json").stdout)
    assert {one["operator"] for part in ("added", "changed") for one in found["upgrade"][part]} == {
        "aten::mul.Tensor",
        "mine::odd",
    }
    (mul,) = found["upgrade"]["changed"]
    assert [each["keys"] for each in mul["slots"]] == [["PrivateUse1"]]


def test_a_registry_file_lies_beside_the_record(tmp_path: Path) -> None:
    folder = tmp_path / "records"
    folder.mkdir()
    save_registry(SMALL, folder / "small.dlreg")
    path = folder / "mine.yaml"
    path.write_text("{claim: A., registry: small.dlreg, registrations: [{impl: foo, dispatch: CUDA, debug: mine}]}")
    found = recorded_from(str(path))
    operator = found.operator("test::foo")
    assert operator is not None
    assert [str(kernel.key) for kernel in operator.kernels] == ["CPU", "CUDA", "Meta", "Meta", "Autograd"]
    path.write_text("{claim: A., registry: torch-9.9, registrations: [{impl: foo, dispatch: CUDA, debug: mine}]}")
    with pytest.raises(UnknownRegistryError, match=r"torch-9\.9"):
        recorded_from(str(path))


def test_an_operator_of_pytorch_is_not_asked_of_a_sandbox(record: str) -> None:
    with pytest.raises(Exception, match="use --engine torch --from mine"):
        run_raising("explain", "aten::mul.Tensor", "--from", record, "--engine", "torch")


def test_registry_packages_and_classes_are_fields_that_are_written_and_read() -> None:
    scenario = parse_scenario(RECORD)
    assert (scenario.registry, scenario.packages) == ("torch-2.13-cpu", ("mine",))
    judged = RECORD.replace("registry:", "semantics: torch-2.13\nregistry:")
    assert scenario_text(scenario) == judged
    assert scenario_text(parse_scenario(judged)) == judged
    classes = """\
claim: A.
classes: [mine.Thing]
registrations:
  - def: foo(__torch__.torch.classes.mine.Thing x) -> ()
    debug: a
"""
    assert scenario_text(parse_scenario(classes)) == classes
    with pytest.raises(ScenarioError, match="a custom class that is known"):
        parse_scenario(classes.replace("classes: [mine.Thing]\n", ""))


@pytest.mark.parametrize(
    ("registry", "packages", "semantics"),
    [
        ("torch-2.13-cpu", "packages: [mine]\n", "torch-2.13"),
        ("torch-2.4-cpu", "packages: [mine]\n", "torch-2.4"),
        ("torch-2.13-cpu", "", None),
        ("torch-9.99-cpu", "packages: [mine]\n", None),
        ("mine.dlreg", "packages: [mine]\n", None),
    ],
)
def test_a_record_is_judged_by_the_model_of_its_pytorch(registry: str, packages: str, semantics: str | None) -> None:
    text = RECORD.replace("torch-2.13-cpu", registry).replace("packages: [mine]\n", packages)
    assert parse_scenario(text).semantics == semantics
    assert parse_scenario(text.replace("registry:", "semantics: strict\nregistry:")).semantics == "strict"


def test_only_the_record_of_packages_may_register_nothing() -> None:
    nothing = "claim: A.\npackages: [mine]\nregistrations: []\n"
    assert scenario_text(parse_scenario(nothing)) == nothing
    with pytest.raises(ScenarioError, match="expected at least one registration"):
        parse_scenario("claim: A.\nregistrations: []\n")


def test_diff_begins_with_a_summary_by_namespace_and_takes_operators(record: str) -> None:
    text = run("diff", "torch-2.13-cpu", record).stdout
    assert "\nadded: mine 1\nkernels: 1 gained (PrivateUse1 1)\n" in text
    only = run("diff", "torch-2.13-cpu", record, "--operator", "aten::mul*").stdout
    assert "mine::odd" not in only
    assert "PrivateUse1: registered at mine/ops.py:3\n" in only
    found = json.loads(run("diff", "torch-2.13-cpu", record, "--operator", "mine::*", "--format", "json").stdout)
    assert (found["upgrade"]["compared"], [one["operator"] for one in found["upgrade"]["added"]]) == (1, ["mine::odd"])
    result = run("diff", "torch-2.13-cpu", record, "--operator", "mine::no")
    assert (result.exit_code, "there is no operator mine::no" in result.stderr) == (2, True)


def test_certify_of_a_record_is_about_what_differs_from_its_registry(tmp_path: Path) -> None:
    save_registry(SMALL, tmp_path / "small.dlreg")
    path = tmp_path / "mine.yaml"
    path.write_text(
        "{claim: A., registry: small.dlreg, registrations: "
        "[{impl: bar.out, dispatch: CUDA, debug: mine}, {def: new() -> (), debug: mine}]}"
    )
    result = certify(path)
    found = result.report
    assert [each.operator for each in found.certificates] == ["test::bar.out", "test::new"]
    assert (found.against, found.left_out, found.known) == ("small.dlreg", 2, ())
    assert "\nleft out, as they are the same in small.dlreg: 2; --operator '*' certifies them, too\n" in str(result)
    for operator, names in (
        ("test::foo", ["test::foo"]),
        ("*", ["else::gone", "test::bar.out", "test::foo", "test::new"]),
    ):
        arguments = ("permute", str(path), "--operator", operator, "--format", "json")
        value = json.loads(run(*arguments).stdout)
        assert ([each["operator"] for each in value["certificates"]], value["against"]) == (names, "")


def test_certify_leaves_out_what_overrides_another_in_the_registry_already(tmp_path: Path) -> None:
    save_registry(SMALL, tmp_path / "small.dlreg")
    path = tmp_path / "mine.yaml"
    path.write_text("{claim: A., registry: small.dlreg, registrations: [{impl: foo, dispatch: CUDA, debug: mine}]}")
    found = certify(path).report
    assert (found.exit_code, found.known, found.certificates) == (0, ("test::foo",), ())
    path.write_text("{claim: A., registry: small.dlreg, registrations: [{impl: foo, dispatch: CPU, debug: mine}]}")
    found = certify(path).report
    assert (found.exit_code, found.known) == (1, ())
    (certificate,) = found.certificates
    assert [reason.keys for reason in certificate.reasons] == [(DispatchKey.CPU,)]


def test_what_cannot_be_read_costs_its_operator_the_arguments_and_nothing_else(tmp_path: Path) -> None:
    unreadable = replace(FOO, schema="test::foo(Nobody knows) -> this")
    save_registry(registry_of("2.13.0", (unreadable, BAR)), tmp_path / "odd.dlreg")
    path = str(tmp_path / "odd.dlreg")
    assert (
        "schema: test::foo(Nobody knows) -> this\n"
        in run("dump", "test::foo", "--from", path, "--format", "text").stdout
    )
    assert "Nobody" in run("explain", "test::foo", "--from", path).stderr
    assert run("explain", "test::bar.out", "--from", path).exit_code == 0
    found = json.loads(run("permute", path, "--operator", "*", "--format", "json").stdout)
    assert [each["operator"] for each in found["certificates"]] == ["test::bar.out", "test::foo"]
    assert run("diff", path, path, "--exit-code").exit_code == 0
    assert run("check", path).exit_code in (0, 1)


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("2.13.0+cpu", "torch-2.13-cpu"),
        ("2.13.1", "torch-2.13-cpu"),
        ("2.13.0+cu126", "torch-2.13"),
        ("2.13.0+rocm7.1", "torch-2.13"),
        ("2.6.0+cpu", "torch-2.6"),
        ("2.10.0.dev20250901+cu126", "torch-2.10"),
        ("2.3.1+cu121", None),
        ("2.99.0", None),
    ],
)
def test_a_version_of_pytorch_has_the_bundled_registry_of_its_build(version: str, name: str | None) -> None:
    assert bundled_for(version) == name


def test_what_pytorch_registers_for_itself_on_first_use_is_not_certified() -> None:
    whole = open_bundled("torch-2.13-cpu")
    reduce, add = (whole.operator(name) for name in ("_c10d_functional::all_reduce", "aten::add.Tensor"))
    assert reduce is not None
    assert add is not None
    lazy = RecordedKernel(DispatchKey.Meta, "registered at torch/library.py:931")
    mine = replace(lazy, debug="registered at mine/ops.py:3")

    def differing(*operators: RecordedOperator) -> tuple[tuple[str, ...], int]:
        over = registry_of(whole.torch, operators, whole.fallbacks)
        found = own_operators(Overlay(whole, over, name="torch-2.13-cpu"), "today.dlreg")
        return tuple(str(each.name) for each in found.operators), found.lazy

    def with_meta(operator: RecordedOperator, kernel: RecordedKernel) -> RecordedOperator:
        rest = [each for each in operator.kernels if each.key is not DispatchKey.Meta]
        return replace(operator, kernels=tuple(sorted((*rest, kernel), key=lambda each: each.key)))

    at_sparse = replace(lazy, key=DispatchKey.SparseCPU, debug=mine.debug)
    both = with_meta(reduce, lazy)
    both = replace(both, kernels=tuple(sorted((*both.kernels, at_sparse), key=lambda each: each.key)))
    assert reduce.kernels_at(DispatchKey.Meta) == ()
    assert differing(with_meta(reduce, lazy)) == ((), 1)
    assert differing(both) == (("_c10d_functional::all_reduce",), 0)
    assert differing(with_meta(reduce, mine), with_meta(add, mine)) == (
        ("_c10d_functional::all_reduce", "aten::add.Tensor"),
        0,
    )
