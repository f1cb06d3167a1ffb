"""The files around the code agree with each other: versions of Python, addresses, workflows, the list of changes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import click
import yaml

from dispatchlab.adopt.first_files import workflow
from dispatchlab.cli import COMMANDS, main

ROOT = Path(__file__).parents[1]
HOME = "https://github.com/dispatchlab/dispatchlab"
SITE = "https://dispatchlab.github.io/dispatchlab/"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def loaded(name: str) -> Any:
    """A YAML file of the project; `on` is a key of workflows that YAML reads as True."""
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_the_versions_of_python_are_those_that_are_tested() -> None:
    named = [text.rpartition(" ")[2] for text in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", text)]
    assert loaded(".github/workflows/test.yml")["jobs"]["quick"]["strategy"]["matrix"]["python"] == named
    assert PROJECT["requires-python"] == f">={named[0]}"
    assert named == ["3.11", "3.12", "3.13", "3.14"]


def test_every_address_is_of_the_same_home() -> None:
    assert PROJECT["urls"]
    assert {name for name, url in PROJECT["urls"].items() if not url.startswith(HOME)} == {"Documentation"}
    assert PROJECT["urls"]["Documentation"] == loaded("mkdocs.yml")["site_url"] == SITE
    assert loaded("CITATION.cff")["repository-code"] == HOME
    for name in ("SECURITY.md", ".github/ISSUE_TEMPLATE/config.yml", "docs/ci.md"):
        found = re.findall(r"https://github\.com/[\w-]+/[\w-]+", (ROOT / name).read_text(encoding="utf-8"))
        assert set(found) == {HOME}
    assert loaded("CITATION.cff")["license"] == PROJECT["license"]


def test_the_page_on_security_names_each_way_to_have_code_run() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    ways = set()
    with main.make_context("dispatchlab", ["--no-color", "check"], resilient_parsing=True) as context:
        for name in COMMANDS:
            command = main.get_command(context, name)
            assert command is not None
            for each in command.params:
                if re.search(r"PACKAGE|MODULE|FILE\.py", each.metavar or ""):
                    ways.add(each.opts[-1] if isinstance(each, click.Option) else name)
    assert ways >= {"--import", "--program", "--from-program", "check", "init", "record", "trace"}
    assert [way for way in ways if not re.search(rf"[` ]{way}\b", text)] == []


def test_the_release_publishes_without_a_token_and_what_was_built() -> None:
    jobs = loaded(".github/workflows/release.yml")["jobs"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["needs"] == "build"
    assert "secrets." not in (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")


def test_the_release_finds_the_section_of_its_version_in_the_list_of_changes() -> None:
    (step,) = (
        step for step in loaded(".github/workflows/release.yml")["jobs"]["build"]["steps"] if "CHANGELOG" in str(step)
    )
    assert step["run"] == 'grep -q "^## ${GITHUB_REF_NAME#v}\\b" CHANGELOG.md'
    sections = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sections[0] == "Unreleased"
    assert all(re.match(r"\d+\.\d+\.\d+\b", section) for section in sections[1:])


def test_actions_are_pinned_by_commit_and_what_builds_a_release_by_hash() -> None:
    files = [*(ROOT / ".github" / "workflows").glob("*.yml"), ROOT / "action.yml", ROOT / "docs" / "ci.md"]
    text = "\n".join(file.read_text(encoding="utf-8") for file in files) + workflow("a", "a/b.yaml", "b")
    used = [each for each in re.findall(r"uses: (.*)", text) if each != "dispatchlab/dispatchlab@main"]
    assert len(used) > 15
    assert [each for each in used if not re.fullmatch(r"[\w-]+/[\w/-]+@[0-9a-f]{40}  # v[\d.]+", each)] == []
    by_hash = "pip install --require-hashes -r .github/build.txt"
    release = [step.get("run", "") for step in loaded(".github/workflows/release.yml")["jobs"]["build"]["steps"]]
    assert release.index(by_hash) < release.index("python -m build --no-isolation")
    pinned = (ROOT / ".github" / "build.txt").read_text(encoding="utf-8")
    named = {line for line in (ROOT / ".github" / "build.in").read_text().splitlines() if not line.startswith("#")}
    required = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    assert {re.split("[>=]", each)[0] for each in required} | {"build", "uv"} == named
    assert named <= set(re.findall(r"^([\w-]+)==", pinned, re.MULTILINE))
    assert all("--hash=sha256:" in each for each in re.split(r"\n(?=\S)", pinned.strip()))


def test_the_lowest_versions_of_all_dependencies_are_tested_and_each_has_a_bound() -> None:
    steps = [step.get("run", "") for step in loaded(".github/workflows/test.yml")["jobs"]["lowest"]["steps"]]
    assert steps[-2:] == ["uv pip install --system --resolution lowest-direct -e .[test]", "pytest"]
    asked = [*PROJECT["dependencies"], *(each for some in PROJECT["optional-dependencies"].values() for each in some)]
    assert [each for each in asked if ">=" not in each and not each.startswith("dispatchlab[")] == []


def test_no_input_or_name_of_a_branch_is_put_into_a_script() -> None:
    workflows = [loaded(f".github/workflows/{name}.yml")["jobs"].values() for name in ("test", "release", "site")]
    steps = [step for jobs in workflows for job in jobs for step in job["steps"]]
    steps += loaded("action.yml")["runs"]["steps"]
    scripts = [step["run"] for step in steps if "run" in step]
    assert len(scripts) > 8
    assert [script for script in scripts if "${{" in script] == []


def test_the_workflow_that_init_writes_runs_commands_that_exist() -> None:
    for module in ("my_package", None):
        text = workflow("tests/dispatch-scenarios", "tests/dispatch-scenarios/my_package.yaml", module)
        steps = yaml.safe_load(text)["jobs"]["dispatchlab"]["steps"]
        scripts = [step["run"] for step in steps if "run" in step]
        named = {line.split()[1] for line in scripts if line.startswith("dispatchlab ")}
        assert named <= set(COMMANDS)
        assert bool(named) is (module is not None)
        assert "pytest tests/dispatch-scenarios" in scripts
