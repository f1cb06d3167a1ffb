"""Generated files: golden to the character, written all or none, and equal to what their scenarios register."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import Result

from dispatchlab import Dispatcher, LabEngine, load_scenario, parse_scenario
from dispatchlab.call import AutoDispatchBelowAutograd, operator, tensor
from dispatchlab.codegen import (
    FunctionGroup,
    NativeFunctions,
    NativeYamlError,
    load_native_functions,
    read_native_functions,
)
from dispatchlab.codegen.emit.generate import (
    NoSuchGroupError,
    differing,
    generated_files,
    write_files,
)
from dispatchlab.codegen.emit.generated_group import Form, generated_group
from dispatchlab.codegen.emit.python_source import mark
from dispatchlab.errors import CallError, ErrorKind, RegistrationError
from dispatchlab.files import WriteError
from dispatchlab.prover.explore import explore
from dispatchlab.prover.result import Verdict
from tests.command_line import run, run_raising
from tests.generated_modules import generated_modules

DATA = Path(__file__).parent / "data" / "codegen"
FILE = DATA / "operators.yaml"
GOLDEN = DATA / "golden"


@pytest.fixture(scope="module")
def natives() -> NativeFunctions:
    return load_native_functions(FILE)


@pytest.fixture(scope="module")
def files(natives: NativeFunctions) -> dict[str, str]:
    return generated_files(natives, file=FILE.name)


@pytest.fixture
def package(tmp_path: Path, files: dict[str, str]) -> Iterator[ModuleType]:
    """The generated package, imported."""
    name = "generated_for_tests"
    write_files(tmp_path / name, files)
    spec = importlib.util.spec_from_file_location(name, tmp_path / name / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    yield module
    for loaded in [each for each in sys.modules if each == name or each.startswith(f"{name}.")]:
        del sys.modules[loaded]


def test_the_files_are_the_golden_ones_to_the_character(files: dict[str, str]) -> None:
    if os.environ.get("EXPECTTEST_ACCEPT"):
        for name, text in files.items():
            (GOLDEN / f"{name}.txt").write_text(text, encoding="utf-8")
    golden = {path.name.removesuffix(".txt"): path.read_text(encoding="utf-8") for path in GOLDEN.glob("*.txt")}
    assert sorted(golden) == sorted(files)
    for name, text in files.items():
        assert text == golden[name], name


def test_a_second_run_gives_the_same_bytes(files: dict[str, str]) -> None:
    again = generated_files(load_native_functions(FILE), file=FILE.name)
    assert list(again) == list(files)
    assert {name: text.encode() for name, text in again.items()} == {
        name: text.encode() for name, text in files.items()
    }


def test_variants_are_made_for_every_structured_key_and_two_that_no_file_names(natives: NativeFunctions) -> None:
    generated = {each.name: each for each in map(generated_group, natives.structured_groups)}
    assert {
        name: [(str(each.key), each.form, len(each.wrappers)) for each in group.keys]
        for name, group in generated.items()
    } == {
        "add_Tensor": [
            ("CPU", Form.STRUCTURED, 3),
            ("CUDA", Form.STRUCTURED, 3),
            ("Meta", Form.META, 3),
            ("CompositeExplicitAutogradNonFunctional", Form.DEFAULT, 2),
            ("SparseCPU", Form.PLAIN, 2),
            ("SparseCUDA", Form.PLAIN, 1),
        ],
        "sort_stable": [
            ("CPU", Form.STRUCTURED, 2),
            ("CUDA", Form.STRUCTURED, 2),
            ("Meta", Form.META, 2),
            ("CompositeExplicitAutogradNonFunctional", Form.DEFAULT, 1),
        ],
        "index_copy": [
            ("CPU", Form.STRUCTURED, 3),
            ("CUDA", Form.STRUCTURED, 3),
            ("MPS", Form.STRUCTURED, 3),
            ("Meta", Form.META, 3),
            ("CompositeExplicitAutogradNonFunctional", Form.DEFAULT, 2),
        ],
    }
    others = [each for each in natives.groups if isinstance(each, FunctionGroup) and not each.structured]
    assert [each.out.short_name for each in others] == ["relu.out"]


def test_what_the_module_registers_is_what_its_scenario_registers(package: ModuleType, tmp_path: Path) -> None:
    groups = package.GROUPS
    assert groups == ("add_Tensor", "index_copy", "sort_stable")
    operators = 0
    for name in groups:
        dispatcher = Dispatcher.for_scenario()
        module = importlib.import_module(f"{package.__name__}.{name}")
        held = module.register(dispatcher, object())
        scenario = load_scenario(tmp_path / package.__name__ / f"{name}.yaml")
        with LabEngine().sandbox() as sandbox:
            handles = [sandbox.register(each) for each in scenario.registrations]
            for operator in scenario.operators:
                snapshot = sandbox.snapshot(operator)
                assert dispatcher.dump(str(operator)) == snapshot.dump
                assert dispatcher.dump_table(str(operator)) == snapshot.table
                operators += 1
            for handle in handles:
                handle.release()
        held.close()
        assert not dispatcher.operators()
    assert operators == 8


def test_the_order_in_which_generated_libraries_are_loaded_is_proved_not_to_matter(
    package: ModuleType, tmp_path: Path
) -> None:
    found = {}
    for name in package.GROUPS:
        scenario = load_scenario(tmp_path / package.__name__ / f"{name}.yaml")
        result = explore(LabEngine("strict"), scenario.registrations, scenario.operators)
        assert result.verdict is Verdict.ORDER_INDEPENDENT
        found[name] = (result.registrations, result.sets)
    assert found == {"add_Tensor": (7, 128), "index_copy": (6, 64), "sort_stable": (5, 32)}


def test_registering_again_is_refused_and_leaves_nothing_new(package: ModuleType) -> None:
    dispatcher = Dispatcher()
    held = package.register(dispatcher, object())
    before = {str(each): dispatcher.dump(str(each)) for each in dispatcher.operators()}
    with pytest.raises(RegistrationError) as caught:
        package.register(dispatcher, object())
    assert caught.value.kind is ErrorKind.DUPLICATE_DEF
    assert {str(each): dispatcher.dump(str(each)) for each in dispatcher.operators()} == before
    assert len(before) == 8
    held.close()


def test_a_function_that_nobody_wrote_is_named_when_it_is_called(package: ModuleType) -> None:
    dispatcher = Dispatcher()
    held = package.register(dispatcher, object())
    with pytest.raises(CallError) as caught, AutoDispatchBelowAutograd():
        operator(dispatcher, "aten::add.Tensor")(tensor([1.0]), tensor([2.0]))
    assert caught.value.kind is ErrorKind.MISSING_KERNEL
    assert caught.value.message == (
        "object has no function meta_add_Tensor, which this kernel is made of: "
        "write meta_add_Tensor(op, self, other, alpha)"
    )
    held.close()


def test_only_chooses_operators_groups_and_globs(natives: NativeFunctions) -> None:
    for name in ("add.out", "add_Tensor", "aten::add_.Tensor", "ad*", "add"):
        assert list(generated_files(natives, file="f", only=[name])) == [
            "add_Tensor.py",
            "add_Tensor.yaml",
            "__init__.py",
        ]
    assert len(generated_files(natives, file="f", only=["sort.stable", "add"])) == 5
    with pytest.raises(NoSuchGroupError, match=r"there is no operator add\.ouut; did you mean add\.out"):
        generated_files(natives, file="f", only=["add.ouut"])
    with pytest.raises(NoSuchGroupError, match=r"relu\.out is in no structured group"):
        generated_files(natives, file="f", only=["relu.out"])


def test_files_are_written_when_they_differ_and_only_then(tmp_path: Path, files: dict[str, str]) -> None:
    folder = tmp_path / "made" / "here"
    assert write_files(folder, files) == tuple(files)
    assert write_files(folder, files) == ()
    (folder / "add_Tensor.py").write_text("# changed\n", encoding="utf-8")
    assert differing(folder, files) == ("add_Tensor.py",)
    assert write_files(folder, files) == ("add_Tensor.py",)
    assert sorted(path.name for path in folder.iterdir()) == sorted(files)


def test_nothing_is_written_when_a_file_cannot_be(tmp_path: Path, files: dict[str, str]) -> None:
    (tmp_path / "taken").write_text("not a folder", encoding="utf-8")
    with pytest.raises(WriteError, match="taken could not be written: "):
        write_files(tmp_path / "taken", files)
    assert (tmp_path / "taken").read_text(encoding="utf-8") == "not a folder"


def test_nothing_is_written_when_the_source_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(NativeYamlError):
        run_raising("codegen", str(DATA / "bad" / "out_count.yaml"), "-o", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def generated(folder: Path, *options: str) -> Result:
    """Run `codegen` with a folder for its files."""
    return run("codegen", str(FILE), "-o", str(folder), *options)


def test_files_that_are_right_already_are_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    result = generated(folder, "--only", "add")
    assert (result.exit_code, "1 structured group of" in result.stdout) == (0, True)
    (folder / "add_Tensor.py").unlink()
    assert "1 of 3 files written to" in generated(folder, "--only", "add").stdout
    assert "0 of 3 files written to" in generated(folder, "--only", "add").stdout


def test_only_some_go_beside_what_was_generated_before(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert generated(folder).exit_code == 0
    index = (folder / "__init__.py").read_text(encoding="utf-8")
    assert generated(folder, "--only", "add").exit_code == 0
    assert (folder / "__init__.py").read_text(encoding="utf-8") == index
    assert "0 of 3 files written to" in generated(folder, "--only", "add").stdout


def test_files_that_are_generated_no_more_are_listed_and_left(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert generated(folder).exit_code == 0
    first = (folder / "add_Tensor.py").read_text(encoding="utf-8")
    (folder / "gone.py").write_text(first, encoding="utf-8")
    (folder / "mine.py").write_text("# by hand\n", encoding="utf-8")
    result = generated(folder)
    said = "2 functions are in no structured group: --registrations shows what is generated for them\n"
    assert (result.exit_code, result.stderr) == (
        0,
        f"{said}{folder / 'gone.py'} is no longer generated: remove it\n",
    )
    assert (folder / "gone.py").exists()


GROUP = """
- func: {name}(Tensor self{more}) -> Tensor
  structured_delegate: {out}
- func: {out}(Tensor self{more}, *, Tensor(a!) out) -> Tensor(a!)
  structured: True
{precomputed}  dispatch:
    CPU: {kernel}
"""


def group_text(name: str, out: str, *, more: str = "", kernel: str = "the_kernel", precomputed: str = "") -> str:
    """A structured group, as a file of native functions has it."""
    return GROUP.format(name=name, out=out, more=more, kernel=kernel, precomputed=precomputed)


def test_names_that_python_or_generated_code_has_taken_stay_apart() -> None:
    more = ", int op, int op_, int op__, int kernels, int kernels_, int dim"
    value = "  precomputed:\n  - dim -> int {}\n"
    for name in ("from", "_x", "precompute", "__y"):
        text = group_text("foo", "foo.out", more=more, kernel="class", precomputed=value.format(name))
        modules = generated_modules(read_native_functions(text), file="a.yaml")
        assert [*modules] == ["foo"]


@pytest.mark.parametrize(
    "name", ['a"""b.yaml', "a\nb.yaml", "\\N{x}.yaml", "\x1b]0;x\x07", "a\u202eb\r", "é {} %s.yaml", "\udcff"]
)
def test_a_file_with_any_name_gives_files_that_are_read_and_have_no_control_characters(name: str) -> None:
    for each, text in generated_files(read_native_functions(group_text("foo", "foo.out")), file=name).items():
        assert text.replace("\n", "").isprintable()
        assert text.splitlines()[0] == mark(name)
        if each.endswith(".py"):
            compile(text, each, "exec")
        else:
            assert parse_scenario(text).registrations
