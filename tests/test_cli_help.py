"""Help, its copy in docs/cli.md, completion and the schema."""

from __future__ import annotations

import importlib
import json
import os
import re
from contextlib import suppress
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from dispatchlab import __version__
from dispatchlab.cli import COMMANDS, GROUPS, main
from dispatchlab.errors import DispatchLabError

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
        "defects",
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


def test_every_command_is_in_one_group_of_the_help() -> None:
    grouped = [name for names in GROUPS.values() for name in names if name in COMMANDS]
    assert sorted(grouped) == commands()


@pytest.mark.parametrize("name", commands())
def test_the_short_help_has_the_examples_and_every_option_and_ends_before_the_whole_one(name: str) -> None:
    result = CliRunner().invoke(main, [name, "-h"], prog_name="dispatchlab", terminal_width=80)
    assert result.exit_code == 0
    short, whole = result.stdout, help_of(name)
    assert len(short) <= len(whole) + len(f"\nEverything: dispatchlab {name} --help\n")
    assert short.endswith(f"\nEverything: dispatchlab {name} --help\n")
    assert "Examples:\n    " in short
    for option in command(name).params:
        if isinstance(option, click.Option) and not option.hidden:
            assert option.opts[0] in short


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_word_of_a_help_is_broken(width: int) -> None:
    texts = [CliRunner().invoke(main, [name, "--help"], terminal_width=width).stdout for name in commands()]
    lines = [line.rstrip() for text in texts for line in text.splitlines()]
    assert len(lines) > 500
    assert [line for line in lines if line.endswith("-")] == []


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
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert f"_DISPATCHLAB_COMPLETE={shell}_complete" in result.stdout
