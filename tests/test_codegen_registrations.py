"""`codegen --registrations`: every registration that is generated for a function, structured or not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dispatchlab.cli import main
from dispatchlab.codegen import read_native_functions
from dispatchlab.codegen.emit.registration_scenarios import by_base_name, registration_scenario
from dispatchlab.codegen.emit.registrations import Body, registrations_of
from dispatchlab.codegen.read.derivatives import read_derivatives
from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.model.keys import DispatchKey
from dispatchlab.prover.explore import explore
from dispatchlab.prover.result import Verdict

NATIVES = """\
- func: empty.memory_format(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, \
bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor
  dispatch:
    CPU: empty_cpu
    Meta: empty_meta_symint
  autogen: empty.memory_format_out
  tags: core
- func: normal_(Tensor(a!) self, float mean=0, float std=1, *, Generator? generator=None) -> Tensor(a!)
  dispatch:
    CPU: normal_
  autogen: normal, normal.out
  tags: nondeterministic_seeded
- func: sin(Tensor self) -> Tensor
  structured_delegate: sin.out
- func: sin.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)
  structured: True
  dispatch:
    CPU: sin_out
- func: flipud(Tensor self) -> Tensor
- func: detach(Tensor(a) self) -> Tensor(a)
  dispatch:
    CompositeExplicitAutograd: detach
- func: detach_copy(Tensor self) -> Tensor
  dispatch:
    CompositeExplicitAutogradNonFunctional: detach_copy
  tags: view_copy
  autogen: detach_copy.out
- func: record_stream(Tensor(a!) self, Stream s) -> ()
  dispatch:
    CPU: record_stream
- func: data(Tensor self) -> Tensor
  manual_kernel_registration: True
"""
DERIVATIVES = """\
- name: sin(Tensor self) -> Tensor
  self: grad * self.cos().conj()
- name: normal_(Tensor(a!) self, float mean=0, float std=1, *, Generator? generator=None) -> Tensor(a!)
  self: zeros_like(grad)
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "n.yaml"
    path.write_text(NATIVES, encoding="utf-8")
    return str(path)


@pytest.fixture
def with_derivatives(file: str) -> str:
    Path(file).with_name("derivatives.yaml").write_text(DERIVATIVES, encoding="utf-8")
    return file


def codegen(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["codegen", *arguments])


def test_a_function_outside_of_structured_groups_has_its_registrations(with_derivatives: str) -> None:
    result = codegen(with_derivatives, "--registrations", "--only", "normal_", "--only", "empty.memory_format")
    folder = str(Path(with_derivatives).parent)
    assert result.exit_code == 0
    assert result.output.replace(folder, "DIR").splitlines() == [
        "aten::empty.memory_format(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
        "bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
        "  DIR/n.yaml:1; tags: core, pt2_compliant_tag",
        "  BackendSelect  empty (RegisterBackendSelect.cpp): redispatches to the key of dtype, layout and device",
        "  Tracer         TraceType::empty_memory_format (TraceType_7.cpp): records the call in the graph of the "
        "tracer",
        "  CPU            wrapper_CPU_memory_format_empty (RegisterCPU_1.cpp): calls at::native::empty_cpu",
        "  Meta           wrapper_Meta_memory_format_empty (RegisterMeta_0.cpp): calls at::native::empty_meta_symint",
        "  Autograd       torch::autograd::autogradNotImplementedFallback() (VariableType_7.cpp): boxed: records a "
        "node that raises in backward",
        "",
        "aten::normal_(Tensor(a!) self, float mean=0., float std=1., *, Generator? generator=None) -> Tensor(a!)",
        "  DIR/n.yaml:7; tags: inplace, nondeterministic_seeded, pt2_compliant_tag",
        "  Functionalize    functionalization::normal_ (RegisterFunctionalization_0.cpp): unwraps, calls the variant "
        "that writes nothing, and wraps",
        "  ADInplaceOrView  ADInplaceOrView::normal_ (ADInplaceOrViewType_0.cpp): redispatches, and raises the version "
        "of what was written",
        "  Tracer           TraceType::normal_ (TraceType_6.cpp): records the call in the graph of the tracer",
        "  CPU              wrapper_CPU__normal_ (RegisterCPU_0.cpp): calls at::native::normal_",
        "  Meta             wrapper_Meta__normal_ (RegisterMeta_0.cpp): returns self, which has to be on meta",
        "  Autograd         VariableType::normal_ (VariableType_0.cpp): records a node with the formulas of "
        "derivatives.yaml: NormalBackward0",
        "",
        "DIR/n.yaml: 13 functions, 50 kernels",
        "autograd: DIR/derivatives.yaml",
        "not in the file: what C++ and Python register by hand, such as batching rules and autocast",
    ]


def test_without_names_there_are_counts_and_everything_that_is_left_out(file: str) -> None:
    result = codegen(file, "--registrations")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].endswith("n.yaml: 13 functions, 40 kernels")
    assert "autograd: no derivatives.yaml" in lines
    assert [line for line in lines if line.startswith("not generated: ")] == [
        "not generated: kernels that `manual_kernel_registration` leaves to C++: 1 function: data",
        "not generated: kernels of Autograd, ADInplaceOrView and Tracer, written by hand: 2 functions: detach, data",
        "not generated: kernels of Functionalize: C++ has them, or nothing has: 1 function: record_stream",
        "not generated: kernels of Autograd: there is no derivatives.yaml, name one with --derivatives: 10 functions: "
        "empty.memory_format, normal_, sin, sin.out, detach_copy, record_stream, empty.memory_format_out, normal.out "
        "and 2 more",
    ]


def test_a_function_without_any_kernel_says_so(file: str) -> None:
    assert "  no kernel is generated" in codegen(file, "--registrations", "--only", "data").output.splitlines()


def test_json_has_every_kernel_with_its_type(with_derivatives: str) -> None:
    result = codegen(with_derivatives, "--registrations", "--only", "sin", "--format", "json")
    found = json.loads(result.output)
    assert (found["version"], found["functions"], found["comparison"]) == (3, 13, None)
    (sin,) = found["selected"]
    assert (sin["operator"], sin["tags"], sin["made"]) == ("aten::sin", ["pt2_compliant_tag"], False)
    kernels = {each["key"]: each for each in sin["kernels"]}
    assert list(kernels) == ["Tracer", "CPU", "Meta", "Autograd", "CompositeExplicitAutogradNonFunctional"]
    assert {**kernels["Autograd"]} == {
        "key": "Autograd",
        "part": "VariableType",
        "body": "records a node with the formulas of derivatives.yaml",
        "name": "VariableType::sin",
        "inferred": "(Tensor _0) -> Tensor _0",
        "node": "SinBackward0",
        "calls": "",
        "functional": "",
        "view": "",
        "file": kernels["Autograd"]["file"],
    }


def test_a_kernel_of_functionalize_has_the_operators_that_it_calls() -> None:
    found = {each.function.short_name: each.kernels for each in registrations_of(read_native_functions(NATIVES))}
    functional = {
        name: [(each.view, each.functional) for each in kernels if each.key is DispatchKey.Functionalize]
        for name, kernels in found.items()
    }
    assert functional["normal_"] == functional["normal.out"] == [("", "normal")]
    assert functional["detach"] == [("detach", "detach_copy")]
    assert functional["sin.out"] == [("", "sin")]


def test_a_write_without_a_variant_that_writes_nothing_has_no_kernel_of_functionalize(tmp_path: Path) -> None:
    path = tmp_path / "n.yaml"
    path.write_text("- func: my_op_(Tensor(a!) self) -> Tensor(a!)\n  dispatch: {CPU: my_op_}\n", encoding="utf-8")
    result = codegen(str(path), "--registrations")
    assert (
        "not generated: kernels of Functionalize: no variant writes nothing, or gives a copy, and torchgen refuses the "
        "file: 1 function: my_op_" in result.output.splitlines()
    )


def test_scenarios_are_written_and_checked_one_for_each_name(with_derivatives: str, tmp_path: Path) -> None:
    folder = str(tmp_path / "out")
    result = codegen(with_derivatives, "--registrations", "--only", "normal_", "-o", folder)
    assert result.exit_code == 0, result.output
    assert "the registrations of 3 functions" in result.output
    names = sorted(path.name for path in Path(folder).iterdir())
    assert names == ["normal_registrations.py", "normal_registrations.yaml"]
    assert codegen(with_derivatives, "--registrations", "-o", folder, "--check").exit_code == 1
    assert codegen(with_derivatives, "--registrations", "-o", folder).exit_code == 0
    assert codegen(with_derivatives, "--registrations", "-o", folder, "--check").exit_code == 0
    permuted = CliRunner().invoke(main, ["permute", f"{folder}/normal_registrations.yaml", "--format", "json"])
    assert json.loads(permuted.output)["verdict"] == "order-independent"


def test_modules_and_scenarios_of_registrations_do_not_count_as_left_over(
    with_derivatives: str, tmp_path: Path
) -> None:
    folder = str(tmp_path / "out")
    assert codegen(with_derivatives, "-o", folder, "--only", "sin").exit_code == 0
    assert codegen(with_derivatives, "--registrations", "-o", folder, "--only", "flipud").exit_code == 0
    assert codegen(with_derivatives, "-o", folder, "--check").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--only", "nope", "--registrations"), "there is no operator nope"),
        (("--against", "torch-2.13"), "--against is for --registrations: add it, or leave this out"),
        (("--derivatives", "d.yaml"), "--derivatives is for --registrations"),
        (("--format", "json"), "--format is for --registrations"),
        (("--registrations", "-o", "out", "--format", "json"), "--format is for what is printed"),
        (("--registrations", "--derivatives", "none.yaml"), "none.yaml: the file cannot be read"),
        (("--registrations", "--check"), "--check compares with the files in a folder"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(file: str, arguments: tuple[str, ...], message: str) -> None:
    result = codegen(file, *arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_names_without_structured_groups_are_order_independent() -> None:
    natives = read_native_functions(NATIVES)
    registrations = registrations_of(natives, read_derivatives(DERIVATIVES, natives))
    names = by_base_name(registrations)
    assert sorted(names) == ["data", "detach", "detach_copy", "empty", "flipud", "normal", "record_stream", "sin"]
    for name in ("detach", "empty", "flipud", "record_stream"):
        scenario = registration_scenario(name, names[name], "n.yaml")
        found = explore(LabEngine(), scenario.registrations, scenario.operators)
        assert found.verdict is Verdict.ORDER_INDEPENDENT, name


def test_names_that_differ_in_upper_and_lower_case_alone_are_in_one_file() -> None:
    natives = read_native_functions("- func: T(Tensor self) -> Tensor\n- func: t(Tensor self) -> Tensor\n")
    (name,) = by_base_name(registrations_of(natives))
    assert name == "T"


def test_an_out_variant_records_no_node_and_a_composite_has_no_autograd_kernel() -> None:
    natives = read_native_functions(NATIVES)
    registrations = registrations_of(natives, read_derivatives(DERIVATIVES, natives))
    bodies = {each.function.short_name: {kernel.key: kernel.body for kernel in each.kernels} for each in registrations}
    assert bodies["sin.out"][DispatchKey.Autograd] is Body.NO_FORMULA
    assert set(bodies["flipud"]) == {DispatchKey.Tracer, DispatchKey.CompositeImplicitAutograd}
    assert set(bodies["data"]) == set()
    assert set(bodies["detach"]) == {DispatchKey.Functionalize, DispatchKey.CompositeExplicitAutograd}
