"""What CONTRIBUTING.md promises about adding to the project: a change is made in one place, and the rest is derived."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import replace
from pathlib import Path

import click
import pytest

from dispatchlab.cli import COMMANDS
from dispatchlab.commands.output import FOR_READING, FORMATS
from dispatchlab.model.keys import BACKENDS, DEVICE_OF_BACKEND
from dispatchlab.model.profile import bundled_profiles
from dispatchlab.questions.lint import kernel_rules
from dispatchlab.questions.lint.rules import FAMILIES, RULES, every_rule
from dispatchlab.records.file import bundled_names, open_bundled
from tests.histories.file import file_of
from tests.recorded_tables import PRINTED
from tests.test_cli_help import command
from tools.add_version import FIGURES, PAGES, PROFILES, STEPS
from tools.library_rules import known, with_version

ROOT = Path(__file__).parents[1]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def row(wish: str) -> str:
    """Where CONTRIBUTING's table sends one who wants this."""
    (place,) = re.findall(rf"^\| {re.escape(wish)} \| (.*) \|$", CONTRIBUTING, re.MULTILINE)
    return str(place)


# -- a PyTorch


def test_the_steps_that_add_a_pytorch_are_those_of_contributing() -> None:
    assert "nothing is edited by hand" in row("add a PyTorch")
    table = CONTRIBUTING.partition("| step | does | writes |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == [*STEPS]
    paths = re.findall(r"`((?:dispatchlab|tests|docs)/[^`]*)`", table)
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert len(paths) >= 6
    assert all((ROOT / "tools" / f"{name}.py").exists() for name in PAGES)


def test_every_pytorch_has_each_thing_that_is_measured() -> None:
    models = bundled_profiles()
    for name in models:
        for file in (PROFILES / f"{name}.json", FIGURES / f"{name}.json", file_of(name)):
            assert file.exists(), file
        assert name in bundled_names()
        assert open_bundled(name).python is not None
        assert name in PRINTED
    assert len(models) >= 12


def test_figures_have_nothing_of_the_moment_in_them() -> None:
    measured = {"torch", "keys", "slots", "fallbacks", "operators", "kernels", "histories", "scenarios", "commands"}
    measured |= {"verdicts", "modes"}
    of_histories = {"torch", "slots", "histories", "steps", "stale", "refusals", "differences"}
    for file in FIGURES.glob("*.json"):
        figures = json.loads(file.read_text(encoding="utf-8"))
        assert {*figures} <= measured, file
        assert {*figures["histories"]} == of_histories, file


def test_no_text_ends_a_span_of_versions_with_the_newest_but_those_that_are_made() -> None:
    """A page that says `2.4 to X` has to be edited for each version, unless a tool writes it."""
    newest = bundled_profiles()[-1].removeprefix("torch-")
    made = {
        "docs/defects.md",
        "docs/defects/changes.md",
        "docs/python_defects.md",
        "docs/pictures/terminal/dump_across.svg",
    }
    folders = (ROOT / folder for folder in ("dispatchlab", "docs", "tools", "examples"))
    files = [ROOT / "README.md", *(file for folder in folders for file in folder.rglob("*.*"))]
    texts = [file for file in files if file.suffix in (".md", ".py", ".svg", ".yaml")]
    span = re.compile(rf"2\.4`? to `?(torch-)?{re.escape(newest)}\b")
    found = {str(file.relative_to(ROOT)) for file in texts if span.search(file.read_text(encoding="utf-8"))}
    assert found - made == set()
    assert len(texts) > 400
    assert "docs/defects.md" in found


def test_a_version_that_is_measured_again_leaves_the_rules_of_python_as_they_are() -> None:
    versions = {version for outcomes in known().values() for has in outcomes.values() for version in has}
    assert len(versions) >= 8
    for version in versions:
        measured = {
            rule: text for rule, outcomes in known().items() for text, has in outcomes.items() if version in has
        }
        without = {
            rule: {text: [one for one in has if one != version] for text, has in outcomes.items()}
            for rule, outcomes in known().items()
        }
        again = with_version(
            {rule: {t: has for t, has in of.items() if has} for rule, of in without.items()}, version, measured
        )
        assert json.dumps(again) == json.dumps(known()), version


# -- a lint rule


def test_a_lint_rule_is_added_in_the_module_of_its_family_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "the rest is derived" in row("add a lint rule")
    rule = replace(RULES[0], code="DL999", name="made-up")
    monkeypatch.setattr(kernel_rules, "MADE_UP", rule, raising=False)
    assert every_rule() == (*RULES, rule)


def test_no_code_names_a_lint_rule_but_its_family() -> None:
    families = {Path(str(module.__file__)) for module in FAMILIES}
    folder = ROOT / "dispatchlab" / "questions"
    others = [file for file in (*folder.rglob("*.py"), *(ROOT / "tools").glob("site*.py")) if file not in families]
    names = re.compile(
        rf"\b({'|'.join(rule.code for rule in RULES[1:])})\b|\"({'|'.join(rule.name for rule in RULES)})\""
    )
    assert [file.name for file in others if names.search(file.read_text(encoding="utf-8"))] == []
    assert {file.stem for file in folder.glob("lint/*_rules.py")} == {file.stem for file in families}
    assert len(others) > 50


# -- a dispatch key, an output format


def modules_with(*words: str) -> set[str]:
    """The modules of the package whose code has one of these words as a name, an attribute or a text."""
    found = set()
    for file in (ROOT / "dispatchlab").rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        if any(word in text for word in words):
            nodes = list(ast.walk(ast.parse(text)))
            texts = {node.value for node in nodes if isinstance(node, ast.Constant)}
            names = {getattr(node, "attr", getattr(node, "id", getattr(node, "name", None))) for node in nodes}
            if {*words} & (texts | names):
                found.add(file.relative_to(ROOT).as_posix())
    return found


def test_a_backend_is_named_where_contributing_says_and_nowhere_else() -> None:
    assert "the rest is data of the profiles" in row("add a dispatch key")
    places = {*re.findall(r"`(dispatchlab/[^`]*\.py)`", row("add a dispatch key"))}
    assert modules_with("MTIA", "mtia") == places
    assert {*DEVICE_OF_BACKEND} > {*BACKENDS} - {"PrivateUse2", "PrivateUse3"}
    assert len(places) == 6


def test_an_output_format_is_named_where_contributing_says_and_every_command_takes_it() -> None:
    places = {*re.findall(r"`(dispatchlab/[^`]*\.py)`", row("add an output format"))}
    assert modules_with("markdown") - {"dispatchlab/questions/lint/sarif.py"} == places  # a field of SARIF is called so
    taken = {
        name: option.type.choices
        for name in COMMANDS
        for option in command(name).params
        if option.name == "format" and isinstance(option.type, click.Choice)
    }
    whole = {name for name, choices in taken.items() if {*choices} > {*FOR_READING, "json"}}
    assert [name for name in whole if tuple(taken[name])[: len(FORMATS)] != FORMATS] == []
    assert len(whole) >= 10
