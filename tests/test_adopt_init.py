"""`init` writes a folder with a scenario and its golden file, and a workflow, and adds options for pytest."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from dispatchlab._version import __version__
from dispatchlab.questions.setup import first_files
from dispatchlab.questions.setup.checkout import find_checkout
from dispatchlab.questions.setup.first_files import NothingToRecordError
from tests.command_line import run
from tests.scenario_texts import FIVE

REPOSITORY = "git+https://github.com/dispatchlab/dispatchlab"
OURS = REPOSITORY if ".dev" in __version__ else "dispatchlab"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "my-ops"\n')
    (tmp_path / "my_ops").mkdir()
    (tmp_path / "my_ops" / "__init__.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(first_files, "record_module", lambda name: FIVE)
    return tmp_path


def files(root: Path) -> dict[str, str]:
    return {path.relative_to(root).as_posix(): path.read_text() for path in root.rglob("*") if path.is_file()}


def test_a_first_run_writes_three_files_and_adds_the_options_of_pytest(checkout: Path) -> None:
    before = files(checkout)
    result = run("init", "--ci", "github")
    assert result.exit_code == 0, result.output
    after = files(checkout)
    assert sorted(after.keys() - before.keys()) == [
        ".github/workflows/dispatchlab.yml",
        "dispatch-scenarios/expect/my_ops.txt",
        "dispatch-scenarios/my_ops.yaml",
    ]
    assert after["my_ops/__init__.py"] == before["my_ops/__init__.py"]
    assert "verdict: order-independent" in after["dispatch-scenarios/expect/my_ops.txt"]
    workflow = after[".github/workflows/dispatchlab.yml"]
    assert "dispatchlab check my_ops" in workflow
    assert 'run: pip install "$TORCH" --index-url' in workflow
    assert f"      - run: pip install . {OURS} pytest\n" in workflow
    assert "  edited  pyproject.toml" in result.stdout
    assert result.stdout.endswith(
        "  dispatchlab check my_ops\n"
        "  dispatchlab check my_ops --write-baseline FILE  # if it has findings that you accept\n"
    )
    assert after["pyproject.toml"] == before["pyproject.toml"] + (
        "\n[tool.pytest.ini_options]\n"
        'dispatchlab_scenarios = ["dispatch-scenarios"]\n'
        'dispatchlab_expect = "dispatch-scenarios/expect"\n'
        'dispatchlab_records = ["dispatch-scenarios/my_ops.yaml"]\n'
    )


@pytest.mark.parametrize(
    ("installed", "requirement"),
    [("2.13.0+cpu", "torch==2.13.0"), (None, "torch"), ("2.15.0.dev20260101+cpu", "torch")],
)
def test_the_workflow_has_the_version_of_the_installed_pytorch(
    installed: str | None, requirement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_files, "installed_torch", lambda: installed)
    text = first_files.workflow("scenarios", "my_ops", sarif=False)
    assert yaml.safe_load(text)["env"] == {"TORCH": requirement}


@pytest.mark.parametrize(("version", "ours"), [("1.0.0", "dispatchlab"), ("1.0.1.dev3+gabc", REPOSITORY)])
def test_the_workflow_installs_a_release_by_name_and_else_the_repository(
    version: str, ours: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_files, "__version__", version)
    assert f"      - run: pip install . {ours} pytest\n" in first_files.workflow("scenarios", "my_ops", sarif=False)


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        ("pyproject.toml", "", "[tool.pytest.ini_options]  # of pytest\n{toml}addopts = '-q'  # quiet\n"),
        ("pyproject.toml", "[project]\r\nname = 'x'\r\n\r\n", "[tool.pytest.ini_options]\r\n{toml}x = 1\r\n"),
        ("pytest.ini", "", "[pytest]\n{ini}addopts = -q\n    -x\n# the end\n"),
        ("pytest.ini", "", "[pytest]\n{ini}"),
        ("tox.ini", "[tox]\nenvlist = py\n\n", "[pytest]\n{ini}testpaths = tests\n"),
        ("setup.cfg", "[metadata]\nname = my-ops\n", "[tool:pytest]\n{ini}testpaths = tests\n"),
        ("pyproject.toml", "# [tool.pytest.ini_options]\n", "[tool.pytest]\n{toml}addopts = ['-q']\n"),
    ],
)
def test_options_are_added_where_pytest_reads_them_and_all_else_is_kept(
    checkout: Path, file: str, before: str, after: str
) -> None:
    end = "\r\n" if "\r\n" in after else "\n"
    ini = (
        f"dispatchlab_scenarios = dispatch-scenarios{end}dispatchlab_expect = dispatch-scenarios/expect{end}"
        f"dispatchlab_records = dispatch-scenarios/my_ops.yaml{end}"
    )
    toml = (
        f'dispatchlab_scenarios = ["dispatch-scenarios"]{end}dispatchlab_expect = "dispatch-scenarios/expect"{end}'
        f'dispatchlab_records = ["dispatch-scenarios/my_ops.yaml"]{end}'
    )
    (checkout / file).write_bytes((before + after.format(ini="", toml="")).encode())
    result = run("init", "my_ops")
    assert result.exit_code == 0, result.output
    assert (checkout / file).read_bytes().decode() == before + after.format(ini=ini, toml=toml)
    assert "Add to" not in result.stdout
    assert "Change in" not in result.stdout
    again = files(checkout)
    run("init", "my_ops")
    assert files(checkout) == again


def test_a_section_that_is_written_in_another_way_is_left_to_the_user(checkout: Path) -> None:
    text = "[tool.pytest]\nini_options.addopts = '-q'\n"
    (checkout / "pyproject.toml").write_text(text)
    result = run("init", "my_ops")
    assert (checkout / "pyproject.toml").read_text() == text
    assert (
        "Add to [tool.pytest.ini_options] in pyproject.toml:\n"
        '  dispatchlab_scenarios = ["dispatch-scenarios"]\n'
        '  dispatchlab_expect = "dispatch-scenarios/expect"\n'
        '  dispatchlab_records = ["dispatch-scenarios/my_ops.yaml"]\n'
    ) in result.stdout


def test_a_checkout_without_workflows_is_told_of_the_option(checkout: Path) -> None:
    assert "note: no CI workflow, since there is no .github folder: dispatchlab init --ci github" in run("init").stderr
    assert "no CI workflow" not in run("init", "--ci", "none").stderr
    (checkout / ".github").mkdir()
    assert "no CI workflow" not in run("init").stderr


def test_a_folder_of_scenarios_is_used_and_nothing_is_installed_where_there_is_no_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.yaml").write_text(FIVE)
    (tmp_path / "rules").mkdir()
    for name in ("one", "two"):
        (tmp_path / "rules" / f"{name}.yaml").write_text(FIVE)
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]\nline-length = 100\n")
    result = run("init", "--ci", "github")
    assert result.exit_code == 0, result.output
    assert "example" not in result.output
    assert {name for name in files(tmp_path) if name.startswith("rules/")} == {
        "rules/one.yaml",
        "rules/two.yaml",
        "rules/expect/one.txt",
        "rules/expect/two.txt",
    }
    assert 'dispatchlab_scenarios = ["rules"]' in (tmp_path / "pyproject.toml").read_text()
    workflow = (tmp_path / ".github" / "workflows" / "dispatchlab.yml").read_text()
    assert f"      - run: pip install {OURS} pytest\n      - run: pytest rules\n" in workflow
    again = run("init", "--ci", "github")
    assert (again.exit_code, "wrote" in again.stdout, "edited" in again.stdout) == (0, False, False)


def test_a_second_run_keeps_what_is_there(checkout: Path) -> None:
    run("init")
    scenario = checkout / "dispatch-scenarios" / "my_ops.yaml"
    scenario.write_text(FIVE.replace("claim: ", "claim: Mine. "))
    assert "kept" in run("init").stdout
    assert "Mine." in scenario.read_text()


@pytest.mark.parametrize("record", ["dispatch/a.yaml", "dispatch"])
def test_the_folder_that_pytest_has_is_used_and_other_records_are_kept(checkout: Path, record: str) -> None:
    text = f"[pytest]\ndispatchlab_scenarios = dispatch\ndispatchlab_expect = gold\ndispatchlab_records = {record}\n"
    (checkout / "pytest.ini").write_text(text)
    result = run("init")
    assert (checkout / "pytest.ini").read_text() == text
    change = "Change in pytest.ini:\n  dispatchlab_records = dispatch/a.yaml dispatch/my_ops.yaml\n"
    assert (change in result.stdout) is (record != "dispatch")
    assert {"dispatch/my_ops.yaml", "gold/my_ops.txt"} <= files(checkout).keys()


def test_without_a_record_the_first_scenario_is_an_example(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> str:
        raise NothingToRecordError(name)

    monkeypatch.setattr(first_files, "record_module", nothing)
    result = run("init")
    assert "importing my_ops registers nothing" in result.stderr
    assert "dispatch-scenarios/example.yaml" in files(checkout)
    assert run("init", "my_ops").exit_code == 2


def test_a_workflow_without_a_module_gets_the_check_of_the_module_unless_somebody_edited_it(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(name: str) -> str:
        raise NothingToRecordError(name)

    path = checkout / ".github" / "workflows" / "dispatchlab.yml"
    with monkeypatch.context() as patch:
        patch.setattr(first_files, "record_module", nothing)
        run("init", "--ci", "github")
    before = path.read_text()
    assert "dispatchlab check" not in before
    path.write_text(f"# Mine.\n{before}")
    run("init", "my_ops", "--ci", "github")
    assert path.read_text() == f"# Mine.\n{before}"
    path.write_text(before)
    assert "edited  .github/workflows/dispatchlab.yml" in run("init", "my_ops", "--ci", "github").stdout
    assert "run: dispatchlab check my_ops" in path.read_text()


@pytest.mark.parametrize("text", ["[pytest\n", "[tool.pytest]\nx = [\n"])
def test_a_configuration_that_cannot_be_read_is_a_sentence(checkout: Path, text: str) -> None:
    (checkout / ("pytest.ini" if text.startswith("[pytest") else "pyproject.toml")).write_text(text)
    result = run("init")
    assert result.exit_code == 2
    assert "cannot be read" in result.stderr


@pytest.mark.parametrize("ci", ["github", "sarif"])
def test_the_tests_of_the_workflow_run_after_a_finding_and_an_upload_alone_needs_a_permission(
    checkout: Path, ci: str
) -> None:
    run("init", "--ci", ci)
    workflow = yaml.safe_load((checkout / ".github" / "workflows" / "dispatchlab.yml").read_text())
    assert ("security-events" in workflow["permissions"]) is (ci == "sarif")
    *_, tests = steps = workflow["jobs"]["dispatchlab"]["steps"]
    assert tests == {"run": "pytest dispatch-scenarios", "if": "always()"}
    (check,) = [step["run"] for step in steps if "dispatchlab check" in step.get("run", "")]
    assert check.startswith(f"dispatchlab check my_ops --format {ci}")


def test_the_root_of_the_file_system_is_a_checkout_like_any_folder() -> None:
    root = Path(Path.cwd().anchor)
    assert find_checkout(root).root == root


def test_the_action_installs_what_the_workflow_installs() -> None:
    action = (Path(__file__).parent.parent / "action.yml").read_text(encoding="utf-8")
    assert f"    default: {REPOSITORY}  # no index has a release\n" in action
