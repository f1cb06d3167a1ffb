"""`codegen --registrations`: every registration that is generated for a function, structured or not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dispatchlab.cli import main
from dispatchlab.codegen import read_native_functions
from dispatchlab.codegen.emit.registrations import registrations_of
from dispatchlab.model.keys import DispatchKey

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


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "n.yaml"
    path.write_text(NATIVES, encoding="utf-8")
    return str(path)


def codegen(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["codegen", *arguments])


def test_a_function_outside_of_structured_groups_has_its_registrations(file: str) -> None:
    result = codegen(file, "--registrations", "--only", "normal_", "--only", "empty.memory_format")
    folder = str(Path(file).parent)
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
        "",
        "DIR/n.yaml: 13 functions, 40 kernels",
        "not in the file: kernels of Autograd, and what C++ and Python register by hand, such as batching rules",
    ]


def test_without_names_there_are_counts_and_everything_that_is_left_out(file: str) -> None:
    result = codegen(file, "--registrations")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].endswith("n.yaml: 13 functions, 40 kernels")
    assert [line for line in lines if line.startswith("not generated: ")] == [
        "not generated: kernels that `manual_kernel_registration` leaves to C++: 1 function: data",
        "not generated: kernels of Autograd, ADInplaceOrView and Tracer, written by hand: 2 functions: detach, data",
        "not generated: kernels of Functionalize: C++ has them, or nothing has: 1 function: record_stream",
    ]


def test_a_function_without_any_kernel_says_so(file: str) -> None:
    assert "  no kernel is generated" in codegen(file, "--registrations", "--only", "data").output.splitlines()


def test_json_has_every_kernel_with_its_type(file: str) -> None:
    result = codegen(file, "--registrations", "--only", "sin", "--format", "json")
    found = json.loads(result.output)
    assert (found["version"], found["functions"]) == (5, 13)
    (sin,) = found["selected"]
    assert (sin["operator"], sin["tags"], sin["made"]) == ("aten::sin", ["pt2_compliant_tag"], False)
    kernels = {each["key"]: each for each in sin["kernels"]}
    assert list(kernels) == ["Tracer", "CPU", "Meta", "CompositeExplicitAutogradNonFunctional"]
    assert {**kernels["Tracer"]} == {
        "key": "Tracer",
        "part": "TraceType",
        "body": "records the call in the graph of the tracer",
        "name": "TraceType::sin",
        "inferred": "(Tensor _0) -> Tensor _0",
        "calls": "",
        "file": kernels["Tracer"]["file"],
    }


def test_a_write_without_a_variant_that_writes_nothing_has_no_kernel_of_functionalize(tmp_path: Path) -> None:
    path = tmp_path / "n.yaml"
    path.write_text("- func: my_op_(Tensor(a!) self) -> Tensor(a!)\n  dispatch: {CPU: my_op_}\n", encoding="utf-8")
    result = codegen(str(path), "--registrations")
    assert (
        "not generated: kernels of Functionalize: no variant writes nothing, or gives a copy, and torchgen refuses the "
        "file: 1 function: my_op_" in result.output.splitlines()
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--only", "nope", "--registrations"), "there is no operator nope"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(file: str, arguments: tuple[str, ...], message: str) -> None:
    result = codegen(file, *arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_a_composite_has_nothing_in_front_of_it_but_the_tracer() -> None:
    found = {one.function.short_name: one.kernels for one in registrations_of(read_native_functions(NATIVES))}
    keys = {name: {kernel.key for kernel in kernels} for name, kernels in found.items()}
    assert keys["flipud"] == {DispatchKey.Tracer, DispatchKey.CompositeImplicitAutograd}
    assert keys["data"] == set()
    assert keys["detach"] == {DispatchKey.Functionalize, DispatchKey.CompositeExplicitAutograd}
