"""Every way a scenario file can be wrong, and what is said about it. A case is a file in tests/data/scenarios_bad."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path

import pytest

from dispatchlab.model.registration import SourceLocation
from dispatchlab.scenario import Problem, ScenarioError, load_scenario, parse_scenario
from dispatchlab.scenario.load import MAX_BYTES

BAD = Path(__file__).parent / "data" / "scenarios_bad"
CASES = sorted(BAD.glob("*.yaml"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_every_problem_of_a_bad_file_is_reported_with_its_source_location(path: Path) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(path.read_bytes(), file=path.name)
    printed = f"{caught.value}\n"
    golden = path.with_suffix(".txt")
    if os.environ.get("EXPECTTEST_ACCEPT"):
        golden.write_text(printed, encoding="utf-8")
    assert printed == golden.read_text(encoding="utf-8")


def test_each_bad_file_has_a_text_and_each_text_a_file() -> None:
    assert len(CASES) >= 38
    assert {path.stem for path in CASES} == {path.stem for path in BAD.glob("*.txt")}


def test_a_missing_file_names_the_nearest_one(tmp_path: Path) -> None:
    (tmp_path / "two_kernels.yaml").write_text("claim: A")
    path = tmp_path / "two_kernel.yaml"
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path)
    expected = Problem(str(path), "there is no such file", f"did you mean {tmp_path / 'two_kernels.yaml'}?")
    assert caught.value.problems == (expected,)
    assert str(caught.value) == f"{path}: there is no such file; did you mean {tmp_path / 'two_kernels.yaml'}?"


def test_the_name_of_a_device_is_answered_with_private_use_1() -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario("claim: A\nregistrations:\n  - impl: test::foo\n    dispatch: npu\n")
    assert caught.value.problems[0].hint == "for a device of your own, write PrivateUse1"


def test_a_folder_is_refused_with_a_file_in_it_or_the_command_that_records_it(tmp_path: Path) -> None:
    folder = tmp_path / "npukit"
    folder.mkdir()
    (folder / "one.yaml").touch()
    with pytest.raises(ScenarioError) as caught:
        load_scenario(folder)
    assert caught.value.problems[0].hint == f"name a file in it, such as {folder / 'one.yaml'}"
    (folder / "__init__.py").touch()
    with pytest.raises(ScenarioError) as caught:
        load_scenario(folder)
    assert caught.value.problems[0].hint == "record it first: dispatchlab record npukit -o npukit.yaml"


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        (".", "expected a file but found a folder", "name a file in it"),
        ("a\0b", "the file cannot be read: embedded null byte", ""),
        ("file/under/a_file", "the file cannot be read: Not a directory", ""),
        (
            "shop_ops",
            "there is no such file",
            "no package of this name is installed; install one in its checkout with `pip install -e .`",
        ),
        ("no/such/folder", "there is no such file", "the folder {} cannot be listed"),
    ],
)
def test_what_is_no_file_is_a_problem_without_a_line(tmp_path: Path, name: str, message: str, hint: str) -> None:
    (tmp_path / "file").write_text("claim: A")
    path = os.path.join(tmp_path, name)
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path)
    assert caught.value.problems == (Problem(path, message, hint.format(Path(path).parent)),)


def test_a_file_without_end_is_refused() -> None:
    with pytest.raises(ScenarioError, match="it is a device, which may have no end: name a file or a pipe"):
        load_scenario("/dev/zero")
    assert MAX_BYTES == 16 * 2**20


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("claim: A")
    path.chmod(0)
    with pytest.raises(ScenarioError, match="the file cannot be read: Permission denied"):
        load_scenario(path)


MODULES = {
    "scenario_raises": "raise RuntimeError('no\\nway')",
    "scenario_exits": "import sys; sys.exit(3)",
    "scenario_kernels": "limit = 3\ndef kernel(x): return x",
}


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("scenario_raises:f", "importing scenario_raises failed with RuntimeError: no way"),
        ("scenario_exits:f", "importing scenario_exits failed with SystemExit: 3"),
        ("scenario_gone:f", "importing scenario_gone failed with ModuleNotFoundError: No module named"),
        ("scenario_kernels:kernal", "scenario_kernels has no kernal; did you mean kernel?"),
        ("scenario_kernels:limit", "expected a function but scenario_kernels:limit is of type int"),
    ],
)
def test_a_failing_import_is_a_problem_with_its_source_location(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: str, message: str
) -> None:
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    text = f"{{claim: A, registrations: [{{impl: foo, kernel: '{reference}'}}]}}"
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, file="a.yaml", allow_import=True)
    (problem,) = caught.value.problems
    start = text.index("'") + 1
    inside = message.startswith(("scenario_kernels has", "expected"))
    at = start + (1 + len("scenario_kernels:") if inside else 0)
    assert problem.where == SourceLocation("a.yaml", 1, at)
    assert message in str(problem)


def test_nothing_is_imported_unless_it_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scenario_unwanted.py").write_text("def f(x): return x")
    monkeypatch.syspath_prepend(str(tmp_path))
    text = "{claim: A, registrations: [{impl: foo, kernel: 'scenario_unwanted:f'}]}"
    with pytest.raises(ScenarioError, match="imports scenario_unwanted, which runs its code; allow it with"):
        parse_scenario(text)
    assert "scenario_unwanted" not in sys.modules


def test_the_error_survives_pickling() -> None:
    error = ScenarioError((Problem(SourceLocation("a.yaml", 1, 2), "wrong", "do it right"),))
    again = pickle.loads(pickle.dumps(error))
    assert (again.problems, str(again)) == (error.problems, "a.yaml:1:2: wrong; do it right")
