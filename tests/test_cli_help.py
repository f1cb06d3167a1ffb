"""Help, its copy in docs/cli.md, completion and the schema."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from dispatchlab import __version__
from dispatchlab.cli import COMMANDS, main

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "cli.md"
HEAD = "# The command line\n\nMade from `--help`; `EXPECTTEST_ACCEPT=1 pytest tests/test_cli_help.py` writes it anew.\n"


def commands() -> list[str]:
    """Every command."""
    return sorted(COMMANDS)


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


def test_every_command_has_examples_and_every_option_is_explained() -> None:
    assert commands() == [
        "certify",
        "check",
        "codegen",
        "completion",
        "coverage",
        "demo",
        "diff",
        "doctor",
        "dump",
        "explain",
        "explore",
        "imports",
        "init",
        "lint",
        "permute",
        "profile",
        "readiness",
        "record",
        "schema",
        "trace",
    ]
    for name in commands():
        assert f"Examples:\n    dispatchlab {name}" in help_of(name) or 'Examples:\n    eval "' in help_of(name)
        for parameter in command(name).params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"{name} {parameter.name}"


def test_every_line_of_the_list_of_commands_fits_and_no_command_is_named_otherwise() -> None:
    for name, line in COMMANDS.items():
        assert command(name).name == name
        assert f"  {name:<10}  {line}\n" in help_of()
    assert "No such command 'nothing'" in CliRunner().invoke(main, ["nothing"]).stderr
    assert "No such command 'permut'. Did you mean 'permute'?" in CliRunner().invoke(main, ["permut"]).stderr


def test_the_version_is_that_of_the_package() -> None:
    assert CliRunner().invoke(main, ["--version"]).stdout == f"dispatchlab, version {__version__}\n"


def test_the_json_schema_requires_a_claim_and_registrations() -> None:
    result = CliRunner().invoke(main, ["schema"])
    schema = json.loads(result.stdout)
    assert result.exit_code == 0
    assert set(schema["required"]) == {"claim", "registrations"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_for_their_shell(shell: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert f"_DISPATCHLAB_COMPLETE={shell}_complete" in result.stdout
