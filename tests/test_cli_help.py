"""Help, its copy in docs/cli.md, completion and the schema."""

from __future__ import annotations

import importlib
import json
import os
import re
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from dispatchlab import __version__
from dispatchlab.cli import main
from dispatchlab.commands.overview import COMMANDS, HIDDEN
from dispatchlab.errors import DispatchLabError
from tools.scenario_fields import scenario_fields

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "cli.md"
HEAD = """\
# The command line

<!-- Made from `--help`; `EXPECTTEST_ACCEPT=1 pytest tests/test_cli_help.py` writes it anew. -->

This page has the help of each command. The first help leaves out two commands: [`rule`](#dispatchlab-rule) prints the
page of a rule or a cause, and [`schema`](#dispatchlab-schema) prints the JSON Schema of scenario files.
"""


def commands() -> list[str]:
    """Every command."""
    return sorted((*COMMANDS, *HIDDEN))


def command(name: str) -> click.Command:
    """A command by its name."""
    found = main.get_command(click.Context(main), name)
    assert found is not None
    return found


def help_of(*arguments: str) -> str:
    """What `--help` prints, 80 columns wide."""
    result = CliRunner().invoke(main, [*arguments, "--help"], prog_name="dispatchlab", terminal_width=80)
    assert result.exit_code == 0
    return result.stdout


def test_the_page_about_the_command_line_is_made_from_help() -> None:
    parts = [HEAD, f"\n```\n{help_of()}```\n"]
    parts += [f"\n## `dispatchlab {name}`\n\n```\n{help_of(name)}```\n" for name in commands()]
    page = "".join(parts)
    if os.environ.get("EXPECTTEST_ACCEPT"):
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page


def test_the_page_about_scenarios_has_all_fields_of_the_schema() -> None:
    path, mark = ROOT / "docs" / "scenario_format.md", "<!-- the fields of scenario files -->\n"
    text = path.read_text(encoding="utf-8")
    page = f"{text.partition(mark)[0]}{mark}\n{scenario_fields()}"
    if os.environ.get("EXPECTTEST_ACCEPT"):
        path.write_text(page, encoding="utf-8")
        text = page
    assert text == page


def test_every_command_has_examples_and_every_option_is_explained() -> None:
    assert commands() == [
        "check",
        "codegen",
        "coverage",
        "demo",
        "diff",
        "doctor",
        "dump",
        "explain",
        "explore",
        "init",
        "permute",
        "record",
        "rule",
        "schema",
        "trace",
        "why",
    ]
    for name in commands():
        assert f"Examples:\n    dispatchlab {name}" in help_of(name)
        for parameter in command(name).params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"{name} {parameter.name}"


def test_every_line_of_the_list_of_commands_fits_and_no_command_is_named_otherwise() -> None:
    width = max(map(len, COMMANDS))
    for name, line in COMMANDS.items():
        assert command(name).name == name
        assert f"  {name:<{width}}  {line}\n" in help_of()
    assert "No such command 'nothing'" in CliRunner().invoke(main, ["nothing"]).stderr
    assert "No such command 'permut'. Did you mean 'permute'?" in CliRunner().invoke(main, ["permut"]).stderr


@pytest.mark.parametrize(
    ("former", "call"),
    [
        ("lint my_package --select DL004", "check my_package --select DL004 --only lint"),
        ("readiness my_package", "check my_package --run"),
        ("imports first second", "check first second --orders"),
        ("certify torch-2.13 --operator 'aten::*mm*'", "permute torch-2.13 --operator 'aten::*mm*'"),
        ("defects stale_slots", "doctor --defects stale_slots"),
        ("profile -o mine.json", "doctor --measure mine.json"),
        ("profile", "doctor --measure -"),
        ("lint --explain DL004", "rule DL004"),
    ],
)
def test_a_former_command_ends_with_the_call_that_replaces_it(former: str, call: str) -> None:
    result = CliRunner().invoke(main, shlex.split(former))
    assert (result.exit_code, result.stdout) == (2, "")
    said = " ".join(result.stderr.replace("│", " ").split())
    assert f"{former.split()[0]} has another name now: dispatchlab {call}" in said
    new = shlex.split(call)
    assert new[0] in (*COMMANDS, *HIDDEN)
    command(new[0]).make_context(new[0], new[1:], resilient_parsing=True)


def test_the_list_has_fourteen_commands() -> None:
    assert len(COMMANDS) == 14


@pytest.mark.parametrize("name", ["", *COMMANDS, *HIDDEN])
def test_the_short_help_fits_a_screen(name: str) -> None:
    arguments = [*([name] if name else []), "-h"]
    text = CliRunner().invoke(main, arguments, prog_name="dispatchlab", terminal_width=80).stdout
    assert len(text.splitlines()) <= 40
    assert all(len(line) <= 80 for line in text.splitlines() if "  dispatchlab " not in line)
    assert "Examples:\n" in text


def test_rare_options_are_a_group_of_the_whole_help_alone() -> None:
    short = CliRunner().invoke(main, ["permute", "-h"], terminal_width=80).stdout
    assert "--passes" not in short
    assert "\nBounds of the prover, and engines:\n" in help_of("permute")
    assert "  --passes N " in help_of("permute").partition("Bounds of the prover")[2]


def test_the_help_of_all_commands_needs_no_other_module() -> None:
    program = "import sys; from dispatchlab.__main__ import run; run(); print(sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program, "--help"], capture_output=True, text=True, check=True)
    assert done.stdout == help_of()
    assert not {"click", "numpy", "rich", "dispatchlab.cli"} & set(re.findall(r"'([\w.]+)'", done.stderr))


def test_the_exit_codes_of_the_help_are_all_that_there_are() -> None:
    (codes,) = re.findall(r"Exit codes: ([^.]*)\.", " ".join(help_of().split()))
    numbers = [int(part.split()[0]) for part in codes.split(", ")]
    raised = {kind.exit_code for kind in every_error()}
    assert raised | {0, 1, 2, 3, 4, 70, 74, 130, 141} == set(numbers)


def every_error() -> list[type[DispatchLabError]]:
    """Every error that a command may end with."""
    for path in (ROOT / "dispatchlab").rglob("*.py"):
        if "DispatchLabError" in path.read_text(encoding="utf-8") and "__pycache__" not in path.parts:
            with suppress(ImportError):  # of what an extra brings
                importlib.import_module(
                    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
                )
    found, kinds = [DispatchLabError], list[type[DispatchLabError]]()
    while found:
        kind = found.pop()
        kinds.append(kind)
        found += kind.__subclasses__()
    return [kind for kind in kinds if kind.__module__.startswith("dispatchlab.")]


def test_the_version_is_that_of_the_package() -> None:
    assert CliRunner().invoke(main, ["--version"]).stdout == f"dispatchlab, version {__version__}\n"


def test_the_json_schema_requires_a_claim_and_registrations() -> None:
    result = CliRunner().invoke(main, ["schema"])
    schema = json.loads(result.stdout)
    assert result.exit_code == 0
    assert set(schema["required"]) == {"claim", "registrations"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_for_their_shell(shell: str) -> None:
    result = CliRunner().invoke(main, [], prog_name="dispatchlab", env={"_DISPATCHLAB_COMPLETE": f"{shell}_source"})
    assert result.exit_code == 0
    assert f"_DISPATCHLAB_COMPLETE={shell}_complete" in result.stdout
