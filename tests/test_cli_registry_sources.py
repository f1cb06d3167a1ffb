"""The commands on registries: dump, listings, counts, diff."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dispatchlab.errors import UnknownOperatorError
from dispatchlab.model.keys import DispatchKey, UnknownKeyError
from dispatchlab.model.names import AmbiguousOperatorError
from dispatchlab.model.schema_parser import parse_name
from dispatchlab.questions.dump.operator_text import operator_text
from dispatchlab.questions.dump.recorded_text import recorded_text
from dispatchlab.questions.sources.find_sources import (
    ImportOfRecordError,
    TableRowError,
    is_registry_source,
    recorded_from,
)
from dispatchlab.questions.sources.replay_on_lab import bench
from dispatchlab.registries.file import UnknownRegistryError, bundled_names, open_bundled
from dispatchlab.registries.model import RecordedKernel, RecordedOperator, registry_of
from tests.command_line import run, run_raising
from tests.registry_cases import BAR, FOO, SMALL, save_registry

K = DispatchKey
OPERATORS = (Path(__file__).parent / "data" / "torch-2.13-operators.txt").read_text()

SCENARIO = """\
claim: A kernel for CPU and one for everything.
semantics: torch-2.13
operators: [test::foo]
registrations:
  - def: foo(Tensor x) -> Tensor
  - def: foo(Tensor x) -> Tensor
  - impl: foo
    dispatch: CPU
    debug: fn_cpu
"""


@pytest.fixture
def small(tmp_path: Path) -> str:
    """A file of three operators."""
    save_registry(SMALL, tmp_path / "small.dlreg")
    return str(tmp_path / "small.dlreg")


def dumped(*arguments: str) -> str:
    """What `dump` prints, as text unless asked otherwise."""
    result = run("dump", *arguments)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_an_operator_is_shown_as_pytorch_prints_it() -> None:
    first = OPERATORS.partition("\nname: ")[0]
    assert dumped("aten::add.Tensor", "--layer", "cxx") == first
    assert dumped("add.Tensor", "--semantics", "torch-2.13", "--layer", "cxx") == first
    assert dumped("aten::add.Tensor").startswith(f"{first}\nPython kernels, when the Python dispatcher is on, ")
    rows = dumped("aten::add.Tensor", "--key", "CPU", "--key", "Python").partition("\n\n")[2]
    assert [line.partition(":")[0] for line in rows.splitlines()] == ["CPU", "Python"]


def test_a_glob_shows_all_that_match(small: str) -> None:
    shown = dumped("test::*", "--from", small)
    assert [line for line in shown.splitlines() if line.startswith("name: ")] == [
        "name: test::bar.out",
        "name: test::foo",
    ]


def test_json_and_rich_show_the_reasons(small: str) -> None:
    dump = json.loads(dumped("test::foo", "--from", small, "--format", "json"))
    assert (dump["version"], dump["scenario"], dump["engine"], dump["semantics"]) == (5, small, "lab", "strict")
    (operator,) = dump["operators"]
    assert operator["tags"] == ["core", "pointwise"]
    (meta,) = [row for row in operator["table"] if row["key"] == "Meta"]
    assert [each["why"] for each in meta["beaten"]] == ["a newer kernel of the key"]
    rich = dumped("test::foo", "--from", small, "--format", "rich", "--key", "CPU")
    assert "CPU  kernel foo.cpp:12" in rich


def test_operators_are_listed(small: str) -> None:
    assert dumped("--from", small, "--list") == "else::gone\ntest::bar.out\ntest::foo\n"
    assert dumped("test::*", "--from", small, "--list") == "test::bar.out\ntest::foo\n"
    assert dumped("--from", small, "--key", "CPU", "--key", "Meta", "--list") == (
        "test::foo  CPU: registered at foo.cpp:12; Meta: registered at meta.py:7\n"
    )


def test_an_empty_listing_is_explained_on_standard_error() -> None:
    result = run("dump", "--list", "--key", "FPGA")
    note = "note: torch-2.13-cpu answers, the registry of the installed PyTorch 2.13.0+cpu\n"
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"{note}no operator of torch-2.13-cpu matches\n"


def test_a_listing_is_json_too(small: str) -> None:
    listing = json.loads(dumped("else::*", "--list", "--from", small, "--format", "json"))
    assert listing == {
        "version": 5,
        "source": small,
        "torch": "2.13.0",
        "operators": [
            {
                "name": "else::gone",
                "schema": None,
                "dangling": True,
                "kernels": [
                    {
                        "key": "CUDA",
                        "debug": "registered at ext.py:3",
                        "inferred": None,
                        "flags": ["boxed"],
                        "active": True,
                    }
                ],
            }
        ],
    }


def test_an_unknown_name_is_refused_with_the_nearest_one(small: str, tmp_path: Path) -> None:
    with pytest.raises(UnknownOperatorError) as unknown:
        run_raising("dump", "aten::adt.Tensor")
    assert "did you mean aten::add.Tensor" in str(unknown.value)
    with pytest.raises(UnknownOperatorError):
        run_raising("dump", "nope::*", "--list")
    with pytest.raises(AmbiguousOperatorError) as ambiguous:
        run_raising("explain", "aten::add")
    assert str(ambiguous.value).startswith("aten::add has 4 overloads: name one of aten::add.Scalar, ")
    with pytest.raises(TableRowError):
        run_raising("dump", "aten::relu", "--key", "Autograd")
    with pytest.raises(UnknownKeyError):
        run_raising("dump", "--from", small, "--key", "CPX", "--list")
    with pytest.raises(UnknownRegistryError):
        run_raising("coverage", "none", "--key", "CPU")


@pytest.mark.parametrize("line", ["coverage", "check", "permute", "record", "dump aten::relu --from"])
def test_a_path_that_leads_nowhere_is_refused_with_the_nearest_modules(line: str, tmp_path: Path) -> None:
    (tmp_path / "ropecats").mkdir()
    (tmp_path / "ropecats" / "__init__.py").touch()
    (tmp_path / "ropefast.py").touch()
    result = run(*line.split(), f"{tmp_path}/ropefats")
    near = f"did you mean {tmp_path}/ropefast or {tmp_path}/ropecats?"
    assert result.stderr == f"{tmp_path}/ropefats: there is no such file or folder; {near}\n"
    assert result.exit_code == 2
    result = run(*line.split(), f"{tmp_path}/zzz")
    nothing = run("permute", f"{tmp_path}/empty/zzz")
    assert nothing.stderr == f"{tmp_path}/empty/zzz: there is no such file or folder\n"
    assert result.stderr == f"{tmp_path}/zzz: there is no such file or folder; {tmp_path} has ropecats, ropefast\n"


def test_registry_sources_are_recognized(small: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SCENARIO)
    sources = ("live", "torch-2.13", small, str(tmp_path / "a.yaml"), "torch-2.31")
    assert [is_registry_source(source) for source in sources] == [True, True, True, False, False]


def test_a_scenario_is_a_registry_of_what_it_leaves_in_force(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SCENARIO)
    path = str(tmp_path / "a.yaml")
    refused: list[str] = []
    recorded = recorded_from(path, report=refused.append)
    assert (recorded.torch, list(recorded.names), len(recorded.fallbacks)) == (
        f"torch-2.13 ({path})",
        ["test::foo"],
        38,
    )
    assert refused[0].startswith(
        f"{path}: def test::foo(Tensor x) -> Tensor (registered at a.yaml:6) was refused: duplicate_def"
    )
    assert len(refused) == 1
    with pytest.raises(ImportOfRecordError, match="torchvision is imported into the installed PyTorch"):
        recorded_from(path, imports=["torchvision"])


def diffed(*arguments: str) -> tuple[int, str]:
    """The exit code of `diff` and what it prints."""
    result = run("diff", *arguments)
    return result.exit_code, result.stdout


def test_registries_are_compared(small: str, tmp_path: Path) -> None:
    other = str(tmp_path / "other.dlreg")
    save_registry(registry_of("2.14.0", (FOO, replace(BAR, debug="moved"))), other)
    code, text = diffed(small, small, "--exit-code")
    assert (code, text.splitlines()[0]) == (0, f"{small} -> {small}: no difference, 3 operators compared")
    code, text = diffed(small, other)
    assert code == 0
    assert "removed: else 1\n\nRemoved operators (1)\n" in text
    code, text = diffed(small, other, "--exit-code", "--format", "json")
    difference = json.loads(text)
    assert (code, difference["upgrade"]["compared"]) == (1, 3)
    assert difference["after"] == {"source": other, "torch": "2.14.0", "operators": 2, "model": "torch-2.14"}
    assert [one["operator"] for one in difference["upgrade"]["removed"]] == ["else::gone"]


def test_the_bundled_registry_does_not_differ_from_itself() -> None:
    code, text = diffed("torch-2.13-cpu", "torch-2.13-cpu", "--exit-code")
    assert (code, text.splitlines()[0]) == (
        0,
        "torch-2.13-cpu -> torch-2.13-cpu: no difference, 3,598 operators compared",
    )


_LAZY = "registered at torch/library.py:931"  # the registration API, which everybody's Python goes through
_MINE = "registered at mine/ops.py:3"


def _operator(schema: str, debug: str, *kernels: tuple[DispatchKey, str]) -> RecordedOperator:
    return RecordedOperator(
        parse_name(schema.partition("(")[0]),
        schema,
        debug,
        kernels=tuple(RecordedKernel(key, text) for key, text in kernels),
    )


def _wrapped(debug: str) -> RecordedOperator:
    return _operator("_c10d_functional::_wrap_tensor_autograd(Tensor x) -> Tensor", debug, (K.Meta, debug))


def _reduced(*kernels: tuple[DispatchKey, str]) -> RecordedOperator:
    return _operator("_c10d_functional::all_reduce(Tensor x) -> Tensor", "registered at a.cpp:1", *kernels)


def test_what_pytorch_registers_for_itself_on_first_use_is_left_out_of_a_diff(tmp_path: Path) -> None:
    one, other = str(tmp_path / "one.dlreg"), str(tmp_path / "other.dlreg")
    mine = _operator("mine::foo() -> ()", _MINE, (K.CPU, _MINE))
    save_registry(registry_of("2.13.0", (_reduced((K.CPU, "a")),)), one)
    save_registry(registry_of("2.13.0", (_reduced((K.CPU, "a"), (K.Meta, _LAZY)), _wrapped(_LAZY), mine)), other)
    code, text = diffed(one, other, "--exit-code")
    assert (code, text.splitlines()[-6:]) == (
        1,
        [
            "added: mine 1",
            "left out: 2 operators that PyTorch registers on first use of a part: see --all",
            "",
            "Added operators (1)",
            "  operator   schema    kernels at  registered at",
            f"  mine::foo  () -> ()  CPU         {_MINE}",
        ],
    )
    assert "Removed operators (1)\n  operator " in diffed(other, one)[1]
    assert json.loads(diffed(one, other, "--format", "json")[1])["upgrade"]["left_out"] == [
        "_c10d_functional::_wrap_tensor_autograd",
        "_c10d_functional::all_reduce",
    ]
    for asked in (("--all",), ("--operator", "_c10d_functional::*")):
        text = diffed(one, other, *asked)[1]
        assert "left out" not in text
        assert "  _c10d_functional::_wrap_tensor_autograd  (Tensor x) -> Tensor " in text
        assert "  _c10d_functional::all_reduce  Meta: nothing -> its own kernel\n" in text


def test_a_kernel_of_somebody_else_is_not_left_out_because_pytorch_has_one_there_later(tmp_path: Path) -> None:
    one, other = str(tmp_path / "one.dlreg"), str(tmp_path / "other.dlreg")
    save_registry(registry_of("2.13.0", (_reduced(),)), one)
    save_registry(registry_of("2.13.0", (_reduced((K.Meta, _MINE)), _wrapped(_MINE))), other)
    text = diffed(one, other)[1]
    assert "left out" not in text
    assert f"      Meta: {_MINE}\n" in text
    assert "  _c10d_functional::_wrap_tensor_autograd  (Tensor x) -> Tensor " in text


def test_a_diff_shows_the_first_of_each_part_and_says_how_many_more_there_are(tmp_path: Path) -> None:
    one, other = str(tmp_path / "one.dlreg"), str(tmp_path / "other.dlreg")
    many = [_operator(f"mine::n{at:03}(Tensor x) -> Tensor", _MINE) for at in range(200)]
    changed, moved = (_operator(f"mine::z() -> {result}", _MINE) for result in ("()", "Tensor"))
    went = _operator("mine::y() -> ()", _MINE)
    save_registry(registry_of("2.13.0", (changed, went)), one)
    save_registry(registry_of("2.13.0", (*many, moved)), other)
    text = diffed(one, other)[1]
    assert "schemas: 1 changed; 1 break callers, such as mine::z\n" in text
    assert (
        "  mine::z\n      breaks callers: it returned nothing and returns 1 value\n      returns `()` -> `Tensor`\n"
        in text
    )
    assert "... and 190 more: see --all\n" in text
    assert len(text.splitlines()) < 40
    for asked in ("--all", "--operator=*"):
        assert diffed(one, other, asked)[1].count("mine::n") == 200
    assert len(json.loads(diffed(one, other, "--format", "json")[1])["upgrade"]["added"]) == 200


def test_what_is_printed_from_a_record_is_what_the_engine_prints_after_a_replay() -> None:
    for name in bundled_names():
        recorded = open_bundled(name)
        some = recorded.names[:: len(recorded.names) // 12]
        held = bench(recorded, operators=some)
        for one in some:
            operator = recorded.operator(one)
            assert operator is not None
            assert recorded_text(recorded, operator) == operator_text(held.dispatcher.snapshot(operator.name))


def test_a_text_of_a_bundled_operator_needs_no_engine() -> None:
    program = "import sys; from dispatchlab.__main__ import run; sys.argv[1:] = ['dump', 'add.Tensor']; run()"
    program = f"import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); {program}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("name: aten::add.Tensor\n")
    loaded = set(done.stderr.split())
    assert not {"dispatchlab.engine.dispatcher", "dispatchlab.views.blocks", "numpy", "rich"} & loaded
    assert sum(one.startswith("dispatchlab.") for one in loaded) < 40
