"""`codegen --cpp`: the C++ declarations of native functions; the long test compares them with torchgen."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result

from dispatchlab.cli import main
from dispatchlab.codegen import read_native_functions
from dispatchlab.codegen.emit.cpp_declarations import cpp_files

FILE = Path(__file__).parent / "data" / "codegen" / "operators.yaml"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["codegen", *arguments])


def declared(func: str, *fields: str) -> dict[str, list[str]]:
    """What each file has of one function, without the first lines, namespaces and comments."""
    natives = read_native_functions("\n".join([f"- func: {func}", *(f"  {field}" for field in fields)]))
    files = cpp_files(natives, file="n.yaml", only={natives.functions[0].name})
    return {
        name: [line for line in text.splitlines() if line and not line.startswith(("//", "namespace", "} //", "}}"))]
        for name, text in files.items()
    }


def test_the_declarations_of_add_are_those_of_the_walkthrough() -> None:
    result = run(str(FILE), "--cpp", "--only", "add.Tensor")
    assert result.exit_code == 0
    arguments = "const at::Tensor & self, const at::Tensor & other, const at::Scalar & alpha"
    lines = [line.strip() for line in result.output.splitlines()]
    for declaration, inside in (
        ("struct TORCH_API structured_add_Tensor : public TensorIteratorBase {", f"void meta({arguments});"),
        (
            "struct TORCH_API structured_ufunc_add_CPU : public at::meta::structured_add_Tensor {",
            f"void impl({arguments}, const at::Tensor & out);",
        ),
        (f"inline at::Tensor add({arguments}=1) {{", "return at::_ops::add_Tensor::call(self, other, alpha);"),
    ):
        assert lines[lines.index(declaration) + 1] == inside
    assert not any(line.startswith("inline at::Tensor & add_out(") for line in lines)


def test_a_factory_has_four_forms_and_passes_its_options_on_one_by_one() -> None:
    options = "ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None"
    found = declared(f"made(SymInt[] size, *, {options}) -> Tensor", "dispatch:", "  CPU: made_cpu")
    forms = [line.removeprefix("inline at::Tensor ") for line in found["Functions.h"] if line.startswith("inline")]
    assert [form.partition(" ")[0] for form in forms] == [
        *("made(at::IntArrayRef", "made(at::IntArrayRef"),
        *("made_symint(c10::SymIntArrayRef", "made_symint(c10::SymIntArrayRef"),
    ]
    assert forms[0] == "made(at::IntArrayRef size, at::TensorOptions options={}) {"
    assert "size, ::std::optional<at::ScalarType> dtype, " in forms[3]
    calls = [line.strip() for line in found["Functions.h"] if "::call(" in line]
    packed = "c10::optTypeMetaToScalarType(options.dtype_opt()), options.layout_opt()"
    assert calls[0].startswith(f"return at::_ops::made::call(c10::fromIntArrayRefSlow(size), {packed}")
    assert found["NativeFunctions.h"] == [
        "TORCH_API at::Tensor made_cpu(at::IntArrayRef size, ::std::optional<at::ScalarType> dtype={}, ::std::optional"
        "<at::Layout> layout={}, ::std::optional<at::Device> device={}, ::std::optional<bool> pin_memory={});"
    ]


def test_defaults_stay_as_the_file_writes_them() -> None:
    func = "f(Tensor self, float eps=1e-05, int[2] at=[0,1], int how=Mean, str? mode='a', int k=3) -> (Tensor, SymInt)"
    found = declared(func)
    assert f'm.def("{func}", tags_0);' in found["RegisterSchema.cpp"]
    assert found["Functions.h"][0] == (
        "inline ::std::tuple<at::Tensor,c10::SymInt> f(const at::Tensor & self, double eps=1e-05, "
        "at::IntArrayRef at={0,1}, int64_t how=at::Reduction::Mean, "
        '::std::optional<c10::string_view> mode="a", int64_t k=3) {'
    )


def test_files_are_written_and_other_options_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert "5 of 5 files written" in run(str(FILE), "--cpp", "-o", str(out)).output
    changed = out / "Operators.h"
    changed.write_text(changed.read_text().replace("TORCH_API", ""))
    assert "1 of 5 files written" in run(str(FILE), "--cpp", "-o", str(out)).output
    assert run(str(FILE), "--cpp", "--only", "nothing").exit_code == 2
