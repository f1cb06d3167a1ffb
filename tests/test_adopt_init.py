"""`dispatchlab init`: the checkout, pytest's configuration, and the plan; recording is a stand-in here."""

from __future__ import annotations

import tomllib
from configparser import ConfigParser
from dataclasses import replace
from pathlib import Path

import pytest

from dispatchlab.adopt import first_files
from dispatchlab.adopt.checkout import find_checkout
from dispatchlab.adopt.first_files import NothingToRecordError
from dispatchlab.adopt.pytest_option import ConfigEditError, pytest_config
from dispatchlab.pytorch.bridge.torch import ImportFailedError, TorchMissingError
from dispatchlab.questions.order.golden import golden
from dispatchlab.scenario.load import load_scenario
from tests.command_line import run

RECORD = """\
claim: What importing my_package registers does not depend on its order.
namespace: mine
registrations:
  - def: foo(Tensor x) -> Tensor
  - {impl: foo, dispatch: CPU, debug: fn_cpu}
"""
FOLDER = "tests/dispatch-scenarios"
TWO_AT_ONE_KEY = RECORD + "  - {impl: foo, dispatch: CPU, debug: fn_other}\n"
PROJECT = '[project]\nname = "my-package"\nversion = "1"\n'


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The checkout of a package, which is the current folder; it records as `RECORD`."""
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "__init__.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(first_files, "record_module", lambda name: RECORD)
    return tmp_path


def files(root: Path) -> dict[str, str]:
    """Every file with its text."""
    return {path.relative_to(root).as_posix(): path.read_text() for path in sorted(root.rglob("*")) if path.is_file()}


def test_it_writes_a_scenario_its_golden_file_and_the_options(checkout: Path) -> None:
    result = run("init")
    assert (result.exit_code, result.stderr) == (0, "")
    written = files(checkout)
    assert sorted(written) == [
        "my_package/__init__.py",
        "pyproject.toml",
        f"{FOLDER}/expect/my_package.txt",
        f"{FOLDER}/my_package.yaml",
    ]
    assert written[f"{FOLDER}/my_package.yaml"].endswith(RECORD)
    assert (
        "verdict: order-independent (strict, an idealised dispatcher)\n" in written[f"{FOLDER}/expect/my_package.txt"]
    )
    assert written["pyproject.toml"].startswith(PROJECT)
    assert tomllib.loads(written["pyproject.toml"])["tool"]["pytest"]["ini_options"] == {
        "dispatchlab_scenarios": [FOLDER],
        "dispatchlab_expect": f"{FOLDER}/expect",
        "dispatchlab_records": [f"{FOLDER}/my_package.yaml"],
    }
    assert result.stdout.splitlines()[1:] == [
        f"  edited  pyproject.toml{' ' * 34}pytest collects the scenarios in {FOLDER}",
        f"  wrote   {FOLDER}/my_package.yaml{' ' * 8}what importing the package registers",
        f"  wrote   {FOLDER}/expect/my_package.txt  its golden file",
        "Next:",
        f"  pytest {FOLDER}",
        "  dispatchlab check my_package",
    ]


def test_a_second_run_writes_nothing(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("init", "--ci", "github")
    before = files(checkout)
    monkeypatch.setattr(first_files, "record_module", lambda name: pytest.fail("it was recorded again"))
    again = run("init", "--ci", "github")
    assert (again.exit_code, files(checkout)) == (0, before)
    assert again.stdout.count("  kept  ") == len(before) - 1 == 4


def test_a_dry_run_writes_nothing_and_says_what_it_would(checkout: Path) -> None:
    before = files(checkout)
    result = run("init", "--dry-run", "--ci", "github")
    assert files(checkout) == before
    assert [line.split()[:2] for line in result.stdout.splitlines()[1:5]] == [
        ["would", "edit"],
        *[["would", "write"]] * 3,
    ]


def test_what_exists_is_kept_unless_forced(checkout: Path) -> None:
    run("init", "--ci", "github")
    scenario, golden = checkout / FOLDER / "my_package.yaml", checkout / FOLDER / "expect" / "my_package.txt"
    workflow = checkout / ".github" / "workflows" / "dispatchlab.yml"
    scenario.write_text(RECORD.replace("fn_cpu", "changed"))
    golden.unlink()
    workflow.write_text("mine")
    run("init", "--ci", "github")
    assert "changed" in scenario.read_text()
    assert "changed" in golden.read_text()
    assert workflow.read_text() == "mine"
    forced = run("init", "--ci", "github", "--force")
    assert forced.stdout.count("  replaced  ") == 3
    assert "fn_cpu" in scenario.read_text()
    assert "fn_cpu" in golden.read_text()
    assert workflow.read_text().startswith("# What importing")


def test_registrations_whose_order_matters_are_said_loudly_and_accepted_by_name_alone(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_files, "record_module", lambda name: TWO_AT_ONE_KEY)
    for _ in range(2):  # written, and kept
        result = run("init")
        assert result.exit_code == 1
        assert f"so the test of {FOLDER}/my_package.yaml fails until you decide:\n" in result.stdout
    scenario = checkout / FOLDER / "my_package.yaml"
    assert "expect:" not in scenario.read_text()
    assert run("permute", f"{FOLDER}/my_package.yaml").exit_code == 1
    scenario.write_text(scenario.read_text().replace("namespace:", "expect: order-dependent\nnamespace:"))
    assert run("permute", f"{FOLDER}/my_package.yaml").exit_code == 0
    accepted = run("init")
    assert (accepted.exit_code, "fails until" in accepted.stdout) == (0, False)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (TorchMissingError(), "the live engine needs PyTorch"),
        (ImportFailedError("my_package", "ImportError: x"), "my_package cannot be imported: ImportError: x"),
        (NothingToRecordError("my_package"), "importing my_package registers nothing"),
    ],
)
def test_without_a_record_the_scenario_is_an_example_and_the_reason_is_said(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    def fail(name: str) -> str:
        raise error

    monkeypatch.setattr(first_files, "record_module", fail)
    result = run("init", "--ci", "github")
    assert result.exit_code == 0
    assert f"note: the first scenario is an example, and not a record of your package: {reason}" in result.stderr
    scenario = checkout / FOLDER / "example.yaml"
    assert "demo" in scenario.read_text()
    shown = replace(load_scenario(scenario), file=f"{FOLDER}/example.yaml")
    assert (checkout / FOLDER / "expect" / "example.txt").read_text() == golden(shown)[1]
    assert "MODULE" not in result.stdout
    assert "lint live" not in (checkout / ".github" / "workflows" / "dispatchlab.yml").read_text()


def test_a_module_that_is_named_must_be_recorded(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> str:
        raise ImportFailedError(name, "ImportError: x")

    monkeypatch.setattr(first_files, "record_module", fail)
    before = files(checkout)
    result = run("init", "my_package.ops")
    assert (result.exit_code, files(checkout)) == (2, before)
    assert "my_package.ops cannot be imported" in result.stderr


def test_a_folder_that_is_configured_already_is_used(checkout: Path) -> None:
    (checkout / "pyproject.toml").write_text(f'{PROJECT}[tool.pytest.ini_options]\ndispatchlab_scenarios = ["a"]\n')
    before = (checkout / "pyproject.toml").read_text()
    assert run("init").exit_code == 0
    record = 'dispatchlab_records = ["a/my_package.yaml"]\n'
    assert (checkout / "pyproject.toml").read_text().replace(record, "") == before
    assert (checkout / "a" / "my_package.yaml").exists()
    assert (checkout / "expect" / "my_package.txt").exists()


@pytest.mark.parametrize(
    ("conftest", "folders", "expected"),
    [
        ("import pytest\n", ["tests"], "tests/dispatch-scenarios"),
        ("def pytest_runtest_call(item):\n    pass\n", ["tests"], "dispatch-scenarios"),
        ("    def pytest_collection_modifyitems(items):\n", ["test"], "dispatch-scenarios"),
        ("", ["test"], "test/dispatch-scenarios"),
        ("", ["test", "tests"], "tests/dispatch-scenarios"),
    ],
)
def test_the_folder_lies_below_the_tests_but_not_below_hooks_that_expect_functions(
    checkout: Path, conftest: str, folders: list[str], expected: str
) -> None:
    for folder in folders:
        (checkout / folder).mkdir()
        (checkout / folder / "conftest.py").write_text(conftest)
    assert run("init").exit_code == 0
    assert (checkout / expected / "expect" / "my_package.txt").exists()
    assert not Path(expected).name.isidentifier()


# -- the checkout


@pytest.mark.parametrize(
    ("project", "paths", "modules", "certain"),
    [
        (PROJECT, ["src/my_package/__init__.py"], ("my_package",), True),
        ('[project]\nname = "my-package"\n', ["my/package/__init__.py", "tests/__init__.py"], ("my.package",), True),
        ('[project]\nname = "torchother"\n', ["a/__init__.py", "docs/__init__.py"], ("a",), True),
        ('[project]\nname = "other"\n', ["a/__init__.py", "b/__init__.py"], ("a", "b"), False),
        (PROJECT, ["my_package.py"], ("my_package",), True),
        (PROJECT, [], (), False),
        ("not toml", ["a/__init__.py"], ("a",), True),
    ],
)
def test_the_modules_of_a_checkout(
    tmp_path: Path,
    project: str,
    paths: list[str],
    modules: tuple[str, ...],
    certain: bool,  # noqa: FBT001
) -> None:
    (tmp_path / "pyproject.toml").write_text(project)
    for name in paths:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "deep" / "er").mkdir(parents=True)
    found = find_checkout(tmp_path / "deep" / "er")
    assert (found.root, found.modules, found.certain) == (tmp_path, modules, certain)
    assert found.source == (tmp_path / "src" if (tmp_path / "src").is_dir() else tmp_path)


def test_the_name_is_also_read_from_setup_cfg_and_setup_py(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    (tmp_path / "setup.py").write_text("from setuptools import setup\nsetup(name='two')\n")
    assert find_checkout(tmp_path).modules[0] == "two"
    (tmp_path / "setup.cfg").write_text("[metadata]\nname = one\n")
    assert find_checkout(tmp_path).modules[0] == "one"


# -- pytest's configuration

OPTIONS: dict[str, str | list[str]] = {"dispatchlab_scenarios": ["a"], "dispatchlab_expect": "a/expect"}


@pytest.mark.parametrize(
    ("present", "edited"),
    [
        ({}, "pytest.ini"),
        ({"pyproject.toml": PROJECT}, "pyproject.toml"),
        ({"pyproject.toml": "", "pytest.ini": ""}, "pytest.ini"),
        ({"pyproject.toml": PROJECT, "setup.cfg": "[tool:pytest]\naddopts = -q\n"}, "setup.cfg"),
        ({"tox.ini": "[tox]\nenvlist = x\n", "setup.cfg": "[metadata]\n"}, "pytest.ini"),
        ({"tox.ini": "[pytest]\naddopts = -q\n", "setup.cfg": "[tool:pytest]\n"}, "tox.ini"),
        ({"pyproject.toml": "[tool.pytest.ini_options]\naddopts = '-q'\n", "tox.ini": "[pytest]\n"}, "pyproject.toml"),
        ({"pytest.toml": "[pytest]\naddopts = ['-q']\n", "pytest.ini": "[pytest]\n"}, "pytest.toml"),
    ],
)
def test_the_file_that_pytest_reads_is_edited(tmp_path: Path, present: dict[str, str], edited: str) -> None:
    for name, text in present.items():
        (tmp_path / name).write_text(text)
    config = pytest_config(tmp_path)
    assert config.path == tmp_path / edited
    config.path.write_text(config.with_options(OPTIONS))
    again = pytest_config(tmp_path)
    assert again.path == config.path
    assert set(OPTIONS) <= set(again.values())
    for line in present.get(edited, "").splitlines():
        assert line in again.path.read_text().splitlines()


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(
    "text",
    [
        "[tool.other]\nx = 1",
        "[tool.pytest.ini_options]",
        "[tool.pytest.ini_options]  # ours\naddopts = '''\n[tool.pytest.ini_options]\n'''\n",
        "[ tool . pytest . ini_options ]\naddopts = '-q'\n[tool.other]\nx = 1\n",
        "# a comment at the end",
    ],
)
def test_an_edit_changes_nothing_else(tmp_path: Path, text: str, newline: str) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_bytes(text.replace("\n", newline).encode())
    config = pytest_config(tmp_path)
    new = config.with_options(OPTIONS)
    before, after = tomllib.loads(config.text), tomllib.loads(new)
    options = after["tool"]["pytest"]["ini_options"]
    assert {name: options.pop(name) for name in OPTIONS} == OPTIONS
    before.setdefault("tool", {}).setdefault("pytest", {}).setdefault("ini_options", {})
    assert before == after
    assert new.replace("\r\n", "").count("\n") == (0 if newline == "\r\n" and "\n" in text else new.count("\n"))


def test_ini_files_keep_what_they_hold(tmp_path: Path) -> None:
    text = "# ours\n[pytest]\naddopts =\n    -q\n    -x\nfilterwarnings =\n    error\n"
    (tmp_path / "pytest.ini").write_text(text)
    new = pytest_config(tmp_path).with_options(OPTIONS)
    parser = ConfigParser()
    parser.read_string(new)
    assert dict(parser["pytest"]) == {
        "dispatchlab_scenarios": "a",
        "dispatchlab_expect": "a/expect",
        "addopts": "\n-q\n-x",
        "filterwarnings": "\nerror",
    }
    assert all(line in new.splitlines() for line in text.splitlines())


@pytest.mark.parametrize(
    "text",
    ["[tool.pytest]\nini_options = {addopts = '-q'}\n", "[tool]\npytest.ini_options.addopts = '-q'\n", "[tool\n"],
)
def test_a_configuration_that_cannot_be_edited_is_left_alone(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(ConfigEditError, match="was not changed"):
        pytest_config(tmp_path).with_options(OPTIONS)
